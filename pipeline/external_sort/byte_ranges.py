"""Copy ranges of bytes from several lanes into one, with few writes.

A merge takes a short range for each position from each lane. Written one by one, they would cost a system call each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from gnnloom.pipeline.external_sort.lanes import LaneWriter, OpenLane

#: Bytes that are written at a time.
COPY_BYTES = 16 << 20


class ByteRange(NamedTuple):
    """Bytes ``start`` to ``stop`` (exclusive) of a lane."""

    lane: OpenLane
    start: int
    stop: int


def copy_ranges(ranges: Iterable[ByteRange], out: LaneWriter, offset: int) -> int:
    """Copy ranges, one after another, to a byte offset of another lane.

    Returns:
        The offset after the last byte.

    Raises:
        CorruptError: the file of a lane is too short.
    """
    # Memory is touched only as far as it is filled, so copying little takes little.
    buffer, filled = np.empty(COPY_BYTES, np.uint8), 0
    for source, start, stop in ranges:
        at = start
        while at < stop:
            count = min(stop - at, len(buffer) - filled)
            source.read(at, buffer[filled : filled + count])
            at, filled = at + count, filled + count
            if filled == len(buffer):
                offset, filled = out.write(offset, buffer), 0
    return out.write(offset, buffer[:filled])
