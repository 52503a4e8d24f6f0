"""Runs over grid shards move between layouts, read only their share, report where time goes and refuse bad grids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.errors import NotFoundError
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.algorithms.registry import ALGORITHMS
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import launch
from support.covering import FEW_OR_EVERY
from support.mpi import train_all
from support.problems import problem
from support.tolerance import ADAM_BITS, assert_close

#: They share training runs on several ranks.
pytestmark = pytest.mark.slow

SMALL = problem("graph", 60, 240, symmetric=False)
LARGE = problem("large", 4000, 300_000, symmetric=True)
CELLS = (6, 6)

#: Algorithm and grid that a training begins on, and those that it continues on.
MOVES = (
    ("tensor3d", (2, 1, 2), "summa", (1, 3)),
    ("replicated", (2, 2), "tensor3d", (1, 2, 2)),
    ("split3d", (1, 2, 2), "p2p", (3,)),
)
#: Algorithm, grid and model of the runs with a profile, and what they send.
PROFILED: dict[str, tuple[str, tuple[int, ...], dict[str, Any], str]] = {
    "profiled": ("tensor3d", (2, 2, 1), {}, "propagate backward"),
    "profiled-p2p": ("p2p", (3,), {}, "halo forward"),
    "profiled-gat": ("p2p", (3,), {"model": "gat", "hidden": (8, 8), "heads": 2}, "halo backward"),
    "profiled-sage": ("summa", (1, 3), {"model": "sage"}, "align forward"),
}


def _config(catalog: Catalog, run: str, algorithm: str, grid: tuple[int, ...], **options: Any) -> TrainConfig:
    fixed: dict[str, Any] = {
        "hidden": (9, 7),
        "epochs": 4,
        "precision": "float64",
        "dropout": 0.3,
        "threads": 1,
        "eval_every": 0,
    }
    where: dict[str, Any] = {"algorithm": algorithm, "grid": grid, "ranks": int(np.prod(grid)), "run": run}
    return TrainConfig.of(catalog=str(catalog.root), **{"dataset": "graph", **fixed, **where, **options})


class Results:
    """All runs of one MPI job, by name and whether they continued an earlier one.

    Attributes:
        moves: numbers of the moves that were made.
        profiled: names of the runs with a profile.
    """

    def __init__(self, folder: Path, *, every: bool) -> None:
        # One move, and a profile of a process grid and of neighbors, show the most.
        self.moves = range(len(MOVES) if every else 1)
        self.profiled = tuple(PROFILED) if every else ("profiled", "profiled-p2p")
        self.catalog = Catalog(folder / "catalog")
        SMALL.store_grid(self.catalog, "double", grid=(3, 2))
        SMALL.store(self.catalog, 3)
        LARGE.store_grid(self.catalog, "double", grid=CELLS)
        self.configs = self._moves() + self._large()
        for run in self.profiled:
            algorithm, grid, options, _ = PROFILED[run]
            self.configs.append(_config(self.catalog, run, algorithm, grid, epochs=2, profile=True, **options))
        self.of: dict[tuple[str | None, bool], dict[str, Any]] = {}
        for config, result in zip(self.configs, train_all(folder, self.configs), strict=True):
            self.of[config.run.name, (config.run.name, False) in self.of] = result

    def _moves(self) -> list[TrainConfig]:
        configs = []
        for number in self.moves:
            algorithm, grid, later, later_grid = MOVES[number]
            options: dict[str, Any] = {"train_features": True}
            configs.append(_config(self.catalog, f"whole-{number}", algorithm, grid, **options))
            configs.append(_config(self.catalog, f"moved-{number}", algorithm, grid, **{**options, "epochs": 2}))
            configs.append(_config(self.catalog, f"moved-{number}", later, later_grid, **options))
        return configs

    def _large(self) -> list[TrainConfig]:
        options: dict[str, Any] = {
            "dataset": "large",
            "hidden": (4,),
            "epochs": 1,
            "product_order": "propagate-first",
            "dropout": 0.0,
        }
        return [
            _config(self.catalog, "load-tensor3d", "tensor3d", (2, 1, 2), **options),
            _config(self.catalog, "load-broadcast", "broadcast", (3,), **options),
        ]


@pytest.fixture(scope="module", params=FEW_OR_EVERY)
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(tmp_path_factory.mktemp("runs"), every=request.param)


def test_a_checkpoint_continues_with_another_algorithm_on_another_grid(results: Results) -> None:
    for number in results.moves:
        _check_move(results, number)


def _check_move(results: Results, number: int) -> None:
    straight, moved = results.of[f"whole-{number}", False], results.of[f"moved-{number}", True]
    assert moved["algorithm"] == MOVES[number][2]
    assert_close(moved["loss"], straight["loss"], steps=10 * 3)
    whole, again = (
        read_checkpoint(Run.open(results.catalog["graph"], f"{run}-{number}").checkpoints).arrays
        for run in ("whole", "moved")
    )
    assert whole.keys() == again.keys()
    for name, array in whole.items():
        assert_close(again[name], array, steps=10 * 3, bits=ADAM_BITS)


def _stored(results: Results, path: str) -> int:
    """Bytes of the chunks of the arrays below a path of the large graph's shards."""
    root = results.catalog["large"].grid_shards().artifact.path / path
    return sum(file.stat().st_size for file in root.rglob("*") if file.is_file() and file.name != "zarr.json")


def _share(span: tuple[int, int], cells: int, cell: int) -> float:
    start, stop = split_range(4000, cells, cell)
    return max(0, min(stop, span[1]) - max(start, span[0])) / (stop - start)


def _window_bytes(results: Results, variant: str, rows: tuple[int, int], columns: tuple[int, int]) -> float:
    shares = {
        (row, column): _share(rows, CELLS[0], row) * _share(columns, CELLS[1], column)
        for row in range(CELLS[0])
        for column in range(CELLS[1])
    }
    return sum(
        share * _stored(results, f"grid/{variant}/{row:03d}/{column:03d}")
        for (row, column), share in shares.items()
        if share
    )


def _order_bytes(results: Results, order: str, span: tuple[int, int], names: tuple[str, ...]) -> float:
    return sum(
        _share(span, CELLS[0], row) * _stored(results, f"order/{order}/{row:03d}/{name}")
        for row in range(CELLS[0])
        for name in names
    )


def test_a_rank_reads_only_its_share(results: Results) -> None:
    """Two layers: the windows of both forward products and of the second backward product, and vertex data."""
    everything = (0, 4000)
    for rank, found in enumerate(results.of["load-broadcast", False]["bytes_read"]):
        mine = split_range(4000, 3, rank)
        exact = _window_bytes(results, "even", mine, everything) + _window_bytes(results, "odd", mine, everything)
        exact += _order_bytes(results, "columns", mine, ("feature", "label", "split", "degree"))
        exact += _order_bytes(results, "rows", mine, ("degree",))
        assert exact * 0.9 < found < 1.2 * exact
    for rank, found in enumerate(results.of["load-tensor3d", False]["bytes_read"]):
        x, z = (split_range(4000, 2, coordinate) for coordinate in divmod(rank, 2))
        exact = _window_bytes(results, "even", z, x) + _window_bytes(results, "odd", everything, z)
        exact += _window_bytes(results, "even", z, everything)
        exact += _order_bytes(results, "columns", split_range(4000, 4, rank), ("feature",))
        exact += _order_bytes(results, "columns", everything, ("label", "split", "degree"))
        exact += _order_bytes(results, "columns", x, ("degree",)) + _order_bytes(results, "rows", z, ("degree",))
        assert exact * 0.9 < found < 1.2 * exact


def test_a_profile_says_where_the_time_of_every_rank_goes(results: Results) -> None:
    for run in results.profiled:
        sends = PROFILED[run][-1]
        for line in Run.open(results.catalog["graph"], run).metrics():
            assert len(line["profile"]) == results.of[run, False]["ranks"]
            for kind, count in line["bytes"].items():
                assert sum(rank["bytes"].get(kind, 0) for rank in line["profile"]) == count
            for rank in line["profile"]:
                assert {"spmm", "gemm", "waiting", sends, "other"} <= rank["seconds"].keys(), run
                assert sum(rank["seconds"].values()) < 1.2 * line["seconds"] + 0.01


def test_a_grid_is_kept_in_json() -> None:
    config = TrainConfig.of(catalog="c", dataset="graph", ranks=4, algorithm="tensor3d", grid=(2, 1, 2))
    assert TrainConfig.of(**config.to_json()) == config
    assert config.run_name.startswith("gcn-tensor3d-2x1x2-")
    assert TrainConfig.of(**{**config.to_json(), "grid": None}).algorithm.grid is None


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "p2p"])
def test_missing_grid_shards_are_named_with_the_command_that_makes_them(results: Results, algorithm: str) -> None:
    config = _config(results.catalog, "none", algorithm, (1,) * len(ALGORITHMS[algorithm].axes), permutation="single")
    with pytest.raises(NotFoundError, match="gnnloom shard graph --grid 16x16 --permutation single"):
        launch(config)
