"""Common steps of kernels, written as loops: numba takes up to two seconds to compile each of NumPy's own functions."""

from __future__ import annotations

from typing import Any

from numba import njit
from numpy.typing import NDArray


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written, as mapped arrays cannot: numba compiles a version of each kernel for either."""
    view = array.view()
    view.flags.writeable = False
    return view


@njit(cache=True, nogil=True)
def copy_elements(values: NDArray[Any], out: NDArray[Any]) -> None:
    """Copy ``values``, (n,), to the first elements of ``out``."""
    for k in range(values.size):
        out[k] = values[k]


@njit(cache=True, nogil=True)
def count_at_most(ascending: NDArray[Any], value: int) -> int:
    """Number of elements of an ascending array, (n,), that are at most ``value``; for row pointers, row + 1."""
    low, high = 0, ascending.size
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def count_below(ascending: NDArray[Any], value: int) -> int:
    """Number of elements of an ascending array, (n,), below ``value``; its position if the array contains it."""
    low, high = 0, ascending.size
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def index_of_least(values: NDArray[Any]) -> int:
    """Index of the smallest element of an array, (n,); the first index if several elements are smallest."""
    least = 0
    for k in range(1, values.size):
        if values[k] < values[least]:
            least = k
    return least
