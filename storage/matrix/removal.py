"""A matrix without some of its entries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.csr import CSR


def without_entries(matrix: CSR, row: NDArray[Any], column: NDArray[Any]) -> CSR:
    """The pattern of a matrix without some entries.

    Args:
        matrix: its weights are left out.
        row, column: (k,) the entries, each once, ascending by row and column; rows count from the first one.

    Raises:
        ValueError: the matrix lacks an entry to remove, or the entries do not ascend.
    """
    removed = entry_positions(matrix, row, column)
    if len(removed) and (removed[0] < 0 or (removed[1:] <= removed[:-1]).any()):
        raise ValueError("entries to remove that the matrix does not have, or that do not ascend")
    indptr = matrix.indptr - np.searchsorted(removed, matrix.indptr)
    return CSR(matrix.row_offset, indptr, np.delete(matrix.indices, removed), None, matrix.num_columns)


def entry_positions(matrix: CSR, row: NDArray[Any], column: NDArray[Any]) -> NDArray[np.int64]:
    """(k,) int64 positions of entries among the entries of a matrix; -1 for an entry that it does not have.

    Args:
        row, column: (k,) integers; rows count from the first one.
    """
    return _positions(matrix.indptr, matrix.indices, row, column)


def excluded_entries(matrix: CSR, row: NDArray[np.int64], column: NDArray[np.int64]) -> NDArray[np.int64]:
    """(num_excluded,) int64 positions of entries in a matrix, ascending, each once; of parallel entries, all.

    Args:
        row, column: (num_given,) int64 vertices in any order, such as both directions of a batch's target edges. What
            is no entry of the graph is left out.
    """
    first, place = np.unique(entry_positions(matrix, row, column), return_index=True)
    first, place = first[first >= 0], place[first >= 0]
    count = _parallel(matrix.indptr, matrix.indices, row[place], first)
    ends = np.cumsum(count)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - ends + count, count)


@kernel
def _positions(
    indptr: NDArray[np.int64], indices: NDArray[Any], row: NDArray[Any], column: NDArray[Any]
) -> NDArray[np.int64]:
    found = np.empty(len(row), np.int64)
    for k in range(len(row)):
        first, last = indptr[row[k]], indptr[row[k] + 1]
        # The columns of a row ascend.
        position = first + np.searchsorted(indices[first:last], column[k])
        found[k] = position if position < last and indices[position] == column[k] else -1
    return found


@kernel
def _parallel(
    indptr: NDArray[np.int64], indices: NDArray[Any], row: NDArray[Any], first: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Number of entries in the row and column of an entry, which is the first entry there."""
    count = np.ones(len(row), np.int64)
    for k in range(len(row)):
        last = indptr[row[k] + 1]
        while first[k] + count[k] < last and indices[first[k] + count[k]] == indices[first[k]]:
            count[k] += 1
    return count
