"""Stored arrays as plain memory-mapped files, for looking up all over what need not fit in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.format.arrays import ArrayReader

#: Elements of the first axis that are copied at a time, for one column.
_ROWS = 1 << 20


def map_copy(array: ArrayReader, path: Path) -> NDArray[Any]:
    """Copy a stored array to a file of its own, and map that.

    Args:
        path: of the file, which stays as long as the caller keeps it.
    """
    if not len(array):
        return np.empty(array.shape, array.dtype)
    mapped = np.memmap(path, array.dtype, "w+", shape=array.shape)
    for start in range(0, len(array), _ROWS):
        stop = min(start + _ROWS, len(array))
        mapped[start:stop] = array.read(start, stop)
    return mapped
