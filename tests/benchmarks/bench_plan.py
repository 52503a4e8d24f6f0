"""The planner's forecasts against measured epochs: algorithms, grids, widths, precisions, two graphs.

    python tests/benchmarks/bench_plan.py [--scale small|full] [--folder FOLDER] [--keep FILE | --measured FILE]

Times are processor seconds of the busiest rank (medians over epochs, and over rounds that go over all configurations in
turn), as other programs may use the machine; the profile is measured with the same clock, in the same job. Wall times
are shown too. Memory is what a training of its own reports, of its largest rank. ``--keep`` stores the measurements,
and ``--measured`` predicts them again without running anything.

Prints tables, then lines ``RESULT name value unit``: the rank correlation (Spearman) over all configurations and within
each number of ranks, each precision and each training, the *regret* (how much longer the configuration that the planner
picks takes than the fastest one of the same training), predicted over measured memory for each algorithm and precision
with the worst ratio, and the number of configurations whose bytes are not the counted ones, which must be 0.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import gnnloom
from gnnloom.trainer.algorithms.workload import Exchange
from gnnloom.trainer.comm.transports.mpi import find_mpiexec
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import launch, rank_environment
from gnnloom.trainer.planner.candidates import Plan, Situation, fastest_first, make_plans
from gnnloom.trainer.planner.describe import GraphFacts
from gnnloom.trainer.planner.law import KnownPartition
from gnnloom.trainer.planner.profile import MachineProfile
from gnnloom.trainer.planner.stored import situation_of


@dataclass(frozen=True)
class Scale:
    """Sizes of the benchmark.

    Attributes:
        vertices, edges: of the block model.
        size: of the R-MAT graph.
        calibration: scale of the calibration.
    """

    vertices: int
    edges: int
    size: int
    epochs: int
    rounds: int
    calibration: float


SCALES = {"small": Scale(12_000, 150_000, 12, 5, 1, 0.1), "full": Scale(60_000, 900_000, 15, 5, 5, 0.3)}
GRIDS: dict[int, tuple[tuple[str, tuple[int, ...]], ...]] = {
    1: (("p2p", (1,)), ("broadcast", (1,)), ("tensor3d", (1, 1, 1))),
    2: (("p2p", (2,)), ("broadcast", (2,)), ("summa", (1, 2)), ("tensor3d", (2, 1, 1)), ("tensor3d", (1, 2, 1))),
    4: (
        ("p2p", (4,)),
        ("broadcast", (4,)),
        ("replicated", (2, 2)),
        ("summa", (2, 2)),
        ("split3d", (2, 1, 2)),
        ("tensor3d", (2, 1, 2)),
        ("tensor3d", (2, 2, 1)),
    ),
}
WIDE: dict[str, Any] = {"hidden": (128, 128)}
#: The trainings: a graph and a model.
TRAININGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("blocks", {"hidden": (16,)}),
    ("blocks", WIDE),
    ("skewed", WIDE),
    ("skewed", {**WIDE, "precision": "bf16"}),
)
#: A rank correlation of fewer plans says nothing.
FEWEST_PLANS = 5
#: Numbers of the trainings whose epochs are split by kind, and whose memory is measured.
SPLIT, MEMORY = (2,), (2, 3)


@dataclass(frozen=True)
class Row:
    """One configuration, predicted and measured.

    Attributes:
        seconds: processor seconds of every round.
        wall: wall seconds of every round, which on a shared machine are those of other programs too.
        peak: 0 if it was not measured.
        split: seconds by kind; empty if they were not measured.
    """

    config: TrainConfig
    plan: Plan
    seconds: list[float]
    bytes: int
    peak: int
    split: Mapping[str, float]
    wall: list[float]

    @property
    def training(self) -> tuple[str, tuple[int, ...], str, int]:
        return (
            self.config.data.dataset,
            self.config.model.hidden,
            self.config.model.precision,
            self.config.algorithm.ranks,
        )

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def name(self) -> str:
        grid = "x".join(map(str, self.config.algorithm.grid or ()))
        return f"{self.config.algorithm.name} {grid}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--folder", type=Path, help="folder for temporary files [default: the system's]")
    parser.add_argument("--keep", type=Path, help="file for the measurements")
    parser.add_argument("--measured", type=Path, help="measurements to predict again")
    given = parser.parse_args()
    if given.measured is not None:
        report(_rows(json.loads(given.measured.read_text())))
        return
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="bench-plan-") as folder:
        catalog, scale = Path(folder, "catalog"), SCALES[given.scale]
        _prepare(catalog, scale)
        report(_rows(_measure(catalog, scale, given.keep)))


def _prepare(catalog: Path, scale: Scale) -> None:
    blocks: dict[str, Any] = {"vertices": scale.vertices, "edges": scale.edges, "classes": 16, "dim": 64}
    graphs = [
        gnnloom.generate("blocks", "sbm", catalog=catalog, workers=0, **blocks),
        gnnloom.generate("skewed", "rmat", catalog=catalog, workers=0, scale=scale.size, edge_factor=16),
    ]
    gnnloom.features(graphs[1], "random", catalog=catalog, workers=0, dim=64, classes=16)
    for dataset in graphs:
        for ranks in GRIDS:
            gnnloom.partition(dataset, parts=ranks, method="random" if ranks == 1 else "auto", workers=0)
            gnnloom.shard(dataset, parts=ranks, workers=0)
        gnnloom.shard(dataset, grid=(4, 4), permutation="double", workers=0)


def _measure(catalog: Path, scale: Scale, keep: Path | None) -> dict[str, Any]:
    """Everything that is measured, and what the planner knows beforehand, as JSON."""
    situations = {name: asdict(situation_of(gnnloom.Catalog(catalog).dataset(name))) for name in ("blocks", "skewed")}
    content: dict[str, Any] = {"situations": situations, "jobs": []}
    for ranks in GRIDS:
        content["jobs"].append(_measure_job(catalog, ranks, scale))
        if keep is not None:
            keep.write_text(json.dumps(content))
    return content


def _measure_job(catalog: Path, ranks: int, scale: Scale) -> dict[str, Any]:
    """Train every configuration of some number of ranks: all in one job for their times, each alone for its memory."""
    numbers, configs = [], []
    for number, (dataset, model) in enumerate(TRAININGS):
        for algorithm, grid in GRIDS[ranks]:
            config = TrainConfig.of(
                catalog=str(catalog), dataset=dataset, ranks=ranks, algorithm=algorithm, grid=grid,
                epochs=scale.epochs, permutation="double", threads=1, eval_every=0,
                profile=number in SPLIT and ranks > 1, run=f"{algorithm}-{number}-{'x'.join(map(str, grid))}", **model,
            )  # fmt: skip
            numbers.append(number)
            configs.append(config)
    content = _timed(catalog, ranks, configs, scale)
    for number, config, found in zip(numbers, configs, content["measured"], strict=True):
        found["config"] = config.to_json()
        if number in MEMORY:
            alone = config.with_options(run=f"memory-{config.run.name}", profile=False, epochs=2)
            found["peak"] = max(launch(alone, restart=True)["peak_memory"])
    return content


def _timed(catalog: Path, ranks: int, configs: list[TrainConfig], scale: Scale) -> dict[str, Any]:
    """The profile of the machine, and what the epochs of each configuration take, measured in one job."""
    given, result = catalog / "configs.json", catalog / f"result-{ranks}.json"
    given.write_text(json.dumps([config.to_json() for config in configs]))
    ranks_program = Path(__file__).with_name("plan_ranks.py")
    program = [sys.executable, "-m", "mpi4py", str(ranks_program), str(given), str(result)]
    command = [find_mpiexec(), "-n", str(ranks), *program, str(scale.calibration), str(scale.rounds)]
    subprocess.run(command, check=True, env=rank_environment(ranks, 1))
    content: dict[str, Any] = json.loads(result.read_text())
    return content


def _rows(content: Mapping[str, Any]) -> list[Row]:
    """Predict what was measured, each configuration from the profile of its job."""
    situations = {name: _situation(each) for name, each in content["situations"].items()}
    return list(_predicted(content["jobs"], situations))


def _predicted(jobs: Iterable[Mapping[str, Any]], situations: Mapping[str, Situation]) -> Iterable[Row]:
    for job in jobs:
        profile = MachineProfile.from_json(job["profile"], "bench")
        for found in job["measured"]:
            config = TrainConfig.of(**found["config"])
            plans = make_plans(config, situations[config.data.dataset], profile, algorithms=[config.algorithm.name])
            plan = next(plan for plan in plans if plan.grid == list(config.algorithm.grid or ()))
            peak, split = int(found.get("peak", 0)), found.get("split", {})
            yield Row(config, plan, found["rounds"], found["bytes"], peak, split, found.get("wall", []))


def _situation(content: Mapping[str, Any]) -> Situation:
    partitions = [
        KnownPartition(
            **{**each, "exchange": Exchange(**each["exchange"]), "exchange_back": Exchange(**each["exchange_back"])}
        )
        for each in content["partitions"]
    ]
    return Situation(GraphFacts(**content["graph"]), partitions, content["grid_heaviest"])


def report(rows: list[Row]) -> None:
    """Print the tables and the results."""
    _print_times(rows)
    _print_splits([row for row in rows if row.split])
    regrets = {each: _regret([row for row in rows if row.training == each]) for each in {row.training for row in rows}}
    worst = max(regrets, key=lambda each: regrets[each])
    print(f"largest regret: {worst}")
    print(f"RESULT configurations {len(rows)} -")
    print(f"RESULT rank_correlation {_correlation(rows):.3f} -")
    for ranks in GRIDS:
        chosen = [row for row in rows if row.config.algorithm.ranks == ranks]
        print(f"RESULT rank_correlation_{ranks} {_correlation(chosen):.3f} -")
    for precision in ("float32", "bf16"):
        chosen = [row for row in rows if row.config.model.precision == precision]
        print(f"RESULT rank_correlation_{precision} {_correlation(chosen):.3f} -")
    # Only plans of one training are ever compared by a user. Three plans have too few orders for a correlation.
    orders = {
        each: _correlation(chosen)
        for each in regrets
        if len(chosen := [row for row in rows if row.training == each]) >= FEWEST_PLANS
    }
    for (dataset, hidden, precision, ranks), order in sorted(orders.items()):
        print(f"{dataset}, {','.join(map(str, hidden))}, {precision}, {ranks} ranks: rank correlation {order:.2f}")
    print(f"RESULT rank_correlation_median_of_trainings {np.median(list(orders.values())):.3f} -")
    print(f"RESULT rank_correlation_lowest_of_trainings {min(orders.values()):.3f} -")
    print(f"RESULT regret_median {np.median(list(regrets.values())):.3f} x")
    print(f"RESULT regret_largest {max(regrets.values()):.3f} x")
    print(f"RESULT predicted_over_measured {np.median([row.plan.cost.total / row.median for row in rows]):.3f} x")
    print(f"RESULT bytes_wrong {sum(_sent(row) != row.bytes for row in rows)} configurations")
    _print_memory([row for row in rows if row.peak])


def _print_times(rows: list[Row]) -> None:
    print(
        f"{'graph':7} {'hidden':>8} {'precision':>9} {'ranks':>5} {'plan':18} {'predicted ms':>12} {'measured ms':>12}"
        f" {'spread':>6} {'wall ms':>9}"
    )
    for row in rows:
        config, spread = row.config, max(row.seconds) / min(row.seconds) - 1
        hidden, wall = ",".join(map(str, config.model.hidden)), statistics.median(row.wall or [math.nan])
        print(
            f"{config.data.dataset:7} {hidden:>8} {config.model.precision:>9} {config.algorithm.ranks:5} {row.name:18}"
            f" {row.plan.cost.total * 1e3:12.2f} {row.median * 1e3:12.2f} {spread:6.0%}"
            f" {wall * 1e3:9.1f}"
        )


def _print_splits(rows: list[Row]) -> None:
    """Milliseconds of an epoch by kind, predicted / measured."""
    for row in rows:
        cost = row.plan.cost
        predicted = {"spmm": cost.spmm, "gemm": cost.gemm, **cost.communication, "waiting": cost.waiting}
        kinds = [kind for kind in (*predicted, *row.split) if max(predicted.get(kind, 0), row.split.get(kind, 0)) > 0]
        shown = ", ".join(
            f"{kind} {predicted.get(kind, 0) * 1e3:.1f} / {row.split.get(kind, 0) * 1e3:.1f}"
            for kind in dict.fromkeys(kinds)
        )
        # What a profile does not time by a kind is the rest of the wall time, and so says nothing here.
        rest = f"passes {cost.passes * 1e3:.1f} / -, hidden {cost.hidden * 1e3:.1f} / -"
        print(f"{row.config.data.dataset:7} {row.config.algorithm.ranks} {row.name:18} {shown}, {rest}")


def _print_memory(rows: list[Row]) -> None:
    for name, precision in dict.fromkeys((row.config.algorithm.name, row.config.model.precision) for row in rows):
        chosen = [row for row in rows if (row.config.algorithm.name, row.config.model.precision) == (name, precision)]
        ratios = [row.plan.peak_memory / row.peak for row in chosen]
        worst = max(ratios, key=lambda ratio: max(ratio, 1 / ratio))
        print(f"RESULT memory_{name}_{precision} {np.median(ratios):.3f} x")
        print(f"RESULT memory_{name}_{precision}_worst {worst:.3f} x")


def _sent(row: Row) -> int:
    return round(sum(row.plan.volume.bytes.values()))


def _correlation(rows: list[Row]) -> float:
    # Imported here because a test imports this module, and `scipy.stats` takes a second to load.
    from scipy.stats import spearmanr

    return float(spearmanr([row.plan.cost.total for row in rows], [row.median for row in rows]).statistic)


def _regret(rows: list[Row]) -> float:
    first = fastest_first([row.plan for row in rows])[0]
    picked = next(row for row in rows if row.plan is first)
    return picked.median / min(row.median for row in rows)


if __name__ == "__main__":
    main()
