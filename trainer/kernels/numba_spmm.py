"""The product of a sparse matrix (CSR) with a dense one on CPU cores, compiled by numba.

Memory traffic bounds it: every nonzero fetches one row of the dense matrix. Several nonzeros are added at a time, so
that several rows are fetched at once, into a scratch row that stays in the first-level cache. The inner loops run
over contiguous columns, and the compiler vectorizes them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from gnnloom.trainer.kernels.contract import Progress
from gnnloom.trainer.kernels.sparse_rows import Operands, RowsProduct, SparseRows
from gnnloom.trainer.place.arrays import array_dtype, as_array, sum_dtype
from gnnloom.trainer.place.threads import Threads

Dense = NDArray[Any]

#: As in spmm_types.h: the entries of a row whose float32 sums are then added in float64, if it has more.
_SEGMENT: Final = 1024


class NumbaSparseProduct(RowsProduct):
    """See :class:`gnnloom.trainer.kernels.contract.SparseProduct`. Gives the same bits as the kernel in C."""

    def __init__(self, rows: SparseRows, threads: Threads, dtype: torch.dtype) -> None:
        super().__init__(rows, threads, dtype)
        sums = array_dtype(sum_dtype(dtype))
        self._data = None if rows.data is None else rows.data.astype(sums, copy=False)
        self._target = np.empty(0, np.int64) if rows.target is None else rows.target

    def restricted(self, rows: NDArray[np.int64]) -> NumbaSparseProduct:
        return NumbaSparseProduct(self._rows.restricted(rows), self._threads, self._dtype)

    def _multiply(self, operands: Operands, progress: Progress, *, accumulate: bool) -> None:
        dense, out, row_scale, column_scale = operands
        sums = sum_dtype(self._dtype)
        # numba has no bfloat16, and would compile another kernel for rows that are apart: both matrices are converted,
        # and the sums rounded once. C scales while it adds; scaling the whole matrix first gives the same bits.
        source, total = dense.to(sums).contiguous(), out.to(sums).contiguous()
        if column_scale is not None:
            source = source * column_scale.factors.unsqueeze(1)
        self._run(as_array(source), as_array(total), as_array(row_scale), progress, accumulate=accumulate)
        if total is not out:
            out.copy_(total)

    def _run(self, source: Dense, target: Dense, scale: Dense, progress: Progress, *, accumulate: bool) -> None:
        rows, data = self._rows, self._data
        shared = (rows.begin, rows.end, self._target, rows.indices)

        def kernel(start: int, stop: int) -> None:
            if data is None:
                _multiply_pattern(*shared, source, scale, target, accumulate, start, stop)
            else:
                _multiply_weighted(*shared, data, source, scale, target, accumulate, start, stop)

        self._threads.run_slices(kernel, self._ranges, self._slices, progress)


# Offsets are int64, since a rank may hold more than 2^31 nonzeros; column ids are int32 where they fit, which halves
# the traffic of reading them. Columns of the inner loops are independent, so they vectorize without fastmath, and the
# order of each sum is fixed. Rows are copied and added in loops: numba takes seconds to compile assignments of arrays.
@njit(cache=True, nogil=True)
def _multiply_pattern(
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    target: NDArray[np.int64],
    indices: NDArray[Any],
    dense: Dense,
    row_scale: Dense,
    out: Dense,
    accumulate: bool,
    start: int,
    stop: int,
) -> None:
    """Rows ``start`` to ``stop`` of the list, of a product with a pattern, whose nonzeros are ones."""
    dim = dense.shape[1]
    # Every call has its own scratch rows, so threads share nothing that they write.
    total, whole = np.empty(dim, dense.dtype), np.empty(dim)
    for listed in range(start, stop):
        first, last = begin[listed], end[listed]
        if last - first <= _SEGMENT or dense.itemsize == 8:
            _sum_pattern(first, last, indices, dense, total)
        else:
            whole[:] = 0
            for position in range(first, last, _SEGMENT):
                _sum_pattern(position, min(position + _SEGMENT, last), indices, dense, total)
                for column in range(dim):
                    whole[column] += total[column]
            for column in range(dim):
                total[column] = whole[column]
        _store_row(total, row_scale, out, accumulate, target[listed] if len(target) else listed)


@njit(cache=True, nogil=True)
def _sum_pattern(position: int, last: int, indices: NDArray[Any], dense: Dense, total: Dense) -> None:
    """Sum the dense rows of some nonzeros."""
    total[:] = 0
    # Four rows of the dense matrix at a time: their cache misses overlap, and the scratch row is read and written once
    # for the four. The grouping of the sums is part of the result, and the same in C; changing it changes the last
    # bits.
    while position + 4 <= last:
        first, second = dense[indices[position]], dense[indices[position + 1]]
        third, fourth = dense[indices[position + 2]], dense[indices[position + 3]]
        for column in range(len(total)):
            total[column] += (first[column] + second[column]) + (third[column] + fourth[column])
        position += 4
    while position < last:
        only = dense[indices[position]]
        for column in range(len(total)):
            total[column] += only[column]
        position += 1


@njit(cache=True, nogil=True)
def _multiply_weighted(
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    target: NDArray[np.int64],
    indices: NDArray[Any],
    data: Dense,
    dense: Dense,
    row_scale: Dense,
    out: Dense,
    accumulate: bool,
    start: int,
    stop: int,
) -> None:
    """Rows ``start`` to ``stop`` of the list, of a product with a weighted matrix."""
    dim = dense.shape[1]
    total, whole = np.empty(dim, dense.dtype), np.empty(dim)
    for listed in range(start, stop):
        first, last = begin[listed], end[listed]
        if last - first <= _SEGMENT or dense.itemsize == 8:
            _sum_weighted(first, last, indices, data, dense, total)
        else:
            whole[:] = 0
            for position in range(first, last, _SEGMENT):
                _sum_weighted(position, min(position + _SEGMENT, last), indices, data, dense, total)
                for column in range(dim):
                    whole[column] += total[column]
            for column in range(dim):
                total[column] = whole[column]
        _store_row(total, row_scale, out, accumulate, target[listed] if len(target) else listed)


@njit(cache=True, nogil=True)
def _sum_weighted(position: int, last: int, indices: NDArray[Any], data: Dense, dense: Dense, total: Dense) -> None:
    """Sum the dense rows of some nonzeros times their weights."""
    total[:] = 0
    # Two rows at a time here, as every nonzero also loads its weight.
    while position + 2 <= last:
        first, second = dense[indices[position]], dense[indices[position + 1]]
        first_weight, second_weight = data[position], data[position + 1]
        for column in range(len(total)):
            total[column] += first_weight * first[column] + second_weight * second[column]
        position += 2
    if position < last:
        only, weight = dense[indices[position]], data[position]
        for column in range(len(total)):
            total[column] += weight * only[column]


@njit(cache=True, nogil=True)
def _store_row(total: Dense, row_scale: Dense, out: Dense, accumulate: bool, row: int) -> None:
    """Scale a finished row, and write it or add it: the output is touched once per row."""
    # Scaling the sum takes one product per column; scaling in the loop above would take one per nonzero and column.
    for column in range(len(total)):
        value = total[column] * row_scale[row] if len(row_scale) else total[column]
        out[row, column] = out[row, column] + value if accumulate else value
