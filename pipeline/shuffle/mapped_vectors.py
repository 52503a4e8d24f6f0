"""Vectors that every task looks up, each in a file that all tasks of a machine map: sealed as a lane is.

A vector is compared with its checksums once by each process that maps it: a lookup at random reads a few bytes, of
which there is no checksum.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from gnnloom.pipeline.external_sort.lanes import SEAL_BYTES, Lane, LaneWriter, OpenFiles
from gnnloom.storage.disk.files import written_aside
from gnnloom.storage.format.arrays import ArrayReader

#: Bytes that are compared at a time.
_STEP_BYTES: Final = 4 << 20


def write_vector(path: Path, pieces: Iterable[NDArray[Any]]) -> None:
    """Write a vector; under its name, the file is complete.

    Args:
        pieces: consecutive pieces of the vector, one in memory at a time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
        try:
            # Sealed for the name that it gets.
            lane, end = LaneWriter(Lane(path.name), descriptor, aside), 0
            for piece in pieces:
                end = lane.write(end, np.ascontiguousarray(piece))
            lane.seal()
        finally:
            os.close(descriptor)


def copy_vector(stored: ArrayReader, path: Path) -> None:
    """Write a vector from a stored array, one chunk in memory at a time."""
    bounds = range(0, len(stored), stored.chunk_rows)
    write_vector(path, (stored.read(start, min(start + stored.chunk_rows, len(stored))) for start in bounds))


def map_vector(path: Path, dtype: DTypeLike = np.int32) -> NDArray[Any]:
    """Map a vector to read it.

    Raises:
        DamagedWorkError: the file is damaged.
        IncompleteError: it is missing.
    """
    size, _ = _compared(path)
    if not size:
        # An empty range cannot be mapped.
        return np.empty(0, dtype)
    # NumPy's own class of mapped arrays takes three times as long, most of it to resolve the path.
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(mapped, dtype, size // np.dtype(dtype).itemsize, SEAL_BYTES)


def vector_checksum(path: Path) -> int:
    """A checksum of all of a vector.

    Raises:
        DamagedWorkError: the file is damaged.
        IncompleteError: it is missing.
    """
    return _compared(path)[1]


def _compared(path: Path) -> tuple[int, int]:
    """Bytes of a vector, and a checksum of it, once it was compared."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return _compare(path, 0, 0)
    return _compare(path, found.st_ino, found.st_mtime_ns)


@lru_cache(maxsize=64)
def _compare(path: Path, _: int, __: int) -> tuple[int, int]:
    """Compare a vector with its checksums, unless this process has compared this very file."""
    with OpenFiles(path.parent) as files:
        lane = files.lane(Lane(path.name))
        buffer = np.empty(min(lane.size, _STEP_BYTES), np.uint8)
        for start in range(0, lane.size, _STEP_BYTES):
            lane.read(start, buffer[: lane.size - start])
        return lane.size, lane.checksum
