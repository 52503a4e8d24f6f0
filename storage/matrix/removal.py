"""A matrix without some of its entries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.matrix.csr import CSR


def without_entries(matrix: CSR, row: NDArray[Any], column: NDArray[Any]) -> CSR:
    """The pattern of a matrix without some entries.

    Args:
        matrix: its weights are left out.
        row, column: (k,) the entries, each once, ascending by row and column; rows count from the first one.

    Raises:
        ValueError: the matrix does not have one of them.
    """
    kept = matrix.nnz - len(row)
    indptr, indices = np.zeros(len(matrix.indptr), np.int64), np.empty(max(kept, 0), matrix.indices.dtype)
    if _copy_others(matrix.indptr, matrix.indices, row, column, indptr, indices) != len(row):
        raise ValueError("entries to remove that the matrix does not have, or that are not ascending")
    return CSR(matrix.row_offset, indptr, indices, None, matrix.num_columns)


@njit(cache=True, nogil=True)
def _copy_others(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    row: NDArray[Any],
    column: NDArray[Any],
    out_indptr: NDArray[np.int64],
    out_indices: NDArray[Any],
) -> int:
    """Copy what is not to be removed, and return how many entries were removed."""
    removed = 0
    for number in range(len(indptr) - 1):
        for entry in range(indptr[number], indptr[number + 1]):
            is_removed = removed < len(row) and row[removed] == number and column[removed] == indices[entry]
            if is_removed:
                removed += 1
            elif entry - removed < len(out_indices):
                out_indices[entry - removed] = indices[entry]
        out_indptr[number + 1] = indptr[number + 1] - removed
    return removed
