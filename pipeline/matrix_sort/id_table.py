"""The distinct ids of a source in ascending order, on disk: an id's position is its new number.

The table is memory-mapped, so that the workers of a machine share one copy.  A directory over the
ids' high bits leads to a few candidates, among which a binary search finds the id.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.spill import write_at
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.files import read_json, write_json


@dataclass(frozen=True)
class TableShape:
    """Size of an id table.

    Attributes:
        count: number of distinct ids.
        max_id: the highest.
    """

    count: int
    max_id: int

    @property
    def shift(self) -> int:
        """Low bits that the directory ignores: it is no longer than the table, but for small tables."""
        return max(0, self.max_id.bit_length() - max(10, self.count.bit_length() - 1))

    @property
    def directory_length(self) -> int:
        return (self.max_id >> self.shift) + 2


def allocate_table(folder: Path, shape: TableShape) -> None:
    """Make room for a table, to be filled with :func:`place_ids`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, length in (("table", shape.count), ("directory", shape.directory_length)):
        with (folder / name).open("ab") as file:
            file.truncate(8 * length)
    with (folder / "directory").open("r+b") as file:
        write_at(file.fileno(), 8 * (shape.directory_length - 1), np.array([shape.count], dtype=np.int64))


def place_ids(folder: Path, shape: TableShape, ids: NDArray[np.int64], position: int, previous: int) -> None:
    """Write consecutive ids and their part of the directory.

    Args:
        ids: ascending.
        position: of the first one in the table.
        previous: the id before the first one; -1 where there is none.
    """
    first = (previous >> shape.shift) + 1 if previous >= 0 else 0
    last = int(ids[-1]) >> shape.shift
    starts = np.searchsorted(ids, np.arange(first, last + 1, dtype=np.int64) << shape.shift) + position
    with (folder / "table").open("r+b") as table, (folder / "directory").open("r+b") as directory:
        write_at(table.fileno(), 8 * position, ids)
        write_at(directory.fileno(), 8 * first, starts.astype(np.int64))


def publish_table(folder: Path, shape: TableShape) -> None:
    """Mark a table as complete."""
    write_json(folder / "shape.json", asdict(shape))


def is_published(folder: Path) -> bool:
    """Whether a complete table is there."""
    return (folder / "shape.json").exists()


class IdTable:
    """A complete table, opened for looking up."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shape = TableShape(**read_json(folder / "shape.json"))
        self._ids: NDArray[np.int64] = np.memmap(folder / "table", np.int64, mode="r")
        self._directory: NDArray[np.int64] = np.memmap(folder / "directory", np.int64, mode="r")

    def __len__(self) -> int:
        return self._shape.count

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        """(stop - start,) the ids that have these numbers."""
        return np.array(self._ids[start:stop])

    def positions(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of each id.

        Raises:
            CorruptError: an id is not in the table: the source changed while it was read.
        """
        found = np.empty(len(ids), dtype=np.int64)
        missing = _look_up(ids, self._ids, self._directory, self._shape.shift, found)
        if missing >= 0:
            raise CorruptError(f"{self._folder}: id {ids[missing]} was not there when ids were collected")
        return found


@njit(cache=True, nogil=True)
def _look_up(
    ids: NDArray[np.int64],
    table: NDArray[np.int64],
    directory: NDArray[np.int64],
    shift: int,
    found: NDArray[np.int64],
) -> int:
    """Binary search of each id within its directory entry; returns the first that is missing, or -1."""
    for k in range(ids.size):
        prefix = ids[k] >> shift
        if ids[k] < 0 or prefix + 1 >= directory.size:
            return k
        low, high = directory[prefix], directory[prefix + 1]
        while low < high:
            middle = (low + high) // 2
            if table[middle] < ids[k]:
                low = middle + 1
            else:
                high = middle
        if low >= table.size or table[low] != ids[k]:
            return k
        found[k] = low
    return -1
