"""Arrays as bytes of files: written and read at any offset, however large they are."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.errors import CorruptError


def write_file(path: Path, arrays: Sequence[NDArray[Any]]) -> None:
    """Write arrays one after another into a file, under a temporary name until all are written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("wb", buffering=0) as file:
            written = 0
            for array in arrays:
                write_at(file.fileno(), written, array)
                written += array.nbytes
        # A task that is killed before the rename leaves no file under the name that its record would give.
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_at(descriptor: int, offset: int, array: NDArray[Any]) -> None:
    """Write all of a contiguous array, of any shape and dtype, at a byte offset of a file."""
    rest = array.reshape(-1).view(np.uint8).data
    # Linux transfers at most 2 GiB per call, so a large array takes several.
    while rest:
        count = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[count:], offset + count


def read_bytes(path: Path, offset: int, out: NDArray[Any]) -> None:
    """Fill a contiguous array of any shape and dtype from a byte offset of a file.

    Raises:
        CorruptError: the file is too short.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        read_open_file(descriptor, path, offset, out)
    finally:
        os.close(descriptor)


def read_open_file(descriptor: int, path: Path, offset: int, out: NDArray[Any]) -> None:
    """``read_bytes`` of a file that is open.

    Raises:
        CorruptError: the file is too short.
    """
    rest = out.reshape(-1).view(np.uint8).data if out.size else memoryview(b"")
    while rest:
        count = os.preadv(descriptor, [rest], offset)
        if count == 0:
            raise CorruptError(f"{path}: ends at byte {offset}, expected {len(rest)} bytes more")
        rest, offset = rest[count:], offset + count
