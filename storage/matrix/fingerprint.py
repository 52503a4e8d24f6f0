"""Fingerprints of sets of numbers and of matrices, whose order does not matter and which need no memory.

A fingerprint is the sum modulo 2^64 of a mixed hash of every element.  Two multisets that differ
have the same sum with a probability of about 2^-64, so that a permutation, or a matrix and its
transpose, are compared in one pass over each.  The mixer is SplitMix64's (Steele, Lea and Flood,
OOPSLA 2014).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def _mix(value: np.uint64) -> np.uint64:
    value = np.uint64(value + np.uint64(0x9E3779B97F4A7C15))
    value = np.uint64((value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9))
    value = np.uint64((value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB))
    return np.uint64(value ^ (value >> np.uint64(31)))


@njit(cache=True, nogil=True)
def fingerprint_ids(ids: NDArray[np.int64], salt: int) -> np.uint64:
    """Fingerprint of a multiset of ids; another ``salt`` gives another fingerprint."""
    total = np.uint64(0)
    start = _mix(np.uint64(salt))
    for number in ids:
        total = np.uint64(total + _mix(np.uint64(start ^ _mix(np.uint64(number)))))
    return total


@njit(cache=True, nogil=True)
def scan_rows(
    indptr: NDArray[np.int64],
    start: int,
    columns: NDArray[Any],
    values: NDArray[Any],
    row_offset: int,
    previous: int,
    width: int,
) -> tuple[np.uint64, np.uint64, int, int]:
    """Check and fingerprint consecutive entries of a block of rows.

    Args:
        indptr: (num_rows + 1,) of the block; ascending, from 0.
        start: number of the first entry in the block.
        columns: (count,) column ids of the entries.
        values: (count,) uint32 or uint64, the bits of the entries' weights; empty for a pattern.
        row_offset: global number of the block's first row.
        previous: column of the entry before the first one.
        width: number of columns.

    Returns:
        The fingerprints of the entries (row, column, weight) and of (column, row, weight), the last column, and the
        entry whose column is out of range or does not come after its row's entry before it; -1 if there is none.
    """
    forward, backward = np.uint64(0), np.uint64(0)
    row = np.searchsorted(indptr, start, side="right") - 1
    for k in range(len(columns)):
        while indptr[row + 1] <= start + k:
            row += 1
        column = np.int64(columns[k])
        is_first = start + k == indptr[row]
        if column < 0 or column >= width or (not is_first and column <= previous):
            return forward, backward, previous, start + k
        previous = int(column)
        weight = np.uint64(values[k]) if len(values) else np.uint64(0)
        here, there = np.uint64(row + row_offset), np.uint64(column)
        forward = np.uint64(forward + _mix(np.uint64(_mix(np.uint64(_mix(here) ^ there)) ^ weight)))
        backward = np.uint64(backward + _mix(np.uint64(_mix(np.uint64(_mix(there) ^ here)) ^ weight)))
    return forward, backward, previous, -1
