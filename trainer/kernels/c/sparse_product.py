"""The product of a sparse matrix with a dense one, in C (spmm_kernel.h).

Memory traffic bounds it. Sums stay in registers, dense rows are fetched ahead of their sums, and an output larger than
the caches is written around them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.kernels.arrays import array_dtype, sum_dtype
from gnnloom.trainer.kernels.c.library import DTYPES, Library, Product
from gnnloom.trainer.kernels.operands import Operands, prepare
from gnnloom.trainer.kernels.sparse_rows import SparseRows
from gnnloom.trainer.kernels.threads import Threads

#: Outputs from this size on are written around the caches, which could not hold them for the next reader.
_STREAMED_BYTES: Final = 32 << 20
#: Additions that take several times as long as waking a thread: about 20 microseconds.
_WORTH_A_THREAD: Final = 1 << 19


class CSparseProduct:
    """See :class:`gnnloom.trainer.kernels.contract.SparseProduct`."""

    def __init__(self, library: Library, rows: SparseRows, threads: Threads, dtype: torch.dtype) -> None:
        self.num_rows, self.num_columns, self.nnz = rows.num_rows, rows.num_columns, rows.nnz
        self._library, self._rows, self._threads, self._dtype = library, rows, threads, dtype
        sums = array_dtype(sum_dtype(dtype))
        self._indices = np.ascontiguousarray(rows.indices)
        self._data = None if rows.data is None else np.ascontiguousarray(rows.data, sums)
        # The time of a range is proportional to its nonzeros, not its rows.
        offsets = rows.offsets()
        self._ranges = threads.balanced_ranges(offsets)
        self._slices = threads.slices(self._ranges, offsets)
        self._bounds = [_bounds(self._ranges)]
        self._slice_bounds = [_bounds(ranges) for ranges in self._slices]

    def restricted(self, rows: NDArray[np.int64]) -> CSparseProduct:
        return CSparseProduct(self._library, self._rows.restricted(rows), self._threads, self._dtype)

    def multiply(
        self,
        dense: Tensor,
        out: Tensor,
        row_scale: Tensor,
        *,
        accumulate: bool = False,
        column_scale: Tensor | None = None,
        progress: Callable[[], None] | None = None,
    ) -> None:
        operands = prepare(self._rows, self._dtype, dense, out, row_scale, column_scale, accumulate=accumulate)
        if operands is None:
            return
        product = self._described(operands, accumulate=accumulate)
        work = self.nnz * out.shape[1]
        num_threads = min(self._threads.num_threads, 1 + work // _WORTH_A_THREAD)
        if num_threads == 1 or self._library.has_threads:
            # A short product ends before a message would be late.
            whole = progress is None or work < _WORTH_A_THREAD
            for bounds in self._bounds if whole else self._slice_bounds:
                self._library.multiply(product, bounds, num_threads)
                if progress is not None:
                    progress()
            return

        def kernel(start: int, stop: int) -> None:
            self._library.multiply(product, np.array([start, stop]))

        self._threads.run_slices(kernel, self._ranges, self._slices, progress)

    def _described(self, operands: Operands, *, accumulate: bool) -> Product:
        """The product as C reads it: addresses of memory that the caller keeps alive."""
        rows, (dense, out, row_scale, column_scale) = self._rows, operands
        return Product(
            begin=rows.begin.ctypes.data,
            end=rows.end.ctypes.data,
            target=None if rows.target is None else rows.target.ctypes.data,
            columns=self._indices.ctypes.data,
            values=None if self._data is None else self._data.ctypes.data,
            entries=len(self._indices),
            row_scale=row_scale.data_ptr() if len(row_scale) else None,
            column_scale=column_scale.data_ptr() if len(column_scale) else None,
            dense=dense.data_ptr(),
            dense_stride=dense.stride(0),
            out=out.data_ptr(),
            out_stride=out.stride(0),
            dim=out.shape[1],
            dtype=DTYPES[self._dtype],
            wide_columns=self._indices.dtype == np.int64,
            accumulate=accumulate,
            stream=not accumulate and out.nbytes >= _STREAMED_BYTES,
            wide_out=out.dtype != self._dtype,
        )


def _bounds(ranges: list[tuple[int, int]]) -> NDArray[np.int64]:
    """(len(ranges) + 1,) int64 positions at which consecutive ranges begin and end."""
    return np.array([ranges[0][0], *(stop for _, stop in ranges)] if ranges else [0], np.int64)
