"""Numbers of bfloat16 in kernels that numba compiles, which has no such type: their bits are uint16.

A bfloat16 is the upper half of a float32. A kernel widens a number, computes in float32, and rounds the result. These
are the conversions of torch and of the kernels in C, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

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
