"""Trainings on as many ranks as this machine can hold give the losses of one rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnnloom.storage import Catalog
from gnnloom.trainer.config.train_config import TrainConfig
from support.mpi import train_all
from support.problems import problem
from support.tolerance import assert_close

RANKS = 64
PROBLEM = problem("graph", 2000, 16_000, symmetric=False)
GRIDS: dict[str, tuple[int, ...]] = {
    "p2p": (64,), "broadcast": (64,), "replicated": (8, 8), "summa": (8, 8), "split3d": (4, 4, 4),
    "tensor3d": (4, 4, 4),
}  # fmt: skip


def _config(catalog: Catalog, algorithm: str, ranks: int) -> TrainConfig:
    fixed: dict[str, Any] = {"hidden": (16, 16), "epochs": 3, "precision": "float64", "threads": 1}
    run = f"{algorithm}-{ranks}"
    return TrainConfig.of(
        catalog=str(catalog.root), dataset="graph", run=run, algorithm=algorithm, ranks=ranks, **fixed
    )


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("algorithm", GRIDS)
def test_sixty_four_ranks_have_the_losses_of_one(tmp_path: Path, algorithm: str) -> None:
    catalog = Catalog(tmp_path / "catalog")
    if algorithm == "p2p":
        PROBLEM.store(catalog, 1, RANKS)
    else:
        PROBLEM.store_grid(catalog, "double")
    (alone,) = train_all(tmp_path, [_config(catalog, algorithm, 1)])
    (together,) = train_all(tmp_path, [_config(catalog, algorithm, RANKS)], timeout=900)
    assert tuple(together["grid"]) == GRIDS[algorithm]
    assert_close(together["loss"], alone["loss"], steps=3 * len(alone["loss"]))
