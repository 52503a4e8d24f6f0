"""Arrays as bytes of files: written and read at any offset, however large they are."""

from __future__ import annotations

import os
from collections.abc import Sequence
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
        read_into(descriptor, path, offset, [out.reshape(-1).view(np.uint8).data] if out.size else [], out.nbytes)
    finally:
        os.close(descriptor)


def read_into(
    descriptor: int, path: Path, offset: int, buffers: Sequence[memoryview], num_bytes: int
) -> list[memoryview]:
    """Read ``num_bytes`` bytes of a file into the first bytes of some buffers; returns the part that is not filled yet.

    Raises:
        CorruptError: the file is too short.
    """
    rest = list(buffers)
    while num_bytes:
        count = os.preadv(descriptor, _first(rest, num_bytes), offset)
        if count == 0:
            raise CorruptError(f"{path}: ends at byte {offset}, expected {num_bytes} bytes more")
        offset, num_bytes = offset + count, num_bytes - count
        while count:
            filled = min(count, len(rest[0]))
            rest[0], count = rest[0][filled:], count - filled
            if not rest[0]:
                del rest[0]
    return rest


def _first(buffers: Sequence[memoryview], num_bytes: int) -> list[memoryview]:
    """The first ``num_bytes`` bytes of several buffers."""
    chosen = []
    for buffer in buffers:
        chosen.append(buffer[:num_bytes])
        num_bytes -= len(chosen[-1])
        if not num_bytes:
            break
    return chosen
