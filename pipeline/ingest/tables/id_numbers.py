"""Parses ids that are numbers written as text, and finds their faults."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.parsers.name_parser import lacks_id
from gnnloom.pipeline.sources.parsers.numerals import MISSING, PADDED, POINT, ZERO
from gnnloom.storage.kernels import kernel

_HIGHEST: Final = np.iinfo(np.int64).max


@kernel
def read_numbers(offset: NDArray[np.int64], text: NDArray[np.uint8], numbers: NDArray[np.int64]) -> None:
    """Parse decimal numbers below 2^63, or below 2^53 with a point and zeros; -1 for names that are not numbers."""
    for k in range(numbers.size):
        value: Any = 0
        stop = offset[k + 1]
        # Programs write a column of ids with gaps as decimal numbers.
        while stop > offset[k] + 1 and text[stop - 1] == ZERO:
            stop -= 1
        is_decimal = stop > offset[k] + 1 and text[stop - 1] == POINT
        stop = stop - 1 if is_decimal else offset[k + 1]
        for at in range(offset[k], stop):
            digit = np.int64(text[at]) - ZERO
            # The division keeps the test for the limit itself from overflowing.
            if not 0 <= digit <= 9 or value > (_HIGHEST - digit) // 10:
                value = -1
                break
            value = value * 10 + digit
        numbers[k] = -1 if is_decimal and value > 1 << 53 else value


@kernel
def first_fault(offset: NDArray[np.int64], text: NDArray[np.uint8]) -> tuple[int, int]:
    """The first id that is missing or has leading zeros, and its fault; -1 if there is none."""
    for k in range(offset.size - 1):
        first, stop = offset[k], offset[k + 1]
        if stop > first and lacks_id(text, first, stop):
            return k, MISSING
        if stop > first + 1 and text[first] == ZERO and ZERO <= text[first + 1] <= ZERO + 9:
            return k, PADDED
    return -1, 0
