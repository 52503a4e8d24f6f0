"""The passes over rows of features, compiled by numba; see :class:`gnnloom.trainer.kernels.contract.RowPass`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.trainer.kernels.arrays import array_dtype, as_array, sum_dtype
from gnnloom.trainer.kernels.bfloat16 import narrow_row, widen_row
from gnnloom.trainer.kernels.contract import LANES, RowPass, Step

Dense = NDArray[Any]
Bits = NDArray[np.uint32]
#: Rows of bfloat16; see :mod:`gnnloom.trainer.kernels.bfloat16`.
Stored = NDArray[np.uint16]


def numba_rows(given: RowPass) -> Callable[[int, int], None]:
    """The function that computes a range of the rows."""
    read, written = as_array(given.source), as_array(given.result)
    sums, mask = sum_dtype(given.source.dtype), given.mask
    # Of the dtype of the sums: a Python float would be a float64 and widen the loop's arithmetic.
    scale, is_stored = array_dtype(sums).type(given.scale), given.source.dtype != sums
    bits = None if given.passed is None else as_array(given.passed).view(np.uint32)
    added = None if given.bias is None else as_array(given.bias)
    chosen = () if mask is None else (mask.vertex, mask.first_column, mask.key, mask.threshold)
    if given.step is Step.SELECT:
        select = _select_stored_rows if is_stored else _select_rows
        return lambda start, stop: select(read, bits, scale, written, start, stop)
    if given.step is Step.DROP:
        drop = _drop_stored_rows if is_stored else _drop_rows
        return lambda start, stop: drop(read, written, *chosen, scale, start, stop)
    if mask is None:
        plain = _rectify_stored_rows if is_stored else _rectify_rows
        return lambda start, stop: plain(read, added, written, bits, start, stop)
    both = _rectify_and_drop_stored_rows if is_stored else _rectify_and_drop_rows
    return lambda start, stop: both(read, added, written, bits, *chosen, scale, start, stop)


# A number that is not finite passes, so that a run that diverges shows it in its loss.
@njit(cache=True, nogil=True)
def _rectify_row(source: Dense, bias: Dense, result: Dense, passed: Bits) -> None:
    zero = bias.dtype.type(0)
    for column in range(len(source)):
        value = source[column] + bias[column]
        result[column] = zero if value <= zero else value  # noqa: FURB136 - a maximum may drop NaN
    _pack_signs(result, passed)


@njit(cache=True, nogil=True)
def _rectify_and_drop_row(
    source: Dense,
    bias: Dense,
    result: Dense,
    passed: Bits,
    first_column: int,
    keys: tuple[np.uint32, np.uint32],
    threshold: np.uint32,
    scale: Any,
) -> None:
    zero, (low, high) = bias.dtype.type(0), keys
    for column in range(len(source)):
        value = source[column] + bias[column]
        kept = _feature_hash(first_column + column, low, high) >= threshold
        result[column] = value * scale if kept and not value <= zero else zero
    _pack_signs(result, passed)


@njit(cache=True, nogil=True)
def _pack_signs(values: Dense, words: Bits) -> None:
    """Set the bits of the values that are not zero."""
    dim, zero = len(values), values.dtype.type(0)
    for word in range(len(words)):
        first, bits = word * LANES, np.uint32(0)
        for lane in range(min(LANES, dim - first)):
            bits |= np.uint32(np.uint32(values[first + lane] != zero) << np.uint32(lane))
        words[word] = bits


@njit(cache=True, nogil=True)
def _select_row(gradient: Dense, passed: Bits, scale: Any, result: Dense) -> None:
    dim, zero = len(gradient), gradient.dtype.type(0)
    for word in range(len(passed)):
        first, bits = word * LANES, passed[word]
        for lane in range(min(LANES, dim - first)):
            chosen = np.uint32(bits >> np.uint32(lane)) & np.uint32(1)
            result[first + lane] = gradient[first + lane] * scale if chosen else zero


@njit(cache=True, nogil=True)
def _rectify_rows(source: Dense, bias: Dense, result: Dense, passed: Bits, start: int, stop: int) -> None:
    for row in range(start, stop):
        _rectify_row(source[row], bias, result[row], passed[row])


@njit(cache=True, nogil=True)
def _rectify_stored_rows(
    source: Stored, bias: NDArray[np.float32], result: Stored, passed: Bits, start: int, stop: int
) -> None:
    scratch = np.empty(source.shape[1], np.uint32)
    values = scratch.view(np.float32)
    for row in range(start, stop):
        widen_row(source[row], scratch)
        _rectify_row(values, bias, values, passed[row])
        narrow_row(scratch, result[row])


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
    for row in range(start, stop):
        keys = _row_keys(vertex[row], key)
        _rectify_and_drop_row(source[row], bias, result[row], passed[row], first_column, keys, threshold, scale)


@njit(cache=True, nogil=True)
def _rectify_and_drop_stored_rows(
    source: Stored,
    bias: NDArray[np.float32],
    result: Stored,
    passed: Bits,
    vertex: NDArray[np.int64],
    first_column: int,
    key: np.uint64,
    threshold: np.uint32,
    scale: Any,
    start: int,
    stop: int,
) -> None:
    scratch = np.empty(source.shape[1], np.uint32)
    values = scratch.view(np.float32)
    for row in range(start, stop):
        keys = _row_keys(vertex[row], key)
        widen_row(source[row], scratch)
        _rectify_and_drop_row(values, bias, values, passed[row], first_column, keys, threshold, scale)
        narrow_row(scratch, result[row])


@njit(cache=True, nogil=True)
def _select_rows(gradient: Dense, passed: Bits, scale: Any, result: Dense, start: int, stop: int) -> None:
    for row in range(start, stop):
        _select_row(gradient[row], passed[row], scale, result[row])


@njit(cache=True, nogil=True)
def _select_stored_rows(gradient: Stored, passed: Bits, scale: Any, result: Stored, start: int, stop: int) -> None:
    scratch = np.empty(gradient.shape[1], np.uint32)
    values = scratch.view(np.float32)
    for row in range(start, stop):
        widen_row(gradient[row], scratch)
        _select_row(values, passed[row], scale, values)
        narrow_row(scratch, result[row])


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
    for row in range(start, stop):
        _drop_row(source[row], result[row], first_column, _row_keys(vertex[row], key), threshold, scale)


@njit(cache=True, nogil=True)
def _drop_stored_rows(
    source: NDArray[np.uint16],
    result: NDArray[np.uint16],
    vertex: NDArray[np.int64],
    first_column: int,
    key: np.uint64,
    threshold: np.uint32,
    scale: Any,
    start: int,
    stop: int,
) -> None:
    scratch = np.empty(source.shape[1], np.uint32)
    values = scratch.view(np.float32)
    for row in range(start, stop):
        widen_row(source[row], scratch)
        _drop_row(values, values, first_column, _row_keys(vertex[row], key), threshold, scale)
        narrow_row(scratch, result[row])


@njit(cache=True, nogil=True)
def _drop_row(
    source: NDArray[Any],
    result: NDArray[Any],
    first_column: int,
    keys: tuple[np.uint32, np.uint32],
    threshold: np.uint32,
    scale: Any,
) -> None:
    zero, (low, high) = source.dtype.type(0), keys
    for column in range(len(source)):
        kept = _feature_hash(first_column + column, low, high) >= threshold
        result[column] = source[column] * scale if kept else zero


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
