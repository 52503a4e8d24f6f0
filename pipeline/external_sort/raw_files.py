"""Arrays as bytes of files: written and read at any offset, however large they are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.errors import CorruptError


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
