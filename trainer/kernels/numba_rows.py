"""The passes over rows of features, compiled by numba; see :class:`gnnloom.trainer.kernels.contract.RowPass`.

numba has no bfloat16: the bits of its numbers are uint16, the upper half of a float32. A kernel widens a number,
computes in float32, and rounds the result. These are the conversions of torch and of the kernels in C, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.kernels.contract import LANES, RowPass, RowStep
from gnnloom.trainer.place.arrays import array_dtype, as_array, sum_dtype

#: Bits of a float32: all but the sign, those of infinity, and the upper half of a NaN.
_MAGNITUDE, _INFINITY, _NAN = 0x7FFFFFFF, 0x7F800000, 0x7FC0


@njit(cache=True, nogil=True)
def widen(bits: np.uint16) -> np.float32:
    """The float32 that equals a bfloat16."""
    return np.uint32(np.uint32(bits) << np.uint32(16)).view(np.float32)


@njit(cache=True, nogil=True)
def narrow(value: np.float32) -> np.uint16:
    """Round a float32 to the nearest bfloat16, ties to even."""
    bits = np.float32(value).view(np.uint32)
    odd = np.uint32(bits >> np.uint32(16)) & np.uint32(1)
    rounded = np.uint32(np.uint32(bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))
    is_nan = np.uint32(bits & np.uint32(_MAGNITUDE)) > np.uint32(_INFINITY)
    return np.uint16(_NAN) if is_nan else np.uint16(rounded)


def widened(stored: Any) -> Any:
    """An element of a matrix as a number to compute with; of bfloat16 as float32. For compiled functions too."""
    return widen(stored) if isinstance(stored, np.uint16) else stored


def narrowed(value: Any, like: Any) -> Any:
    """The reverse of :func:`widened`: a number as an element of a matrix that has elements ``like`` this one."""
    return narrow(value) if isinstance(like, np.uint16) else value


# Not strict: numba would compare the annotations too.
@overload(widened, strict=False)
def _widened(stored: types.Type) -> Callable[..., Any]:
    if stored == types.uint16:
        return lambda stored: widen(stored)  # noqa: PLW0108 - numba takes a function of Python's
    return lambda stored: stored


@overload(narrowed, strict=False)
def _narrowed(value: types.Type, like: types.Type) -> Callable[..., Any]:  # noqa: ARG001 - numba matches the names
    if like == types.uint16:
        return lambda value, like: narrow(value)  # noqa: ARG005
    return lambda value, like: value  # noqa: ARG005


#: Of bfloat16 the bits.
Dense = NDArray[Any]
Bits = NDArray[np.uint32]


def numba_rows(given: RowPass) -> Callable[[int, int], None]:
    """The function that computes a range of the rows."""
    read, written, added = as_array(given.source), as_array(given.result), _given(given.bias)
    bits, mask = _given(given.passed).view(np.uint32), given.mask
    # Of the dtype of the sums: a Python float would be a float64 and widen the loop's arithmetic.
    scale = array_dtype(sum_dtype(given.source.dtype)).type(given.scale)
    if given.step is RowStep.SELECT:
        return lambda start, stop: _select_rows(read, bits, scale, written, start, stop)
    if mask is None and given.step is RowStep.RECTIFY:
        return lambda start, stop: _rectify_rows(read, added, written, bits, start, stop)
    if mask is None:
        raise ValueError("a pass that only drops features needs a mask")
    vertex, first_column, key, threshold = mask.vertex, mask.first_column, mask.key, mask.threshold
    if given.step is RowStep.DROP:
        return lambda start, stop: _drop_rows(read, written, vertex, first_column, key, threshold, scale, start, stop)
    return lambda start, stop: _rectify_and_drop_rows(
        read, added, written, bits, vertex, first_column, key, threshold, scale, start, stop
    )


def _given(tensor: Tensor | None) -> NDArray[Any]:
    """The array of an operand; an empty one if the step takes none."""
    return np.empty(0, np.int32) if tensor is None else as_array(tensor)


# A number that is not finite passes, so that a run that diverges shows it in its loss.
@njit(cache=True, nogil=True)
def _rectify_rows(source: Dense, bias: Dense, result: Dense, passed: Bits, start: int, stop: int) -> None:
    dim, zero = source.shape[1], bias.dtype.type(0)
    for row in range(start, stop):
        for word in range(passed.shape[1]):
            first, bits = word * LANES, np.uint32(0)
            for lane in range(min(LANES, dim - first)):
                value = widened(source[row, first + lane]) + bias[first + lane]
                value = zero if value <= zero else value  # noqa: FURB136 - a maximum may drop NaN
                result[row, first + lane] = narrowed(value, source[row, first + lane])
                bits |= np.uint32(np.uint32(value != zero) << np.uint32(lane))
            passed[row, word] = bits


@njit(cache=True, nogil=True)
def _rectify_and_drop_rows(
    source: Dense,
    bias: Dense,
    result: Dense,
    passed: Bits,
    vertex: NDArray[np.int64],
    first_column: int,
    key: np.uint64,
    threshold: np.uint32,
    scale: Any,
    start: int,
    stop: int,
) -> None:
    dim, zero = source.shape[1], bias.dtype.type(0)
    for row in range(start, stop):
        low, high = _row_keys(vertex[row], key)
        for word in range(passed.shape[1]):
            first, bits = word * LANES, np.uint32(0)
            for lane in range(min(LANES, dim - first)):
                value = widened(source[row, first + lane]) + bias[first + lane]
                kept = _feature_hash(first_column + first + lane, low, high) >= threshold
                value = value * scale if kept and not value <= zero else zero
                result[row, first + lane] = narrowed(value, source[row, first + lane])
                bits |= np.uint32(np.uint32(value != zero) << np.uint32(lane))
            passed[row, word] = bits


@njit(cache=True, nogil=True)
def _select_rows(gradient: Dense, passed: Bits, scale: Any, result: Dense, start: int, stop: int) -> None:
    dim, zero = gradient.shape[1], scale - scale
    for row in range(start, stop):
        for word in range(passed.shape[1]):
            first, bits = word * LANES, passed[row, word]
            for lane in range(min(LANES, dim - first)):
                chosen = np.uint32(bits >> np.uint32(lane)) & np.uint32(1)
                value = widened(gradient[row, first + lane]) * scale
                result[row, first + lane] = narrowed(value if chosen else zero, gradient[row, first + lane])


@njit(cache=True, nogil=True)
def _drop_rows(
    source: NDArray[Any],
    result: NDArray[Any],
    vertex: NDArray[np.int64],
    first_column: int,
    key: np.uint64,
    threshold: np.uint32,
    scale: Any,
    start: int,
    stop: int,
) -> None:
    """Write rows ``start`` to ``stop`` of the masked, scaled features."""
    zero = scale - scale
    for row in range(start, stop):
        low, high = _row_keys(vertex[row], key)
        for column in range(source.shape[1]):
            kept = _feature_hash(first_column + column, low, high) >= threshold
            value = widened(source[row, column]) * scale if kept else zero
            result[row, column] = narrowed(value, source[row, column])


@njit(cache=True, nogil=True)
def _row_keys(vertex: np.int64, key: np.uint64) -> tuple[np.uint32, np.uint32]:
    """One 64-bit hash per vertex, in two halves, which feed a cheaper 32-bit hash per feature."""
    row_key = _mix64(np.uint64(vertex) ^ key)
    return np.uint32(row_key), np.uint32(row_key >> np.uint64(32))


@njit(cache=True, nogil=True)
def _feature_hash(column: int, low: np.uint32, high: np.uint32) -> np.uint32:
    """The hash that decides whether a feature is dropped, from the keys of its row; the compiler vectorizes it."""
    # numba widens sums and products of uint32 to 64 bits; the casts back keep vectors of 32-bit lanes.
    return _mix32(np.uint32(np.uint32(column) + low), high)


@njit(cache=True, nogil=True)
def _mix64(value: np.uint64) -> np.uint64:
    """SplitMix64's step and finalizer (Steele, Lea, Flood, OOPSLA 2014): each input bit affects each output bit."""
    # Sums and products wrap modulo 2^64, as the generator is defined.
    value += np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@njit(cache=True, nogil=True)
def _mix32(value: np.uint32, key: np.uint32) -> np.uint32:
    """Two rounds of a 32-bit finalizer with a key between them; 32 bits wide, so that more fit a vector register."""
    value = np.uint32((value ^ (value >> np.uint32(16))) * np.uint32(0x7FEB352D))
    value = np.uint32((value ^ (value >> np.uint32(15))) * np.uint32(0x846CA68B))
    value = np.uint32((value ^ (value >> np.uint32(16))) ^ key)
    value = np.uint32((value ^ (value >> np.uint32(15))) * np.uint32(0x7FEB352D))
    value = np.uint32((value ^ (value >> np.uint32(16))) * np.uint32(0x846CA68B))
    return np.uint32(value ^ (value >> np.uint32(15)))
