"""Spill files sorted by part, so that a task of one part opens one file and reads a few short ranges.

A file holds several columns.  A column lists the entries of part 0, then those of part 1, and so
on.  All numbers of the header are int64: the number of columns, the number of parts, the bytes of
an entry of each column, where each column begins; then each column's (num_parts + 1) offsets.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
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
        entry: (num_entries, ...) any dtype but objects.
        offset: (num_parts + 1,) int64; part p has entry[offset[p]:offset[p + 1]].
    """

    entry: NDArray[Any]
    offset: NDArray[np.int64]


def write_part_file(path: Path, columns: Sequence[PartColumn]) -> None:
    """Write the columns and wait until they are on the disk: a record of the part must not outlive them in a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    widths = [_entry_bytes(column.entry) for column in columns]
    num_offsets = len(columns[0].offset)
    begin = 8 * (2 + 2 * len(columns) + len(columns) * num_offsets)
    begins = []
    for column, width in zip(columns, widths, strict=True):
        begins.append(begin)
        begin += width * len(column.entry)
    with path.open("wb") as file:
        file.write(np.array([len(columns), num_offsets - 1, *widths, *begins], dtype=np.int64).data)
        for column in columns:
            file.write(np.ascontiguousarray(column.offset, dtype=np.int64).data)
        for column in columns:
            np.ascontiguousarray(column.entry).tofile(file)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def read_part(path: Path, part: int, dtypes: Sequence[np.dtype[Any]]) -> list[NDArray[Any]]:
    """The entries of one part, flat, for as many columns as there are ``dtypes``."""
    columns = []
    with path.open("rb") as file:
        num_columns, num_parts = np.fromfile(file, np.int64, 2)
        widths, begins = np.fromfile(file, np.int64, 2 * num_columns).reshape(2, -1)
        for number, dtype in enumerate(dtypes):
            file.seek(8 * (2 + 2 * num_columns + number * (num_parts + 1) + part))
            first, last = np.fromfile(file, np.int64, 2)
            file.seek(begins[number] + first * widths[number])
            columns.append(np.fromfile(file, dtype, (last - first) * widths[number] // dtype.itemsize))
    return columns


def read_all_parts(path: Path, dtype: np.dtype[Any]) -> PartColumn:
    """The only column of a file, whole."""
    with path.open("rb") as file:
        _, num_parts, *_ = np.fromfile(file, np.int64, 4)
        offset = np.fromfile(file, np.int64, num_parts + 1)
        return PartColumn(np.fromfile(file, dtype, offset[-1]), offset)


def part_offsets(part: NDArray[np.int32], num_parts: int) -> NDArray[np.int64]:
    """(num_parts + 1,) int64 where each part begins after sorting by part."""
    return np.concatenate([[0], np.cumsum(np.bincount(part, minlength=num_parts))]).astype(np.int64)


def _entry_bytes(entry: NDArray[Any]) -> int:
    return int(entry.itemsize * np.prod(entry.shape[1:], dtype=np.int64))
