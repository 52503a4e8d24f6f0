"""Copies rows of an array into rows of another dtype, without a copy of all rows in between."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

#: Bytes that are converted at once: they stay in a core's cache.
_PIECE_BYTES: Final = 1 << 17
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


def fill_rows(array: NDArray[Any], rows: NDArray[np.int64], out: NDArray[Any]) -> None:
    """Copy rows of an array: ``out[...] = array[rows]``.

    Args:
        array: (num_rows, ...), mapped or in memory.
        rows: (num_taken,) int64 existing rows.
        out: (num_taken, ...) C-contiguous, of any dtype that the values are converted to.
    """
    if out.dtype == array.dtype:
        # Other modes fill a copy of the output first.
        np.take(array, rows, axis=0, out=out, mode="clip")
    elif array.dtype == np.float16 and out.dtype == np.float32 and array.ndim == 2:
        # NumPy converts one number after the other, which takes several times as long as copying.
        _widen(array.view(np.uint16), rows, out.view(np.uint32), out)
    else:
        step = max(1, _PIECE_BYTES // max(1, array[:1].nbytes))
        for start in range(0, len(rows), step):
            out[start : start + step] = array[rows[start : start + step]]


def converted(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The array itself if it has the dtype, or a converted copy."""
    if array.dtype == dtype:
        return array
    out = np.empty(array.shape, dtype)
    fill_rows(array, np.arange(len(array)), out)
    return out


@njit(cache=True, nogil=True)
def _widen(
    array: NDArray[np.uint16], rows: NDArray[np.int64], bits: NDArray[np.uint32], values: NDArray[np.float32]
) -> None:
    """Fill rows of float32, given as their bits and as values, which share memory, with rows of float16."""
    for k in range(len(rows)):
        row, out, has_subnormal = array[rows[k]], bits[k], _ZERO
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
                    values[k, column] = -value if number & _SIGN else value
