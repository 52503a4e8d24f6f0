"""Every algorithm on one R-MAT graph at 2 and 4 ranks: epoch time, bytes and messages sent, memory, bytes read.

    python tests/benchmarks/bench_algorithms.py [--scale small|full] [--ranks 2,4] [--modes plain,saved]
                                                [--precision float32|bf16] [--data FOLDER] [--folder FOLDER]

128 features, three layers of width 128, 32 classes, one thread per rank. p2p runs on a partition by Mt-KaHyPar, the
others on grid shards with the double permutation and the most even grid. `saved` enables every exact saving; `plain`
trains as the papers do: (A H) W in every layer, with the first product computed in every epoch. Prints a table, then
lines ``RESULT name value unit``; ratios are relative to p2p in the same mode. Then reports the balance of grid shards
and the cost of a permutation (see balance.py); ``--ranks none`` reports only these. With 2 ranks, it also reports how
much of the transfer of a large halo, that of a random partition, is hidden behind a product (see overlap_ranks.py).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from balance import report_balance, report_permutation

from gnnloom.trainer.algorithms.registry import ALGORITHMS
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import find_mpiexec, rank_environment

DATASET = "web"
SCALES = {"small": (11, 3), "full": (17, 8)}
MODES = {"saved": (), "plain": ("--product-order", "propagate-first", "--no-cache-input-product")}
HEADS = ("grid", "epoch s", "exposed s", "MB sent", "messages", "MB peak", "MB load", "MB read", "epoch x", "bytes x")


def main() -> None:
    options = _options()
    scale, epochs = SCALES[options.scale]
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-algorithms-") as folder:
        _prepare(folder, scale, options.ranks)
        for ranks in options.ranks:
            for mode in options.modes:
                found = {name: _train(folder, name, ranks, epochs, mode, options.precision) for name in ALGORITHMS}
                _report(scale, ranks, mode, found)
        if 2 in options.ranks:
            _report_overlap(folder, options.precision)
        small = options.scale == "small"
        report_balance(partial(_gnnloom, folder), options.data, 200 if small else 1000)
        report_permutation(1 << (18 if small else 24))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--ranks", type=_numbers, default=[2, 4], help="comma-separated numbers of ranks, or none")
    parser.add_argument("--modes", type=lambda text: text.split(","), default=list(MODES))
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with the real graphs")
    parser.add_argument("--folder", type=Path, help="folder for temporary files [default: the system's]")
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [] if text == "none" else [int(item) for item in text.split(",")]


def _prepare(folder: str, scale: int, ranks: Sequence[int]) -> None:
    if not ranks:
        return
    _gnnloom(folder, "generate", DATASET, "rmat", "--scale", str(scale), "--edge-factor", "16")
    _gnnloom(folder, "features", DATASET, "random", "--dim", "128", "--classes", "32")
    for count in ranks:
        _gnnloom(folder, "partition", DATASET, "--parts", str(count))
        _gnnloom(folder, "shard", DATASET, "--parts", str(count))
    _gnnloom(folder, "shard", DATASET, "--grid", "16x16", "--permutation", "double")


def _train(folder: str, algorithm: str, ranks: int, epochs: int, mode: str, precision: str) -> dict[str, Any]:
    which = ("--algorithm", algorithm, "--ranks", str(ranks), "--run", f"{algorithm}-{ranks}-{mode}")
    where = (*which, "--precision", precision)
    fixed = ("--hidden", "128,128", "--epochs", str(epochs), "--eval-every", "0", "--threads", "1")
    return _gnnloom(folder, "train", DATASET, *where, *fixed, *MODES[mode])


def _report_overlap(folder: str, precision: str) -> None:
    """How much of the transfer of a random partition's halo is hidden, on two ranks with one thread each."""
    _gnnloom(folder, "partition", DATASET, "--parts", "2", "--method", "random")
    _gnnloom(folder, "shard", DATASET, "--parts", "2", "--method", "random")
    config = TrainConfig(catalog=folder, dataset=DATASET, ranks=2, method="random", precision=precision)
    program = [sys.executable, "-m", "mpi4py", str(Path(__file__).with_name("overlap_ranks.py"))]
    arguments = [json.dumps(config.to_json()), "128", "15"]
    command = [find_mpiexec(), "-n", "2", *program, *arguments]
    done = subprocess.run(command, env=rank_environment(2), capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"\n2 ranks, random partition, width 128, {precision}: seconds of the slower rank in which it only waits")
    print("".join(f"{name:>12}" for name in ("alone", "exposed", "unaided")))
    print("".join(f"{found[name]:12.4f}" for name in ("alone", "exposed", "unaided")))
    for name in ("hidden", "hidden_unaided"):
        print(f"RESULT algorithms_overlap_{precision}_{name} {found[name]:.3g} x")
    sys.stdout.flush()


def _gnnloom(folder: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "gnnloom.workflows.cli.main", "--catalog", folder, *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _figures(result: dict[str, Any], base: dict[str, Any]) -> tuple[float, ...]:
    return (
        result["epoch_seconds"],
        result["exposed_seconds"],
        result["bytes_sent"] / 1e6,
        result["messages_sent"],
        max(result["peak_memory"]) / 1e6,
        max(result["load_peak_memory"]) / 1e6,
        max(result["bytes_read"]) / 1e6,
        result["epoch_seconds"] / base["epoch_seconds"],
        result["bytes_sent"] / base["bytes_sent"],
    )


def _report(scale: int, ranks: int, mode: str, found: dict[str, dict[str, Any]]) -> None:
    print(f"\nR-MAT scale {scale}, {ranks} ranks, {mode}; slowest or largest rank; bytes and messages of all ranks")
    print(f"{'':12}" + "".join(f"{head:>10}" for head in HEADS))
    for name, result in found.items():
        figures = _figures(result, found["p2p"])
        grid = "x".join(map(str, result["grid"]))
        print(f"{name:12}{grid:>10}" + "".join(f"{figure:10.3f}" for figure in figures))
    for name, result in found.items():
        seconds, exposed, sent, messages, peak, load, read, slower, more = _figures(result, found["p2p"])
        prefix = f"RESULT algorithms_{name}_{ranks}_{mode}"
        print(f"{prefix}_epoch {seconds:.4g} s\n{prefix}_sent {sent:.4g} MB\n{prefix}_messages {messages:.0f} messages")
        print(f"{prefix}_exposed {exposed:.4g} s")
        print(f"{prefix}_peak {peak:.4g} MB\n{prefix}_load_peak {load:.4g} MB\n{prefix}_read {read:.4g} MB")
        print(f"{prefix}_epoch_over_p2p {slower:.3g} x\n{prefix}_sent_over_p2p {more:.3g} x")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
