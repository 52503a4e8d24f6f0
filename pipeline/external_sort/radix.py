"""Numba kernels that sort 64-bit keys, each with an optional weight, and merge equal keys.

The sort is stable. It first splits the keys by their highest bits into buckets that fit a core's cache (most
significant digit first). It then sorts each bucket digit by digit, starting with the least significant one (LSD radix
sort; Knuth, TAOCP vol. 3, 5.2.5). A digit that has the same value in every key costs no pass.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.kernels import copy_elements, kernel

# Unsigned, so that a shift brings in zeros. Kernels cast every operand to uint64: Numba computes sums and differences
# of a signed and an unsigned integer in float64, which would lose the low bits.
Keys = NDArray[np.uint64]
Weights = NDArray[np.floating[Any]]

#: Bits of a digit. 2048 counters and 2048 write positions (8 bytes each) fit the first-level cache.
DIGIT_BITS: Final = 11

#: log2 of the keys in a bucket after the first split. 2^16 keys and their copy (1 MiB) fit the second-level cache.
CACHED_BITS: Final = 16

#: Fewer keys than this are sorted by insertion: clearing 2048 counters would cost more than the sort.
_FEW_KEYS: Final = 32

#: Number of keys up to which NumPy sorts, in some milliseconds: the kernels would take two seconds to compile.
NUMPY_KEYS: Final = 1 << 16

#: Rules that merge the weights of equal keys into one.
MERGE_MODES: Final = {"sum": 0, "min": 1, "max": 2, "first": 3}
#: The further mode, for entries that are not merged.
KEEP: Final = "keep"

#: Most partial sums of the weights of a key: 40 significands of 53 bits cover all exponents of float64.
MOST_PARTIALS: Final = 40


def sort_few(keys: Keys, weights: NDArray[Any]) -> bool:
    """Sort up to ``NUMPY_KEYS`` keys in place and stably, without a kernel; return whether this was done.

    Args:
        keys: (num_keys,) uint64.
        weights: (num_keys,), moved along with the keys; or empty.
    """
    if keys.size > NUMPY_KEYS:
        return False
    order = np.argsort(keys, kind="stable")
    keys[:] = keys[order]
    if weights.size:
        weights[:] = weights[order]
    return True


@kernel
def bit_length(value: np.uint64) -> int:
    """Number of bits that ``value`` needs; 0 for 0."""
    bits = 0
    while value:
        value >>= np.uint64(1)
        bits += 1
    return bits


@kernel
def _scatter(
    keys: Keys,
    weights: Weights,
    out_keys: Keys,
    out_weights: Weights,
    shift: int,
    mask: np.uint64,
    position: NDArray[np.int64],
) -> None:
    """Move every key to the next free position of its digit; ``weights`` may be empty."""
    by = np.uint64(shift)
    # Keys are visited in order and the positions of a digit only grow, so keys with equal digits keep their order.
    # Every later pass of the LSD sort relies on that.
    # Two loops, so that the one for plain keys has no branch in it.
    if weights.size:
        for k in range(keys.size):
            digit = np.intp((keys[k] >> by) & mask)
            target = position[digit]
            out_keys[target] = keys[k]
            out_weights[target] = weights[k]
            position[digit] = target + 1
    else:
        for k in range(keys.size):
            key = keys[k]
            digit = np.intp((key >> by) & mask)
            target = position[digit]
            out_keys[target] = key
            position[digit] = target + 1


@kernel
def _starts(counts: NDArray[np.int64], position: NDArray[np.int64]) -> None:
    """Exclusive prefix sums of ``counts``."""
    total = 0
    for digit in range(counts.size):
        position[digit] = total
        total += counts[digit]


@kernel
def _sort_digits(
    keys: Keys, weights: Weights, spare_keys: Keys, spare_weights: Weights, bits: int, counts: NDArray[np.int64]
) -> bool:
    """Sort by the lowest ``bits`` bits; return whether the result is in the spare arrays."""
    passes = (bits + DIGIT_BITS - 1) // DIGIT_BITS
    if passes == 0 or keys.size < 2:
        return False
    # The bits are spread evenly over the passes: no more passes, but fewer counters to clear and fewer places to
    # write to than with full digits and a remainder.
    width = (bits + passes - 1) // passes
    mask = np.uint64((1 << width) - 1)
    counts[:passes, : 1 << width] = 0
    # One read of the keys counts all digits: moving keys does not change how often a digit occurs.
    for k in range(keys.size):
        rest = keys[k]
        for digit in range(passes):
            counts[digit, np.intp(rest & mask)] += 1
            rest >>= np.uint64(width)
    position = np.empty(1 << width, np.int64)
    swapped = False
    for digit in range(passes):
        shift = digit * width
        # All keys have the digit of the first one: the pass would copy them in their order.
        if counts[digit, np.intp((keys[0] >> np.uint64(shift)) & mask)] == keys.size:
            continue
        _starts(counts[digit, : 1 << width], position)
        if swapped:
            _scatter(spare_keys, spare_weights, keys, weights, shift, mask, position)
        else:
            _scatter(keys, weights, spare_keys, spare_weights, shift, mask, position)
        # A pass that was skipped moves nothing, so the keys stay on the side where they are.
        swapped = not swapped
    return swapped


@kernel
def _insertion_sort(keys: Keys, weights: Weights) -> None:
    for k in range(1, keys.size):
        key = keys[k]
        target = k
        # Only larger keys are passed, so equal ones keep their order.
        while target > 0 and keys[target - 1] > key:
            target -= 1
        if target == k:
            continue
        for moved in range(k, target, -1):
            keys[moved] = keys[moved - 1]
        keys[target] = key
        if weights.size:
            weight = weights[k]
            for moved in range(k, target, -1):
                weights[moved] = weights[moved - 1]
            weights[target] = weight


@kernel
def sort_keys(keys: Keys, weights: Weights, spare_keys: Keys, spare_weights: Weights, bits: int) -> None:
    """Sort keys that differ in their lowest ``bits`` bits only, in place and stably.

    Args:
        keys: (num_keys,) uint64.
        weights: (num_keys,) floats, moved along with the keys; or empty.
        spare_keys: (num_keys,) uint64 scratch memory.
        spare_weights: scratch memory of the type and length of ``weights``.
        bits: 0 to 64.
    """
    # Enough top bits for buckets of about 2^CACHED_BITS keys; zero bits for fewer keys.
    top_bits = min(bits, DIGIT_BITS, bit_length(np.uint64(keys.size >> CACHED_BITS)))
    shift = bits - top_bits
    # All keys agree in the bits above ``bits``, which the mask drops.
    mask = np.uint64((1 << top_bits) - 1)
    counts = np.zeros(1 << top_bits, np.int64)
    by = np.uint64(shift)
    if top_bits == 0:
        # The loop over the buckets takes its input from the spare arrays.
        counts[0] = keys.size
        copy_elements(keys, spare_keys)
        copy_elements(weights, spare_weights)
    else:
        for k in range(keys.size):
            counts[np.intp((keys[k] >> by) & mask)] += 1
        position = np.empty(1 << top_bits, np.int64)
        _starts(counts, position)
        _scatter(keys, weights, spare_keys, spare_weights, shift, mask, position)
    # Allocated once for all buckets; there may be 2^DIGIT_BITS buckets.
    digits = np.empty(((shift + DIGIT_BITS - 1) // DIGIT_BITS, 1 << DIGIT_BITS), np.int64)
    # The buckets are in the spare arrays now; each is sorted back and forth within the cache and ends in ``keys``.
    start = 0
    for bucket in range(counts.size):
        stop = start + counts[bucket]
        own, other = keys[start:stop], spare_keys[start:stop]
        if weights.size:
            own_weights, other_weights = weights[start:stop], spare_weights[start:stop]
        else:
            own_weights, other_weights = weights, spare_weights
        if other.size < _FEW_KEYS:
            _insertion_sort(other, other_weights)
            swapped = False
        else:
            swapped = _sort_digits(other, other_weights, own, own_weights, shift, digits)
        if not swapped:
            copy_elements(other, own)
            copy_elements(other_weights, own_weights)
        start = stop


@kernel
def sort_buckets(
    keys: Keys, weights: Weights, spare_keys: Keys, spare_weights: Weights, sizes: NDArray[np.int64], bits: int
) -> None:
    """Sort keys that are grouped by bucket already; the keys of a bucket differ in their lowest ``bits`` bits only.

    Args:
        keys: (num_keys,) uint64, sorted in place and stably.
        weights: (num_keys,) floats, moved along with the keys; or empty.
        spare_keys: (at least the largest bucket,) uint64 scratch memory.
        spare_weights: scratch memory of their type, at least as long as the largest bucket if there are weights.
        sizes: (num_buckets,) int64 number of keys in each bucket; 0 for an empty one.
        bits: 0 to 64.
    """
    digits = np.empty(((bits + DIGIT_BITS - 1) // DIGIT_BITS, 1 << DIGIT_BITS), np.int64)
    start = 0
    for size in sizes:
        stop = start + size
        own, own_weights = keys[start:stop], weights[start:stop]
        # Every bucket uses the same spare memory, which therefore stays in the cache.
        spare, spare_own = spare_keys[:size], spare_weights[:size]
        if size < _FEW_KEYS:
            _insertion_sort(own, own_weights)
        # Passes over a bucket of four times the cache are slower than splitting it once more.
        elif size > 4 << CACHED_BITS:
            sort_keys(own, own_weights, spare, spare_own, bits)
        elif _sort_digits(own, own_weights, spare, spare_own, bits, digits):
            copy_elements(spare, own)
            copy_elements(spare_own, own_weights)
        start = stop


@kernel
def unique_keys(keys: Keys) -> int:
    """Move the distinct keys of a sorted array, (num_keys,) uint64, to its front; return how many there are."""
    if keys.size == 0:
        return 0
    # ``kept`` never exceeds ``k``, so no key is overwritten before it is read.
    kept = 1
    for k in range(1, keys.size):
        if keys[k] != keys[kept - 1]:
            keys[kept] = keys[k]
            kept += 1
    return kept


@kernel
def merge_weight(partials: NDArray[np.float64], count: int, weight: float, mode: int) -> int:
    """Merge the weight of one more equal key into the weight of the earlier ones.

    A sum is exact, so that it does not depend on the order of its terms: a few partial sums, whose bits do not overlap
    (Shewchuk, Discrete & Computational Geometry 18, 1997, section 2.3). All other results are a single number.

    Args:
        partials: (MOST_PARTIALS,) the merged weight.
        count: number of partials; 0 before the first weight.
        mode: a value of ``MERGE_MODES``.

    Returns:
        The new number of partials.
    """
    if count == 0:
        partials[0] = weight
    elif mode == 1:
        partials[0] = min(partials[0], weight)
    elif mode == 2:
        partials[0] = max(partials[0], weight)
    elif mode == 0:
        kept = 0
        for number in range(count):
            other = partials[number]
            if abs(weight) < abs(other):
                weight, other = other, weight
            total = weight + other
            rest = other - (total - weight)
            # Not a number if the sum is infinite.
            if rest != 0 and np.isfinite(rest):
                partials[kept] = rest
                kept += 1
            weight = total
        partials[kept] = weight
        return kept + 1
    return 1


@kernel
def merged_weight(partials: NDArray[np.float64], count: int) -> float:
    """The number that is closest to the sum of some partials, as ``math.fsum`` rounds it."""
    total: float = partials[count - 1]
    for number in range(count - 2, -1, -1):
        before, other = total, partials[number]
        total = before + other
        rest = other - (total - before)
        if rest != 0:
            # A tie goes to the even number, unless smaller partials decide.
            if number > 0 and (rest < 0) == (partials[number - 1] < 0):
                twice = 2 * rest
                if total + twice - total == twice:
                    total += twice
            break
    return total


@kernel
def merge_equal_keys(keys: Keys, weights: Weights, mode: int) -> int:
    """Like :func:`unique_keys`, and merge the weights, (num_keys,) floats, of equal keys in their order.

    The merged weight is float64 until a key is complete, so that a sum is rounded to their type once.
    """
    partials = np.empty(MOST_PARTIALS, np.float64)
    kept = 0
    k = 0
    while k < keys.size:
        key, weight = keys[k], weights[k]
        k += 1
        if k < keys.size and keys[k] == key:
            count = merge_weight(partials, 0, np.float64(weight), mode)
            while k < keys.size and keys[k] == key:
                count = merge_weight(partials, count, np.float64(weights[k]), mode)
                k += 1
            weights[kept] = merged_weight(partials, count)
        else:
            weights[kept] = weight
        keys[kept] = key
        kept += 1
    return kept


@kernel
def join_directions(keys: Keys, weights: Weights) -> tuple[int, int]:
    """Drop the lowest bit of distinct ascending keys, and make one key of two that differ in it only.

    Returns:
        The number of remaining keys. The position of the first pair whose weights differ, at which the keys are left as
        they were; -1 if there is none.
    """
    one = np.uint64(1)
    kept = 0
    k = 0
    while k < keys.size:
        weight = weights[k]
        if k + 1 < keys.size and keys[k] ^ keys[k + 1] == one:
            if weight != weights[k + 1]:
                return kept, k
            # Zeros of both signs are equal, and the entries of both rows get the same one.
            if weight == 0:
                weight += weights[k + 1]
            keys[kept] = keys[k] >> one
            k += 2
        else:
            keys[kept] = keys[k] >> one
            k += 1
        weights[kept] = weight
        kept += 1
    return kept, -1
