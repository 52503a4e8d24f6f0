"""Attention over the nonzeros of a sparse pattern, without a tensor over edges and features, in C (attention_kernel.h).

:class:`gnnloom.trainer.place.contract.EdgeSoftmax` has the formulas. A row's columns may lie in several patterns:
each pattern adds to a running maximum, sum and weighted sum, which are scaled down whenever the maximum grows
(Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018). The adjoint computes the weights again from
the maximum and the sum, so nothing of the size of the edges is stored. It visits every entry once, column by column:
one row of the output's gradient is fetched for the gradients of the column and of the row's target score.
In dynamic attention, a row's gradient is as wide as a column's, so the adjoint also visits every entry row by row.

The kernels compute scores and weights for a few entries at a time, with vectors of all heads; the sums of a row or
column stay in registers, and the rows that its entries need are fetched ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.transpose import transposed
from gnnloom.trainer.kernels.c.calls import bounds_of, num_threads_for
from gnnloom.trainer.kernels.c.library import DTYPES, AttentionStruct, Library
from gnnloom.trainer.kernels.elementwise import add_in_order
from gnnloom.trainer.place.arrays import sum_dtype
from gnnloom.trainer.place.contract import (
    HUB_ENTRIES,
    AttentionInputs,
    Progress,
    SoftmaxGradient,
    SoftmaxState,
    num_column_ranges,
    num_hub_columns,
    num_vector_ranges,
)
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.place.threads import RowRange

#: Steps of attention.h, in addition to the steps of :class:`Sweep`.
_ATTEND, _ATTEND_DYNAMIC = 0, 2


class Sweep(IntEnum):
    """A pass over all entries of the adjoint; the numbers are the same as in attention.h."""

    #: Column by column, for the gradients of its value and score, and the parts of the gradients of all target scores.
    COLUMNS = 1
    #: Dynamic attention: column by column, for the gradients of its value.
    DYNAMIC_COLUMNS = 3
    #: Dynamic attention: row by row, for the gradients of its value.
    DYNAMIC_ROWS = 4


class CEdgeSoftmax:
    """See :class:`gnnloom.trainer.place.contract.EdgeSoftmax`."""

    def __init__(
        self, library: Library, pattern: CSR, negative_slope: float, place: Place, *, dynamic: bool = False
    ) -> None:
        """Prepare a pattern and its transpose; weights are ignored."""
        threads = place.threads
        self.nnz, self._place, self._slope, self.is_dynamic = pattern.nnz, place, negative_slope, dynamic
        self._library = library
        self._indptr, self._indices = np.ascontiguousarray(pattern.indptr), np.ascontiguousarray(pattern.indices)
        # The gradient of a column sums over its rows. With the transpose, one thread sums a whole column, in one order.
        by_column = transposed(replace(pattern, data=None))
        self._column_indptr, self._rows = by_column.indptr, np.ascontiguousarray(by_column.indices)
        self._row_ranges = threads.balanced_ranges(self._indptr)
        self._row_slices = threads.slices(self._row_ranges, self._indptr)
        if dynamic:
            num_ranges = num_vector_ranges(pattern.nnz)
            self._sweeps = {
                Sweep.DYNAMIC_COLUMNS: threads.balanced_ranges(self._column_indptr, num_ranges),
                Sweep.DYNAMIC_ROWS: threads.balanced_ranges(self._indptr, num_ranges),
            }
        else:
            num_ranges = num_column_ranges(pattern.nnz, pattern.num_rows)
            self._sweeps = {Sweep.COLUMNS: threads.balanced_ranges(self._column_indptr, num_ranges)}
            self._hubs = np.flatnonzero(np.diff(self._indptr) > HUB_ENTRIES)
            self._hub_columns = num_hub_columns(pattern.nnz, pattern.num_columns, len(self._hubs))

    def accumulate(
        self,
        given: AttentionInputs,
        state: SoftmaxState,
        output: Tensor | None = None,
        *,
        begins: bool = True,
        progress: Progress = None,
    ) -> None:
        self._check(given, state[:2], () if output is None else (output,))
        slices = self._row_slices if progress else [self._row_ranges]
        self._attend(given, state, output, begins=begins, slices=slices, progress=progress)

    def gradients(
        self, given: AttentionInputs, gradient: SoftmaxGradient, result: AttentionInputs, progress: Progress = None
    ) -> None:
        sums, values = [gradient.rows, result.source], [gradient.output, result.values]
        (values if self.is_dynamic else sums).append(result.target)
        self._check(given, sums, values)
        if self.is_dynamic:
            self._dynamic_gradients(given, gradient, result, progress)
        else:
            self._static_gradients(given, gradient, result, progress)

    def _static_gradients(
        self, given: AttentionInputs, gradient: SoftmaxGradient, result: AttentionInputs, progress: Progress
    ) -> None:
        # Several columns add to the same row: each thread has its own part, and parts are summed in one order.
        ranges, step, of_target = self._sweeps[Sweep.COLUMNS], self._place.threads.num_threads, result.target
        num_parts, shape = min(step, len(ranges)), (len(self._hubs), of_target.shape[1])
        parts = self._place.empty((num_parts, *of_target.shape), of_target.dtype)
        of_hubs, total = (self._place.zeros(size, torch.float64) for size in ((num_parts, *shape), shape))
        of_target.zero_()
        for start in range(0, len(ranges), step):
            some = ranges[start : start + step]
            self._sweep(Sweep.COLUMNS, given, gradient, result._replace(target=parts[: len(some)]), some, of_hubs)
            for part, of_hub in zip(parts[: len(some)], of_hubs, strict=False):
                of_target += part
                total += of_hub
            if progress is not None:
                progress()
        of_target[torch.from_numpy(self._hubs)] = total.to(of_target.dtype)

    def _dynamic_gradients(
        self, given: AttentionInputs, gradient: SoftmaxGradient, result: AttentionInputs, progress: Progress
    ) -> None:
        total = self._place.zeros(result.source.shape, torch.float64)
        for sweep, ranges in self._sweeps.items():
            parts = self._place.empty((len(ranges), *total.shape), total.dtype)
            step = len(ranges) if progress is None else self._place.threads.num_threads
            for start in range(0, len(ranges), max(1, step)):
                some = slice(start, start + step)
                self._sweep(sweep, given, gradient, result._replace(source=parts[some]), ranges[some])
                if progress is not None:
                    progress()
            add_in_order(total, parts, self._place)
        result.source.copy_(total)

    def _check(self, given: AttentionInputs, sums: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        """Raise ValueError if tensors have another dtype, or are not contiguous."""
        dtype = given.values.dtype
        scores = (given.source,) if self.is_dynamic else given[1:]
        stored = (given.values, given.target) if self.is_dynamic else given[:1]
        for name, expected, tensors in (
            ("scores", sum_dtype(dtype), (*scores, *sums)),
            ("values", dtype, (*stored, *values)),
        ):
            for tensor in tensors:
                if tensor.dtype != expected or not tensor.is_contiguous():
                    raise ValueError(f"attention: {name} are {tensor.dtype}, not contiguous {expected}")

    def _attend(
        self,
        given: AttentionInputs,
        state: SoftmaxState,
        output: Tensor | None,
        *,
        begins: bool,
        slices: list[list[RowRange]],
        progress: Progress,
    ) -> None:
        step = _ATTEND_DYNAMIC if self.is_dynamic else _ATTEND
        described = self._described(given, step, self._indptr, self._indices)
        described.maximum, described.total, described.weighted = (tensor.data_ptr() for tensor in state)
        described.output, described.begins = None if output is None else output.data_ptr(), begins
        for ranges in slices:
            self._run(described, ranges)
            if progress is not None:
                progress()

    def _sweep(
        self,
        sweep: Sweep,
        given: AttentionInputs,
        gradient: SoftmaxGradient,
        result: AttentionInputs,
        ranges: list[RowRange],
        of_hubs: Tensor | None = None,
    ) -> None:
        """Compute ranges of columns or rows.

        Args:
            result: one of its tensors gets the sums over each range, so it has one more dimension: ``target`` is
                (len(ranges), num_rows, heads), or in dynamic attention ``source`` (len(ranges), heads, dim) float64.
            of_hubs: (len(ranges), number of hubs, heads) float64, the sums over each range of target scores of hubs,
                in place of their sums in ``result``; None in dynamic attention.
        """
        by_row = self._indptr, self._indices
        entries = by_row if sweep is Sweep.DYNAMIC_ROWS else (self._column_indptr, self._rows)
        # Static scores of the rows are among the other numbers of the rows.
        described = self._described(given if self.is_dynamic else given._replace(target=gradient.rows), sweep, *entries)
        described.row_numbers = gradient.rows.data_ptr()
        described.gradient, described.num_rows = gradient.output.data_ptr(), len(gradient.output)
        described.of_values, described.of_source, described.of_target = (tensor.data_ptr() for tensor in result)
        if of_hubs is not None:
            described.hubs, described.num_hubs = self._hubs.ctypes.data, len(self._hubs)
            described.of_hubs, described.hub_columns = of_hubs.data_ptr(), self._hub_columns
        self._run(described, ranges)

    def _described(
        self, given: AttentionInputs, step: int, offsets: NDArray[np.int64], ids: NDArray[Any]
    ) -> AttentionStruct:
        _, heads, dim = given.values.shape
        return AttentionStruct(
            offsets=offsets.ctypes.data,
            ids=ids.ctypes.data,
            wide_ids=ids.dtype == np.int64,
            values=given.values.data_ptr(),
            source=given.source.data_ptr(),
            target=given.target.data_ptr(),
            num_entries=self.nnz,
            heads=heads,
            dim=dim,
            slope=self._slope,
            step=step,
            dtype=DTYPES[given.values.dtype],
        )

    def _run(self, described: AttentionStruct, ranges: list[RowRange]) -> None:
        threads = self._place.threads
        num_threads = num_threads_for(self.nnz * described.heads * max(1, described.dim), threads)
        if not ranges:
            return
        if num_threads == 1 or self._library.has_threads:
            self._library.attend(described, bounds_of(ranges), num_threads)
            return
        numbers = {start: number for number, (start, _) in enumerate(ranges)}

        def kernel(start: int, stop: int) -> None:
            own = AttentionStruct.from_buffer_copy(described)
            own.first_range = numbers[start]
            self._library.attend(own, bounds_of([(start, stop)]))

        threads.run(kernel, ranges)
