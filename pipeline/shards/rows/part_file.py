"""Spill files sorted by part, of which the task of one part reads a few short ranges.

A spill file is a lane (:mod:`gnnloom.pipeline.external_sort.lanes`), maybe the only one of its file. It has several
columns. A column lists the entries of part 0, then those of part 1, and so on. The header is all int64: the number of
columns, the number of parts, the bytes per entry of each column, the byte at which each column begins, and then the
(num_parts + 1) offsets of each column, counted in entries.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.byte_ranges import ByteRange
from gnnloom.pipeline.external_sort.lanes import Lane, OpenLane, writable
from gnnloom.storage.format.files import sync_folder
from gnnloom.storage.matrix.ranges import Span


@dataclass(frozen=True)
class PartColumn:
    """Entries sorted by part.

    Attributes:
        entry: (num_entries, ...) any dtype except object.
        offset: (num_parts + 1,) int64; part p has entry[offset[p]:offset[p + 1]].
    """

    entry: NDArray[Any]
    offset: NDArray[np.int64]


@dataclass(frozen=True)
class PartLayout:
    """Where the parts of each column lie.

    Attributes:
        widths: (num_columns,) int64 bytes per entry.
        offsets: (num_columns, num_parts + 1) int64 first entry of each part, and the number of entries.
    """

    widths: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @property
    def header(self) -> NDArray[np.int64]:
        """All numbers at the beginning of the file."""
        columns, bounds = self.offsets.shape
        return np.concatenate([[columns, bounds - 1], self.widths, self.begins, self.offsets.reshape(-1)])

    @property
    def begins(self) -> NDArray[np.int64]:
        """(num_columns,) int64 byte at which each column begins."""
        columns, bounds = self.offsets.shape
        sizes = self.widths * self.offsets[:, -1]
        begins: NDArray[np.int64] = _offset_at(columns, bounds - 1, columns, 0) + np.cumsum(sizes) - sizes
        return begins

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return int(self.begins[-1] + self.widths[-1] * self.offsets[-1, -1])


@dataclass(frozen=True)
class OpenParts:
    """Some parts of an open lane, as bytes.

    Attributes:
        lane: the lane.
        widths: (num_columns,) int64 bytes per entry.
        begins: (num_columns,) int64 byte at which each column begins.
        bounds: (num_columns, num_chosen + 1) int64 first entry of each chosen part, and the end of the last one.
    """

    lane: OpenLane
    widths: NDArray[np.int64]
    begins: NDArray[np.int64]
    bounds: NDArray[np.int64]

    @classmethod
    def of(cls, lane: OpenLane, parts: Span) -> OpenParts:
        """Read where the parts lie.

        Raises:
            CorruptError: the lane's file is too short.
        """
        num_parts, widths, begins = _read_columns(lane)
        columns = len(widths)
        bounds = np.empty((columns, parts[1] - parts[0] + 1), np.int64)
        for column in range(columns):
            lane.read(_offset_at(columns, num_parts, column, parts[0]), bounds[column])
        return cls(lane, widths, begins, bounds)

    def bytes_of(self, column: int, part: int) -> ByteRange:
        """The bytes of a part, counted from the first chosen one, in a column."""
        width, begin = int(self.widths[column]), int(self.begins[column])
        start, stop = (begin + width * int(bound) for bound in self.bounds[column, part : part + 2])
        return ByteRange(self.lane, start, stop)


def _offset_at(num_columns: int, num_parts: int, column: int, part: int) -> int:
    """Byte of the offset of a part; for the column after the last one, the byte after the header."""
    # Two counts, a width and a begin per column, then the offsets: 8 bytes each.
    return 8 * (2 + 2 * num_columns + column * (num_parts + 1) + part)


def _read_columns(lane: OpenLane) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
    """Number of parts, and (num_columns,) bytes per entry and byte at which it begins of each column."""
    counts = np.empty(2, np.int64)
    lane.read(0, counts)
    columns, num_parts = (int(count) for count in counts)
    layout = np.empty((2, columns), np.int64)
    lane.read(counts.nbytes, layout)
    return num_parts, layout[0], layout[1]


def write_part_lane(folder: Path, lane: Lane, columns: Sequence[PartColumn]) -> int:
    """Write the columns to a lane, whose file exists, and wait until they are on disk; returns their bytes.

    The caller records its task right after this, and after a crash that record must not outlive the data.

    Args:
        folder: folder that the path of the lane is relative to.
        columns: one or more, all with the same number of parts.
    """
    widths = np.array([_entry_bytes(column.entry) for column in columns], np.int64)
    layout = PartLayout(widths, np.stack([column.offset for column in columns]).astype(np.int64, copy=False))
    with writable(folder, lane) as out:
        end = out.write(0, layout.header)
        for column in columns:
            end = out.write(end, np.ascontiguousarray(column.entry))
        out.sync()
    return end


def write_part_file(path: Path, columns: Sequence[PartColumn]) -> None:
    """Write the columns to a file of their own, as :func:`write_part_lane` does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written under its final name: only files of recorded tasks are read, and an unrecorded task writes again.
    path.open("wb").close()
    write_part_lane(path.parent, Lane(path.name), columns)
    # The name of the file has to survive a crash as well.
    sync_folder(path.parent)


def read_part(lane: OpenLane, part: int, dtypes: Sequence[np.dtype[Any]], first_column: int = 0) -> list[NDArray[Any]]:
    """Read the entries of one part.

    Args:
        dtypes: one for each column to read; others are not read.
        first_column: number of the first of these columns.

    Returns:
        One flat array per dtype; entries of several elements follow each other.

    Raises:
        CorruptError: the lane's file is too short.
    """
    # Widths and positions come from the header, so a reader need not know the other columns.
    num_parts, widths, begins = _read_columns(lane)
    columns, bounds = [], np.empty(2, np.int64)
    for number, dtype in enumerate(dtypes, first_column):
        # Only the two offsets of this part: reading all offsets in every task would cost O(P^2) per file.
        lane.read(_offset_at(len(widths), num_parts, number, part), bounds)
        first, last = (int(bound) for bound in bounds)
        width = int(widths[number])
        column = np.empty((last - first) * width // dtype.itemsize, dtype)
        lane.read(int(begins[number]) + first * width, column)
        columns.append(column)
    return columns


def read_parts(lane: OpenLane, first: int, last: int, dtype: np.dtype[Any]) -> PartColumn:
    """Read parts ``first`` to ``last`` (exclusive) of a file that has only one column, with one element per entry.

    Returns:
        Their entries, and (last - first + 1,) offsets in the whole column.

    Raises:
        CorruptError: the file is too short.
    """
    offset = read_part_offsets(lane, first, last)
    _, _, (begin,) = _read_columns(lane)
    entry = np.empty(int(offset[-1] - offset[0]), dtype)
    lane.read(int(begin) + int(offset[0]) * dtype.itemsize, entry)
    return PartColumn(entry, offset)


def read_part_offsets(lane: OpenLane, first: int, last: int) -> NDArray[np.int64]:
    """Read the (last - first + 1,) offsets of parts ``first`` to ``last`` of a file that has only one column."""
    offset = np.empty(last - first + 1, np.int64)
    lane.read(_offset_at(1, 0, 0, first), offset)
    return offset


@contextmanager
def mapped_part_file(path: Path, offset: NDArray[np.int64], dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    """Write a file of one column through a map of its entries; at the end of the block, wait until it is on disk.

    Args:
        offset: (num_parts + 1,) int64; the last is the number of entries.

    Yields:
        (num_entries,) entries to fill.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    layout = PartLayout(np.array([dtype.itemsize], np.int64), offset[None])
    with path.open("wb") as file:
        file.write(layout.header.data)
        file.truncate(layout.size)
    # An empty range cannot be mapped.
    mapped = np.memmap(path, dtype, "r+", int(layout.begins[0]), (int(offset[-1]),)) if offset[-1] else None
    yield np.empty(0, dtype) if mapped is None else mapped
    if mapped is not None:
        mapped.flush()
    with path.open("rb") as file:
        os.fsync(file.fileno())
    sync_folder(path.parent)


def part_offsets(part: NDArray[np.int32], num_parts: int) -> NDArray[np.int64]:
    """Compute where each part begins after sorting by part, as (num_parts + 1,) int64.

    Args:
        part: (num_entries,) int32, all in 0..num_parts-1.
    """
    return np.concatenate([[0], np.cumsum(np.bincount(part, minlength=num_parts))]).astype(np.int64)


def _entry_bytes(entry: NDArray[Any]) -> int:
    return int(entry.itemsize * np.prod(entry.shape[1:], dtype=np.int64))
