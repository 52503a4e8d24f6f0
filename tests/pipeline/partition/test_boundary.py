"""Refinement of the boundary: what moves, and that tasks of any number and order make the same parts."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.hypergraph import Hypergraph
from gnnloom.pipeline.partition.multilevel.boundary_refine import BoundaryRefinement, refine_boundary
from gnnloom.pipeline.partition.multilevel.boundary_rings import WIDEST, find_boundary
from gnnloom.pipeline.partition.multilevel.contraction import contract_nets
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph, store_clusters
from gnnloom.pipeline.partition.multilevel.part_files import rows_sent
from gnnloom.pipeline.partition.multilevel.pieces import store_vector
from gnnloom.pipeline.partition.multilevel.store_hypergraph import store_hypergraph
from gnnloom.pipeline.partition.native.mt_kahypar import MT_KAHYPAR
from gnnloom.pipeline.partition.native.program import PartitionRequest
from gnnloom.pipeline.partition.native.run import native_partition
from gnnloom.pipeline.partition.partitioner import LevelSteps
from gnnloom.pipeline.tasks.cluster import DEFAULT_MEMORY, Cluster, InProcessCluster, ThreadedCluster
from gnnloom.storage import Catalog
from gnnloom.storage.disk.numpy_files import map_array
from support.covering import examples
from support.graphs import random_adjacency, store_graph
from support.late import LateCluster
from support.partitions import random_parts
from support.twice import TwiceCluster

HERE = InProcessCluster()
MEMORY = 1 << 26
Item = TypeVar("Item")
Result = TypeVar("Result")


class UntracedCluster(InProcessCluster):
    """Runs tasks, and notes the most that is allocated at once between two of them.

    Attributes:
        peak: bytes.
    """

    peak = 0

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        for item in items:
            self.note()
            result = function(item)
            tracemalloc.start()
            yield result

    def note(self) -> None:
        """Stop tracing."""
        self.peak = max(self.peak, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()


def stored(folder: Path, adjacency: Any, name: str = "g") -> DiskHypergraph:
    graph = store_graph(Catalog(folder).create(name), adjacency, symmetric=True)
    return store_hypergraph(folder / f"disk-{name}", graph, graph, HERE)


def contracted(hypergraph: DiskHypergraph, seed: int, folder: Path) -> DiskHypergraph:
    """The hypergraph with about half as many vertices, and with weights of nets."""
    _, label = np.unique(
        random_parts(hypergraph.num_vertices, hypergraph.num_vertices // 2 + 1, seed), return_inverse=True
    )
    return contract_nets(hypergraph, store_clusters(hypergraph, label, folder), folder, HERE).on_disk(MEMORY, HERE)


def halves_with_a_rough_border(side: int) -> NDArray[np.int32]:
    """(side * side,) parts of a lattice with ids in order: a left and a right half with a random border."""
    row, column = np.divmod(np.arange(side * side), side)
    rough = np.random.default_rng(0).integers(-2, 3, side)
    return (column + rough[row] >= side // 2).astype(np.int32)


def straight_lattice(side: int, length: int | None = None) -> Any:
    """A grid of ``length`` rows, by default ``side``, of ``side`` vertices each, with loops and with ids in order."""
    across, along = (
        scipy.sparse.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(count, count))
        for count in (side, length or side)
    )
    both = scipy.sparse.kron(along, scipy.sparse.eye_array(side)) + scipy.sparse.kron(
        scipy.sparse.eye_array(length or side), across
    )
    matrix = both.tocsr()
    matrix.data[:] = 1
    return matrix


def refinement_of(folder: Path, pins: int) -> BoundaryRefinement:
    """Refine boundaries of up to so many pins."""

    def improve(small: Hypergraph, given: NDArray[np.int32]) -> NDArray[np.int32]:
        request = PartitionRequest(2, 0.05, 0, preset="deterministic-quality", improve=1)
        return native_partition(small, MT_KAHYPAR, request, folder, None, given)

    return BoundaryRefinement(lambda num_pins, _: num_pins <= pins, improve, folder)


def split_into_tasks(hypergraph: DiskHypergraph, vertices: int = 100) -> DiskHypergraph:
    """The hypergraph for tasks with few vertices each."""
    steps = LevelSteps(few_pins=0, range_pins=5 * vertices, scan_pins=2 * vertices, task_vertices=vertices)
    return replace(hypergraph, nets=replace(hypergraph.nets, block_ids=64), steps=steps)


def pins_of(hypergraph: DiskHypergraph) -> list[set[int]]:
    """The pins of every net."""
    offset, ids = hypergraph.nets.offset(), hypergraph.nets.ids()
    return [set(ids[a:b].tolist()) for a, b in pairwise(offset)]


def boundary_by_sets(
    hypergraph: DiskHypergraph, part: NDArray[np.int32], fits: Callable[[int, int], bool]
) -> tuple[set[int], int] | None:
    """The widest boundary that fits, and its width, found with all nets in every step."""
    all_pins, near, found = pins_of(hypergraph), set[int](), None
    for width in range(1, WIDEST + 1):
        grows = [
            pins for pins in all_pins if (len({int(part[pin]) for pin in pins}) > 1 if width == 1 else pins & near)
        ]
        wider = near.union(*grows)
        touched = [pins for pins in all_pins if pins & wider]
        count = sum(len(pins & wider) + bool(pins - wider) for pins in touched)
        if wider == near or not fits(count, len(wider)):
            break
        found, near = (wider, width), wider
    return found


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    n=st.integers(2, 60),
    nnz=st.integers(1, 120),
    seed=st.integers(0, 10**6),
    parts=st.integers(2, 4),
    most=st.integers(1, 300),
    weighted=st.booleans(),
)
def test_the_boundary_is_the_widest_that_fits(
    tmp_path_factory: pytest.TempPathFactory, n: int, nnz: int, seed: int, parts: int, most: int, weighted: bool
) -> None:
    folder = tmp_path_factory.mktemp("graph")
    hypergraph = stored(folder, random_adjacency(n, nnz, seed, symmetric=True))
    if weighted:
        hypergraph = contracted(hypergraph, seed, folder / "coarse")
    # Most vertices in one part, or everything is near the cut.
    part = np.maximum(random_parts(hypergraph.num_vertices, 6 + parts, seed) - 6, 0).astype(np.int32)

    def fits(pins: int, vertices: int) -> bool:
        return pins <= most and vertices <= most // 2

    expected = boundary_by_sets(hypergraph, part, fits)
    path = store_vector(folder / "part.npy", part)
    found = find_boundary(split_into_tasks(hypergraph, 10), path, fits, path.parent, TwiceCluster())
    assert (found is None) == (expected is None)
    if found and expected:
        ring_of = map_array(found.vertices.ring_path)
        near = np.flatnonzero((ring_of > 0) & (ring_of <= found.width))
        assert (set(near.tolist()), found.width) == expected
        assert len(near) == found.num_vertices


@pytest.mark.slow
def test_only_vertices_near_the_cut_move_and_the_cut_improves(tmp_path: Path) -> None:
    side = 40
    hypergraph = stored(tmp_path, straight_lattice(side))
    before = halves_with_a_rough_border(side)
    path = store_vector(tmp_path / "part.npy", before)
    cut = rows_sent(hypergraph, path, 2, HERE)
    assert refine_boundary(hypergraph, path, 2, refinement_of(tmp_path / "boundary", 3000), HERE)
    part = map_array(path)
    assert cut > 1.5 * rows_sent(hypergraph, path, 2, HERE)
    moved = np.flatnonzero(part != before) % side
    assert (np.abs(moved - side // 2) < 10).all()
    assert np.bincount(part).max() <= 1.05 * side * side / 2
    assert not list((tmp_path / "boundary").iterdir())


@pytest.mark.parametrize("pins", [0, 10])
def test_a_boundary_that_does_not_fit_is_left_alone(tmp_path: Path, pins: int) -> None:
    hypergraph = stored(tmp_path, straight_lattice(20))
    before = halves_with_a_rough_border(20)
    path = store_vector(tmp_path / "part.npy", before)
    assert not refine_boundary(hypergraph, path, 2, refinement_of(tmp_path, pins), HERE)
    np.testing.assert_array_equal(map_array(path), before)


def test_parts_without_a_cut_have_no_boundary(tmp_path: Path) -> None:
    hypergraph = stored(tmp_path, scipy.sparse.block_diag([np.ones((5, 5))] * 4).tocsr())
    path = store_vector(tmp_path / "part.npy", np.repeat(np.array([0, 1], dtype=np.int32), 10))
    assert not refine_boundary(hypergraph, path, 2, refinement_of(tmp_path, 10**6), HERE)


def moved_by_number(folder: Path, hypergraph: DiskHypergraph, pins: int, cluster: Cluster) -> list[str]:
    """Digests of what the partitioner is given and of the parts, if it moves every third vertex of a part of four."""
    num_vertices, digests = hypergraph.num_vertices, []
    part = np.zeros(num_vertices, dtype=np.int32)
    # Neighbors have similar numbers, and the last part has no vertex far from the cut.
    for number, size in ((1, num_vertices // 4), (2, num_vertices // 4), (3, 3)):
        part[number * num_vertices // 4 : num_vertices // 4 * number + size] = number

    def improve(small: Hypergraph, given: NDArray[np.int32]) -> NDArray[np.int32]:
        weight = small.net_weight if small.net_weight is not None else np.empty(0, dtype=np.int64)
        arrays = (small.vertex_weight, small.net_offset, small.pin.astype(np.int64), weight, given)
        digests.append(hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16])
        moved: NDArray[np.int32] = ((given + (np.arange(len(given)) % 3 == 2)) % 4).astype(np.int32)
        return moved

    path = store_vector(folder / "part.npy", part)
    refinement = BoundaryRefinement(lambda num_pins, _: num_pins <= pins, improve, folder)
    assert refine_boundary(hypergraph, path, 4, refinement, cluster)
    digests.append(hashlib.sha256(map_array(path).tobytes()).hexdigest()[:16])
    return digests


#: Digests of what was handed to the partitioner, and of the parts, when one process did all of it.
BY_ONE_PROCESS = {
    False: ["b6ce2a24f4f129a2", "faab61f26f604768"],
    True: ["6908bbff465f75b0", "e2945708a821718c"],
}


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [pytest.param(False, marks=pytest.mark.long), True])
def test_tasks_of_any_number_and_order_make_the_parts_of_one_process(tmp_path: Path, weighted: bool) -> None:
    hypergraph = stored(tmp_path, straight_lattice(40))
    if weighted:
        _, label = np.unique(np.arange(1600) // 2 + np.arange(1600) % 7 // 6, return_inverse=True)
        clusters = store_clusters(hypergraph, label, tmp_path / "coarse")
        hypergraph = contract_nets(hypergraph, clusters, tmp_path / "coarse", HERE).on_disk(MEMORY, HERE)
    assert moved_by_number(tmp_path, hypergraph, 3000, HERE) == BY_ONE_PROCESS[weighted]
    hypergraph = split_into_tasks(hypergraph)
    # One and two phases later.
    late = LateCluster(lambda function: function.__module__.endswith("boundary_rings"), slice(-2, None), after=False)
    for cluster in (HERE, TwiceCluster(), ThreadedCluster(3, DEFAULT_MEMORY), late):
        assert moved_by_number(tmp_path, hypergraph, 3000, cluster) == BY_ONE_PROCESS[weighted]
    assert late.late > 0


def test_the_client_holds_nothing_for_each_vertex(tmp_path: Path) -> None:
    """Mapped files are not counted.  The longer grid has a few tasks more, and as many vertices near the cut."""
    peaks, side, lengths = [], 50, (200, 200, 3_200)
    for number, length in enumerate(lengths):
        hypergraph = split_into_tasks(stored(tmp_path, straight_lattice(side, length), f"g{number}"), 80_000)
        cluster = UntracedCluster()
        half = np.arange(side * length) >= side * length // 2
        path = store_vector(tmp_path / "part.npy", half.astype(np.int32))
        refinement = BoundaryRefinement(lambda num_pins, _: num_pins <= 1500, lambda _, given: given, tmp_path)
        tracemalloc.start()
        assert refine_boundary(hypergraph, path, 2, refinement, cluster)
        cluster.note()
        peaks.append(cluster.peak)
    # Less than half a byte for each further vertex.  The first run also imports and compiles.
    assert peaks[2] - peaks[1] < side * (lengths[2] - lengths[1]) // 2, peaks
