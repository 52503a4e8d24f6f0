"""Attention over the nonzeros of a sparse pattern, without a tensor over edges and features.

For target row i, source column j and head h, with scores s_j and t_i (Velickovic et al., ICLR 2018, equation 3):

    e_ij = LeakyReLU(s_j + t_i),  weight_ij = exp(e_ij) / sum over k of exp(e_ik),  out_i = sum over j of weight_ij z_j

A row's columns may lie in several matrices: each adds to a running maximum, sum and weighted sum, which are
scaled down whenever the maximum grows (Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018).
The adjoint computes the weights again from the maximum and the sum, so nothing of the size of the edges is kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.matrix.csr import CSR, transposed
from gnnloom.trainer.kernels.threads import Threads

Dense = NDArray[Any]


class Attended(NamedTuple):
    """What the weights of the nonzeros come from, and what is summed by them.

    Attributes:
        values: (num_columns, heads, dim) z of the columns.
        source: (num_columns, heads) scores s of the columns.
        target: (num_rows, heads) scores t of the rows.
        slope: of LeakyReLU below 0, of the arrays' dtype.
    """

    values: Dense
    source: Dense
    target: Dense
    slope: Any


class SoftmaxState(NamedTuple):
    """What the columns seen so far add up to.

    Attributes:
        maximum: (num_rows, heads) of the scores e; minus infinity for a row without columns.
        total: (num_rows, heads) sum of exp(e - maximum).
        weighted: (num_rows, heads, dim) sum of exp(e - maximum) z.
    """

    maximum: Dense
    total: Dense
    weighted: Dense

    @classmethod
    def like(cls, values: Dense) -> SoftmaxState:
        """Of no columns, for rows with outputs of the shape and dtype of ``values``."""
        maximum = np.full(values.shape[:2], -np.inf, values.dtype)
        return cls(maximum, np.zeros_like(maximum), np.zeros_like(values))


class SoftmaxGradient(NamedTuple):
    """What the adjoint needs of the target rows.

    Attributes:
        maximum, total: as in :class:`SoftmaxState`.
        output: (num_rows, heads, dim) gradient of the output.
        along: (num_rows, heads) the output times its gradient, summed over the features.
    """

    maximum: Dense
    total: Dense
    output: Dense
    along: Dense


class EdgeSoftmax:
    """A pattern prepared for attention of its rows over its columns; dense arrays are C-contiguous, of one dtype."""

    def __init__(self, pattern: CSR, negative_slope: float, threads: Threads) -> None:
        self._indptr, self._indices = pattern.indptr, pattern.indices
        # The adjoint adds up over the rows of each column, one thread per column: the same order every time.
        by_column = transposed(replace(pattern, data=None))
        self._column_indptr, self._rows = by_column.indptr, by_column.indices
        self._slope = negative_slope
        self._threads = threads
        self._row_ranges = threads.balanced_ranges(self._indptr)
        self._column_ranges = threads.balanced_ranges(self._column_indptr)

    def accumulate(self, values: Dense, source: Dense, target: Dense, state: SoftmaxState) -> None:
        """Add this pattern's columns to the state of the rows.

        Args:
            values: (num_columns, heads, dim).
            source: (num_columns, heads) scores of the columns.
            target: (num_rows, heads) scores of the rows.
        """
        attended = self._attended(values, source, target)

        def kernel(start: int, stop: int) -> None:
            _accumulate(self._indptr, self._indices, attended, state, start, stop)

        self._threads.run(kernel, self._row_ranges)

    def add_target_gradient(
        self, values: Dense, source: Dense, target: Dense, gradient: SoftmaxGradient, out: Dense
    ) -> None:
        """Add this pattern's part of the gradient of the target scores to ``out``, (num_rows, heads)."""
        attended = self._attended(values, source, target)

        def kernel(start: int, stop: int) -> None:
            _target_gradient(self._indptr, self._indices, attended, gradient, out, start, stop)

        self._threads.run(kernel, self._row_ranges)

    def source_gradient(
        self, values: Dense, source: Dense, target: Dense, gradient: SoftmaxGradient
    ) -> tuple[Dense, Dense]:
        """Gradients of the columns: of the values (num_columns, heads, dim) and of the scores (num_columns, heads)."""
        attended = self._attended(values, source, target)
        by_value, by_score = np.zeros_like(values), np.zeros_like(source)

        def kernel(start: int, stop: int) -> None:
            _source_gradient(self._column_indptr, self._rows, attended, gradient, by_value, by_score, start, stop)

        self._threads.run(kernel, self._column_ranges)
        return by_value, by_score

    def _attended(self, values: Dense, source: Dense, target: Dense) -> Attended:
        return Attended(values, source, target, values.dtype.type(self._slope))


@njit(cache=True, nogil=True)
def _leaky(score: Any, slope: Any) -> Any:
    return score if score > 0 else score * slope


@njit(cache=True, nogil=True)
def _accumulate(
    indptr: NDArray[np.int64], indices: NDArray[Any], attended: Attended, state: SoftmaxState, start: int, stop: int
) -> None:
    values, source, target, slope = attended
    maximum, total, weighted = state
    for row in range(start, stop):
        for head in range(target.shape[1]):
            highest = maximum[row, head]
            for entry in range(indptr[row], indptr[row + 1]):
                highest = max(highest, _leaky(source[indices[entry], head] + target[row, head], slope))
            if highest > maximum[row, head]:
                factor = np.exp(maximum[row, head] - highest)
                total[row, head] *= factor
                weighted[row, head] *= factor
                maximum[row, head] = highest
        for entry in range(indptr[row], indptr[row + 1]):
            column = indices[entry]
            for head in range(target.shape[1]):
                score = _leaky(source[column, head] + target[row, head], slope)
                weight = np.exp(score - maximum[row, head])
                total[row, head] += weight
                for dim in range(values.shape[2]):
                    weighted[row, head, dim] += weight * values[column, head, dim]


@njit(cache=True, nogil=True)
def _score_gradient(attended: Attended, gradient: SoftmaxGradient, row: int, column: int, head: int) -> tuple[Any, Any]:
    """Of one edge and head: its weight, and the gradient of s_j + t_i."""
    values, source, target, slope = attended
    score = source[column, head] + target[row, head]
    weight = np.exp(_leaky(score, slope) - gradient.maximum[row, head]) / gradient.total[row, head]
    by_weight = -gradient.along[row, head]
    for dim in range(values.shape[2]):
        by_weight += values[column, head, dim] * gradient.output[row, head, dim]
    return weight, _leaky_gradient(weight * by_weight, score, slope)


@njit(cache=True, nogil=True)
def _leaky_gradient(gradient: Any, score: Any, slope: Any) -> Any:
    return gradient if score > 0 else gradient * slope


@njit(cache=True, nogil=True)
def _target_gradient(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    attended: Attended,
    gradient: SoftmaxGradient,
    out: Dense,
    start: int,
    stop: int,
) -> None:
    for row in range(start, stop):
        for entry in range(indptr[row], indptr[row + 1]):
            column = indices[entry]
            for head in range(out.shape[1]):
                _, by_edge = _score_gradient(attended, gradient, row, column, head)
                out[row, head] += by_edge


@njit(cache=True, nogil=True)
def _source_gradient(
    column_indptr: NDArray[np.int64],
    rows: NDArray[Any],
    attended: Attended,
    gradient: SoftmaxGradient,
    by_value: Dense,
    by_score: Dense,
    start: int,
    stop: int,
) -> None:
    for column in range(start, stop):
        for entry in range(column_indptr[column], column_indptr[column + 1]):
            row = rows[entry]
            for head in range(by_score.shape[1]):
                weight, by_edge = _score_gradient(attended, gradient, row, column, head)
                by_score[column, head] += by_edge
                for dim in range(by_value.shape[2]):
                    by_value[column, head, dim] += weight * gradient.output[row, head, dim]
