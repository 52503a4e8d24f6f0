"""Fingerprints of multisets of numbers and of matrices, computed in one pass, in any order, in constant memory.

A fingerprint is the sum modulo 2^64 of a mixed hash of every element. Two different multisets have the same sum with a
probability of about 2^-64. So one pass over each is enough to compare a list with its permutation, or a matrix with its
transpose. The mixer comes from SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.kernels import count_at_most, kernel
from gnnloom.storage.matrix.permutation import GOLDEN, mix


@kernel
def _mix(value: np.uint64) -> np.uint64:
    # The increment keeps 0, which ``mix`` maps to itself, from adding nothing to a sum.
    return np.uint64(mix(np.uint64(value + GOLDEN)))


@kernel
def fingerprint_ids(ids: NDArray[np.int64], salt: int) -> np.uint64:
    """Fingerprint of a multiset of (num_ids,) ids; each ``salt`` gives an independent fingerprint."""
    # A sum, not an exclusive or, in which an id that occurs twice would cancel out. Every operand is uint64: numba
    # turns uint64 with int64 into float64, which drops the low bits.
    total = np.uint64(0)
    start = _mix(np.uint64(salt))
    for number in ids:
        total = np.uint64(total + _mix(np.uint64(start ^ _mix(np.uint64(number)))))
    return total


@kernel
def scan_rows(
    indptr: NDArray[np.int64],
    start: int,
    columns: NDArray[Any],
    values: NDArray[Any],
    row_offset: int,
    previous: int,
    width: int,
    repeats: bool,
) -> tuple[np.uint64, np.uint64, int, int]:
    """Check consecutive entries of a block of rows, and compute their fingerprints.

    Args:
        indptr: (num_rows + 1,) int64 row pointers of the block, non-decreasing, starting at 0.
        start: position of the first entry in the block.
        columns: (count,) column ids of the entries.
        values: (count,) uint32 or uint64, the bits of the entries' weights; empty for a pattern.
        row_offset: index of the block's first row in the whole matrix.
        previous: column of the entry before the first one.
        width: number of columns.
        repeats: a column may occur several times in a row.

    Returns:
        The uint64 fingerprint of all (row, column, weight), the fingerprint of all (column, row, weight), the last
        column, and the position of the first entry whose column is out of range or not above the previous column of its
        row; -1 if there is no such entry.
    """
    forward, backward = np.uint64(0), np.uint64(0)
    # ``start`` may lie in the middle of a row. The right side skips empty rows, which end where this row begins.
    row = count_at_most(indptr, start) - 1
    # A fingerprint chains the mixer over row, column and weight; "backward" exchanges row and column. Chaining makes
    # their order count, so a matrix and its transpose have different fingerprints unless they are equal.
    for k in range(len(columns)):
        while indptr[row + 1] <= start + k:
            row += 1
        column = np.int64(columns[k])
        # ``previous`` is carried from call to call, so the order is also checked across chunks; a new row resets it.
        is_first = start + k == indptr[row]
        if column < 0 or column >= width or (not is_first and column < previous + (not repeats)):
            return forward, backward, previous, start + k
        previous = int(column)
        weight = np.uint64(values[k]) if len(values) else np.uint64(0)
        here, there = np.uint64(row + row_offset), np.uint64(column)
        forward = np.uint64(forward + _mix(np.uint64(_mix(np.uint64(_mix(here) ^ there)) ^ weight)))
        backward = np.uint64(backward + _mix(np.uint64(_mix(np.uint64(_mix(there) ^ here)) ^ weight)))
    return forward, backward, previous, -1


@kernel
def asymmetry(
    keys: NDArray[np.uint64], values: NDArray[Any], column_bits: int, first_row: int
) -> tuple[np.uint64, int]:
    """Sum of the hashes of some entries of a matrix: of all entries, zero if the matrix equals its transpose.

    An entry and its mirror have one hash, which counts as negative above the diagonal. The diagonal does not count. A
    few operations instead of a chain of mixers: a sort computes this for every edge.

    Args:
        keys: (num_entries,) row from ``first_row`` on, and in the lower ``column_bits`` bits the column.
        values: (num_entries,) uint32 or uint64, the bits of their values; empty for a pattern.

    Returns:
        The uint64 sum, and the number of entries that it has.
    """
    column_mask, bits, before = np.uint64((1 << column_bits) - 1), np.uint64(column_bits), np.uint64(first_row)
    total, loops = np.uint64(0), 0
    for k in range(len(keys)):
        row, column = (keys[k] >> bits) + before, keys[k] & column_mask
        mixed = min(row, column) * GOLDEN + max(row, column)
        if len(values):
            # Odd, so that different values differ.
            mixed ^= np.uint64(values[k]) * np.uint64(0xC2B2AE3D27D4EB4F)
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
        mixed ^= mixed >> np.uint64(29)
        # Without branches to other code, this takes half of the time.
        if row == column:
            loops += 1
            mixed = np.uint64(0)
        if row < column:
            mixed = np.uint64(0) - mixed
        total += mixed
    return total, len(keys) - loops


@kernel
def fingerprint_entries(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> np.uint64:
    """Fingerprint of the (row, column) of some entries of a pattern, in any order; see :func:`scan_rows`."""
    total = np.uint64(0)
    for k in range(len(rows)):
        here, there = np.uint64(rows[k]), np.uint64(columns[k])
        total = np.uint64(total + _mix(_mix(np.uint64(_mix(here) ^ there))))
    return total
