"""Times as whole numbers of a unit, represented by floats in the same order while edges are sorted.

The sort moves eight bytes of a float64 with an edge, compares them and never computes with them. So it also moves any
int64 time, as the float whose bits are the number; bits of tiny floats are skipped, which some processors take for 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: Units of stored times: seconds, milliseconds, microseconds and nanoseconds, as NumPy calls them.
TIME_UNITS: Final = ("s", "ms", "us", "ns")
#: Unit of times that are whole numbers beyond float64, such as 20100313073721718, and are stored as they are.
WHOLE: Final = "1"
_SIGN, _FIRST = np.uint64(1 << 63), np.uint64(1 << 52)
#: The largest number that has a finite float, of both signs.
MOST_TICKS: Final = (0x7FF << 52) - (1 << 52) - 1


def floats_of_ticks(ticks: NDArray[np.int64]) -> NDArray[np.float64]:
    """(num_times,) float64 in the order of int64 times from -``MOST_TICKS`` to ``MOST_TICKS``.

    >>> floats_of_ticks(np.array([-5, 0, 7])).argsort().tolist()
    [0, 1, 2]
    """
    bits = np.abs(ticks).astype(np.uint64) + _FIRST
    return np.where(ticks < 0, bits | _SIGN, bits).view(np.float64)


def ticks_of_floats(floats: NDArray[np.float64]) -> NDArray[np.int64]:
    """(num_times,) int64 times of :func:`floats_of_ticks`."""
    bits = np.ascontiguousarray(floats).view(np.uint64)
    ticks = ((bits & ~_SIGN) - _FIRST).astype(np.int64)
    return np.where(bits & _SIGN, -ticks, ticks)


def finest_unit(units: Iterable[str]) -> str:
    """The unit in which the times of several files are stored, from the unit of each; empty if all are float64.

    >>> finest_unit(["s", "us"]), finest_unit(["", "1"]), finest_unit([""])
    ('us', '1', '')
    """
    return max(units, key=("", WHOLE, *TIME_UNITS).index, default="")


def have_floats(integers: NDArray[Any]) -> NDArray[np.bool_]:
    """(num_integers,) bool; whether float64 has each number of an array of integers.

    >>> have_floats(np.array([1 << 53, (1 << 53) + 1])).tolist()
    [True, False]
    """
    floats = integers.astype(np.float64)
    # Compared as integers: a comparison with floats would round them as well. 2^63 and 2^64 are beyond the types.
    least_beyond = float(2 ** (8 * integers.dtype.itemsize - (integers.dtype.kind == "i")))
    is_below = floats < least_beyond
    return np.asarray(is_below & (np.where(is_below, floats, 0).astype(integers.dtype) == integers), bool)


def datetime_unit(dtype: np.dtype[Any]) -> str:
    """The unit in which times of a NumPy dtype are stored; empty for a dtype without a unit, and for longer units.

    >>> [datetime_unit(np.dtype(name)) for name in ("M8[D]", "M8[us]", "M8")]
    ['s', 'us', '']
    """
    unit, count = np.datetime_data(dtype)
    return unit if unit in TIME_UNITS and count == 1 else "s" if unit in {"s", "m", "h", "D", "W"} else ""


def date_of(ticks: int, unit: str) -> str:
    """A time as text: a date in UTC, or a whole number."""
    return str(ticks) if unit == WHOLE else str(np.array(ticks, np.int64).astype(f"M8[{unit}]"))
