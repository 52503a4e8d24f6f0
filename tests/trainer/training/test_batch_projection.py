"""Projected sizes of batches are near those of drawn ones if degrees are even, and above them on skewed graphs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray

from gnnloom.storage import CSR
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.sampling.edge import EdgeSampler
from gnnloom.storage.sampling.layered import layered_batch
from gnnloom.storage.sampling.vertex import VertexSampler
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.modes.kind import BatchSizes, RankRows
from support.graphs import random_adjacency
from support.samples import in_memory, seeded

N, NNZ = 3000, 24_000


def projected(
    adjacency: scipy.sparse.csr_array, mode: str, num_layers: int, *, knows_lengths: bool = False, **options: Any
) -> BatchSizes:
    config = TrainConfig.of(catalog=str(Path()), dataset="web", mode=mode, hidden=(8,) * (num_layers - 1), **options)
    batch = config.mode.kind.batch
    assert batch is not None
    # Every third row stands for all.
    lengths = Counter(np.diff(adjacency.indptr)[::3].tolist()) if knows_lengths else {}
    rows = RankRows(N, 0, N, adjacency.nnz, 4, N, lengths, has_loops=bool(adjacency.diagonal().all()))
    return batch(config.mode.own_options(), num_layers, rows)


def row_numbers(matrix: CSR) -> NDArray[np.int64]:
    """The row of every entry."""
    return np.repeat(np.arange(matrix.num_rows), np.diff(matrix.indptr))


def skewed() -> scipy.sparse.csr_array:
    """A graph with a few hubs, which most rows refer to."""
    random = np.random.default_rng(0)
    ends = (N * random.random((2, NNZ)) ** 3).astype(np.int64)
    loops = np.arange(N)
    rows, columns = np.concatenate([ends[0], ends[1], loops]), np.concatenate([ends[1], ends[0], loops])
    found = scipy.sparse.csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(N, N))
    found.sum_duplicates()
    found.data[:] = 1
    return found


@pytest.mark.parametrize("fanout", [(5, 4), (3, 3, 3), (ALL, 4)])
def test_sampled_neighbors_are_at_most_as_many_as_projected(fanout: tuple[int, ...]) -> None:
    even = random_adjacency(N, NNZ, 1, symmetric=True)
    for adjacency, least in ((even, 0.7), (skewed(), 0.1)):
        expected = projected(adjacency, "neighbor", len(fanout), fanout=fanout, batch_size=100)
        sampler = seeded(in_memory(adjacency), 0, np.arange(N), fanout, 100)
        drawn = [sampler.sample(0, number) for number in range(10)]
        vertices = float(np.mean([len(sample.vertices) for sample in drawn]))
        nonzeros = float(np.mean([len(sample.blocks[0].entry) for sample in drawn]))
        assert least * expected.rows[0] < vertices < 1.05 * expected.rows[0]
        assert least * expected.nonzeros[0] < nonzeros < 1.05 * expected.nonzeros[0]
        assert expected.rows[-1] == 100


@pytest.mark.parametrize("draw_once", [False, True])
@pytest.mark.parametrize("fanout", [(5, 4), (10, 10, 5), (ALL, 4), (10, ALL), (ALL, ALL)])
def test_known_lengths_of_rows_say_the_sizes_of_the_largest_batch(fanout: tuple[int, ...], draw_once: bool) -> None:
    even = random_adjacency(N, NNZ, 1, symmetric=True)
    for adjacency, most in ((even, 1.1), (skewed(), 1.3)):
        given: dict[str, Any] = {"fanout": fanout, "batch_size": 100, "draw_once": draw_once}
        expected = projected(adjacency, "neighbor", len(fanout), knows_lengths=True, **given)
        graph = in_memory(adjacency)
        sampler = seeded(graph, 0, np.arange(N), fanout, 100, draw_once=draw_once)
        drawn = [sampler.sample(0, number) for number in range(sampler.num_batches)]
        vertices = [len(sample.vertices) for sample in drawn]
        nonzeros = [len(sample.blocks[0].entry) for sample in drawn]
        # A batch of few seeds that draw their whole rows may have several of the longest rows.
        least = 0.8 if fanout[0] == ALL and adjacency is not even else 0.99
        assert least * max(vertices) < expected.rows[0] < most * max(vertices)
        assert least * max(nonzeros) < expected.nonzeros[0] < most * max(nonzeros)
        # What is left without loops, as attention adds loops of its own.
        blocks = [layered_batch(graph, sample).blocks[0] for sample in drawn]
        others = [np.count_nonzero(row_numbers(block) != block.indices) for block in blocks]
        assert least * max(others) < expected.nonzeros[0] - expected.loops < most * max(others)


def test_induced_subgraphs_have_the_projected_nonzeros_or_fewer() -> None:
    adjacency = random_adjacency(N, NNZ, 1, symmetric=True)
    graph = in_memory(adjacency)
    cases: list[tuple[str, dict[str, Any]]] = [("subgraph", {"sampler": "vertex"}), ("minibatch", {})]
    for mode, options in cases:
        expected = projected(adjacency, mode, 2, batch_size=600, **options)
        found = VertexSampler(graph, 0, 600).sample(0, 0).blocks[0].matrix.nnz
        assert found == pytest.approx(expected.nonzeros[0], rel=0.1)
    for each in (adjacency, skewed()):
        expected = projected(each, "subgraph", 2, batch_size=600, sampler="edge")
        sample = EdgeSampler(in_memory(each), 0, 600).sample(0, 0)
        assert len(sample.vertices) <= expected.rows[0]
        assert sample.blocks[0].matrix.nnz <= expected.nonzeros[0]
