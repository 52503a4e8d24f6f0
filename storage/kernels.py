"""What many kernels need, written as loops: NumPy's own functions take numba up to two seconds each to compile."""

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
    """How many elements of an ascending array, (n,), are at most ``value``; of row pointers, one more than its row."""
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
    """How many elements of an ascending array, (n,), are below ``value``: where it is, if the array has it."""
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
    """Where the smallest element of an array, (n,), is; the first of several."""
    least = 0
    for k in range(1, values.size):
        if values[k] < values[least]:
            least = k
    return least
