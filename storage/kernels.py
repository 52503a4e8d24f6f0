"""Kernels, which numba compiles, and common steps of kernels.

The steps are loops, because numba takes up to two seconds to compile each of NumPy's own functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Any, TypeVar, overload

from numpy.typing import NDArray

Function = TypeVar("Function", bound=Callable[..., Any])


class Kernel:
    """A function that numba compiles, or takes from its cache, on its first call or for the first kernel that calls it.

    Numba is imported only then: it takes 0.4 s and 60 MB, and most commands import kernels without a call. All other
    attributes are the attributes of numba's function, which numba reads where one kernel calls another.

    Attributes:
        compiled: numba's function.
    """

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load

    @cached_property
    def compiled(self) -> Any:
        return self._load()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.compiled(*arguments, **keywords)

    def __reduce__(self) -> str:
        """Copy and send a kernel as Python does a function: by its name."""
        return str(self.__qualname__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.compiled, name)


@overload
def kernel(function: Function, /) -> Function: ...
@overload
def kernel(**options: Any) -> Callable[[Function], Function]: ...
def kernel(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a :class:`Kernel`, which releases the GIL and is kept on disk.

    Args:
        options: further options of ``numba.njit``.
    """
    if function is None:
        return lambda function: kernel(function, **options)

    def load() -> Any:
        from numba import njit  # noqa: PLC0415 - see Kernel

        return njit(cache=True, nogil=True, **options)(function)

    return update_wrapper(Kernel(load), function)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written, as mapped arrays cannot: numba compiles a version of each kernel for either."""
    view = array.view()
    view.flags.writeable = False
    return view


@kernel
def copy_elements(values: NDArray[Any], out: NDArray[Any]) -> None:
    """Copy ``values``, (n,), to the first elements of ``out``."""
    for k in range(values.size):
        out[k] = values[k]


@kernel
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


@kernel
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


@kernel
def index_of_least(values: NDArray[Any]) -> int:
    """Index of the smallest element of an array, (n,); the first index if several elements are smallest."""
    least = 0
    for k in range(1, values.size):
        if values[k] < values[least]:
            least = k
    return least
