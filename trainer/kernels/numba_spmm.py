"""The product of a sparse matrix (CSR) with a dense one, on this process's cores.

Memory traffic bounds it: every nonzero fetches one row of the dense matrix.  Four nonzeros are
added at a time, so that four rows are on their way at once, into a scratch row that stays in the
first-level cache; the inner loops run over contiguous columns and are vectorized by the compiler.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.matrix.csr import CSR
from gnnloom.trainer.kernels.threads import Threads

Dense = NDArray[Any]


class SparseProduct:
    """A CSR matrix prepared for many products."""

    def __init__(self, matrix: CSR, threads: Threads, dtype: np.dtype[Any]) -> None:
        """Prepare a matrix.

        Args:
            dtype: of the dense matrices, float32 or float64; weights are cast to it.
        """
        self.num_rows, self.num_columns = matrix.num_rows, matrix.num_columns
        self.nnz = matrix.nnz
        self._indptr, self._indices = matrix.indptr, matrix.indices
        self._data = None if matrix.data is None else matrix.data.astype(dtype, copy=False)
        self._threads = threads
        self._ranges = threads.balanced_ranges(matrix.indptr)

    def multiply(self, dense: Dense, out: Dense, row_scale: Dense, *, accumulate: bool = False) -> None:
        """Write diag(row_scale) A dense into ``out``, or add it to what is there.

        Args:
            dense: (num_columns, dim) C-contiguous.
            out: (num_rows, dim) C-contiguous, of the same dtype.
            row_scale: (num_rows,) of the same dtype, or (0,) for ones.

        Raises:
            ValueError: a shape does not fit.
        """
        if dense.shape[0] != self.num_columns or out.shape != (self.num_rows, dense.shape[1]):
            raise ValueError(f"({self.num_rows}, {self.num_columns}) times {dense.shape} into {out.shape}")
        if accumulate and self.nnz == 0:
            return
        data = self._data

        def kernel(start: int, stop: int) -> None:
            if data is None:
                _multiply_pattern(self._indptr, self._indices, dense, row_scale, out, accumulate, start, stop)
            else:
                _multiply_weighted(self._indptr, self._indices, data, dense, row_scale, out, accumulate, start, stop)

        self._threads.run(kernel, self._ranges)


@njit(cache=True, nogil=True)
def _multiply_pattern(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    dense: Dense,
    row_scale: Dense,
    out: Dense,
    accumulate: bool,
    start: int,
    stop: int,
) -> None:
    dim = dense.shape[1]
    total = np.empty(dim, dense.dtype)
    for row in range(start, stop):
        total[:] = 0
        position, end = indptr[row], indptr[row + 1]
        while position + 4 <= end:
            first, second = dense[indices[position]], dense[indices[position + 1]]
            third, fourth = dense[indices[position + 2]], dense[indices[position + 3]]
            for column in range(dim):
                total[column] += (first[column] + second[column]) + (third[column] + fourth[column])
            position += 4
        while position < end:
            only = dense[indices[position]]
            for column in range(dim):
                total[column] += only[column]
            position += 1
        _store_row(total, row_scale, out, accumulate, row)


@njit(cache=True, nogil=True)
def _multiply_weighted(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    data: Dense,
    dense: Dense,
    row_scale: Dense,
    out: Dense,
    accumulate: bool,
    start: int,
    stop: int,
) -> None:
    dim = dense.shape[1]
    total = np.empty(dim, dense.dtype)
    for row in range(start, stop):
        total[:] = 0
        position, end = indptr[row], indptr[row + 1]
        while position + 2 <= end:
            first, second = dense[indices[position]], dense[indices[position + 1]]
            first_weight, second_weight = data[position], data[position + 1]
            for column in range(dim):
                total[column] += first_weight * first[column] + second_weight * second[column]
            position += 2
        if position < end:
            only, weight = dense[indices[position]], data[position]
            for column in range(dim):
                total[column] += weight * only[column]
        _store_row(total, row_scale, out, accumulate, row)


@njit(cache=True, nogil=True)
def _store_row(total: Dense, row_scale: Dense, out: Dense, accumulate: bool, row: int) -> None:
    if len(row_scale):
        total *= row_scale[row]
    if accumulate:
        out[row] += total
    else:
        out[row] = total
