"""Cover refinement: SciPy finds the counted rows and sums, which only fall, and neither parts nor balance get lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gnnloom.pipeline.matrix_sort.transpose import transpose_graph
from gnnloom.pipeline.partition import cover_refinement
from gnnloom.pipeline.partition.cover_cost import cover_refinement_memory
from gnnloom.pipeline.partition.cover_refinement import refine_cover
from gnnloom.pipeline.partition.measure.balance import asked_limit
from gnnloom.pipeline.partition.model.cover_moves import move_vertices
from gnnloom.pipeline.partition.options import PartitionOptions, partition_key
from gnnloom.pipeline.partition.partition_plan import project_methods
from gnnloom.pipeline.partition.partitioner import LEVEL_STEPS, PartitionProblem
from gnnloom.pipeline.partition.stage import partition_graph
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import BudgetError, InputError
from gnnloom.storage.format.artifact import ArtifactWriter
from support.covering import few_of
from support.graphs import random_adjacency, store_graph
from support.partitions import cover_sent, random_parts

HERE = InProcessCluster()


def with_communities(num_vertices: int, seed: int, *, symmetric: bool) -> Any:
    """Vertices in groups of ten with a few edges outside, one neighbor of all, and a tenth without any edge."""
    rng = np.random.default_rng(seed)
    row = rng.integers(0, num_vertices * 9 // 10, 6 * num_vertices)
    column = np.where(rng.random(len(row)) < 0.85, row // 10 * 10 + rng.integers(0, 10, len(row)), rng.permutation(row))
    column[: num_vertices // 2] = 7
    adjacency = scipy.sparse.csr_array((np.ones(len(row)), (row, column)), shape=(num_vertices, num_vertices))
    adjacency = adjacency + adjacency.T if symmetric else adjacency
    adjacency.data[:] = 1
    return scipy.sparse.csr_array(adjacency)


def refined(folder: Path, adjacency: Any, part: np.ndarray, options: PartitionOptions, passes: int) -> Any:
    """The refined parts, and the count that refinement returns."""
    symmetric = (adjacency != adjacency.T).nnz == 0
    dataset = Catalog(folder).create("g")
    graph = store_graph(dataset, adjacency, symmetric=symmetric, num_blocks=3)
    writer = ArtifactWriter(folder, "partition", "0" * 16)
    transpose = transpose_graph(dataset, graph, HERE)
    problem = PartitionProblem(graph, transpose, options, folder, folder / "part.npy", HERE, writer, LEVEL_STEPS)
    part = part.copy()
    return part, refine_cover(problem, part, passes)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("parts", "seed"), [(2, 0), (5, 1), (30, 2)])
def test_the_count_is_that_of_scipy_and_far_below_the_count_before(
    tmp_path: Path, symmetric: bool, parts: int, seed: int
) -> None:
    adjacency, given = with_communities(300, seed, symmetric=symmetric), random_parts(300, parts, seed)
    options = PartitionOptions(parts, "random", 0.2, seed)
    part, found = refined(tmp_path, adjacency, given, options, 12)
    assert found == cover_sent(adjacency, part, parts).sum() < 0.8 * cover_sent(adjacency, given, parts).sum()
    weight = np.maximum(np.diff(adjacency.indptr), 1)
    before, after = (np.bincount(each, weight, parts) for each in (given, part))
    assert np.bincount(part, minlength=parts).min() > 0
    limit = asked_limit(int(weight.sum()), parts, 0.2)
    assert (after <= np.maximum(before, limit)).all()
    again, _ = refined(tmp_path / "again", adjacency, given, options, 12)
    assert np.array_equal(part, again)


@pytest.mark.parametrize(("symmetric", "seed"), few_of([True, False], range(8), together=1))
def test_no_pass_makes_parts_of_a_graph_without_communities_worse(tmp_path: Path, symmetric: bool, seed: int) -> None:
    adjacency = scipy.sparse.csr_array(random_adjacency(40, 90, seed, symmetric=symmetric))
    given = np.arange(40, dtype=np.int32) % 4
    part, found = refined(tmp_path, adjacency, given, PartitionOptions(4, "random", 0.5, seed), 1)
    assert found == cover_sent(adjacency, part, 4).sum() <= cover_sent(adjacency, given, 4).sum()


def test_a_graph_without_edges_sends_nothing(tmp_path: Path) -> None:
    given = np.arange(9, dtype=np.int32) % 3
    part, found = refined(tmp_path, scipy.sparse.csr_array((9, 9)), given, PartitionOptions(3, "random"), 4)
    assert found == 0
    assert np.array_equal(part, given)


def test_a_problem_that_does_not_fit_in_memory_is_refused(catalog: Catalog) -> None:
    dataset = catalog.create("g")
    graph = store_graph(dataset, with_communities(100, 0, symmetric=True), symmetric=True)
    options = PartitionOptions(2, "random", exchange="cover", cover_passes=4, memory_limit=1 << 20)
    with pytest.raises(BudgetError, match="--cover-passes"):
        partition_graph(dataset, graph, options, HERE)


def test_the_plan_counts_the_passes(catalog: Catalog) -> None:
    graph = store_graph(catalog.create("g"), with_communities(3000, 0, symmetric=True), symmetric=True)
    plain, few, many = (project_methods(graph, 4, exchange="cover", cover_passes=each) for each in (0, 2, 20))
    needed = cover_refinement_memory(graph.num_vertices, graph.nnz, 4, is_symmetric=True)
    for before, after, later in zip(plain, few, many, strict=True):
        assert after.memory == max(before.memory, needed)
        # The levels' own passes are not made then.
        if after.method != "auto":
            added, tenfold = (each.cpu_seconds - before.cpu_seconds for each in (after, later))
            assert tenfold == pytest.approx(10 * added)
    # One part sends nothing, and so do parts that cannot lose their only vertex.
    assert project_methods(graph, 1) == project_methods(graph, 1, exchange="cover", cover_passes=2)


class _Interrupted(InProcessCluster):
    """Ends after the first task of a function."""

    def __init__(self, function: str) -> None:
        super().__init__()
        self._function = function

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        for item in items:
            yield function(item)
            if function.__name__ == self._function:
                raise KeyboardInterrupt


@pytest.mark.parametrize("moment", ["pass 0", "pass 2", "_store_rows", "count_block"])
def test_an_interrupted_partition_resumes_to_the_same_bytes(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    options = PartitionOptions(4, "random", 0.1, exchange="cover", cover_passes=6)
    adjacency = with_communities(400, 5, symmetric=False)
    found = []
    for name in ("whole", "interrupted"):
        dataset = catalog.create(name)
        graph = store_graph(dataset, adjacency, symmetric=False, num_blocks=3)
        if name == "interrupted":
            moves = _ends_in(int(moment[-1])) if moment.startswith("pass") else move_vertices
            with monkeypatch.context() as patch:
                patch.setattr(cover_refinement, "move_vertices", moves)
                with pytest.raises(KeyboardInterrupt):
                    partition_graph(dataset, graph, options, _Interrupted(moment))
            # What is left is not the partition, and cannot be taken for it.
            assert not [each for each in dataset.artifacts("partition") if each.state == "complete"]
        found.append(partition_graph(dataset, graph, options, HERE))
    whole, resumed = found
    assert (whole.artifact.digest, whole.quality) == (resumed.artifact.digest, resumed.quality)


def _ends_in(last: int) -> Callable[..., int]:
    """What moves vertices until the end of a pass, with which the process ends."""
    passes = iter(range(last))

    def ending(*given: Any) -> int:
        moved = move_vertices(*given)
        if next(passes, None) is None:
            raise KeyboardInterrupt
        return int(moved)

    return ending


@pytest.mark.parametrize(("method", "parts"), few_of(["random", "metis"], [1, 4, 200], together=1))
def test_a_partition_is_refined_if_asked_and_has_another_key(catalog: Catalog, parts: int, method: str) -> None:
    adjacency = with_communities(200, 3, symmetric=False)
    dataset = catalog.create("g")
    graph = store_graph(dataset, adjacency, symmetric=False)
    plain = PartitionOptions(parts, method, 0.1, exchange="cover")
    asked = replace(plain, cover_passes=8)
    usual, refined = (partition_graph(dataset, graph, each, HERE) for each in (plain, asked))
    assert refined.artifact.key == partition_key(graph.artifact.key, asked, 1 << 30) != usual.artifact.key
    before, after = (each.quality["volume_cover_total"] for each in (usual, refined))
    assert after == cover_sent(adjacency, refined.part(), parts).sum()
    assert after < before if parts == 4 else after == before


def test_passes_without_an_exchange_that_is_covered_are_refused() -> None:
    with pytest.raises(InputError, match="cover_passes"):
        PartitionOptions(4, "random", cover_passes=3)
