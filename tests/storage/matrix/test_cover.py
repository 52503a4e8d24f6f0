"""A cover holds all nonzeros, is as small as the maximum matching, and does not depend on the order of vertices."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import maximum_bipartite_matching

from gnnloom.storage.matrix.cover import Cover, minimum_cover
from support.covering import examples


def cover_of(matrix: scipy.sparse.csr_matrix, first: int = 0) -> Cover:
    """The cover of a matrix whose columns are numbered from ``first`` on."""
    indptr = matrix.indptr.astype(np.int64)
    return minimum_cover(indptr[:-1], indptr[1:], matrix.indices + first, (first, first + matrix.shape[1]))


def _random(rows: int, columns: int, nnz: int, seed: int, skew: float) -> scipy.sparse.csr_matrix:
    rng = np.random.default_rng(seed)
    entries = (rows * rng.random(nnz) ** skew).astype(int), (columns * rng.random(nnz)).astype(int)
    found = scipy.sparse.csr_matrix((np.ones(nnz, np.int8), entries), (rows, columns))
    found.sum_duplicates()
    return found


@settings(max_examples=examples(300), deadline=None)
@given(
    rows=st.integers(1, 30),
    columns=st.integers(1, 30),
    nnz=st.integers(0, 90),
    seed=st.integers(0, 10**6),
    skew=st.sampled_from([1.0, 3.0]),
)
def test_a_cover_is_as_small_as_the_maximum_matching(rows: int, columns: int, nnz: int, seed: int, skew: float) -> None:
    matrix = _random(rows, columns, nnz, seed, skew)
    cover = cover_of(matrix, first=7)
    row, column = matrix.nonzero()
    assert (cover.row[row] | cover.column[column]).all()
    assert cover.row.sum() + cover.column.sum() == (maximum_bipartite_matching(matrix) >= 0).sum()
    rng = np.random.default_rng(seed)
    order, column_order = rng.permutation(rows), rng.permutation(columns)
    moved = matrix[order][:, column_order].tocsr()
    moved.sort_indices()
    other = cover_of(moved)
    assert np.array_equal(other.row, cover.row[order])
    assert np.array_equal(other.column, cover.column[column_order])


def test_of_covers_of_one_size_the_one_with_the_most_rows_is_found() -> None:
    cover = cover_of(scipy.sparse.csr_matrix(np.eye(4, dtype=np.int8)))
    assert cover.row.all()
    assert not cover.column.any()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 2)])
def test_nothing_covers_an_empty_block(shape: tuple[int, int]) -> None:
    cover = cover_of(scipy.sparse.csr_matrix(np.zeros(shape, np.int8)))
    assert (len(cover.row), len(cover.column)) == shape
    assert not cover.row.any()
    assert not cover.column.any()


def test_long_augmenting_paths_are_found() -> None:
    """A path graph whose greedy matching leaves one row free, whose only augmenting path has all other rows."""
    size = 5000
    steps = np.arange(size)
    row = np.concatenate([steps, steps[:-1]])
    column = np.concatenate([steps, steps[1:]])
    matrix = scipy.sparse.csr_matrix((np.ones(len(row), np.int8), (row, column)), (size, size))
    # The last row has only the first column, which the greedy matching gives to the first row.
    last = scipy.sparse.csr_matrix((np.ones(1, np.int8), ([0], [0])), (1, size))
    whole = scipy.sparse.vstack([matrix[:-1], last]).tocsr()
    cover = cover_of(whole)
    assert cover.row.sum() + cover.column.sum() == size
