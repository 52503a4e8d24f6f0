"""The distinct ids of a source in ascending order, on disk: the position of an id is its new number.

The table is memory-mapped, so that all workers on a machine share one copy. A directory over the high bits of the ids
narrows a lookup to a few candidates, among which a binary search finds the id.
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
        max_id: the highest id.
    """

    count: int
    max_id: int

    @property
    def shift(self) -> int:
        """Low bits that the directory ignores, so that it is no longer than the table (or 2^10 for a small table)."""
        return max(0, self.max_id.bit_length() - max(10, self.count.bit_length() - 1))

    @property
    def directory_length(self) -> int:
        return (self.max_id >> self.shift) + 2


def allocate_table(folder: Path, shape: TableShape) -> None:
    """Create the files of a table at their full length, to be filled by :func:`write_ids`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, length in (("table", shape.count), ("directory", shape.directory_length)):
        # Appending keeps what an earlier run wrote, and truncating to the full length leaves holes that take no
        # space.
        with (folder / name).open("ab") as file:
            file.truncate(8 * length)
    # The last entry belongs to no prefix; it ends the range of the last one.
    with (folder / "directory").open("r+b") as file:
        write_at(file.fileno(), 8 * (shape.directory_length - 1), np.array([shape.count], dtype=np.int64))


def write_ids(folder: Path, shape: TableShape, ids: NDArray[np.int64], position: int, previous: int) -> None:
    """Write consecutive ids, and the directory entries between the previous id and the last of these.

    Args:
        folder: folder of the table.
        shape: size of the table.
        ids: (num_ids,) int64, ascending, at least one.
        position: position of the first of them in the table.
        previous: id before the first of them; -1 if there is none.
    """
    # The task of the previous id writes the entries up to the prefix of that id, so that every entry has one writer.
    # The entry of a prefix without ids is the position of the next higher id.
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
    """Whether the folder holds a complete table."""
    return (folder / "shape.json").exists()


class IdTable:
    """A complete table, opened for lookups."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shape = TableShape(**read_json(folder / "shape.json"))
        self._ids: NDArray[np.int64] = np.memmap(folder / "table", np.int64, mode="r")
        self._directory: NDArray[np.int64] = np.memmap(folder / "directory", np.int64, mode="r")

    def __len__(self) -> int:
        return self._shape.count

    def ids(self, start: int, stop: int) -> NDArray[np.int64]:
        """(stop - start,) int64 ids that have the numbers ``start`` to ``stop``."""
        return np.array(self._ids[start:stop])

    def numbers(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """(num_ids,) int64 number of each id.

        Raises:
            CorruptError: an id is not in the table, so the source changed after its ids were collected.
        """
        found = np.empty(len(ids), dtype=np.int64)
        missing = _look_up(ids, self._ids, self._directory, self._shape.shift, found)
        if missing >= 0:
            raise CorruptError(
                f"{self._folder}: id {ids[missing]} was not in the source when its ids were collected;"
                " the source has changed since"
            )
        return found


@dataclass(frozen=True)
class CompactIds:
    """Renumbers ids by their position in a table; implements the sort's ``Renumbering``.

    Attributes:
        folder: folder of a complete table.
    """

    folder: Path

    def open(self) -> IdTable:
        """Map the table into memory."""
        return IdTable(self.folder)


@njit(cache=True, nogil=True)
def _look_up(
    ids: NDArray[np.int64],
    table: NDArray[np.int64],
    directory: NDArray[np.int64],
    shift: int,
    found: NDArray[np.int64],
) -> int:
    """Look up each id by binary search between two directory entries; return the first one that is missing, or -1."""
    for k in range(ids.size):
        prefix = ids[k] >> shift
        # Ids outside of the table's range have no two entries between which to search.
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
