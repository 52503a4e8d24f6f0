"""Attention over the nonzeros of a sparse pattern, without a tensor over edges and features, compiled by numba.

:class:`gnnloom.trainer.kernels.contract.EdgeSoftmax` has the formulas. A row's columns may lie in several patterns:
each pattern adds to a running maximum, sum and weighted sum, which are scaled down whenever the maximum grows
(Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018). The adjoint computes the weights again from
the maximum and the sum, so nothing of the size of the edges is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.transpose import transposed
from gnnloom.trainer.kernels.contract import Progress, SoftmaxGradient, SoftmaxState
from gnnloom.trainer.place.arrays import array_dtype, as_array
from gnnloom.trainer.place.threads import Threads

Dense = NDArray[Any]


class _Attended(NamedTuple):
    """What the kernels read to compute the weights and the weighted values.

    Attributes:
        values: (num_columns, heads, dim) values z of the columns.
        source: (num_columns, heads) scores s of the columns.
        target: (num_rows, heads) scores t of the rows.
        slope: slope of the LeakyReLU below 0, of the arrays' dtype.
    """

    values: Dense
    source: Dense
    target: Dense
    slope: Any


class _State(NamedTuple):
    """A :class:`SoftmaxState` as arrays."""

    maximum: Dense
    total: Dense
    weighted: Dense


class _Gradient(NamedTuple):
    """A :class:`SoftmaxGradient` as arrays."""

    maximum: Dense
    total: Dense
    output: Dense
    along: Dense


class NumbaEdgeSoftmax:
    """See :class:`gnnloom.trainer.kernels.contract.EdgeSoftmax`."""

    def __init__(self, pattern: CSR, negative_slope: float, threads: Threads) -> None:
        self._indptr, self._indices = pattern.indptr, pattern.indices
        # The gradient of a column sums over its rows. With the transpose, one thread sums a whole column, in one order.
        by_column = transposed(replace(pattern, data=None))
        self._column_indptr, self._rows = by_column.indptr, by_column.indices
        self._slope = negative_slope
        self._threads = threads
        # Rows and columns have different distributions of nonzeros, so each direction has its own ranges.
        self._row_ranges = threads.balanced_ranges(self._indptr)
        self._column_ranges = threads.balanced_ranges(self._column_indptr)

    def accumulate(
        self, values: Tensor, source: Tensor, target: Tensor, state: SoftmaxState, progress: Progress = None
    ) -> None:
        attended, sums = self._attended(values, source, target), _State(*map(as_array, state))

        def kernel(start: int, stop: int) -> None:
            _accumulate(self._indptr, self._indices, attended, sums, start, stop)

        self._over_rows(kernel, progress)

    def add_target_gradient(
        self,
        values: Tensor,
        source: Tensor,
        target: Tensor,
        gradient: SoftmaxGradient,
        out: Tensor,
        progress: Progress = None,
    ) -> None:
        attended, given = self._attended(values, source, target), _Gradient(*map(as_array, gradient))
        result = as_array(out)

        def kernel(start: int, stop: int) -> None:
            _target_gradient(self._indptr, self._indices, attended, given, result, start, stop)

        self._over_rows(kernel, progress)

    def add_source_gradient(
        self,
        values: Tensor,
        source: Tensor,
        target: Tensor,
        gradient: SoftmaxGradient,
        of_values: Tensor,
        of_scores: Tensor,
        progress: Progress = None,
    ) -> None:
        attended, given = self._attended(values, source, target), _Gradient(*map(as_array, gradient))
        results = as_array(of_values), as_array(of_scores)

        def kernel(start: int, stop: int) -> None:
            _source_gradient(self._column_indptr, self._rows, attended, given, *results, start, stop)

        slices = self._threads.slices(self._column_ranges, self._column_indptr) if progress else []
        self._threads.run_slices(kernel, self._column_ranges, slices, progress)

    def _over_rows(self, kernel: Callable[[int, int], None], progress: Progress) -> None:
        slices = self._threads.slices(self._row_ranges, self._indptr) if progress else []
        self._threads.run_slices(kernel, self._row_ranges, slices, progress)

    def _attended(self, values: Tensor, source: Tensor, target: Tensor) -> _Attended:
        # In a kernel a Python float is a float64, which would widen the arithmetic of float32 arrays.
        slope = array_dtype(values.dtype).type(self._slope)
        return _Attended(as_array(values), as_array(source), as_array(target), slope)


# The kernels are compiled without fastmath: it would reorder sums and assume that no number is infinite, and a row's
# maximum starts at minus infinity. The cache on disk saves the ranks from compiling at every start.
@njit(cache=True, nogil=True)
def _leaky(value: Any, score: Any, slope: Any) -> Any:
    """``value`` times the derivative of the LeakyReLU at ``score``; the LeakyReLU itself if both are the score."""
    return value if score > 0 else value * slope


@njit(cache=True, nogil=True)
def _accumulate(
    indptr: NDArray[np.int64], indices: NDArray[Any], attended: _Attended, state: _State, start: int, stop: int
) -> None:
    values, source, target, slope = attended
    maximum, total, weighted = state
    # Threads have disjoint ranges of rows and write only these rows of the state, so they need no lock.
    for row in range(start, stop):
        # First the maximum over the row's scores, so that no exponential overflows; sums of earlier patterns are
        # scaled down to the new maximum. exp(-inf) = 0 covers a row whose columns are the first. This pass reads one
        # score per edge and head; a maximum that grew in the loop below would scale a whole row at every change.
        for head in range(target.shape[1]):
            highest = maximum[row, head]
            for entry in range(indptr[row], indptr[row + 1]):
                score = source[indices[entry], head] + target[row, head]
                highest = max(highest, _leaky(score, score, slope))
            if highest > maximum[row, head]:
                factor = np.exp(maximum[row, head] - highest)
                total[row, head] *= factor
                weighted[row, head] *= factor
                maximum[row, head] = highest
        # Then the sums, edge by edge: a column's values of all heads are contiguous, and are fetched once.
        for entry in range(indptr[row], indptr[row + 1]):
            column = indices[entry]
            for head in range(target.shape[1]):
                score = source[column, head] + target[row, head]
                weight = np.exp(_leaky(score, score, slope) - maximum[row, head])
                total[row, head] += weight
                for dim in range(values.shape[2]):
                    weighted[row, head, dim] += weight * values[column, head, dim]


@njit(cache=True, nogil=True)
def _edge_gradient(attended: _Attended, gradient: _Gradient, row: int, column: int, head: int) -> tuple[Any, Any]:
    """The weight of one edge and head, and the gradient of its score s_j + t_i.

    The derivative of a softmax: weight times (gradient of the weight - ``along``), where ``along`` is the same sum
    over all edges of the row, weighted.
    """
    values, source, target, slope = attended
    score = source[column, head] + target[row, head]
    # The forward pass is over, so maximum and total cover all patterns. The exponent is at most 0 and cannot overflow,
    # and the total of a row with an edge is at least 1: its largest score adds exp(0).
    weight = np.exp(_leaky(score, score, slope) - gradient.maximum[row, head]) / gradient.total[row, head]
    of_weight = -gradient.along[row, head]
    for dim in range(values.shape[2]):
        of_weight += values[column, head, dim] * gradient.output[row, head, dim]
    return weight, _leaky(weight * of_weight, score, slope)


@njit(cache=True, nogil=True)
def _target_gradient(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    attended: _Attended,
    gradient: _Gradient,
    out: Dense,
    start: int,
    stop: int,
) -> None:
    # Row by row: the gradient of t_i sums over the edges of row i. It is added to ``out``, because a row's edges may
    # lie in several patterns.
    for row in range(start, stop):
        for entry in range(indptr[row], indptr[row + 1]):
            column = indices[entry]
            for head in range(out.shape[1]):
                _, of_score = _edge_gradient(attended, gradient, row, column, head)
                out[row, head] += of_score


@njit(cache=True, nogil=True)
def _source_gradient(
    column_indptr: NDArray[np.int64],
    rows: NDArray[Any],
    attended: _Attended,
    gradient: _Gradient,
    of_values: Dense,
    of_scores: Dense,
    start: int,
    stop: int,
) -> None:
    # Column by column: the gradients of z_j and s_j sum over the edges of column j. Computing an edge's weight a second
    # time costs less than storing it between this loop and the one above. Columns belong to one thread each, so no two
    # threads add to the same element.
    for column in range(start, stop):
        for entry in range(column_indptr[column], column_indptr[column + 1]):
            row = rows[entry]
            for head in range(of_scores.shape[1]):
                weight, of_score = _edge_gradient(attended, gradient, row, column, head)
                of_scores[column, head] += of_score
                for dim in range(of_values.shape[2]):
                    of_values[column, head, dim] += weight * gradient.output[row, head, dim]
