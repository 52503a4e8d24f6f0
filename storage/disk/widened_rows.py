"""Widens rows of float16 to float32 while they are copied.

NumPy converts one number after the other, which takes several times as long as copying.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.kernels import kernel

#: Bits of a float16: the sign, the smallest normal number, and infinity.
_SIGN: Final = np.uint32(0x8000)
_NORMAL: Final = np.uint32(0x400)
_INFINITE: Final = np.uint32(0x7C00)
#: Bits by which the fractions of float16 and float32 differ, and what is added to the exponent: twice for infinity.
_FRACTION: Final = np.uint32(13)
_EXPONENT: Final = np.uint32(112 << 23)
#: Bits by which their signs are apart, and the smallest float16 that is not 0.
_APART: Final = np.uint32(16)
_SMALLEST: Final = np.float32(2.0**-24)
_ZERO, _ONE = np.uint32(0), np.uint32(1)


@kernel
def widen(
    array: NDArray[np.uint16],
    rows: NDArray[np.int64],
    bits: NDArray[np.uint32],
    values: NDArray[np.float32],
    place: NDArray[np.int64],
) -> None:
    """Fill rows of float32, given as their bits and as values, which share memory, with rows of float16.

    Args:
        place: (num_rows,) int64 where each row goes.
    """
    for k in range(len(rows)):
        row, out, has_subnormal = array[rows[k]], bits[place[k]], _ZERO
        for column in range(len(out)):
            number = np.uint32(row[column])
            size = number & (_SIGN - _ONE)
            exponent = _EXPONENT if size else _ZERO
            if size >= _INFINITE:
                exponent = _EXPONENT + _EXPONENT
            out[column] = ((number & _SIGN) << _APART) | ((size << _FRACTION) + exponent)
            # 0 becomes the largest number.
            has_subnormal |= np.uint32((size - _ONE) < (_NORMAL - _ONE))
        if has_subnormal:
            for column in range(len(out)):
                number = np.uint32(row[column])
                size = number & (_SIGN - _ONE)
                if _ZERO < size < _NORMAL:
                    value = np.float32(size) * _SMALLEST
                    values[place[k], column] = -value if number & _SIGN else value
