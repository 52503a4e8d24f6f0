"""What every sampler promises: repeatable, never repeating, reaching every vertex, at a cost of the sample's size."""

from __future__ import annotations

import hashlib
import mmap
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gnnloom.storage import CSR
from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.errors import InputError
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.neighbor_samplers.registry import NEIGHBOR_SAMPLERS
from gnnloom.storage.samplers.kind import BATCHES
from gnnloom.storage.samplers.registry import SAMPLERS
from gnnloom.storage.sampling.cluster import ClusterSampler
from gnnloom.storage.sampling.edge import EdgeSampler
from gnnloom.storage.sampling.frontier import FrontierSampler
from gnnloom.storage.sampling.layers.graph_view import MatrixView
from gnnloom.storage.sampling.neighbor import NeighborSampler
from gnnloom.storage.sampling.sampler import SubgraphSampler
from gnnloom.storage.sampling.vertex import VertexSampler, batch_of, members
from gnnloom.storage.sampling.walk import WalkSampler
from support.covering import few_of
from support.graphs import random_adjacency
from support.samples import content_of, in_memory, sampler_of, seeded

TESTS = Path(__file__).resolve().parents[2]
#: Samplers of subgraphs, and of neighbors.
KINDS = [*SAMPLERS, *NEIGHBOR_SAMPLERS]
#: Those whose batches of an epoch have every vertex, or seed.
COVERING = [name for name, kind in SAMPLERS.items() if kind.covers_epoch]


def digests(kind: str, threads: int = 1) -> list[str]:
    """Digests of 24 batches of 3 epochs, drawn by some threads."""
    graph = in_memory(random_adjacency(400, 1600, 1, symmetric=False), weighted=True)
    sampler = sampler_of(kind, graph, 50, seed=7)
    asked = [(epoch, batch) for epoch in range(3) for batch in range(8)]
    with ThreadPoolExecutor(threads) as pool:
        contents = pool.map(lambda place: content_of(sampler.sample(*place)), asked)
        return [hashlib.sha256(content).hexdigest() for content in contents]


def test_the_descriptors_name_the_samplers() -> None:
    assert {name: kind.load().kind for name, kind in SAMPLERS.items()} == {name: name for name in SAMPLERS}
    assert set(BATCHES) < set(SAMPLERS)
    assert all(issubclass(kind.load(), SubgraphSampler) for kind in SAMPLERS.values())
    assert all(issubclass(kind.load(), MatrixView) for kind in NEIGHBOR_SAMPLERS.values())


@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_threads_draws_the_same_batches(kind: str) -> None:
    one = digests(kind)
    assert len(set(one)) == 24
    assert digests(kind, 2) == one
    assert digests(kind, 4) == one


@pytest.mark.slow
def test_another_process_draws_the_same_batches() -> None:
    program = "\n".join(
        [
            f"import sys; sys.path += [{str(TESTS)!r}, {str(Path(__file__).parent)!r}]",
            "from test_samplers import KINDS, digests",
            "print(*(digest for kind in KINDS for digest in digests(kind)[5:9]))",
        ]
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == [digest for kind in KINDS for digest in digests(kind)[5:9]]


@pytest.mark.parametrize("kind", KINDS)
def test_no_two_of_1000_batches_are_alike_and_seeds_differ(kind: str) -> None:
    graph = in_memory(random_adjacency(2000, 8000, 0, symmetric=True))
    sampler = sampler_of(kind, graph, 80)
    places = [(epoch, batch) for epoch in range(40) for batch in range(25)]
    assert len({sampler.draw(*place).tobytes() for place in places}) == 1000
    other = sampler_of(kind, graph, 80, seed=1)
    assert all((sampler.draw(*place).tobytes() != other.draw(*place).tobytes()) for place in places[:20])


@pytest.mark.parametrize(("kind", "symmetric", "weighted", "loops"), few_of(SAMPLERS, *[[False, True]] * 3, together=2))
def test_the_subgraph_equals_that_of_scipy(kind: str, symmetric: bool, weighted: bool, loops: bool) -> None:
    adjacency = random_adjacency(500, 4000, 3, symmetric=symmetric, loops=loops)
    adjacency.data[:] = np.random.default_rng(0).random(adjacency.nnz)
    graph = in_memory(adjacency, weighted=weighted)
    for batch in range(3):
        sample = sampler_of(kind, graph, 150).sample(0, batch)
        (block,) = sample.blocks
        check_induced(adjacency, graph, sample.vertices, block.matrix, block.entry)
        assert sample.num_seeds == len(sample.vertices)
        np.testing.assert_array_equal(block.row_nnz, np.diff(adjacency.indptr)[sample.vertices])


def check_induced(adjacency: Any, graph: WholeGraph, ids: Any, found: CSR, entry: Any) -> None:
    assert (np.diff(ids) > 0).all()
    expected = adjacency[ids][:, ids]
    expected.sort_indices()
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(ids[found.indices], graph.matrix.indices[entry])
    if found.data is not None:
        np.testing.assert_array_equal(found.data, expected.data.astype(np.float32))


def test_rows_much_longer_than_the_sample_are_induced_alike() -> None:
    """Vertex 0 of a star is searched for each vertex of the sample; a dense graph fills the buffers several times."""
    n = 4000
    star = scipy.sparse.lil_array((n, n), dtype=np.int8)
    star[0, 1:] = star[1:, 0] = 1
    for adjacency, size in ((star.tocsr(), 30), (random_adjacency(300, 60000, 0, symmetric=False), 250)):
        graph = in_memory(adjacency)
        for epoch in range(5):
            sample = EdgeSampler(graph, 0, size).sample(epoch, 0)
            check_induced(adjacency, graph, sample.vertices, sample.blocks[0].matrix, sample.blocks[0].entry)


@pytest.mark.parametrize("kind", [*COVERING, *NEIGHBOR_SAMPLERS])
def test_an_epoch_has_every_vertex_once(kind: str) -> None:
    sampler = sampler_of(kind, in_memory(random_adjacency(731, 2000, 0, symmetric=True)), 100)
    for epoch in range(2):
        drawn = np.concatenate([sampler.draw(epoch, batch) for batch in range(sampler.num_batches)])
        np.testing.assert_array_equal(np.sort(drawn), np.arange(731))
    with pytest.raises(InputError, match="of an epoch of"):
        sampler.draw(0, sampler.num_batches)


@pytest.mark.parametrize(
    ("kind", "symmetric"), few_of([name for name in SAMPLERS if name not in COVERING], [False, True], together=1)
)
def test_every_vertex_is_reached_in_time(kind: str, symmetric: bool) -> None:
    """Also vertices without neighbors: a third of the graph."""
    adjacency = scipy.sparse.block_diag(
        [random_adjacency(200, 500, 0, symmetric=symmetric, loops=False), scipy.sparse.csr_array((100, 100))]
    )
    sampler = sampler_of(kind, in_memory(adjacency), 60)
    reached = np.unique(np.concatenate([sampler.draw(0, batch) for batch in range(400)]))
    np.testing.assert_array_equal(reached, np.arange(300))


def test_the_batch_of_any_vertex_is_computed_without_drawing_it() -> None:
    vertices = np.arange(1000)
    for epoch in range(3):
        batch = batch_of(1000, 96, 5, epoch, vertices)
        for number in range(11):
            np.testing.assert_array_equal(np.flatnonzero(batch == number), members(1000, 96, 5, epoch, number))


def test_vertex_batches_are_uniform() -> None:
    """Each vertex has its batch with the same probability, each pair is together as often as any other."""
    together = np.zeros((40, 40), np.int64)
    for epoch in range(2000):
        batch = members(40, 10, 0, epoch, 0)
        together[np.ix_(batch, batch)] += 1
    alone, pairs = np.diag(together), together[np.triu_indices(40, 1)]
    for counts, share in ((alone, 10 / 40), (pairs, 10 * 9 / (40 * 39))):
        deviation = np.sqrt(2000 * share * (1 - share))
        assert np.abs(counts - 2000 * share).max() < 5 * deviation
        assert np.std(counts) == pytest.approx(deviation, rel=0.35)


def sparse_file(path: Path, dtype: Any, size: int) -> np.ndarray:
    """Zeros that take no disk and no memory."""
    with path.open("w+b") as file:
        file.truncate(size * np.dtype(dtype).itemsize)
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    # Otherwise every read brings the pages around it, which takes all the time of this test.
    mapped.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(mapped, dtype)


@pytest.mark.parametrize("index", [np.int32, pytest.param(np.int64, marks=pytest.mark.long)])
def test_the_cost_is_that_of_the_sample_and_ids_may_exceed_32_bits(tmp_path: Path, index: Any) -> None:
    """A graph of 2^33 vertices without edges, in files of zeros: an array of its size would not fit in memory.

    The kernels for int32 column ids are compiled already; those for int64, which such a graph would have, take longer.
    """
    n = 1 << 33
    indices = np.empty(0, index)
    indices.flags.writeable = False
    matrix = CSR(0, sparse_file(tmp_path / "indptr", np.int64, n + 1), indices, None, n)
    graph = WholeGraph(matrix, sparse_file(tmp_path / "loop", np.bool_, n))
    for kind in BATCHES:
        sample = sampler_of(kind, graph, 1000).sample(3, 2)
        assert sample.vertices[0] < 1 << 31 < 1 << 32 < sample.vertices[-1] < n
        assert sample.blocks[0].matrix.nnz == 0
    seeds = np.arange(n - 5000, n)
    layered = seeded(graph, 0, seeds, [ALL, 4], 100).sample(0, 0)
    assert (len(layered.vertices), layered.num_seeds) == (100, 100)


def test_arguments_out_of_range_are_refused() -> None:
    graph = in_memory(random_adjacency(10, 20, 0, symmetric=True))
    nothing = in_memory(scipy.sparse.csr_array((0, 0), dtype=np.int8))
    refused: list[Any] = [
        lambda: VertexSampler(graph, 0, 0),
        lambda: VertexSampler(graph, 0, 1 << 31),
        lambda: VertexSampler(nothing, 0, 1),
        lambda: WalkSampler(graph, 0, 5, length=0),
        lambda: FrontierSampler(graph, 0, 5, frontier=6),
        lambda: FrontierSampler(graph, 0, 5, enlargement=1.0),
        lambda: FrontierSampler(graph, 0, 5, degree_cap=0),
        lambda: seeded(graph, 0, np.arange(3), [], 1),
        lambda: seeded(graph, 0, np.arange(3), [0], 1),
        lambda: seeded(graph, 0, np.arange(3), [1], 0),
        lambda: NeighborSampler(graph, 0, [1]).sample_of(np.array([2, 1]), 0, 0),
        lambda: NeighborSampler(graph, 0, [1]).sample_of(np.array([10]), 0, 0),
        lambda: NeighborSampler(graph, 0, [1]).sample_of(np.empty(0, np.int64), 0, 0),
    ]
    for make in refused:
        with pytest.raises(InputError):
            make()
    parts = sampler_of("cluster", graph, 5)
    assert isinstance(parts, ClusterSampler)
    with pytest.raises(InputError, match="parts per batch"):
        ClusterSampler(graph, 0, parts.parts, 0)
    with pytest.raises(InputError, match="a partition of 10 vertices"):
        ClusterSampler(in_memory(random_adjacency(11, 20, 0, symmetric=True)), 0, parts.parts)


@pytest.mark.parametrize(("says_loop", "row"), few_of([False, True], ["only loops", "nothing", "mixed"], together=1))
def test_loops_that_a_copy_has_wrong_stop_no_sampler(says_loop: bool, row: str) -> None:
    n = 40
    counts = {"only loops": np.ones(n), "nothing": np.zeros(n), "mixed": np.arange(n) % 2}[row].astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    matrix = CSR(0, indptr, np.flatnonzero(counts).astype(np.int32), None, n)
    graph = WholeGraph(matrix, np.full(n, says_loop))
    for sampler in (EdgeSampler(graph, 0, 20), WalkSampler(graph, 0, 20), FrontierSampler(graph, 0, 20)):
        drawn = sampler.draw(0, 0)
        assert len(drawn)
        assert 0 <= drawn.min() <= drawn.max() < n
