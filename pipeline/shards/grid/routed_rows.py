"""Routed files: rows of vertex data, sorted by position, between the passes that bring them into a permuted order.

Each is a lane (:mod:`gnnloom.pipeline.external_sort.lanes`):

    num_rows   (1,) int64
    position   (num_rows,) int64, ascending
    then the (num_rows, ...) rows of every array, in the order of the plan's types

A section is found by binary search, so files need no offsets, and readers may cut them anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, LaneWriter, OpenLane, writable
from gnnloom.pipeline.shards.grid.grid_vertex_plan import POSITION_BYTES, Types, row_bytes
from gnnloom.storage.matrix.ranges import Span

#: Bytes of rows that are read at a time from one file.
_BLOCK_BYTES = 4 << 20
#: Bytes before the positions.
_HEADER_BYTES = 8


class RoutedWriter:
    """Writes the columns of a routed file, each in any number of steps.

    Attributes:
        num_bytes: bytes of the file.
    """

    def __init__(self, lane: LaneWriter, types: Types, num_rows: int) -> None:
        self._lane = lane
        self._columns = _columns(types, num_rows)
        self.num_bytes = _HEADER_BYTES + num_rows * sum(width for _, width in self._columns.values())
        lane.write(0, np.array([num_rows]))

    def put(self, name: str, start: int, rows: NDArray[Any]) -> None:
        """Write rows of ``position`` or an array, from row ``start`` of the file on."""
        offset, width = self._columns[name]
        self._lane.write(offset + start * width, np.ascontiguousarray(rows))


@contextmanager
def written_rows(work: Path, lane: Lane, types: Types, num_rows: int) -> Iterator[RoutedWriter]:
    """Write a routed file of ``num_rows`` rows to a lane."""
    with writable(work, lane) as opened:
        yield RoutedWriter(opened, types, num_rows)


class RoutedFile:
    """A routed file in an open lane."""

    def __init__(self, lane: OpenLane, types: Types) -> None:
        """Read the number of rows.

        Raises:
            CorruptError: the lane's file is too short.
        """
        self._lane, self._types = lane, types
        count = np.empty(1, np.int64)
        lane.read(0, count)
        self.num_rows = int(count[0])
        self._columns = _columns(types, self.num_rows)

    def section(self, positions: Span) -> Span:
        """First and last (exclusive) row of the file with a position in the range."""
        first, last = (self._search(position) for position in positions)
        return first, last

    def _search(self, position: int) -> int:
        """Number of rows below a position."""
        low, high = 0, self.num_rows
        # Halving until one block is left: a few reads of a page each.
        while high - low > _BLOCK_BYTES // (8 * POSITION_BYTES):
            middle = (low + high) // 2
            if int(self.read("position", middle, middle + 1)[0]) < position:
                low = middle + 1
            else:
                high = middle
        return low + int(np.searchsorted(self.read("position", low, high), position))

    def read(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Rows ``start`` to ``stop`` of ``position`` or an array.

        Raises:
            CorruptError: the file is too short.
        """
        offset, width = self._columns[name]
        dtype, trailing = ("int64", ()) if name == "position" else self._types[name]
        rows = np.empty((stop - start, *trailing), dtype)
        self._lane.read(offset + start * width, rows)
        return rows

    def blocks(self, name: str, section: Span) -> Iterator[tuple[int, NDArray[Any]]]:
        """Rows of a section in steps of a few MiB, each with its place in the section."""
        step = max(1, _BLOCK_BYTES // max(1, self._columns[name][1]))
        for start in range(*section, step):
            yield start - section[0], self.read(name, start, min(start + step, section[1]))


@dataclass(frozen=True)
class Gathered:
    """The rows of several files within a range of positions.

    Attributes:
        position: (num_rows,) int64, ascending.
        sections: rows of each file.
        places: for each file, (section,) int64 places of its rows among all rows.
    """

    files: Sequence[RoutedFile]
    types: Types
    position: NDArray[np.int64]
    sections: Sequence[Span]
    places: Sequence[NDArray[np.int64]]

    @classmethod
    def of(cls, files: Sequence[RoutedFile], types: Types, positions: Span) -> Gathered:
        """Find the rows of a range of positions in all files."""
        sections = [file.section(positions) for file in files]
        found = [file.read("position", *section) for file, section in zip(files, sections, strict=True)]
        position = np.concatenate([np.empty(0, np.int64), *found])
        if len(position) == positions[1] - positions[0]:
            # No two rows have the same position, so as many rows as positions are one for each.
            return cls(files, types, np.arange(*positions), sections, [each - positions[0] for each in found])
        position.sort()
        return cls(files, types, position, sections, [np.searchsorted(position, each) for each in found])

    def rows(self, name: str) -> NDArray[Any]:
        """(num_rows, ...) rows of an array, in the order of the positions."""
        dtype, trailing = self.types[name]
        rows = np.empty((len(self.position), *trailing), dtype)
        for file, section, places in zip(self.files, self.sections, self.places, strict=True):
            for first, block in file.blocks(name, section):
                rows[places[first : first + len(block)]] = block
        return rows


def _columns(types: Types, num_rows: int) -> dict[str, tuple[int, int]]:
    """Offset and bytes of a row, for the positions and every array."""
    columns, offset = {"position": (_HEADER_BYTES, POSITION_BYTES)}, _HEADER_BYTES + num_rows * POSITION_BYTES
    for name in types:
        width = row_bytes(types, name)
        columns[name], offset = (offset, width), offset + num_rows * width
    return columns
