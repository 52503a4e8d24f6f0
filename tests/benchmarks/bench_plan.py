"""The planner's forecasts against measured epochs: algorithms, grids, widths, data types, two graphs.

    python tests/benchmarks/bench_plan.py [--scale small|full] [--folder FOLDER]

Times are processor seconds of the busiest rank (medians over epochs), as other programs may use the machine; the
profile is measured with the same clock, in the same job. Prints a table, then lines ``RESULT name value unit``: the
rank correlation (Spearman) over all configurations and within each number of ranks, the *regret* (how much longer the
configuration that the planner picks takes than the fastest one of the same training), and the largest error of the
bytes, which must be 0.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

import gnnloom
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import find_mpiexec, rank_environment
from gnnloom.trainer.planner.candidates import make_plans
from gnnloom.trainer.planner.profile import MachineProfile
from gnnloom.trainer.planner.stored import situation_of

#: Vertices and edges of the block model, scale of the R-MAT graph, epochs, and scale of the calibration.
SCALES = {"small": (12_000, 150_000, 12, 5, 0.2), "full": (150_000, 2_500_000, 17, 7, 1.0)}
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
MODELS: tuple[dict[str, Any], ...] = (
    {"hidden": (16,)},
    {"hidden": (128, 128)},
    {"hidden": (64, 64), "precision": "float64"},
)


@dataclass(frozen=True)
class Row:
    """One configuration, predicted and measured."""

    config: TrainConfig
    predicted: float
    seconds: float
    predicted_bytes: int
    bytes: int
    predicted_peak: int
    peak: int

    @property
    def training(self) -> tuple[str, tuple[int, ...], int]:
        return self.config.dataset, self.config.hidden, self.config.ranks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--folder", type=Path, help="folder for temporary files [default: the system's]")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="bench-plan-") as folder:
        catalog = Path(folder, "catalog")
        _prepare(catalog, given.scale)
        report([row for ranks in GRIDS for row in _rows(catalog, ranks, given.scale)])


def _prepare(catalog: Path, scale: str) -> None:
    vertices, edges, size, *_ = SCALES[scale]
    blocks: dict[str, Any] = {"vertices": vertices, "edges": edges, "classes": 16, "dim": 64}
    graphs = [
        gnnloom.generate("blocks", "sbm", catalog=catalog, workers=0, **blocks),
        gnnloom.generate("skewed", "rmat", catalog=catalog, workers=0, scale=size, edge_factor=16),
    ]
    gnnloom.features(graphs[1], "random", catalog=catalog, workers=0, dim=64, classes=16)
    for dataset in graphs:
        for ranks in GRIDS:
            gnnloom.partition(dataset, parts=ranks, method="random" if ranks == 1 else "auto", workers=0)
            gnnloom.shard(dataset, parts=ranks, workers=0)
        gnnloom.shard(dataset, grid=(4, 4), permutation="double", workers=0)


def _rows(catalog: Path, ranks: int, scale: str) -> Iterable[Row]:
    """Train every configuration of some number of ranks in one job, and predict it from the profile measured there."""
    *_, epochs, calibration = SCALES[scale]
    configs = [
        TrainConfig(
            catalog=str(catalog), dataset=name, ranks=ranks, algorithm=algorithm, grid=grid, epochs=epochs,
            permutation="double", threads=1, eval_every=0,
            run=f"{algorithm}-{number}-{'x'.join(map(str, grid))}", **model,
        )
        for name in ("blocks", "skewed")
        for number, model in enumerate(MODELS)
        for algorithm, grid in GRIDS[ranks]
    ]  # fmt: skip
    given, result = catalog / "configs.json", catalog / f"result-{ranks}.json"
    given.write_text(json.dumps([config.to_json() for config in configs]))
    program = [sys.executable, "-m", "mpi4py", "tests/benchmarks/plan_ranks.py", str(given), str(result)]
    command = [find_mpiexec(), "-n", str(ranks), *program, str(calibration)]
    subprocess.run(command, check=True, env=rank_environment(ranks, 1))
    content = json.loads(result.read_text())
    profile = MachineProfile.from_json(content["profile"], "bench")
    for config, found in zip(configs, content["measured"], strict=True):
        situation = situation_of(gnnloom.Catalog(catalog).dataset(config.dataset))
        plans = make_plans(config, situation, profile, algorithms=[config.algorithm])
        plan = next(plan for plan in plans if plan.grid == list(config.grid or ()))
        sent = round(sum(plan.volume.bytes.values()))
        yield Row(config, plan.cost.total, found["seconds"], sent, found["bytes"], plan.peak_memory, int(found["peak"]))


def report(rows: list[Row]) -> None:
    """Print the table and the results."""
    print(
        f"{'graph':8} {'hidden':>8} {'ranks':>5} {'algorithm':10} {'grid':>6} {'predicted ms':>13} {'measured ms':>12}"
    )
    for row in rows:
        config = row.config
        shown = ",".join(map(str, config.hidden)), config.ranks, config.algorithm, "x".join(map(str, config.grid or ()))
        print(
            f"{config.dataset:8} {shown[0]:>8} {shown[1]:5} {shown[2]:10} {shown[3]:>6} {row.predicted * 1e3:13.2f}"
            f" {row.seconds * 1e3:12.2f}"
        )
    regrets = [_regret([row for row in rows if row.training == each]) for each in {row.training for row in rows}]
    ratios = [row.predicted / row.seconds for row in rows]
    print(f"RESULT configurations {len(rows)} -")
    print(f"RESULT rank_correlation {_correlation(rows):.3f} -")
    for ranks in GRIDS:
        print(f"RESULT rank_correlation_{ranks} {_correlation([r for r in rows if r.config.ranks == ranks]):.3f} -")
    print(f"RESULT regret_median {np.median(regrets):.3f} x")
    print(f"RESULT regret_largest {max(regrets):.3f} x")
    print(f"RESULT predicted_over_measured {np.median(ratios):.3f} x")
    print(f"RESULT bytes_wrong {sum(row.predicted_bytes != row.bytes for row in rows)} configurations")


def _correlation(rows: list[Row]) -> float:
    return float(spearmanr([row.predicted for row in rows], [row.seconds for row in rows]).statistic)


def _regret(rows: list[Row]) -> float:
    picked = min(rows, key=lambda row: row.predicted)
    return picked.seconds / min(row.seconds for row in rows) - 1


if __name__ == "__main__":
    main()
