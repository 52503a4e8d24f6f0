"""Numba kernels that sort 64-bit keys, with or without a weight beside each, and merge equal ones.

The sort is stable: keys are first split by their highest bits into buckets that fit a core's cache
(most significant digit), and each bucket is then sorted digit by digit from the least significant
one (LSD radix sort; Knuth, TAOCP vol. 3, 5.2.5).  Digits that are equal everywhere cost no pass.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
Weights = NDArray[np.float32]

#: Bits of a digit: 2048 counters and write positions stay in the first-level cache.
DIGIT_BITS: Final = 11
#: Keys of a bucket after the first split, as a power of two: they and their copy fit a second-level cache.
BUCKET_BITS: Final = 16

#: How the weights of equal keys become one.
MERGE_MODES: Final = {"sum": 0, "min": 1, "max": 2, "first": 3}


@njit(cache=True, nogil=True)
def bit_length(value: np.uint64) -> int:
    """Bits that ``value`` needs; 0 for 0."""
    bits = 0
    while value:
        value >>= np.uint64(1)
        bits += 1
    return bits


@njit(cache=True, nogil=True)
def _scatter(
    keys: Keys,
    weights: Weights,
    out_keys: Keys,
    out_weights: Weights,
    shift: int,
    mask: np.uint64,
    position: NDArray[np.int64],
) -> None:
    """Move every key to the next free place of its digit; ``weights`` of length 0 are left out."""
    by = np.uint64(shift)
    if weights.size:
        for k in range(keys.size):
            digit = np.intp((keys[k] >> by) & mask)
            place = position[digit]
            out_keys[place] = keys[k]
            out_weights[place] = weights[k]
            position[digit] = place + 1
    else:
        for k in range(keys.size):
            key = keys[k]
            digit = np.intp((key >> by) & mask)
            place = position[digit]
            out_keys[place] = key
            position[digit] = place + 1


@njit(cache=True, nogil=True)
def _starts(counts: NDArray[np.int64], position: NDArray[np.int64]) -> None:
    """Exclusive prefix sums."""
    total = 0
    for digit in range(counts.size):
        position[digit] = total
        total += counts[digit]


@njit(cache=True, nogil=True)
def _sort_digits(
    keys: Keys, weights: Weights, spare_keys: Keys, spare_weights: Weights, bits: int, counts: NDArray[np.int64]
) -> bool:
    """Sort by the lowest ``bits`` bits; returns whether the result lies in the spare arrays."""
    passes = (bits + DIGIT_BITS - 1) // DIGIT_BITS
    if passes == 0 or keys.size < 2:
        return False
    width = (bits + passes - 1) // passes
    mask = np.uint64((1 << width) - 1)
    counts[:passes, : 1 << width] = 0
    for k in range(keys.size):
        rest = keys[k]
        for digit in range(passes):
            counts[digit, np.intp(rest & mask)] += 1
            rest >>= np.uint64(width)
    position = np.empty(1 << width, np.int64)
    swapped = False
    for digit in range(passes):
        shift = digit * width
        if counts[digit, np.intp((keys[0] >> np.uint64(shift)) & mask)] == keys.size:
            continue
        _starts(counts[digit, : 1 << width], position)
        if swapped:
            _scatter(spare_keys, spare_weights, keys, weights, shift, mask, position)
        else:
            _scatter(keys, weights, spare_keys, spare_weights, shift, mask, position)
        swapped = not swapped
    return swapped


@njit(cache=True, nogil=True)
def _insertion_sort(keys: Keys, weights: Weights) -> None:
    for k in range(1, keys.size):
        key = keys[k]
        place = k
        while place > 0 and keys[place - 1] > key:
            place -= 1
        if place == k:
            continue
        for moved in range(k, place, -1):
            keys[moved] = keys[moved - 1]
        keys[place] = key
        if weights.size:
            weight = weights[k]
            for moved in range(k, place, -1):
                weights[moved] = weights[moved - 1]
            weights[place] = weight


@njit(cache=True, nogil=True)
def sort_keys(keys: Keys, weights: Weights, spare_keys: Keys, spare_weights: Weights, bits: int) -> None:
    """Sort keys that agree in all but their lowest ``bits`` bits, in place and stably.

    Args:
        keys: (num_keys,) uint64.
        weights: (num_keys,) float32, moved with the keys; or of length 0.
        spare_keys: (num_keys,) scratch.
        spare_weights: as long as ``weights``; scratch.
        bits: 0 to 64.
    """
    top_bits = min(bits, DIGIT_BITS, bit_length(np.uint64(keys.size >> BUCKET_BITS)))
    shift = bits - top_bits
    mask = np.uint64((1 << top_bits) - 1)
    counts = np.zeros(1 << top_bits, np.int64)
    by = np.uint64(shift)
    if top_bits == 0:
        counts[0] = keys.size
        spare_keys[:] = keys
        spare_weights[:] = weights
    else:
        for k in range(keys.size):
            counts[np.intp((keys[k] >> by) & mask)] += 1
        position = np.empty(1 << top_bits, np.int64)
        _starts(counts, position)
        _scatter(keys, weights, spare_keys, spare_weights, shift, mask, position)
    digits = np.empty(((shift + DIGIT_BITS - 1) // DIGIT_BITS, 1 << DIGIT_BITS), np.int64)
    start = 0
    for bucket in range(counts.size):
        stop = start + counts[bucket]
        own, other = keys[start:stop], spare_keys[start:stop]
        if weights.size:
            own_weights, other_weights = weights[start:stop], spare_weights[start:stop]
        else:
            own_weights, other_weights = weights, spare_weights
        if other.size < 32:
            _insertion_sort(other, other_weights)
            swapped = False
        else:
            swapped = _sort_digits(other, other_weights, own, own_weights, shift, digits)
        if not swapped:
            own[:] = other
            own_weights[:] = other_weights
        start = stop


@njit(cache=True, nogil=True)
def sort_buckets(
    keys: Keys, weights: Weights, spare_keys: Keys, spare_weights: Weights, sizes: NDArray[np.int64], bits: int
) -> None:
    """Sort keys that lie in the order of their buckets; those of a bucket agree in all but their lowest ``bits`` bits.

    Args:
        sizes: (num_buckets,) keys of each bucket, empty ones included.
        keys, weights, spare_keys, spare_weights: as :func:`sort_keys` takes them.
    """
    digits = np.empty(((bits + DIGIT_BITS - 1) // DIGIT_BITS, 1 << DIGIT_BITS), np.int64)
    start = 0
    for size in sizes:
        stop = start + size
        own, own_weights = keys[start:stop], weights[start:stop]
        # The same spare memory for all: it stays in the cache.
        spare, spare_own = spare_keys[:size], spare_weights[:size]
        if size < 32:
            _insertion_sort(own, own_weights)
        elif size > 4 << BUCKET_BITS:
            sort_keys(own, own_weights, spare, spare_own, bits)
        elif _sort_digits(own, own_weights, spare, spare_own, bits, digits):
            own[:] = spare
            own_weights[:] = spare_own
        start = stop


@njit(cache=True, nogil=True)
def unique_keys(keys: Keys) -> int:
    """Move the distinct keys of a sorted array to its front; returns their number."""
    if keys.size == 0:
        return 0
    kept = 1
    for k in range(1, keys.size):
        if keys[k] != keys[kept - 1]:
            keys[kept] = keys[k]
            kept += 1
    return kept


@njit(cache=True, nogil=True)
def merge_weight(merged: float, weight: float, mode: int) -> float:
    """The weight of two equal edges, ``merged`` being the earlier one; see ``MERGE_MODES``."""
    if mode == 0:
        return merged + weight
    if mode == 1:
        return min(merged, weight)
    if mode == 2:
        return max(merged, weight)
    return merged


@njit(cache=True, nogil=True)
def merge_equal_keys(keys: Keys, weights: Weights, mode: int) -> int:
    """Like :func:`unique_keys`, merging the weights of equal keys in their order, summed in float64."""
    kept = 0
    k = 0
    while k < keys.size:
        key = keys[k]
        merged: float = np.float64(weights[k])
        k += 1
        while k < keys.size and keys[k] == key:
            merged = merge_weight(merged, np.float64(weights[k]), mode)
            k += 1
        keys[kept] = key
        weights[kept] = np.float32(merged)
        kept += 1
    return kept
