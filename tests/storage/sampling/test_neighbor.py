"""The neighbor sampler draws uniformly, and its blocks are rows of the graph's matrix."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.permutation import GOLDEN, mix
from gnnloom.storage.matrix.random_numbers import stream_key
from gnnloom.storage.matrix.removal import excluded_entries
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.neighbor_samplers.registry import NEIGHBOR_SAMPLERS
from gnnloom.storage.sampling.layered import layered_batch
from support.chi_squared import chance_of_counts
from support.covering import few_of
from support.graphs import random_adjacency
from support.samples import in_memory, seeded

#: Arguments of the sampler for each way to draw.
WAYS: dict[str, dict[str, Any]] = {
    **{name: {"neighbor_sampler": name} for name in NEIGHBOR_SAMPLERS},
    "with replacement": {"replace": True},
}


def ring(n: int, degree: int) -> WholeGraph:
    """Vertex i gathers from i + 1 to i + degree."""
    offsets = [*range(1, degree + 1), *(k - n for k in range(1, degree + 1))]
    return in_memory(scipy.sparse.diags_array(np.ones(len(offsets)), offsets=offsets, shape=(n, n)).tocsr())


def dense(matrix: CSR) -> np.ndarray:
    """Counts of the nonzeros, or the sums of their weights."""
    data = np.ones(matrix.nnz) if matrix.data is None else matrix.data
    out = np.zeros((matrix.num_rows, matrix.num_columns))
    np.add.at(out, (np.repeat(np.arange(matrix.num_rows), np.diff(matrix.indptr)), matrix.indices), data)
    return out


@pytest.mark.parametrize("fanout", [1, 3, 5])
def test_every_set_of_neighbors_is_equally_likely(fanout: int) -> None:
    n, degree = 6000, 6
    sample = seeded(ring(n, degree), 0, np.arange(n), [fanout], n).sample(0, 0)
    matrix = sample.blocks[0].matrix
    assert set(np.diff(matrix.indptr)) == {fanout}
    steps = (sample.vertices[matrix.indices].reshape(n, fanout) - sample.vertices[:n, None]) % n
    steps.sort(axis=1)
    sets = [tuple(row) for row in steps.tolist()]
    counts = [sets.count(chosen) for chosen in combinations(range(1, degree + 1), fanout)]
    assert sum(counts) == n
    assert chance_of_counts(counts) > 1e-3


def test_draws_with_replacement_are_independent() -> None:
    n, degree = 6000, 4
    sample = seeded(ring(n, degree), 0, np.arange(n), [6], n, replace=True).sample(0, 0)
    matrix = sample.blocks[0].matrix
    assert set(np.diff(matrix.indptr)) == {6}
    steps = (sample.vertices[matrix.indices].reshape(n, 6) - sample.vertices[:n, None]) % n
    # How often the first neighbor is drawn is binomial.
    counts = np.bincount((steps == 1).sum(axis=1), minlength=7)
    expected = n * np.array([0.75 ** (6 - k) * 0.25**k * len(list(combinations(range(6), k))) for k in range(7)])
    assert chance_of_counts(*(np.append(each[:5], each[5:].sum()) for each in (counts, expected))) > 1e-3


@pytest.mark.parametrize(("symmetric", "weighted", "way"), few_of([False, True], [False, True], WAYS, together=2))
def test_blocks_are_rows_of_the_matrix(symmetric: bool, weighted: bool, way: str) -> None:
    """Directed graphs, vertices without neighbors, self loops, weights, and rows that are sorted with several gaps."""
    adjacency = random_adjacency(300, 2500, 1, symmetric=symmetric, loops=False)
    adjacency = adjacency + scipy.sparse.diags_array(np.arange(300) % 3 == 0, dtype=float)
    adjacency.eliminate_zeros()
    adjacency = scipy.sparse.block_diag(
        [adjacency, random_adjacency(80, 6000, 2, symmetric=symmetric), [[0.0]]]
    ).tocsr()
    adjacency.data[:] = np.random.default_rng(0).random(adjacency.nnz)
    reference = adjacency.toarray() if weighted else (adjacency.toarray() != 0).astype(float)
    graph, n = in_memory(adjacency, weighted=weighted), 381
    fanouts = [5, 40, 2]
    sampler = seeded(graph, 0, np.arange(0, n, 2), fanouts, 20, **WAYS[way])
    replace = sampler.sampler.replace
    for batch in range(sampler.num_batches):
        sample = sampler.sample(1, batch)
        ids = sample.vertices
        assert len(np.unique(ids)) == len(ids)
        np.testing.assert_array_equal(ids[: sample.num_seeds], sampler.draw(1, batch))
        ends = [*reversed([block.matrix.num_rows for block in sample.blocks]), len(ids)]
        for first, last in pairwise(ends):
            assert (np.diff(ids[first:last]) > 0).all()
        for block, fanout in zip(reversed(sample.blocks), fanouts, strict=True):
            matrix = block.matrix
            degree = np.count_nonzero(reference[ids[: matrix.num_rows]], axis=1)
            np.testing.assert_array_equal(block.row_nnz, degree)
            drawn = np.where(degree > 0, fanout, 0) if replace else np.minimum(degree, fanout)
            np.testing.assert_array_equal(np.diff(matrix.indptr), drawn)
            np.testing.assert_array_equal(graph.matrix.indices[block.entry], ids[matrix.indices])
            rows = np.repeat(np.arange(matrix.num_rows), drawn)
            ascends = (np.diff(rows) > 0) | (np.diff(matrix.indices) >= (0 if replace else 1))
            assert ascends.all()
            found, there = dense(matrix), reference[np.ix_(ids[: matrix.num_rows], ids[: matrix.num_columns])]
            whole = degree <= fanout
            if replace:
                assert (there[found > 0] > 0).all()
            else:
                np.testing.assert_allclose(found[found > 0], there[found > 0], rtol=1e-7)
                np.testing.assert_allclose(
                    found[whole].sum(axis=1), reference[ids[: matrix.num_rows]][whole].sum(axis=1)
                )


@pytest.mark.parametrize("symmetric", [False, True])
def test_an_unlimited_fanout_gathers_exactly_what_the_whole_graph_does(symmetric: bool) -> None:
    adjacency = random_adjacency(200, 500, 1, symmetric=symmetric)
    adjacency.data[:] = np.random.default_rng(0).random(adjacency.nnz)
    feature = np.random.default_rng(1).random((200, 4))
    reference = adjacency @ (adjacency @ feature)
    sampler = seeded(in_memory(adjacency, weighted=True), 0, np.arange(200), [ALL, ALL], 30)
    for batch in range(sampler.num_batches):
        sample = sampler.sample(0, batch)
        hidden = feature[sample.vertices]
        for block in sample.blocks:
            assert block.matrix.nnz == block.row_nnz.sum()
            hidden = dense(block.matrix) @ hidden
        np.testing.assert_allclose(hidden, reference[sample.vertices[: sample.num_seeds]], rtol=1e-6)


@pytest.mark.parametrize("way", NEIGHBOR_SAMPLERS)
def test_scaled_sums_are_unbiased(way: str) -> None:
    """Row sums scaled by the row's nonzeros over the drawn ones average to the full sums."""
    adjacency = random_adjacency(100, 2000, 0, symmetric=False)
    adjacency.data[:] = np.random.default_rng(0).random(adjacency.nnz)
    sampler = seeded(in_memory(adjacency, weighted=True), 0, np.arange(100), [4], 100, **WAYS[way])
    sums = []
    for epoch in range(1500):
        (block,) = sampler.sample(epoch, 0).blocks
        sums.append(dense(block.matrix).sum(axis=1) * block.row_nnz / np.diff(block.matrix.indptr))
    score = (np.mean(sums, axis=0) - adjacency.sum(axis=1)) / (np.std(sums, axis=0) / np.sqrt(len(sums)))
    assert np.abs(score).max() < 4.5


@pytest.mark.parametrize("way", NEIGHBOR_SAMPLERS)
def test_a_vertex_draws_the_same_whatever_else_is_in_the_batch(way: str) -> None:
    """So a rank can draw the neighbors of its vertices for batches of other ranks."""
    graph = in_memory(random_adjacency(300, 6000, 0, symmetric=True))
    samplers = [seeded(graph, 0, np.arange(n), [5], 300, **WAYS[way]) for n in (10, 300)]
    some, everything = (np.sort(each.sample(2, 0).blocks[0].entry.reshape(-1, 5)) for each in samplers)
    np.testing.assert_array_equal(some, everything[:10])


@pytest.mark.parametrize(("way", "weighted"), few_of(WAYS, [False, True], together=1))
def test_a_batch_without_some_entries_is_that_of_a_graph_that_lacks_them(weighted: bool, way: str) -> None:
    adjacency = scipy.sparse.block_diag(
        [random_adjacency(200, 1500, 1, symmetric=True), random_adjacency(80, 6000, 2, symmetric=True)]
    ).tocsr()
    rng, n = np.random.default_rng(4), adjacency.shape[0]
    adjacency.data[:] = rng.uniform(0.1, 2, adjacency.nnz).astype(np.float32) if weighted else 1
    row, column = adjacency.nonzero()
    chosen = rng.choice(len(row), len(row) // 3)
    # Every entry of a row, and entries that the graph does not have.
    row, column = np.append(row[chosen], np.full(n, 7)), np.append(column[chosen], np.arange(n))
    without = adjacency.toarray()
    without[row, column] = 0
    rebuilt = scipy.sparse.csr_array(without)
    graph, rest = (in_memory(each, weighted=weighted) for each in (adjacency, rebuilt))
    excluded = excluded_entries(graph.matrix, row.astype(np.int64), column.astype(np.int64))
    assert len(excluded) == adjacency.nnz - rebuilt.nnz
    seeds = np.arange(0, n, 3)
    for fanouts in ([2, 3], [ALL, 5]):
        sampler, other = (seeded(each, 5, seeds, fanouts, 30, **WAYS[way]) for each in (graph, rest))
        for number in range(sampler.num_batches):
            given = sampler.draw(1, number)
            sample = sampler.sampler.sample_of(given, 1, number, excluded)
            found, expected = layered_batch(graph, sample, excluded), layered_batch(rest, other.sample(1, number))
            assert np.array_equal(found.vertices, expected.vertices)
            assert np.array_equal(found.row_nnz, expected.row_nnz)
            assert np.array_equal(found.degree, expected.degree)
            for mine, theirs, block in zip(found.blocks, expected.blocks, sample.blocks, strict=True):
                assert np.array_equal(mine.indptr, theirs.indptr)
                assert np.array_equal(mine.indices, theirs.indices)
                assert np.array_equal(block.row_nnz, found.row_nnz[: mine.num_rows])
                assert np.array_equal(dense(mine), dense(theirs))


@pytest.mark.parametrize(("way", "symmetric"), few_of(WAYS, [False, True], together=1))
def test_vertices_that_draw_once_keep_what_they_drew_first(symmetric: bool, way: str) -> None:
    adjacency = random_adjacency(400, 3000, 4, symmetric=symmetric)
    adjacency.data[:] = np.random.default_rng(0).random(adjacency.nnz)
    graph, fanouts = in_memory(adjacency, weighted=True), (3, 4, ALL, 2)
    once, anew = (
        seeded(graph, 7, np.arange(0, 400, 3), fanouts, 25, **WAYS[way], draw_once=each) for each in (True, False)
    )
    for batch in range(once.num_batches):
        sample, other = once.sample(2, batch), anew.sample(2, batch)
        first = 0
        for layer, (block, whole) in enumerate(zip(reversed(sample.blocks), reversed(other.blocks), strict=True)):
            rows, above = block.matrix.num_rows, sample.blocks[len(fanouts) - layer] if layer else None
            if above is not None:
                # What was drawn stays, entry by entry.
                stored = block.matrix.indptr[: first + 1]
                np.testing.assert_array_equal(stored, above.matrix.indptr)
                for name in ("indices", "data"):
                    kept, given = getattr(block.matrix, name), getattr(above.matrix, name)
                    np.testing.assert_array_equal(kept[: stored[-1]], given)
                np.testing.assert_array_equal(block.entry[: stored[-1]], above.entry)
                np.testing.assert_array_equal(block.row_nnz[:first], above.row_nnz)
            # New vertices draw what they would draw if all did.
            places = {vertex: row for row, vertex in enumerate(other.vertices[: whole.matrix.num_rows])}
            for row in range(first, rows):
                at = places[sample.vertices[row]]
                drawn = block.entry[block.matrix.indptr[row] : block.matrix.indptr[row + 1]]
                expected = whole.entry[whole.matrix.indptr[at] : whole.matrix.indptr[at + 1]]
                np.testing.assert_array_equal(np.sort(drawn), np.sort(expected))
            np.testing.assert_array_equal(graph.matrix.indices[block.entry], sample.vertices[block.matrix.indices])
            assert graph.matrix.data is not None
            np.testing.assert_array_equal(graph.matrix.data[block.entry], block.matrix.data)
            first = rows
        assert sample.blocks[0].matrix.num_columns == len(sample.vertices)
        assert np.isin(sample.vertices, other.vertices).all()


def test_labor_draws_the_neighbors_with_the_least_shared_numbers() -> None:
    """Against a sort of each row; long and short rows, and a fan-out of each."""
    adjacency = scipy.sparse.block_diag(
        [random_adjacency(200, 1500, 1, symmetric=False), random_adjacency(80, 6000, 2, symmetric=False)]
    ).tocsr()
    graph, n = in_memory(adjacency), adjacency.shape[0]
    for fanout in (1, 4, 60):
        sample = seeded(graph, 3, np.arange(n), [fanout], n, neighbor_sampler="labor").sample(5, 0)
        with np.errstate(over="ignore"):
            key = mix(stream_key(3, "neighbor/5/0") + np.uint64(1))
            number = np.array([mix(key + (np.uint64(vertex) + np.uint64(1)) * GOLDEN) for vertex in range(n)])
        (block,) = sample.blocks
        for row in range(n):
            neighbors = graph.matrix.indices[graph.matrix.indptr[row] : graph.matrix.indptr[row + 1]]
            expected = neighbors[np.argsort(number[neighbors])[:fanout]]
            drawn = block.entry[block.matrix.indptr[row] : block.matrix.indptr[row + 1]]
            assert set(graph.matrix.indices[drawn]) == set(expected)


def test_batches_of_labor_have_fewer_vertices() -> None:
    graph = in_memory(random_adjacency(3000, 60_000, 0, symmetric=True))
    counts = {
        way: len(seeded(graph, 0, np.arange(300), [10, 10], 300, **WAYS[way]).sample(0, 0).vertices)
        for way in NEIGHBOR_SAMPLERS
    }
    assert counts["labor"] < 0.8 * counts["uniform"]
