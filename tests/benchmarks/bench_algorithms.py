"""Every algorithm on one R-MAT graph: processor and wall time of an epoch, waiting, bytes and messages sent, memory.

    python tests/benchmarks/bench_algorithms.py [--scale small|full] [--ranks 1,2,4] [--modes saved,plain,shallow]
                                                [--precision float32|bf16] [--algorithms NAME,...] [--catalog FOLDER]
                                                [--data FOLDER] [--folder FOLDER] [--only-trainings]

128 features, three layers of width 128, 32 classes, one thread per rank. p2p runs on the default partition, the others
on grid shards with the double permutation and the most even grid. `saved` enables every exact saving; `plain` trains as
the papers do: (A H) W in every layer, with the first product computed in every epoch; `shallow` is `plain` with two
layers. Processor time and wall time are those of the rank with the most, medians over the epochs after the second;
exposed are the seconds in which a rank only waits. Prints a table, then lines ``RESULT name value unit``, and lines
``GOAL`` that say whether a goal is met; ratios are relative to p2p in the same mode. ``--catalog`` keeps the graph and
its shards for the next run.

Then reports the balance of grid shards and the cost of a permutation (see balance.py), unless ``--only-trainings``;
``--ranks none`` reports only these. With 2 ranks, it also reports how much of the transfer of a large halo, that of a
random partition, is hidden behind a product (see overlap_ranks.py).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from balance import report_balance, report_permutation
from graphs import catalog_in, generated, row_shards
from launching import ranks_of, train_ranks

import gnnloom
from gnnloom.trainer.algorithms.registry import ALGORITHMS
from gnnloom.trainer.config.train_config import TrainConfig

#: Scale of the graph, epochs, numbers of ranks, and modes.
SCALES = {"small": (11, 4, [2], ["saved", "shallow"]), "full": (17, 6, [1, 2, 4], ["saved", "plain", "shallow"])}
_PLAIN: Mapping[str, Any] = {"product_order": "propagate-first", "cache_input_product": False}
MODES: Mapping[str, Mapping[str, Any]] = {
    "saved": {"hidden": (128, 128)},
    "plain": {"hidden": (128, 128), **_PLAIN},
    "shallow": {"hidden": (128,), **_PLAIN},
}
#: Processor seconds per rank and epoch that an algorithm should take at most on four ranks at full scale, by mode.
GOALS = {"saved": dict.fromkeys(ALGORITHMS, 0.2) | {"p2p": 0.15}, "shallow": {"broadcast": 0.12, "summa": 0.2}}
HEADS = {
    "cpu s": ("processor", "s"),
    "wall s": ("wall", "s"),
    "exposed s": ("exposed", "s"),
    "MB sent": ("sent", "MB"),
    "messages": ("messages", "messages"),
    "MB peak": ("peak", "MB"),
    "MB load": ("load_peak", "MB"),
    "MB read": ("read", "MB"),
    "cpu x": ("processor_over_p2p", "x"),
    "bytes x": ("sent_over_p2p", "x"),
}


def main() -> None:
    options = _options()
    scale, epochs, ranks, modes = SCALES[options.scale]
    options.ranks = ranks if options.ranks is None else options.ranks
    options.modes = options.modes or modes
    with catalog_in(options.catalog, options.folder) as catalog:
        if options.ranks:
            _train_all(options, catalog, scale, epochs)
        if not options.only_trainings:
            small = options.scale == "small"
            report_balance(catalog, options.data, 200 if small else 1000)
            report_permutation(1 << (18 if small else 24))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--ranks", type=_numbers, help="numbers of ranks, or none [default: 2 small, 1,2,4 full]")
    parser.add_argument("--modes", type=lambda text: text.split(","), help="[default: saved,shallow small, all full]")
    parser.add_argument("--algorithms", type=lambda text: text.split(","), default=list(ALGORITHMS))
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32")
    parser.add_argument("--only-trainings", action="store_true", help="leave out the balance and the permutation")
    parser.add_argument("--catalog", type=Path, help="folder that keeps the graphs [default: a temporary one]")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with the real graphs")
    parser.add_argument("--folder", type=Path, help="folder for the temporary catalog [default: the system's]")
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [] if text == "none" else [int(item) for item in text.split(",")]


def _train_all(options: argparse.Namespace, catalog: Path, scale: int, epochs: int) -> None:
    dataset = generated(catalog, f"rmat-{scale}", "rmat", scale=scale, edge_factor=16)
    # Ranks of the even grids divide the blocks.
    grid = gnnloom.shard(dataset, grid=(16, 16), permutation="double", workers=0).artifact.key
    for ranks in options.ranks:
        rows = row_shards(dataset, ranks)
        for mode in options.modes:
            found = {}
            for name in options.algorithms:
                shards = rows if ALGORITHMS[name].reads.name == "row" else grid
                config = TrainConfig.of(
                    catalog=str(catalog), dataset=dataset.name, shards=shards, ranks=ranks, algorithm=name,
                    precision=options.precision, epochs=epochs, eval_every=0, threads=1,
                    run=f"{name}-{ranks}-{mode}-{options.precision}", **MODES[mode],
                )  # fmt: skip
                found[name] = _figures(train_ranks(config, {}))
            _report(f"{ranks} ranks, {mode}, {options.precision}", f"{ranks}_{mode}_{options.precision}", found)
            if options.scale == "full" and ranks == 4:
                _report_goals(mode, found)
        if ranks == 2:
            _report_overlap(catalog, dataset, options.precision)


def _figures(given: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a training, by the names of its results; memory and bytes in MB."""
    result = given["result"]
    return {
        "grid": result["grid"],
        "processor": given["busiest"],
        "wall": given["wall"],
        "exposed": result["exposed_seconds"],
        "sent": result["bytes_sent"] / 1e6,
        "messages": result["messages_sent"],
        "peak": max(result["peak_memory"]) / 1e6,
        "load_peak": max(result["load_peak_memory"]) / 1e6,
        "read": max(result["bytes_read"]) / 1e6,
    }


def _report(title: str, key: str, found: Mapping[str, dict[str, Any]]) -> None:
    print(f"\n{title}; slowest or largest rank; bytes and messages of all ranks")
    print(f"{'':12}{'grid':>10}" + "".join(f"{head:>10}" for head in HEADS))
    base, lines = found.get("p2p"), []
    for name, figures in found.items():
        if base is not None:
            # One rank sends nothing.
            ratios = {each: figures[each] / base[each] if base[each] else 1.0 for each in ("processor", "sent")}
            figures |= {f"{each}_over_p2p": ratio for each, ratio in ratios.items()}
        shown = [figures.get(figure) for figure, _ in HEADS.values()]
        cells = ("" if number is None else f"{number:.3f}" for number in shown)
        print(f"{name:12}{'x'.join(map(str, figures['grid'])):>10}" + "".join(f"{cell:>10}" for cell in cells))
        lines += [
            f"RESULT algorithms_{name}_{key}_{figure} {number:.4g} {unit}"
            for number, (figure, unit) in zip(shown, HEADS.values(), strict=True)
            if number is not None
        ]
    print("\n".join(lines), flush=True)


def _report_goals(mode: str, found: Mapping[str, Mapping[str, Any]]) -> None:
    for name, most in GOALS.get(mode, {}).items():
        if name in found:
            seconds = found[name]["processor"]
            met = "met" if seconds <= most else "not met"
            print(
                f"GOAL {name}, 4 ranks, {mode}: {seconds:.3f} processor s per rank and epoch ({met}); at most {most} s"
            )
    sys.stdout.flush()


def _report_overlap(catalog: Path, dataset: gnnloom.Dataset, precision: str) -> None:
    """How much of the transfer of a random partition's halo is hidden, on two ranks with one thread each."""
    shards = row_shards(dataset, 2, "random")
    config = TrainConfig.of(
        catalog=str(catalog), dataset=dataset.name, shards=shards, ranks=2, precision=precision, threads=1
    )
    found = ranks_of("overlap_ranks.py", config, {}, ["128", "15"])
    print(f"\n2 ranks, random partition, width 128, {precision}: seconds of the slower rank in which it only waits")
    ways = ("alone", "exposed", "unaided", "before")
    print(" " * 12 + "".join(f"{name:>12}" for name in ways))
    print("only waiting" + "".join(f"{found[name]:12.4f}" for name in ways))
    print("the whole   " + "".join(f"{found[f'{name} whole']:12.4f}" for name in ways))
    print(f"RESULT algorithms_overlap_{precision}_gain {found['before whole'] / found['exposed whole']:.3g} x")
    for name in ("hidden", "hidden_unaided"):
        print(f"RESULT algorithms_overlap_{precision}_{name} {found[name]:.3g} x")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
