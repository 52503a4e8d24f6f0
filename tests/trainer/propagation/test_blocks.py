"""Columns of products do not depend on how many are multiplied at a time; files of columns hold what was written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.propagated import COLUMNS, Propagated, facts_of
from gnnloom.storage.errors import BudgetError, DamagedWorkError, InputError
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.propagation import column_store
from gnnloom.trainer.propagation.adjacency_product import AdjacencyProduct
from gnnloom.trainer.propagation.column_store import ColumnStore, consecutive
from gnnloom.trainer.propagation.memory import BASE_BYTES, MemoryPlan, RankSizes, peak_of, plan_memory, rank_sizes
from gnnloom.trainer.propagation.source_rows import FeatureRows, LabelRows, SourceColumns
from gnnloom.trainer.propagation.stage import Clock, propagate_blocks
from gnnloom.trainer.propagation.steps import Propagation
from gnnloom.trainer.propagation.stored_steps import task_of
from support.covering import few_of
from support.graphs import random_adjacency
from support.lone import LoneCommunicator
from support.problems import Problem
from support.propagated import reference_steps

NUM_VERTICES, WIDTH = 900, 5 * COLUMNS + 3
FLOAT32 = float(np.finfo(np.float32).eps)


def problem_of(*, symmetric: bool = True, weighted: bool = False) -> Problem:
    rng = np.random.default_rng(5)
    adjacency = random_adjacency(NUM_VERTICES, 9000, 2, symmetric=symmetric)
    if weighted:
        adjacency.data = rng.uniform(0.1, 2.0, adjacency.nnz).astype(np.float32).astype(np.float64)
    feature = rng.standard_normal((NUM_VERTICES, WIDTH)).astype(np.float32)
    label, split = rng.integers(-1, 3, NUM_VERTICES), rng.integers(0, 4, NUM_VERTICES)
    return Problem("blocks", adjacency, symmetric, feature, label, split, weighted=weighted)


def no_stop() -> bool:
    return False


def run(
    catalog: Catalog,
    problem: Problem,
    what: Propagation,
    width: int,
    *,
    on_disk: bool = False,
    threads: int = 1,
    name: str = "once",
) -> Propagated:
    """Propagate the features in this process, and store the steps under a name."""
    dataset = problem.store(catalog, 1) if problem.name not in catalog else catalog[problem.name]
    shard = dataset.row_shards(1).shard(0, on_disk=on_disk)
    blocks = -(-WIDTH // COLUMNS)
    parameters = {"of": "feature", "steps": what.steps, "normalization": what.normalization, "ppr": what.teleport}
    inputs = {"graph": shard.shards.artifact.inputs["graph"], "name": name}
    with ArtifactWriter.begin(dataset.path, "propagated", parameters, inputs) as writer:
        plan = MemoryPlan(on_disk, width, blocks, 0)
        comm, place = LoneCommunicator(), Place(num_threads=threads)
        assert propagate_blocks(comm, shard, FeatureRows(shard), writer, what, plan, place, no_stop, Clock())
        tasks = [task_of(block) for block in range(blocks)]
        return Propagated(writer.commit(tasks, {"vertex": NUM_VERTICES}, facts_of(WIDTH, what.stored)))


@pytest.mark.parametrize(
    ("normalization", "teleport", "symmetric", "weighted"),
    few_of(
        ["symmetric", "mean", "none"],
        [None, 0.15],
        [pytest.param(True, False), pytest.param(False, False), pytest.param(False, True)],
        together=2,
    ),
)
def test_steps_equal_those_of_scipy(
    catalog: Catalog, normalization: str, teleport: float | None, symmetric: bool, weighted: bool
) -> None:
    problem = problem_of(symmetric=symmetric, weighted=weighted)
    what = Propagation(3, normalization, teleport)
    found = run(catalog, problem, what, width=2)
    expected = reference_steps(problem.adjacency, problem.feature, 3, normalization, teleport)
    assert found.steps == ((1, 2, 3) if teleport is None else (3,))
    most = int(np.diff(problem.adjacency.indptr).max())
    for step in found.steps:
        scale = reference_steps(problem.adjacency, np.abs(problem.feature), step, normalization, teleport)[-1]
        # A sum of d terms in float32, step after step: relative to the sum of the absolute values.
        error = np.abs(found.read(step) - expected[step - 1]) / scale
        assert error.max() < 2 * step * FLOAT32 * np.sqrt(most)


@pytest.mark.slow
@pytest.mark.parametrize("teleport", [None, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_bytes_do_not_depend_on_memory_threads_or_the_place_of_the_adjacency(
    catalog: Catalog, weighted: bool, teleport: float | None
) -> None:
    problem, what = problem_of(symmetric=False, weighted=weighted), Propagation(2, "symmetric", teleport)
    expected = run(catalog, problem, what, width=6).artifact.digest
    ways = [(1, False, 1), (2, False, 2), (3, True, 1), (4, True, 2), (6, True, 1)]
    for number, (width, on_disk, threads) in enumerate(ways):
        found = run(catalog, problem, what, width, on_disk=on_disk, threads=threads, name=str(number))
        assert found.artifact.digest == expected


def test_files_of_columns_hold_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_store, "_TILE_BYTES", 1)
    monkeypatch.setattr(column_store, "_FEWEST_ROWS", 100)
    values = np.random.default_rng(0).random((1030, 2 * COLUMNS + 1), np.float32)
    by_rows, by_columns = (
        ColumnStore(tmp_path / name, len(values), values.shape[1], 50) for name in ("rows", "columns")
    )
    assert by_rows.tile_rows == 100
    for store, pieces in ((by_rows, ([0, 1, 2],)), (by_columns, ([0, 1], [2]))):
        for blocks in pieces:
            for start, stop in store.tiles():
                store.write_rows(start, values[start:stop], blocks)
    for store in (by_rows, by_columns):
        for blocks in ([0], [1, 2], [0, 1, 2]):
            span = column_store.columns_of(blocks, values.shape[1])
            out = np.empty((len(values), span.stop - span.start), np.float32)
            store.read_columns(blocks, out)
            assert np.array_equal(out, values[:, span])
        for number, (start, stop) in enumerate(store.tiles()):
            rows = np.empty((stop - start, values.shape[1]), np.float32)
            store.read_rows(number, rows)
            assert np.array_equal(rows, values[start:stop])
        assert store.bytes_written == values.nbytes
    by_rows.drop([1])
    assert sorted(path.name for path in (tmp_path / "rows").iterdir()) == ["00000.columns", "00002.columns"]
    with pytest.raises(ValueError, match="rows from 100"):
        by_rows.write_rows(100, values[100:200], [1])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


@pytest.mark.parametrize("damage", [_flip, _cut, Path.unlink])
def test_a_damaged_file_of_columns_is_refused(tmp_path: Path, damage: object) -> None:
    values = np.random.default_rng(0).random((50, COLUMNS), np.float32)
    store = ColumnStore(tmp_path, len(values), COLUMNS)
    store.write_rows(0, values, [0])
    assert callable(damage)
    damage(tmp_path / "00000.columns")
    with pytest.raises(DamagedWorkError, match=r"00000\.columns"):
        store.read_columns([0], values)


def test_features_that_are_not_finite_are_refused(catalog: Catalog, tmp_path: Path) -> None:
    problem = problem_of()
    problem.feature[321, 4] = np.nan
    shard = problem.store(catalog, 1).row_shards(1).shard(0)
    with pytest.raises(InputError, match="vertex 321 has a feature that is not a finite number"):
        SourceColumns(FeatureRows(shard), tmp_path).read([0], np.empty((NUM_VERTICES, COLUMNS), np.float32))


def test_labels_are_ones_for_the_classes_of_the_training_vertices(catalog: Catalog) -> None:
    problem = problem_of()
    rows = LabelRows(problem.store(catalog, 1).row_shards(1).shard(0)).rows(0, NUM_VERTICES)
    expected = np.zeros((NUM_VERTICES, 3))
    for vertex in np.flatnonzero(problem.training):
        expected[vertex, problem.label[vertex]] = 1
    assert np.array_equal(rows, expected)


def sizes_of(catalog: Catalog) -> list[RankSizes]:
    return rank_sizes(problem_of().store(catalog, 2).row_shards(2))


def plan_of(sizes: Sequence[RankSizes], memory: int, adjacency: str = "auto", columns: int = 1024) -> MemoryPlan:
    return plan_memory(sizes, NUM_VERTICES, columns, memory, adjacency=adjacency, matrices=2, threads=1)


def test_the_widest_blocks_that_fit_are_chosen_and_passes_are_even(catalog: Catalog) -> None:
    sizes = sizes_of(catalog)
    needed = max(peak_of(each, 40 * COLUMNS, NUM_VERTICES, on_disk=False, matrices=2, threads=1) for each in sizes)
    found = plan_of(sizes, needed)
    # 128 blocks in four passes of 32, rather than three of 40 and one of 8.
    assert (found.on_disk, found.width, found.num_passes) == (False, 32, 4)
    assert found.peak_bytes <= needed
    assert plan_of(sizes, 1 << 40).num_passes == 1
    assert plan_of(sizes, needed - 1).num_passes == 4


def test_memory_that_is_too_small_is_refused_with_figures(catalog: Catalog) -> None:
    with pytest.raises(BudgetError, match=r"--memory 289 MiB:"):
        plan_of(sizes_of(catalog), BASE_BYTES + (1 << 20))


def test_the_adjacency_stays_on_disk_if_more_columns_fit_then() -> None:
    sizes = [RankSizes(1 << 20, 0, 0, 1 << 28, 1 << 30, 16 << 20, 48 << 20)]
    roomy = plan_memory(sizes, 1 << 20, 128, 4 << 30, adjacency="auto", matrices=2, threads=2)
    assert not roomy.on_disk
    tight = plan_memory(sizes, 1 << 20, 128, 1 << 30, adjacency="auto", matrices=2, threads=2)
    assert tight.on_disk
    with pytest.raises(BudgetError, match="--adjacency disk"):
        plan_memory(sizes, 1 << 20, 128, 1 << 30, adjacency="memory", matrices=2, threads=2)


def test_blocks_that_follow_each_other_are_multiplied_together() -> None:
    assert list(consecutive([0, 1, 2, 3, 5, 6, 9], 3)) == [[0, 1, 2], [3], [5, 6], [9]]
    assert not list(consecutive([], 3))


def test_products_hold_two_matrices_at_a_time(catalog: Catalog) -> None:
    shard = problem_of().store(catalog, 1).row_shards(1).shard(0)
    place = Place()
    product = AdjacencyProduct(LoneCommunicator(), shard, "mean", place)
    width = 200
    for _ in product.powers(place.zeros((NUM_VERTICES, width), torch.float32), 5):
        pass
    assert place.workspace.nbytes <= 2 * (4 * NUM_VERTICES * width + 64)
