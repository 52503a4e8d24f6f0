"""Copy ranges of bytes from several files into one, with few writes.

A merge takes a short range for each position from each file. Written one by one, they would cost a system call each.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gnnloom.pipeline.external_sort.raw_files import read_open_file, write_at

#: Bytes that are written at a time.
COPY_BYTES = 16 << 20


class ByteRange(NamedTuple):
    """Bytes ``start`` to ``stop`` (exclusive) of an open file; the path is for errors."""

    descriptor: int
    path: Path
    start: int
    stop: int


def copy_ranges(ranges: Iterable[ByteRange], descriptor: int, offset: int) -> int:
    """Copy ranges, one after another, to a byte offset of another file.

    Returns:
        The offset after the last byte.

    Raises:
        CorruptError: a file is too short.
    """
    # Memory is touched only as far as it is filled, so copying little takes little.
    buffer, filled = np.empty(COPY_BYTES, np.uint8), 0
    for source, path, start, stop in ranges:
        at = start
        while at < stop:
            count = min(stop - at, len(buffer) - filled)
            read_open_file(source, path, at, buffer[filled : filled + count])
            at, filled = at + count, filled + count
            if filled == len(buffer):
                write_at(descriptor, offset, buffer)
                offset, filled = offset + filled, 0
    write_at(descriptor, offset, buffer[:filled])
    return offset + filled
