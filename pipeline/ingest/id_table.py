"""The distinct ids of a source in ascending order, on disk: the position of an id is the number of its vertex."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.artifact import TaskRecord
from gnnloom.storage.format.files import read_json, write_json


@dataclass(frozen=True)
class IdTable:
    """The lanes of consecutive ranges of ids.

    Attributes:
        lanes: (num_ranges) lane of each range, int64 ids in ascending order, relative to the work folder; as JSON.
        first_number: (num_ranges + 1) number of the first id of each range, and the number of ids.
        bounds: (num_ranges + 1) first id of each range, and one more than the highest id.
    """

    lanes: list[list[Any]]
    first_number: list[int]
    bounds: list[int]

    @classmethod
    def of(cls, records: Sequence[TaskRecord], bounds: list[int]) -> IdTable:
        """The table of the ranges whose ids were merged."""
        counts = (record.facts["ids"] for record in records)
        return cls([record.facts["lane"] for record in records], list(accumulate(counts, initial=0)), bounds)

    def save(self, path: Path) -> None:
        write_json(path, self.__dict__)

    @classmethod
    def load(cls, path: Path) -> IdTable:
        return cls(**read_json(path))

    @property
    def num_ids(self) -> int:
        return self.first_number[-1]

    def is_intact(self, work: Path) -> bool:
        """Whether the files of all lanes exist and are long enough."""
        counts = (last - first for first, last in pairwise(self.first_number))
        lanes = map(Lane.from_json, self.lanes)
        return all(lane.is_intact(work, 8 * count) for lane, count in zip(lanes, counts, strict=True))

    def read_ids(self, work: Path, start: int, stop: int) -> NDArray[np.int64]:
        """(stop - start,) int64 ids that have the numbers ``start`` to ``stop``."""
        ids = np.empty(stop - start, np.int64)
        with OpenFiles(work) as files:
            for lane, (first, last) in zip(self.lanes, pairwise(self.first_number), strict=True):
                begin, end = max(first, start), min(last, stop)
                if begin < end:
                    files.lane(Lane.from_json(lane)).read(8 * (begin - first), ids[begin - start : end - start])
        return ids

    def whole_numbers(self, ids: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        """Turn numbers within their ranges into numbers within the table, in place.

        Args:
            ids: (num_ids,) int64, ascending.
            numbers: (num_ids,) int64 number of each id within its range of ids.
        """
        # The last bound may be 2^63.
        cuts = np.searchsorted(ids.view(np.uint64), np.array(self.bounds, np.uint64))
        numbers += np.repeat(np.array(self.first_number[:-1], np.int64), np.diff(cuts))


class IdNumbers:
    """Some ids and their numbers, in memory, for look-ups."""

    def __init__(self, ids: NDArray[np.int64], numbers: NDArray[np.int64], where: Path) -> None:
        """Prepare look-ups: 8 bytes per id, in addition to the arrays.

        Args:
            ids: (num_ids,) int64, ascending, at least one.
            numbers: (num_ids,) int64.
            where: file of the ids, for messages.
        """
        self._ids, self._numbers, self._where = ids, numbers, where
        # A directory over the high bits of the ids narrows a look-up to a few candidates.
        span = int(ids[-1]) - int(ids[0])
        self._shift = max(0, span.bit_length() - max(1, len(ids).bit_length() - 1))
        starts = np.arange((span >> self._shift) + 1, dtype=np.int64) << self._shift
        self._directory = np.append(np.searchsorted(ids, starts + ids[0]), len(ids))

    def of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """(num_ids,) int64 number of each id, in any order.

        Raises:
            CorruptError: an id is not there, so the source changed after its ids were collected.
        """
        found = np.empty(len(ids), np.int64)
        missing = _look_up(ids, self._ids, self._numbers, self._directory, self._shift, found)
        if missing >= 0:
            raise CorruptError(
                f"{self._where}: id {ids[missing]} was not in the source when its ids were collected;"
                " the source has changed since"
            )
        return found


@njit(cache=True, nogil=True)
def _look_up(
    wanted: NDArray[np.int64],
    ids: NDArray[np.int64],
    numbers: NDArray[np.int64],
    directory: NDArray[np.int64],
    shift: int,
    found: NDArray[np.int64],
) -> int:
    """Find each id by binary search between two directory entries; return the first one that is missing, or -1."""
    for k in range(wanted.size):
        if wanted[k] < ids[0] or wanted[k] > ids[-1]:
            return k
        prefix = (wanted[k] - ids[0]) >> shift
        low, high = directory[prefix], directory[prefix + 1]
        while low < high:
            middle = (low + high) // 2
            if ids[middle] < wanted[k]:
                low = middle + 1
            else:
                high = middle
        if low >= ids.size or ids[low] != wanted[k]:
            return k
        found[k] = numbers[low]
    return -1
