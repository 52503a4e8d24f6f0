"""The part vector as a plain file: the one array of length n that tasks read at random, so all of them map it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.format.arrays import ArrayReader


def create_part_vector(path: Path, num_vertices: int) -> np.memmap[Any, np.dtype[np.int32]]:
    """A writable (num_vertices,) int32 map of a new file; replaces an existing file."""
    return np.lib.format.open_memmap(path, mode="w+", dtype=np.int32, shape=(num_vertices,))


def copy_part_vector(stored: ArrayReader, path: Path) -> None:
    """Write the file from a stored partition, with one chunk in memory at a time."""
    part = create_part_vector(path, len(stored))
    for start in range(0, len(stored), stored.chunk_rows):
        stop = min(start + stored.chunk_rows, len(stored))
        part[start:stop] = stored.read(start, stop)
    part.flush()


def map_part_vector(path: Path) -> NDArray[np.int32]:
    """(num_vertices,) int32, mapped read-only: pages are read when they are used."""
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
