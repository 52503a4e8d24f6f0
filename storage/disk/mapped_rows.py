"""Reads rows of a mapped array with several disk requests in flight."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.disk.converted_rows import fill_rows
from gnnloom.storage.machine_memory import available_memory

#: A thread waits for each page that is not in memory, while the disk can serve many requests at a time.
READERS: Final = 16
#: Below this many bytes, starting threads would take longer than reading the rows.
_FEW_BYTES: Final = 1 << 22


def fits_in_pages(array: NDArray[Any]) -> bool:
    """Whether the pages of a mapped array will mostly be in memory, with room for others."""
    return not out_of_pages([array])


def out_of_pages(arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """The mapped arrays whose pages will mostly not be in memory, with room for each of the others."""
    available = available_memory()
    return [array for array in arrays if 2 * array.nbytes > available]


def take_rows(
    array: NDArray[Any], rows: NDArray[np.int64], out: NDArray[Any] | None = None, threads: Executor | None = None
) -> NDArray[Any]:
    """Rows of an array, as ``array[rows]`` gives them.

    Args:
        array: (num_rows, ...) a mapped array.
        rows: (num_taken,) int64 existing rows; ascending ones cause the fewest requests.
        out: (num_taken, ...) of any dtype that the values are converted to, to fill and return; None for a new array of
            the array's dtype.
        threads: ``READERS`` threads that read many rows; None for new ones, whose start takes some milliseconds.

    Returns:
        (num_taken, ...).
    """
    taken = np.empty((len(rows), *array.shape[1:]), array.dtype) if out is None else out
    if taken.nbytes < _FEW_BYTES:
        fill_rows(array, rows, taken)
        return taken

    def fill(some: NDArray[np.int64], out: NDArray[Any]) -> None:
        fill_rows(array, some, out)

    pieces = np.array_split(rows, READERS), np.array_split(taken, READERS)
    if threads is not None:
        list(threads.map(fill, *pieces))
        return taken
    with ThreadPoolExecutor(READERS) as own:
        list(own.map(fill, *pieces))
    return taken
