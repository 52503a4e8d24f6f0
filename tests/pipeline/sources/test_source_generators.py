"""Generated graphs are the same for any division into ranges and have the structure of their model."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnloom.pipeline.external_sort.spill import MAX_VERTICES
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.sources.generators import lattice, rmat
from gnnloom.pipeline.sources.generators.generator import MOST_VERTICES, scramble_ids
from gnnloom.pipeline.sources.generators.lattice import LatticeEdges
from gnnloom.pipeline.sources.generators.rmat import RmatEdges, alias_table
from gnnloom.pipeline.sources.generators.sbm import StochasticBlockModel
from gnnloom.pipeline.sources.source import EdgeSource, SourceRange
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from support.covering import examples, few_of
from support.tolerance import assert_close


def edges_of(source: EdgeSource) -> np.ndarray:
    chunks = [chunk for span in source.ranges() for chunk in source.read(span)]
    return np.concatenate([np.stack([chunk.source, chunk.target]) for chunk in chunks], axis=1)


@pytest.mark.parametrize("source", [RmatEdges(9, 5, seed=3), LatticeEdges((7, 9, 5), 0.4, True, 3)])
def test_any_range_equals_that_range_of_the_whole(
    source: RmatEdges | LatticeEdges, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = edges_of(source)
    monkeypatch.setattr(rmat, "CHUNK_EDGES", 17)
    monkeypatch.setattr(lattice, "CHUNK_EDGES", 17)
    pieces = type(source)(**{**vars(source), "range_edges": 101})
    np.testing.assert_array_equal(edges_of(pieces), whole)
    assert len(pieces.ranges()) > 3
    other = type(source)(**{**vars(source), "seed": 4})
    assert not np.array_equal(edges_of(other), whole)
    assert other.identity() != source.identity() == pieces.identity()


def test_every_bit_of_an_rmat_edge_has_the_probabilities_of_graph500() -> None:
    count, scale = 1 << 18, 10
    source = edges_of(RmatEdges(scale, count >> scale, scramble=False, seed=1))
    for level in range(scale):
        row, column = (source >> level) & 1
        found = np.bincount(2 * row + column, minlength=4) / count
        np.testing.assert_allclose(found, [0.57, 0.19, 0.19, 0.05], atol=5 * np.sqrt(0.25 / count))


def test_levels_of_an_rmat_edge_are_independent() -> None:
    row, column = edges_of(RmatEdges(9, 512, scramble=False, seed=2))
    bits = np.concatenate([(ids[None] >> np.arange(9)[:, None]) & 1 for ids in (row, column)]).astype(float)
    correlation = np.corrcoef(bits)
    np.fill_diagonal(correlation, 0)
    # The two bits of one level are correlated: (0.05 - 0.24^2) / (0.24 * 0.76).
    for level in range(9):
        assert correlation[level, 9 + level] == pytest.approx(-0.0417, abs=0.01)
        correlation[level, 9 + level] = correlation[9 + level, level] = 0
    assert np.abs(correlation).max() < 5 / np.sqrt(len(row))


def test_an_alias_table_reproduces_its_probabilities() -> None:
    probability = np.random.default_rng(1).random(256) ** 4
    probability /= probability.sum()
    threshold, other = alias_table(probability)
    found = threshold / 2.0**24
    np.add.at(found, other.astype(int), 1 - threshold / 2.0**24)
    # Thresholds are stored with 24 bits.
    np.testing.assert_allclose(found / 256, probability, rtol=0, atol=2.0**-24)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 100, 127, 129, 4096, 5000])
def test_scrambling_is_a_bijection(size: int) -> None:
    for key in (0, 1, 0x9876543210ABCDEF):
        ids = np.arange(size)
        scramble_ids(ids, size, np.uint64(key))
        assert np.array_equal(np.sort(ids), np.arange(size))


def test_scrambling_only_renumbers_the_graph() -> None:
    plain, scrambled = (edges_of(RmatEdges(12, 8, scramble=flag, seed=7)) for flag in (False, True))
    degree, other = (np.bincount(edges.ravel(), minlength=4096) for edges in (plain, scrambled))
    assert np.array_equal(np.sort(degree), np.sort(other))
    # Neither an id nor its neighborhood predicts the degree any more.
    assert degree[:64].sum() > 0.15 * degree.sum()
    assert other[:64].sum() < 0.08 * other.sum()
    assert abs(np.corrcoef(np.arange(4096), other)[0, 1]) < 0.1


@pytest.mark.parametrize(
    ("sizes", "scramble"), few_of([(4, 5), (1, 6), (3, 4, 5), (2, 1, 3)], [False, True], together=1)
)
def test_a_lattice_joins_neighbors_along_the_axes(sizes: tuple[int, ...], scramble: bool) -> None:
    """Compare with SciPy's Kronecker sum of paths; scrambling must keep the eigenvalues."""
    source = edges_of(LatticeEdges(sizes, scramble=scramble, seed=2))
    n = int(np.prod(sizes))
    found = np.zeros((n, n))
    np.add.at(found, tuple(source), 1)
    found += found.T
    expected: Any = scipy.sparse.csr_array((1, 1))
    for size in sizes:
        ones: Any = [np.ones(size - 1)] * 2
        path: Any = scipy.sparse.diags_array(ones, offsets=[-1, 1], shape=(size, size))
        expected = scipy.sparse.kronsum(path, expected)
    if scramble:
        assert_close(np.linalg.eigvalsh(found), np.linalg.eigvalsh(expected.toarray()))
    else:
        np.testing.assert_array_equal(found, expected.toarray())


def test_shortcuts_come_after_the_lattice_and_are_spread_evenly() -> None:
    grid = LatticeEdges((100, 100))
    source = LatticeEdges((100, 100), shortcuts=2.0, seed=9)
    edges, plain = edges_of(source), edges_of(grid)
    assert plain.shape[1] == 2 * 99 * 100
    assert edges.shape[1] == 3 * plain.shape[1] == source.num_edges
    assert np.array_equal(edges[:, : plain.shape[1]], plain)
    ends = edges[:, plain.shape[1] :]
    assert ends.min() >= 0
    assert ends.max() < 10_000
    assert np.histogram(ends, 10, (0, 10_000))[0] == pytest.approx(ends.size / 10, rel=0.06)


@settings(max_examples=examples(10), deadline=None)
@given(st.integers(1, 8), st.integers(1, 20), st.booleans(), st.integers(0, 99))
def test_a_generated_graph_is_the_matrix_that_scipy_builds(
    tmp_path_factory: pytest.TempPathFactory, scale: int, factor: int, undirected: bool, seed: int
) -> None:
    source = RmatEdges(scale, factor, seed=seed)
    dataset = Catalog(tmp_path_factory.mktemp("rmat")).create("graph")
    graph = ingest_graph(dataset, source, IngestOptions(undirected, "keep"), InProcessCluster())
    u, v = edges_of(source)
    expected = np.zeros((1 << scale, 1 << scale))
    expected[v, u] = 1
    np.testing.assert_array_equal(graph.to_scipy().toarray(), np.maximum(expected, expected.T if undirected else 0))


@pytest.mark.parametrize(
    "make",
    [
        lambda: RmatEdges(0),
        lambda: RmatEdges(38),
        lambda: RmatEdges(5, 0),
        lambda: RmatEdges(5, a=0.9, b=0.2),
        lambda: LatticeEdges((5,)),
        lambda: LatticeEdges((5, 0)),
        lambda: LatticeEdges((1, 1)),
        lambda: LatticeEdges((5, 5), shortcuts=-1),
        lambda: StochasticBlockModel(1 << 38, 10, 2),
        # More edges than any machine could store, which later arithmetic need not bear.
        lambda: RmatEdges(30, 1 << 62),
        lambda: LatticeEdges((1 << 31, 1 << 31)),
        lambda: LatticeEdges((5, 5), shortcuts=1e300),
        lambda: LatticeEdges((5, 5), shortcuts=float("inf")),
        lambda: LatticeEdges((5, 5), shortcuts=float("nan")),
    ],
)
def test_parameters_out_of_range_are_refused(make: object) -> None:
    with pytest.raises(InputError, match=r"R-MAT: |lattice|stochastic block"):
        make()  # type: ignore[operator]


def test_the_largest_graph_is_the_largest_whose_ids_can_be_kept() -> None:
    assert MOST_VERTICES == MAX_VERTICES


def test_a_range_far_into_a_huge_graph_is_made_directly() -> None:
    source = RmatEdges(37, 64, seed=1)
    start = source.num_edges - 5
    (chunk,) = source.read(SourceRange(0, start, start + 5))
    assert len(set(itertools.chain(chunk.source.tolist(), chunk.target.tolist()))) == 10
    assert 0 <= chunk.source.min() <= chunk.source.max() < 1 << 38
