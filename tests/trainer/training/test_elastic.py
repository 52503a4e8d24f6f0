"""A run goes on with other ranks, algorithms and grids, back and forth, and has the losses of one that stayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.runs.checkpoint import checkpoint_epochs, read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig
from support.mpi import train_all
from support.problems import problem
from support.tolerance import assert_close

Layout = tuple[str, tuple[int, ...]]

PROBLEM = problem("graph", 60, 240, symmetric=False)
#: Algorithm and grid of each part of the run: 4, 1, 3, 2, 3, 1 and 4 ranks.
MOVES: tuple[Layout, ...] = (
    ("tensor3d", (2, 1, 2)), ("p2p", (1,)), ("summa", (1, 3)), ("replicated", (2, 1)),
    ("p2p", (3,)), ("tensor3d", (1, 1, 1)), ("split3d", (1, 2, 2)),
)  # fmt: skip
#: Layouts of the quick test, on 1, 3, 2 and 4 ranks.
FEW_MOVES = (*MOVES[1:4], MOVES[6])
#: Epochs of each part.
EPOCHS = 2


def _config(catalog: Catalog, run: str, layout: Layout, epochs: int, *, trained: bool) -> TrainConfig:
    algorithm, grid = layout
    options: dict[str, Any] = {"algorithm": algorithm, "grid": grid, "ranks": int(np.prod(grid)), "epochs": epochs}
    options |= {"train_features": trained, "checkpoint_every": 1, "keep": 3, "keep_best": "val_accuracy"}
    options |= {"hidden": (9,), "precision": "float64", "dropout": 0.3, "threads": 1, "eval_every": 1}
    return TrainConfig.of(catalog=str(catalog.root), dataset="graph", run=run, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moves", "trained"),
    [
        pytest.param(FEW_MOVES, True, id="few-features"),
        pytest.param(MOVES, True, id="features", marks=pytest.mark.long),
        pytest.param(MOVES, False, id="weights", marks=pytest.mark.long),
    ],
)
def test_a_run_moves_between_layouts_and_back(tmp_path: Path, moves: tuple[Layout, ...], trained: bool) -> None:
    catalog = Catalog(tmp_path / "catalog")
    PROBLEM.store_grid(catalog, "double", grid=(3, 2))
    PROBLEM.store(catalog, 1, 3)
    total = EPOCHS * len(moves)
    straight = _config(catalog, "straight", moves[0], total, trained=trained)
    parts = [_config(catalog, "moved", layout, EPOCHS * part, trained=trained) for part, layout in enumerate(moves, 1)]
    # The same layout once more, in two parts.
    again = [_config(catalog, "again", moves[0], epochs, trained=trained) for epochs in (EPOCHS, total)]
    whole, *moved, _, resumed = train_all(tmp_path, [straight, *parts, *again])
    assert [result["ranks"] for result in moved] == [np.prod(grid) for _, grid in moves]
    assert resumed["loss"] == whole["loss"]
    assert_close(moved[-1]["loss"], whole["loss"], steps=total * 3)
    runs = {name: Run.open(catalog["graph"], name) for name in ("straight", "moved", "again")}
    expected, again_arrays = (read_checkpoint(runs[name].checkpoints).arrays for name in ("straight", "again"))
    assert all(np.array_equal(expected[name], again_arrays[name]) for name in expected)
    assert ("parameter/feature" in expected) == trained
    for run in runs.values():
        assert checkpoint_epochs(run.checkpoints) == [total - 2, total - 1, total]
        assert len(checkpoint_epochs(run.best_checkpoint)) == 1
        assert not list(run.checkpoints.glob("**/.*"))
