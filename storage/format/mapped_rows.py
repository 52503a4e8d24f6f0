"""Reads rows of a mapped array with several disk requests in flight."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: A thread waits for each page that is not in memory, while the disk can serve many requests at a time.
_THREADS: Final = 16
#: Below this many bytes, starting threads would take longer than reading the rows.
_FEW_BYTES: Final = 1 << 22


def take_rows(array: NDArray[Any], rows: NDArray[np.int64], out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Rows of an array, as ``array[rows]`` gives them.

    Args:
        array: (num_rows, ...) a mapped array.
        rows: (num_taken,) int64 existing rows; ascending ones cause the fewest requests.
        out: (num_taken, ...) of the array's dtype, to fill and return; None for a new array.

    Returns:
        (num_taken, ...).
    """
    taken = np.empty((len(rows), *array.shape[1:]), array.dtype) if out is None else out
    if taken.nbytes < _FEW_BYTES:
        np.take(array, rows, axis=0, out=taken, mode="clip")
        return taken

    def take(some: NDArray[np.int64], out: NDArray[Any]) -> None:
        # Other modes fill a copy of the output first.
        np.take(array, some, axis=0, out=out, mode="clip")

    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(take, np.array_split(rows, _THREADS), np.array_split(taken, _THREADS)))
    return taken
