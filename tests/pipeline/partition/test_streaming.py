"""Random parts and blocks of rows: even, valid, and computed without a hypergraph."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnloom.pipeline.partition.streaming import block_partition, random_partition
from gnnloom.storage import Catalog
from support.covering import examples
from support.graphs import random_adjacency, store_graph


def test_random_parts_are_even_and_change_with_the_seed() -> None:
    first, second = np.empty(100_000, np.int32), np.empty(100_000, np.int32)
    random_partition(first, 64, 0)
    random_partition(second, 64, 1)
    expected = 100_000 / 64
    for part in (first, second):
        size = np.bincount(part, minlength=64)
        chi_squared = ((size - expected) ** 2 / expected).sum()
        assert 20 < chi_squared < 130  # 63 degrees of freedom; outside once in a million
    assert (first == second).mean() == pytest.approx(1 / 64, abs=0.003)
    again = np.empty(50_000, np.int32)
    random_partition(again, 64, 0)
    np.testing.assert_array_equal(again, first[:50_000])


@settings(max_examples=examples(30), deadline=None)
@given(num_vertices=st.integers(1, 60), nnz=st.integers(0, 300), seed=st.integers(0, 10**6), data=st.data())
def test_blocks_are_contiguous_nonempty_and_even(
    tmp_path_factory: pytest.TempPathFactory, num_vertices: int, nnz: int, seed: int, data: st.DataObject
) -> None:
    parts = data.draw(st.integers(1, num_vertices))
    adjacency = random_adjacency(num_vertices, nnz, seed, symmetric=False, loops=seed % 2 == 0)
    catalog = Catalog(tmp_path_factory.mktemp("catalog"))
    graph = store_graph(catalog.create("g"), adjacency, symmetric=True, num_blocks=4)
    part = np.full(num_vertices, -1, dtype=np.int32)
    block_partition(part, graph, parts)
    assert (np.diff(part) >= 0).all()
    assert set(part.tolist()) == set(range(parts))
    nonzeros = np.diff(adjacency.indptr)
    load = np.bincount(part, weights=nonzeros, minlength=parts)
    if nonzeros.min() > 0:
        # A boundary lies within half a row of the ideal, unless it was pushed to keep a part from being empty.
        assert load.max() <= max(nonzeros.sum() / parts, 1) + 2 * nonzeros.max()


def blocks_of(catalog: Catalog, adjacency: scipy.sparse.csr_array, parts: int, weights: str) -> list[int]:
    graph = store_graph(catalog.create("g"), adjacency, symmetric=True)
    part = np.empty(adjacency.shape[0], dtype=np.int32)
    block_partition(part, graph, parts, weights)
    return [int(size) for size in np.bincount(part, minlength=parts)]


def test_blocks_of_rows_without_nonzeros_are_even(catalog: Catalog) -> None:
    few = scipy.sparse.csr_array((np.ones(4), ([0, 1, 5, 6], [1, 0, 6, 5])), shape=(1000, 1000))
    assert blocks_of(catalog, few, 2, "nonzeros") == [500, 500]


def test_blocks_of_equal_rows_or_unit_weights_are_equal_ranges(catalog: Catalog) -> None:
    dense = np.eye(12)
    dense[3] = 1
    assert blocks_of(catalog, scipy.sparse.csr_array(dense), 4, "unit") == [3, 3, 3, 3]
    assert blocks_of(catalog, scipy.sparse.csr_array(np.eye(12)), 4, "nonzeros") == [3, 3, 3, 3]
