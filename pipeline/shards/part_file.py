"""Spill files sorted by part: the task of one part opens one file and reads a few short ranges of it.

A file holds several columns.  A column lists the entries of part 0, then those of part 1, and so on.  The header is
int64 throughout: the number of columns, the number of parts, the bytes per entry of each column, the byte at which
each column begins, and then the (num_parts + 1) offsets of each column, counted in entries.
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

from gnnloom.storage.format.files import sync_folder


@dataclass(frozen=True)
class PartColumn:
    """Entries sorted by part.

    Attributes:
        entry: (num_entries, ...) any dtype except object.
        offset: (num_parts + 1,) int64; part p has entry[offset[p]:offset[p + 1]].
    """

    entry: NDArray[Any]
    offset: NDArray[np.int64]


def write_part_file(path: Path, columns: Sequence[PartColumn]) -> None:
    """Write the columns and wait until they are on disk.

    The caller records its task right after this, and after a crash that record must not outlive the data.

    Args:
        columns: one or more, all with the same number of parts.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    widths = [_entry_bytes(column.entry) for column in columns]
    num_offsets = len(columns[0].offset)
    # Two counts, a width and a begin per column, then the offsets: 8 bytes each.
    begin = 8 * (2 + 2 * len(columns) + len(columns) * num_offsets)
    begins = []
    for column, width in zip(columns, widths, strict=True):
        begins.append(begin)
        begin += width * len(column.entry)
    # Written under its final name: only files of recorded tasks are read, and an unrecorded task writes again.
    with path.open("wb") as file:
        file.write(np.array([len(columns), num_offsets - 1, *widths, *begins], dtype=np.int64).data)
        for column in columns:
            file.write(np.ascontiguousarray(column.offset, dtype=np.int64).data)
        for column in columns:
            np.ascontiguousarray(column.entry).tofile(file)
        file.flush()
        os.fsync(file.fileno())
    # The name of the file has to survive a crash as well.
    sync_folder(path.parent)


def read_part(path: Path, part: int, dtypes: Sequence[np.dtype[Any]], first_column: int = 0) -> list[NDArray[Any]]:
    """Read the entries of one part.

    Args:
        dtypes: one for each column to read; others are not read.
        first_column: number of the first of these columns.

    Returns:
        One flat array per dtype; entries of several elements follow each other.
    """
    columns = []
    with path.open("rb") as file:
        num_columns, num_parts = np.fromfile(file, np.int64, 2)
        # Widths and positions come from the header, so a reader need not know the other columns.
        widths, begins = np.fromfile(file, np.int64, 2 * num_columns).reshape(2, -1)
        for number, dtype in enumerate(dtypes, first_column):
            # Only the two offsets of this part: reading all offsets in every task would cost O(P^2) per file.
            file.seek(8 * (2 + 2 * num_columns + number * (num_parts + 1) + part))
            first, last = np.fromfile(file, np.int64, 2)
            file.seek(begins[number] + first * widths[number])
            columns.append(np.fromfile(file, dtype, (last - first) * widths[number] // dtype.itemsize))
    return columns


def read_all_parts(path: Path, dtype: np.dtype[Any]) -> PartColumn:
    """Read the whole column of a file that has only one, with one element per entry."""
    with path.open("rb") as file:
        _, num_parts, *_ = np.fromfile(file, np.int64, 4)
        offset = np.fromfile(file, np.int64, num_parts + 1)
        return PartColumn(np.fromfile(file, dtype, offset[-1]), offset)


def read_parts(path: Path, first: int, last: int, dtype: np.dtype[Any]) -> PartColumn:
    """Read parts ``first`` to ``last`` (exclusive) of a file that has only one column, with one element per entry.

    Returns:
        Their entries, and (last - first + 1,) offsets in the whole column.
    """
    with path.open("rb") as file:
        _, _, _, begin = np.fromfile(file, np.int64, 4)
        file.seek(8 * (4 + first))
        offset = np.fromfile(file, np.int64, last - first + 1)
        file.seek(begin + offset[0] * dtype.itemsize)
        return PartColumn(np.fromfile(file, dtype, offset[-1] - offset[0]), offset)


def read_part_offsets(path: Path, first: int, last: int) -> NDArray[np.int64]:
    """Read the (last - first + 1,) offsets of parts ``first`` to ``last`` of a file that has only one column."""
    with path.open("rb") as file:
        file.seek(8 * (4 + first))
        return np.fromfile(file, np.int64, last - first + 1)


@contextmanager
def mapped_part_file(path: Path, offset: NDArray[np.int64], dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    """Write a file of one column through a map of its entries; at the end of the block, wait until it is on disk.

    Args:
        offset: (num_parts + 1,) int64; the last is the number of entries.

    Yields:
        (num_entries,) entries to fill.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    begin = 8 * (4 + len(offset))
    with path.open("wb") as file:
        file.write(np.array([1, len(offset) - 1, dtype.itemsize, begin], dtype=np.int64).data)
        file.write(np.ascontiguousarray(offset, dtype=np.int64).data)
        file.truncate(begin + int(offset[-1]) * dtype.itemsize)
    # An empty range cannot be mapped.
    mapped = np.memmap(path, dtype, "r+", begin, (int(offset[-1]),)) if offset[-1] else None
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
