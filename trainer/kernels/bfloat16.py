"""Rows of bfloat16 in kernels that numba compiles, which has no such type: their bits are uint16.

A bfloat16 is the upper half of a float32. A kernel widens a row into a scratch row that stays in the first-level cache,
computes in float32, and rounds the result. These are the conversions of torch and of the kernels in C, bit for bit.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

#: Bits of a float32: all but the sign, those of infinity, and the upper half of a NaN.
_MAGNITUDE, _INFINITY, _NAN = 0x7FFFFFFF, 0x7F800000, 0x7FC0


@njit(cache=True, nogil=True)
def widen_row(stored: NDArray[np.uint16], bits: NDArray[np.uint32]) -> None:
    """The bits of the float32 numbers that equal a row of bfloat16."""
    for column in range(len(stored)):
        bits[column] = np.uint32(stored[column]) << np.uint32(16)


@njit(cache=True, nogil=True)
def narrow_row(bits: NDArray[np.uint32], stored: NDArray[np.uint16]) -> None:
    """Round a row of float32, given by its bits, to the nearest bfloat16, ties to even."""
    for column in range(len(stored)):
        value = bits[column]
        odd = np.uint32(value >> np.uint32(16)) & np.uint32(1)
        rounded = np.uint32(np.uint32(value + np.uint32(0x7FFF) + odd) >> np.uint32(16))
        is_nan = np.uint32(value & np.uint32(_MAGNITUDE)) > np.uint32(_INFINITY)
        stored[column] = np.uint16(_NAN) if is_nan else np.uint16(rounded)
