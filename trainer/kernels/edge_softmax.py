"""Attention over the nonzeros of a sparse pattern, without a tensor over edges and features.

:class:`gnnloom.trainer.kernels.contract.EdgeSoftmax` has the formulas. A row's columns may lie in several patterns:
each pattern adds to a running maximum, sum and weighted sum, which are scaled down whenever the maximum grows
(Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018). The adjoint computes the weights again from
the maximum and the sum, so nothing of the size of the edges is stored. It visits every entry once, column by column:
one row of the output's gradient is fetched for the gradients of the column and for that of the row's target score.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.transpose import transposed
from gnnloom.trainer.kernels.contract import Attended, Progress, SoftmaxGradient, SoftmaxState, num_column_ranges
from gnnloom.trainer.place.arrays import sum_dtype
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.place.threads import RowRange


class PatternSoftmax(ABC):
    """What the implementations of :class:`gnnloom.trainer.kernels.contract.EdgeSoftmax` share."""

    def __init__(self, pattern: CSR, negative_slope: float, place: Place) -> None:
        """Prepare a pattern and its transpose; weights are ignored."""
        threads = place.threads
        self.nnz, self._place, self._slope = pattern.nnz, place, negative_slope
        self._indptr, self._indices = pattern.indptr, pattern.indices
        # The gradient of a column sums over its rows. With the transpose, one thread sums a whole column, in one order.
        by_column = transposed(replace(pattern, data=None))
        self._column_indptr, self._rows = by_column.indptr, by_column.indices
        self._row_ranges = threads.balanced_ranges(self._indptr)
        self._row_slices = threads.slices(self._row_ranges, self._indptr)
        num_ranges = num_column_ranges(pattern.nnz, pattern.num_rows)
        self._column_ranges = threads.balanced_ranges(self._column_indptr, num_ranges)

    @abstractmethod
    def _attend(
        self,
        given: Attended,
        state: SoftmaxState,
        output: Tensor | None,
        *,
        begins: bool,
        slices: list[list[RowRange]],
        progress: Progress,
    ) -> None:
        """Compute ranges of rows."""

    @abstractmethod
    def _column_gradients(
        self, given: Attended, gradient: SoftmaxGradient, result: Attended, ranges: list[RowRange]
    ) -> None:
        """Compute ranges of columns.

        Args:
            result: its ``target`` is (len(ranges), num_rows, heads), which gets the sums over each range.
        """

    def accumulate(
        self,
        given: Attended,
        state: SoftmaxState,
        output: Tensor | None = None,
        *,
        begins: bool = True,
        progress: Progress = None,
    ) -> None:
        _check(given, state[:2], () if output is None else (output,))
        slices = self._row_slices if progress else [self._row_ranges]
        self._attend(given, state, output, begins=begins, slices=slices, progress=progress)

    def gradients(
        self, given: Attended, gradient: SoftmaxGradient, result: Attended, progress: Progress = None
    ) -> None:
        of_target = result.target
        _check(given, (gradient.rows, result.source, of_target), (gradient.output, result.values))
        # Several columns add to the same row: threads have parts of their own, which are summed in one order.
        ranges, step = self._column_ranges, self._place.threads.num_threads
        parts = self._place.empty((min(step, len(ranges)), *of_target.shape), of_target.dtype)
        of_target.zero_()
        for start in range(0, len(ranges), step):
            some = ranges[start : start + step]
            self._column_gradients(given, gradient, result._replace(target=parts[: len(some)]), some)
            for part in parts[: len(some)]:
                of_target += part
            if progress is not None:
                progress()


def _check(given: Attended, sums: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Raise ValueError if tensors are of another dtype, or not contiguous."""
    dtype = given.values.dtype
    scores = given.source, given.target, *sums
    for name, expected, tensors in (("scores", sum_dtype(dtype), scores), ("values", dtype, (given.values, *values))):
        for tensor in tensors:
            if tensor.dtype != expected or not tensor.is_contiguous():
                raise ValueError(f"attention: {name} are {tensor.dtype}, not contiguous {expected}")
