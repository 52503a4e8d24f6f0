"""Attention over the nonzeros of a sparse pattern, compiled by numba.

numba has no bfloat16: of values and gradients it gets the bits, and computes in float32.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.kernels.contract import (
    HEADS_CHUNK,
    Attended,
    HeadsPass,
    HeadsStep,
    Progress,
    SoftmaxGradient,
    SoftmaxState,
)
from gnnloom.trainer.kernels.edge_softmax import PatternSoftmax, Sweep
from gnnloom.trainer.kernels.numba_rows import narrowed, widened
from gnnloom.trainer.place.arrays import array_dtype, as_array
from gnnloom.trainer.place.threads import RowRange, Threads

Dense = NDArray[Any]

#: As in attention_types.h: the entries of a row or column whose sums are then added in float64, if it has more.
_SEGMENT: Final = 512


class _Arrays(NamedTuple):
    """An :class:`Attended` as arrays, and the slope of the LeakyReLU below 0, of the dtype of sums.

    For static gradients, ``target`` are the ``rows`` of a :class:`SoftmaxGradient`.
    """

    values: Dense
    source: Dense
    target: Dense
    slope: Any


class _State(NamedTuple):
    """A :class:`SoftmaxState` as arrays, and the output, which is empty if there is none."""

    maximum: Dense
    total: Dense
    weighted: Dense
    output: Dense


class _Hubs(NamedTuple):
    """Rows with very many entries, and the sums over a range of columns of the gradients of their scores.

    Attributes:
        rows: (number of hubs,) int64.
        sums: (number of hubs, heads) float64.
        columns: number of columns after which the sums in float32 are added to these.
    """

    rows: NDArray[np.int64]
    sums: Dense
    columns: int


class NumbaEdgeSoftmax(PatternSoftmax):
    """See :class:`gnnloom.trainer.kernels.contract.EdgeSoftmax`."""

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
        attended, result = self._arrays(given), given.values[:0] if output is None else output
        sums = _State(as_array(state.maximum), as_array(state.total), as_array(state.weighted), as_array(result))

        accumulate = _accumulate_dynamic if self.is_dynamic else _accumulate

        def kernel(start: int, stop: int) -> None:
            accumulate(self._indptr, self._indices, attended, sums, begins, start, stop)

        for ranges in slices:
            self._place.threads.run(kernel, ranges)
            if progress is not None:
                progress()

    def _sweep(
        self,
        sweep: Sweep,
        given: Attended,
        gradient: SoftmaxGradient,
        result: Attended,
        ranges: list[RowRange],
        of_hubs: Tensor | None = None,
    ) -> None:
        numbers, output = as_array(gradient.rows), as_array(gradient.output)
        of_values, of_source, of_target = (as_array(tensor) for tensor in result)
        parts = {start: number for number, (start, _) in enumerate(ranges)}

        def kernel(start: int, stop: int) -> None:
            number, by_column = parts[start], (self._column_indptr, self._rows)
            if of_hubs is not None:
                attended = self._arrays(given._replace(target=gradient.rows))
                hubs = _Hubs(self._hubs, as_array(of_hubs[number]), self._hub_columns)
                results = of_values, of_source, of_target[number]
                _column_gradients(*by_column, attended, output, *results, hubs, start, stop)
                return
            attended, part = self._arrays(given), of_source[number]
            if sweep is Sweep.DYNAMIC_COLUMNS:
                _dynamic_columns(*by_column, attended, numbers, output, of_values, part, start, stop)
            else:
                by_row = self._indptr, self._indices
                _dynamic_rows(*by_row, attended, numbers, output, of_target, part, start, stop)

        self._place.threads.run(kernel, ranges)

    def _arrays(self, given: Attended) -> _Arrays:
        # In a kernel a Python float is a float64, which would widen the arithmetic of float32 arrays.
        slope = array_dtype(given.source.dtype).type(self._slope)
        return _Arrays(as_array(given.values), as_array(given.source), as_array(given.target), slope)


def numba_heads(given: HeadsPass, threads: Threads) -> None:
    """Compute a pass over heads."""
    first, second, sums = as_array(given.first), as_array(given.second), as_array(given.sums)
    nothing = sums[:0]
    others = nothing if given.other_sums is None else as_array(given.other_sums)
    other = np.empty((0, *first.shape[1:]), sums.dtype) if given.other is None else as_array(given.other)
    if given.step is HeadsStep.DOTS:
        pairs = [(second, sums)] + ([] if given.other is None else [(other, others)])

        def kernel(start: int, stop: int) -> None:
            for factor, result in pairs:
                rows = slice(start * HEADS_CHUNK, min(stop * HEADS_CHUNK, len(result)))
                _dots(first[rows], factor[np.newaxis] if factor.ndim == 2 else factor[rows], result[rows])

    else:
        if given.gradient is None or given.partial is None:
            raise ValueError("a pass that spreads scores needs a gradient and partial sums")
        results = as_array(given.gradient), as_array(given.partial)
        vectors = second, (second if given.other is None else other)

        def kernel(start: int, stop: int) -> None:
            _spread(first, *vectors, sums, others, *results, HEADS_CHUNK, start, stop)

    threads.run(kernel, threads.even_ranges(-(-len(first) // HEADS_CHUNK)))


# The kernels are compiled without fastmath: it would reorder sums and assume that no number is infinite, and a row's
# maximum starts at minus infinity. The cache on disk saves the ranks from compiling at every start. Rows are copied in
# loops: assignments of arrays take numba almost as long to compile as all the rest.
@njit(cache=True, nogil=True)
def _leaky(value: Any, score: Any, slope: Any) -> Any:
    """``value`` times the derivative of the LeakyReLU at ``score``; the LeakyReLU itself if both are the score."""
    return value if score > 0 else value * slope


@njit(cache=True, nogil=True)
def _scaled(row: Dense, factor: Any, out: Dense) -> None:
    for head in range(row.shape[0]):
        for each in range(row.shape[1]):
            out[head, each] = row[head, each] * factor[head]


@njit(cache=True, nogil=True)
def _carry(whole: Dense, sums: Dense) -> None:
    """Add the sums of a segment, (heads, n), to those of a whole row or column, and clear them."""
    for head in range(sums.shape[0]):
        for each in range(sums.shape[1]):
            whole[head, each] += sums[head, each]
            sums[head, each] = 0


@njit(cache=True, nogil=True)
def _settle(whole: Dense, sums: Dense) -> None:
    """Add the sums of the last segment, round, and clear the sums of the whole."""
    _carry(whole, sums)
    for head in range(sums.shape[0]):
        for each in range(sums.shape[1]):
            sums[head, each] = whole[head, each]
            whole[head, each] = 0


@njit(cache=True, nogil=True)
def _finish(sums: Dense, total: Any, weighted: Dense, output: Dense, row: int) -> None:
    """Write the weighted sums of a row, divided by the totals if there is an output."""
    for head in range(sums.shape[0]):
        # The column with the largest score adds 1, so only the total of a row without columns is below 1.
        divisor = total.dtype.type(1) if total[head] < 1 else total[head]
        for each in range(sums.shape[1]):
            if len(output):
                output[row, head, each] = narrowed(sums[head, each] / divisor, output[row, head, each])
            else:
                weighted[row, head, each] = sums[head, each]


@njit(cache=True, nogil=True)
def _accumulate(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    attended: _Arrays,
    state: _State,
    begins: bool,
    start: int,
    stop: int,
) -> None:
    values, source, target, slope = attended
    maximum, total, weighted, output = state
    heads, dim = values.shape[1], values.shape[2]
    sums, factor = np.empty((heads, dim), total.dtype), np.empty(heads, total.dtype)
    weights = np.empty((heads, 1), total.dtype)
    whole_sums, whole_weights = np.zeros((heads, dim)), np.zeros((heads, 1))
    # Threads have disjoint ranges of rows and write only these rows of the state, so they need no lock.
    for row in range(start, stop):
        # First the maximum over the row's scores, so that no exponential overflows; sums of earlier patterns are
        # scaled down to the new maximum. exp(-inf) = 0 covers a row whose columns are the first. This pass reads one
        # score per edge and head; a maximum that grew in the loop below would scale a whole row at every change.
        first, last = indptr[row], indptr[row + 1]
        is_long = last - first > _SEGMENT
        for head in range(heads):
            if begins:
                maximum[row, head], total[row, head] = -np.inf, 0
            before = maximum[row, head]
            for entry in range(first, last):
                score = source[indices[entry], head] + target[row, head]
                maximum[row, head] = max(maximum[row, head], _leaky(score, score, slope))
            # Infinities of the same sign have no difference.
            factor[head] = 1 if before == maximum[row, head] else np.exp(before - maximum[row, head])
            weights[head, 0] = total[row, head] * factor[head]
        if begins:
            sums[:] = 0
        else:
            _scaled(weighted[row], factor, sums)
        # Then the sums, edge by edge: a column's values of all heads are contiguous, and are fetched once.
        for entry in range(first, last):
            if is_long and (entry - first) % _SEGMENT == 0:
                _carry(whole_sums, sums)
                _carry(whole_weights, weights)
            column = indices[entry]
            for head in range(heads):
                score = source[column, head] + target[row, head]
                weight = np.exp(_leaky(score, score, slope) - maximum[row, head])
                weights[head, 0] += weight
                for each in range(dim):
                    sums[head, each] += weight * widened(values[column, head, each])
        if is_long:
            _settle(whole_sums, sums)
            _settle(whole_weights, weights)
        for head in range(heads):
            total[row, head] = weights[head, 0]
        _finish(sums, total[row], weighted, output, row)


@njit(cache=True, nogil=True)
def _column_gradients(
    column_indptr: NDArray[np.int64],
    rows: NDArray[Any],
    attended: _Arrays,
    output: Dense,
    of_values: Dense,
    of_source: Dense,
    of_target: Dense,
    hubs: _Hubs,
    start: int,
    stop: int,
) -> None:
    values, source, target, slope = attended
    heads, dim = values.shape[1], values.shape[2]
    sums, scores = np.empty((heads, dim), of_source.dtype), np.empty((heads, 1), of_source.dtype)
    whole_sums, whole_scores = np.zeros((heads, dim)), np.zeros((heads, 1))
    of_target[:] = 0
    hubs.sums[:] = 0
    # Columns belong to one thread each, and ``of_target`` to the range, so no two threads add to the same element.
    for column in range(start, stop):
        first, last = column_indptr[column], column_indptr[column + 1]
        is_long = last - first > _SEGMENT
        sums[:] = 0
        scores[:] = 0
        for entry in range(first, last):
            if is_long and (entry - first) % _SEGMENT == 0:
                _carry(whole_sums, sums)
                _carry(whole_scores, scores)
            row = rows[entry]
            for head in range(heads):
                score = source[column, head] + target[row, 0, head]
                # The forward pass is over, so maximum and total cover all patterns. The exponent is at most 0 and
                # cannot overflow, and the total of a row with an edge is at least 1.
                weight = np.exp(_leaky(score, score, slope) - target[row, 1, head]) * target[row, 2, head]
                of_weight = -target[row, 3, head]
                for each in range(dim):
                    value = widened(output[row, head, each])
                    of_weight += widened(values[column, head, each]) * value
                    sums[head, each] += weight * value
                # The derivative of a softmax: weight times (gradient of the weight - the same sum over all edges of
                # the row, weighted).
                of_score = _leaky(weight * of_weight, score, slope)
                scores[head, 0] += of_score
                of_target[row, head] += of_score
        if is_long:
            _settle(whole_sums, sums)
            _settle(whole_scores, scores)
        for head in range(heads):
            of_source[column, head] = scores[head, 0]
            for each in range(dim):
                of_values[column, head, each] = narrowed(sums[head, each], of_values[column, head, each])
        if column + 1 == stop or (column + 1 - start) % hubs.columns == 0:
            for hub in range(len(hubs.rows)):
                row = hubs.rows[hub]
                for head in range(heads):
                    hubs.sums[hub, head] += of_target[row, head]
                    of_target[row, head] = 0


@njit(cache=True, nogil=True)
def _dynamic_score(value: Dense, target: Dense, vector: Dense, slope: Any) -> Any:
    """The score of one entry and head: a . LeakyReLU(z + t)."""
    score = vector.dtype.type(0)
    for each in range(len(vector)):
        total = widened(value[each]) + widened(target[each])
        score += vector[each] * _leaky(total, total, slope)
    return score


@njit(cache=True, nogil=True)
def _accumulate_dynamic(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    attended: _Arrays,
    state: _State,
    begins: bool,
    start: int,
    stop: int,
) -> None:
    values, vector, target, slope = attended
    maximum, total, weighted, output = state
    heads, dim = values.shape[1], values.shape[2]
    sums, factor = np.empty((heads, dim), total.dtype), np.empty(heads, total.dtype)
    weights = np.empty((heads, 1), total.dtype)
    whole_sums, whole_weights = np.zeros((heads, dim)), np.zeros((heads, 1))
    for row in range(start, stop):
        first, last = indptr[row], indptr[row + 1]
        is_long = last - first > _SEGMENT
        for head in range(heads):
            if begins:
                maximum[row, head], total[row, head] = -np.inf, 0
            before = maximum[row, head]
            for entry in range(first, last):
                score = _dynamic_score(values[indices[entry], head], target[row, head], vector[head], slope)
                maximum[row, head] = max(maximum[row, head], score)
            factor[head] = 1 if before == maximum[row, head] else np.exp(before - maximum[row, head])
            weights[head, 0] = total[row, head] * factor[head]
        if begins:
            sums[:] = 0
        else:
            _scaled(weighted[row], factor, sums)
        for entry in range(first, last):
            if is_long and (entry - first) % _SEGMENT == 0:
                _carry(whole_sums, sums)
                _carry(whole_weights, weights)
            column = indices[entry]
            for head in range(heads):
                # Computed again, as a row with many entries would need memory for all of their scores.
                score = _dynamic_score(values[column, head], target[row, head], vector[head], slope)
                weight = np.exp(score - maximum[row, head])
                weights[head, 0] += weight
                for each in range(dim):
                    sums[head, each] += weight * widened(values[column, head, each])
        if is_long:
            _settle(whole_sums, sums)
            _settle(whole_weights, weights)
        for head in range(heads):
            total[row, head] = weights[head, 0]
        _finish(sums, total[row], weighted, output, row)


@njit(cache=True, nogil=True)
def _add_slopes(
    value: Dense, target: Dense, vector: Dense, slope: Any, numbers: Dense, gradient: Dense, slopes: Dense
) -> Any:
    """Add the gradient of z + t through one entry and head, but for the factor a, and return the entry's weight.

    Args:
        numbers: (3,) maximum, inverse of the total, and the sum of the output times its gradient, of the row.
        gradient: (dim,) of the row's output.
    """
    weight = np.exp(_dynamic_score(value, target, vector, slope) - numbers[0]) * numbers[1]
    of_weight = -numbers[2]
    for each in range(len(vector)):
        of_weight += widened(value[each]) * widened(gradient[each])
    for each in range(len(vector)):
        total = widened(value[each]) + widened(target[each])
        slopes[each] += _leaky(weight * of_weight, total, slope)
    return weight


@njit(cache=True, nogil=True)
def _dynamic_columns(
    column_indptr: NDArray[np.int64],
    rows: NDArray[Any],
    attended: _Arrays,
    numbers: Dense,
    output: Dense,
    of_values: Dense,
    of_vector: Dense,
    start: int,
    stop: int,
) -> None:
    values, vector, target, slope = attended
    heads, dim = values.shape[1], values.shape[2]
    sums, slopes = np.empty((heads, dim), vector.dtype), np.empty((heads, dim), vector.dtype)
    whole_sums, whole_slopes = np.zeros((heads, dim)), np.zeros((heads, dim))
    of_vector[:] = 0
    for column in range(start, stop):
        first, last = column_indptr[column], column_indptr[column + 1]
        is_long = last - first > _SEGMENT
        sums[:] = 0
        slopes[:] = 0
        for entry in range(first, last):
            if is_long and (entry - first) % _SEGMENT == 0:
                _carry(whole_sums, sums)
                _carry(whole_slopes, slopes)
            row = rows[entry]
            for head in range(heads):
                gradient, given = output[row, head], (vector[head], slope, numbers[row, :, head])
                weight = _add_slopes(values[column, head], target[row, head], *given, gradient, slopes[head])
                for each in range(dim):
                    sums[head, each] += weight * widened(gradient[each])
        if is_long:
            _settle(whole_sums, sums)
            _settle(whole_slopes, slopes)
        for head in range(heads):
            for each in range(dim):
                found = sums[head, each] + vector[head, each] * slopes[head, each]
                of_vector[head, each] += widened(values[column, head, each]) * slopes[head, each]
                of_values[column, head, each] = narrowed(found, of_values[column, head, each])


@njit(cache=True, nogil=True)
def _dynamic_rows(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    attended: _Arrays,
    numbers: Dense,
    output: Dense,
    of_target: Dense,
    of_vector: Dense,
    start: int,
    stop: int,
) -> None:
    values, vector, target, slope = attended
    heads, dim = values.shape[1], values.shape[2]
    slopes, whole_slopes = np.empty((heads, dim), vector.dtype), np.zeros((heads, dim))
    of_vector[:] = 0
    for row in range(start, stop):
        first, last = indptr[row], indptr[row + 1]
        is_long = last - first > _SEGMENT
        slopes[:] = 0
        for entry in range(first, last):
            if is_long and (entry - first) % _SEGMENT == 0:
                _carry(whole_slopes, slopes)
            for head in range(heads):
                gradient, given = output[row, head], (vector[head], slope, numbers[row, :, head])
                _add_slopes(values[indices[entry], head], target[row, head], *given, gradient, slopes[head])
        if is_long:
            _settle(whole_slopes, slopes)
        for head in range(heads):
            for each in range(dim):
                # LeakyReLU(u) is its slope times u = z + t: the parts of z and t are added by column and by row.
                of_vector[head, each] += widened(target[row, head, each]) * slopes[head, each]
                found = vector[head, each] * slopes[head, each]
                of_target[row, head, each] = narrowed(found, of_target[row, head, each])


@njit(cache=True, nogil=True)
def _dots(first: Dense, second: Dense, out: Dense) -> None:
    for row in range(out.shape[0]):
        for head in range(out.shape[1]):
            other = second[row % len(second), head]
            total = out.dtype.type(0)
            for each in range(first.shape[2]):
                total += widened(first[row, head, each]) * widened(other[each])
            out[row, head] = total


@njit(cache=True, nogil=True)
def _spread(
    first: Dense,
    second: Dense,
    other: Dense,
    sums: Dense,
    other_sums: Dense,
    gradient: Dense,
    partial: Dense,
    chunk: int,
    start: int,
    stop: int,
) -> None:
    zero = sums.dtype.type(0)
    for number in range(start, stop):
        partial[number] = 0
        for row in range(number * chunk, min((number + 1) * chunk, len(first))):
            for head in range(first.shape[1]):
                factor, another = sums[row, head], other_sums[row, head] if row < len(other_sums) else zero
                for each in range(first.shape[2]):
                    value = widened(first[row, head, each])
                    before = gradient[row, head, each]
                    added = widened(before) + factor * second[head, each]
                    gradient[row, head, each] = narrowed(added + another * other[head, each], before)
                    partial[number, 0, head, each] += factor * value
                    partial[number, 1, head, each] += another * value
