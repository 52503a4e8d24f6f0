"""Compressed sparse rows (CSR) in memory: a range of rows of a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

#: Widest matrix whose column ids are int32.
INT32_WIDTH: Final = int(np.iinfo(np.int32).max)


@dataclass(frozen=True)
class CSR:
    """Rows ``row_offset`` to ``row_offset + num_rows`` of a matrix.

    Attributes:
        row_offset: index of the first row in the whole matrix.
        indptr: (num_rows + 1,) int64, starting at 0.
        indices: (nnz,) int32 or int64 column ids, ascending within a row.
        data: (nnz,) float32 or float64, or None for a pattern (all ones).
        num_columns: width of the matrix.
    """

    row_offset: int
    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    data: NDArray[Any] | None
    num_columns: int

    @property
    def num_rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        return int(self.indptr[-1])


def index_dtype(width: int) -> np.dtype[Any]:
    """int32 if it holds all ids below ``width``, else int64."""
    # Column ids are the largest part of a graph, and products are bound by memory bandwidth: int32 halves the bytes.
    return np.dtype(np.int32 if width <= INT32_WIDTH else np.int64)


def cast_ids(ids: NDArray[Any], width: int) -> NDArray[Any]:
    """Cast ids below ``width`` to the narrowest index dtype.

    Args:
        ids: (num_ids,) integers of any dtype.

    Returns:
        (num_ids,) int32 or int64; ``ids`` itself if it has this dtype already.

    Raises:
        OverflowError: an id is negative or not below ``width``.
    """
    # Checked before the cast: astype would wrap an id that is too large to another valid id, without an error.
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= width):
        raise OverflowError(f"ids from {ids.min()} to {ids.max()} do not lie in 0..{width - 1}")
    return ids.astype(index_dtype(width), copy=False)


def transposed(matrix: CSR) -> CSR:
    """Transpose a matrix.

    Returns:
        The transpose, with sorted rows. Its column ids count from the first row of ``matrix``, whatever its
        ``row_offset``.
    """
    # A counting sort by column, in O(nnz + num_columns); a comparison sort would also need a second array of keys.
    indptr = np.zeros(matrix.num_columns + 1, np.int64)
    np.cumsum(np.bincount(matrix.indices, minlength=matrix.num_columns), out=indptr[1:])
    indices = np.empty(matrix.nnz, index_dtype(matrix.num_rows))
    # An empty array stands for a pattern: one compiled version serves patterns and float32 weights.
    given = np.empty(0, np.float32) if matrix.data is None else matrix.data
    data = np.empty_like(given)
    _scatter_entries(matrix.indptr, matrix.indices, given, indptr[:-1].copy(), indices, data)
    return CSR(0, indptr, indices, None if matrix.data is None else data, matrix.num_rows)


@njit(cache=True, nogil=True)
def _scatter_entries(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    given: NDArray[Any],
    position: NDArray[np.int64],
    rows: NDArray[Any],
    data: NDArray[Any],
) -> None:
    # ``position`` is the next free entry of each row of the transpose; visiting rows in order sorts its rows. One
    # thread runs the loop: two threads could take the same free entry.
    for row in range(len(indptr) - 1):
        for entry in range(indptr[row], indptr[row + 1]):
            target = position[indices[entry]]
            position[indices[entry]] = target + 1
            rows[target] = row
            if len(given):
                data[target] = given[entry]
