"""Stored arrays as plain memory-mapped files, for random access without holding them in memory.

The part vector is such an array: tasks look up the part of any vertex, and all of them map one file.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.disk.numpy_files import create_array_file, map_array, reserve
from gnnloom.storage.format.arrays import ArrayReader
from gnnloom.storage.system_errors import naming

#: Rows that are copied at a time: few enough to hold in memory, enough to write long runs.
_COPY_ROWS = 1 << 20


def map_copy(array: ArrayReader, path: Path, span: tuple[int, int] | None = None) -> NDArray[Any]:
    """Copy a stored array to a file of its own and map that.

    Args:
        path: name of the new file; the caller keeps it as long as the map is used.
        span: first row to copy and one past the last; None for all.

    Returns:
        An array of the shape and dtype of these rows.
    """
    first, last = (0, len(array)) if span is None else span
    shape = (last - first, *array.shape[1:])
    if not math.prod(shape):
        # An empty file cannot be mapped.
        return np.empty(shape, array.dtype)
    with naming(path):
        mapped = np.memmap(path, array.dtype, "w+", shape=shape)
        reserve(path)
    for start in range(first, last, _COPY_ROWS):
        stop = min(start + _COPY_ROWS, last)
        mapped[start - first : stop - first] = array.read(start, stop)
    return mapped


def temporary_array(folder: Path, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Zeros in a file without a name, which is gone once nothing refers to the array, however this process ends.

    Raises:
        OSError: the disk is full. The space is taken here, as a full disk would end a process that writes to a map.
    """
    if not math.prod(shape):
        # An empty file cannot be mapped.
        return np.zeros(tuple(shape), dtype)
    with naming(folder), tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, math.prod(shape) * dtype.itemsize)
        return np.memmap(file, dtype, "r+", shape=tuple(shape))


def create_part_vector(path: Path, num_vertices: int) -> np.memmap[Any, np.dtype[np.int32]]:
    """Create a file in NumPy's format and map it as a writable (num_vertices,) int32 array."""
    return create_array_file(path, np.int32, (num_vertices,))


def map_part_vector(path: Path) -> NDArray[np.int32]:
    """Map the file of a part vector as a (num_vertices,) int32 array; pages are read on access."""
    return map_array(path)
