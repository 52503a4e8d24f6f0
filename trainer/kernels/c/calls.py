"""The kernels in C: passes over rows (rectify_kernel.h, attention_kernel.h), and sparse products (spmm_kernel.h).

Memory traffic bounds a product. Sums stay in registers, dense rows are fetched ahead of their sums, and an output
larger than the caches is written around them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.kernels.c.library import DTYPES, Bounds, HeadsStruct, Library, ProductStruct, Rows
from gnnloom.trainer.place.arrays import array_dtype, sum_dtype
from gnnloom.trainer.place.contract import (
    HEADS_CHUNK,
    ColumnScale,
    HeadsPass,
    Progress,
    RowPass,
    RowSink,
    SparseRows,
)
from gnnloom.trainer.place.threads import RowRange, Threads


def c_rows(library: Library, given: RowPass) -> Callable[[int, int], None]:
    """A function that computes a range of the rows; the caller keeps their tensors alive."""
    mask = given.mask
    return partial(
        library.rows,
        Rows(
            source=given.source.data_ptr(),
            result=given.result.data_ptr(),
            bias=None if given.bias is None else given.bias.data_ptr(),
            passed=None if given.passed is None else given.passed.data_ptr(),
            vertex=None if mask is None else mask.vertex.ctypes.data,
            dim=given.source.shape[1],
            first_column=0 if mask is None else mask.first_column,
            key=0 if mask is None else int(mask.key),
            threshold=0 if mask is None else int(mask.threshold),
            scale=given.scale,
            step=given.step,
            dtype=DTYPES[given.source.dtype],
        ),
    )


#: Number of additions that takes several times as long as waking a thread: about 20 microseconds.
_WORTH_A_THREAD: Final = 1 << 19


def num_threads_for(work: int, threads: Threads) -> int:
    """Number of threads worth waking for a number of additions."""
    return min(threads.num_threads, 1 + work // _WORTH_A_THREAD)


def c_heads(library: Library, given: HeadsPass, threads: Threads) -> None:
    """Compute a pass over heads."""
    first, (num_rows, heads, dim) = given.first, given.first.shape
    described = HeadsStruct(
        first=first.data_ptr(),
        second=given.second.data_ptr(),
        other=None if given.other is None else given.other.data_ptr(),
        sums=given.sums.data_ptr(),
        other_sums=None if given.other_sums is None else given.other_sums.data_ptr(),
        gradient=None if given.gradient is None else given.gradient.data_ptr(),
        partial=None if given.partial is None else given.partial.data_ptr(),
        num_rows=num_rows,
        num_others=0 if given.other_sums is None else len(given.other_sums),
        heads=heads,
        dim=dim,
        chunk=HEADS_CHUNK,
        step=given.step,
        dtype=DTYPES[first.dtype],
        vectors=given.second.dim() == 2,
    )

    def kernel(bounds: Bounds, num_threads: int) -> None:
        library.heads(described, bounds, num_threads)

    chunks = threads.even_ranges(-(-num_rows // HEADS_CHUNK))
    run_ranges(kernel, chunks, threads, first.numel(), has_team=library.has_threads)


def run_ranges(
    kernel: Callable[[Bounds, int], None], ranges: list[RowRange], threads: Threads, work: int, *, has_team: bool
) -> None:
    """Run a kernel over consecutive ranges, on the team of torch's threads or else on Python's threads."""
    if not ranges:
        return
    num_threads = num_threads_for(work, threads)
    if num_threads == 1 or has_team:
        kernel(bounds_of(ranges), num_threads)
    else:
        threads.run(lambda start, stop: kernel(bounds_of([(start, stop)]), 1), ranges)


#: Outputs of at least this size are written around the caches, which could not hold them for the next reader.
_STREAMED_BYTES: Final = 32 << 20


class Operands(NamedTuple):
    """Checked operands of one product.

    Attributes:
        dense: (num_columns, dim); its columns are contiguous.
        out: (num_rows, dim); its columns are contiguous.
        row_scale: (num_rows,) of the dtype of the sums, or (0,) if all are 1.
        column_scale: factors of the columns; None if all are 1.
    """

    dense: Tensor
    out: Tensor
    row_scale: Tensor
    column_scale: ColumnScale | None


class CSparseProduct:
    """See :class:`gnnloom.trainer.place.contract.SparseProduct`."""

    def __init__(self, library: Library, rows: SparseRows, threads: Threads, dtype: torch.dtype) -> None:
        """Prepare the rows for products with dense matrices of a dtype."""
        self.num_rows, self.num_columns, self.nnz = rows.num_rows, rows.num_columns, rows.nnz
        self._library, self._rows, self._threads, self._dtype = library, rows, threads, dtype
        # The time of a range is proportional to its nonzeros, not its rows.
        offsets = rows.offsets()
        self._ranges = threads.balanced_ranges(offsets)
        self._slices = threads.slices(self._ranges, offsets)
        sums = array_dtype(sum_dtype(dtype))
        self._indices = np.ascontiguousarray(rows.indices)
        self._data = None if rows.data is None else np.ascontiguousarray(rows.data, sums)
        self._bounds = [bounds_of(self._ranges)]
        self._slice_bounds = [bounds_of(ranges) for ranges in self._slices]
        self._described_matrix = self._matrix()

    def restricted(self, rows: NDArray[np.int64]) -> CSparseProduct:
        return CSparseProduct(self._library, self._rows.restricted(rows), self._threads, self._dtype)

    def multiply(
        self,
        dense: Tensor,
        out: Tensor | RowSink,
        row_scale: Tensor,
        *,
        accumulate: bool = False,
        column_scale: ColumnScale | None = None,
        progress: Progress = None,
    ) -> None:
        if not isinstance(out, Tensor):
            raise TypeError("sparse product: a matrix in memory is multiplied into memory only")
        rows = self._rows
        _check(rows, self._dtype, Operands(dense, out, row_scale, column_scale))
        # Nothing to add. Without `accumulate` the kernel must still write zeros.
        if accumulate and rows.nnz == 0:
            return
        # No normalization has both weights and factors of columns, so no kernel has both.
        if rows.data is not None and column_scale is not None:
            dense, column_scale = (dense * column_scale.factors.unsqueeze(1)).to(self._dtype), None
        # Rows outside the list have no entries.
        if not accumulate and not rows.is_subset and rows.target is not None:
            out.zero_()
        operands = Operands(dense, out, row_scale, column_scale)
        product = self._described(operands, accumulate=accumulate)
        work = self.nnz * operands.out.shape[1]
        num_threads = num_threads_for(work, self._threads)
        if num_threads == 1 or self._library.has_threads:
            # A short product ends before it could delay a message.
            whole = progress is None or work < _WORTH_A_THREAD
            for bounds in self._bounds if whole else self._slice_bounds:
                self._library.multiply(product, bounds, num_threads)
                if progress is not None:
                    progress()
            return

        def kernel(start: int, stop: int) -> None:
            self._library.multiply(product, bounds_of([(start, stop)]))

        self._threads.run_slices(kernel, self._ranges, self._slices, progress)

    def _matrix(self) -> ProductStruct:
        """Fields that all products share, in C's form: addresses of memory that this object owns."""
        rows = self._rows
        return ProductStruct(
            begin=rows.begin.ctypes.data,
            end=rows.end.ctypes.data,
            target=None if rows.target is None else rows.target.ctypes.data,
            columns=self._indices.ctypes.data,
            values=None if self._data is None else self._data.ctypes.data,
            entries=len(self._indices),
            dtype=DTYPES[self._dtype],
            wide_columns=self._indices.dtype == np.int64,
        )

    def _described(self, operands: Operands, *, accumulate: bool) -> ProductStruct:
        """One product; the caller keeps the operands alive."""
        dense, out, row_scale, column_scale = operands
        # A copy, because another thread may multiply by the same matrix. Describing it again would take 4 microseconds.
        product = ProductStruct.from_buffer_copy(self._described_matrix)
        product.row_scale = row_scale.data_ptr() if len(row_scale) else None
        product.column_scale = None if column_scale is None else column_scale.factors.data_ptr()
        runs = None if column_scale is None else column_scale.runs
        product.column_runs = None if runs is None else runs.data_ptr()
        product.dense, product.dense_stride = dense.data_ptr(), dense.stride(0)
        product.out, product.out_stride = out.data_ptr(), out.stride(0)
        product.dim = out.shape[1]
        product.accumulate = accumulate
        product.stream = not accumulate and out.nbytes >= _STREAMED_BYTES
        product.wide_out = out.dtype != self._dtype
        return product


def bounds_of(ranges: list[RowRange]) -> Bounds:
    """Positions at which consecutive ranges begin and end."""
    positions = [ranges[0][0], *(stop for _, stop in ranges)] if ranges else [0]
    return (ctypes.c_int64 * len(positions))(*positions)


def _check(rows: SparseRows, dtype: torch.dtype, operands: Operands) -> None:
    """Raise ValueError if a shape, dtype or layout does not match."""
    dense, out, row_scale, column_scale = operands
    if dense.dim() != 2 or dense.shape[0] != rows.num_columns or out.shape != (rows.num_rows, dense.shape[1]):
        shapes = f"{tuple(dense.shape)} into {tuple(out.shape)}"
        raise ValueError(f"sparse product: ({rows.num_rows}, {rows.num_columns}) times {shapes}")
    sums = sum_dtype(dtype)
    for name, tensor, allowed in (("dense", dense, (dtype,)), ("out", out, (dtype, sums))):
        if tensor.dtype not in allowed:
            raise ValueError(f"sparse product: {name} is {tensor.dtype}, not {dtype}")
        if tensor.numel() and tensor.shape[1] > 1 and tensor.stride(1) != 1:
            raise ValueError(f"sparse product: the rows of {name} are not contiguous")
    scales = [("row", row_scale, rows.num_rows)] if len(row_scale) else []
    if column_scale is not None:
        scales.append(("column", column_scale.factors, rows.num_columns))
    for name, scale, length in scales:
        if scale.shape != (length,) or scale.dtype != sums or not scale.is_contiguous():
            found = f"{tuple(scale.shape)} {scale.dtype}"
            raise ValueError(f"sparse product: {name} factors are {found}, not ({length},) {sums}")
