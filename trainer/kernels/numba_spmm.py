"""The product of a sparse matrix (CSR) with a dense one on CPU cores, compiled by numba.

Memory traffic bounds it: every nonzero fetches one row of the dense matrix. Several nonzeros are added at a time, so
that several rows are fetched at once, into a scratch row that stays in the first-level cache. The inner loops run
over contiguous columns, and the compiler vectorizes them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.csr import CSR
from gnnloom.trainer.kernels.arrays import as_array
from gnnloom.trainer.kernels.threads import Threads

Dense = NDArray[Any]


class NumbaSparseProduct:
    """See :class:`gnnloom.trainer.kernels.contract.SparseProduct`."""

    def __init__(self, matrix: CSR, threads: Threads, dtype: np.dtype[Any]) -> None:
        self.num_rows, self.num_columns = matrix.num_rows, matrix.num_columns
        self.nnz = matrix.nnz
        self._indptr, self._indices = matrix.indptr, matrix.indices
        self._data = None if matrix.data is None else matrix.data.astype(dtype, copy=False)
        self._threads = threads
        # The time of a range is proportional to its nonzeros, not its rows.
        self._ranges = threads.balanced_ranges(matrix.indptr)

    def multiply(self, dense: Tensor, out: Tensor, row_scale: Tensor, *, accumulate: bool = False) -> None:
        if dense.shape[0] != self.num_columns or out.shape != (self.num_rows, dense.shape[1]):
            shapes = f"{tuple(dense.shape)} into {tuple(out.shape)}"
            raise ValueError(f"sparse product: ({self.num_rows}, {self.num_columns}) times {shapes}")
        # Nothing to add. Without `accumulate` the kernel must still write zeros.
        if accumulate and self.nnz == 0:
            return
        source, target, scale, data = as_array(dense), as_array(out), as_array(row_scale), self._data

        def kernel(start: int, stop: int) -> None:
            if data is None:
                _multiply_pattern(self._indptr, self._indices, source, scale, target, accumulate, start, stop)
            else:
                _multiply_weighted(self._indptr, self._indices, data, source, scale, target, accumulate, start, stop)

        self._threads.run(kernel, self._ranges)


# Offsets are int64, since a rank may hold more than 2^31 nonzeros; column ids are int32 where they fit, which halves
# the traffic of reading them. Columns of the inner loops are independent, so they vectorize without fastmath, and the
# order of each sum is fixed.
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
    """Rows ``start`` to ``stop`` of a product with a pattern, whose nonzeros are ones."""
    dim = dense.shape[1]
    # Every call has its own scratch row, so threads share nothing that they write.
    total = np.empty(dim, dense.dtype)
    for row in range(start, stop):
        total[:] = 0
        position, end = indptr[row], indptr[row + 1]
        # Four rows of the dense matrix at a time: their cache misses overlap, and the scratch row is read and written
        # once for the four. The grouping of the sums is part of the result; changing it changes the last bits.
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
    """Rows ``start`` to ``stop`` of a product with a weighted matrix."""
    dim = dense.shape[1]
    total = np.empty(dim, dense.dtype)
    for row in range(start, stop):
        total[:] = 0
        position, end = indptr[row], indptr[row + 1]
        # Two rows at a time here, as every nonzero also loads its weight.
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
    """Scale a finished row, and write it or add it: the output is touched once per row."""
    # Scaling the sum takes one product per column; scaling in the loop above would take one per nonzero and column.
    if len(row_scale):
        total *= row_scale[row]
    if accumulate:
        out[row] += total
    else:
        out[row] = total
