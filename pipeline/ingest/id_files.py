"""Id files: the sorted distinct ids of some consecutive edges of the source, and the numbers of these ids.

    numbers   (num_ids,) int64    number of each id within its range of ids; a hole until that range is merged
    ids       (num_ids,) int64    ascending

The files of a task follow each other in its lane (:mod:`gnnloom.pipeline.external_sort.lanes`). The ids come last, so
that a lane has its length as soon as they are written, and nothing has to be written in place of the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.key_sorter import Segment
from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.ingest.id_table import IdNumbers, IdTable

#: Ids that are read at a time to search or to number them: 64 KiB, as much as a range of ids takes from a file.
BLOCK_IDS = 1 << 13


@dataclass(frozen=True)
class IdFile:
    """Describes one file.

    Attributes:
        lane: the lane that it is a part of, relative to the work folder.
        start: byte of the lane at which it begins.
        num_ids: number of ids.
        num_edges: edges whose ids they are.
    """

    lane: Lane
    start: int
    num_ids: int
    num_edges: int

    @property
    def ids_at(self) -> int:
        """Byte of the lane at which the ids begin."""
        return self.start + 8 * self.num_ids

    @property
    def stop(self) -> int:
        """Byte of the lane after the last one."""
        return self.start + 16 * self.num_ids

    def numbers(self, files: OpenFiles, table: IdTable) -> IdNumbers:
        """The ids with their numbers in the table, once all ranges are merged."""
        lane = files.unsealed(self.lane)
        ids, numbers = np.empty((2, self.num_ids), np.int64)
        lane.read(self.ids_at, ids)
        lane.read(self.start, numbers)
        table.whole_numbers(ids, numbers)
        return IdNumbers(ids, numbers, lane.path)


@dataclass(frozen=True)
class LaneFiles:
    """The files of one task, as its record and the plan of the ranges hold them.

    Attributes:
        lane: the task's lane, as JSON.
        files: start, number of ids and number of edges of each file.
    """

    lane: list[Any]
    files: list[list[int]]

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> LaneFiles:
        """Those of a record."""
        return cls(facts["lane"], facts["files"])

    def __iter__(self) -> Iterator[IdFile]:
        lane = Lane.from_json(self.lane)
        return (IdFile(lane, *content) for content in self.files)

    def is_intact(self, work: Path) -> bool:
        """Whether the file of the lane exists and reaches to the end of the last of these."""
        lane = Lane.from_json(self.lane)
        return lane.is_intact(work, IdFile(lane, *self.files[-1]).stop if self.files else 0)


class OpenIds:
    """The ids of an open file, searched by reading: mapping is for files, and a lane is only every n-th page of one."""

    def __init__(self, file: IdFile, files: OpenFiles) -> None:
        self._file, self._lane = file, files.unsealed(file.lane)
        self._one = np.empty(1, np.uint64)

    def read(self, start: int, stop: int) -> NDArray[np.uint64]:
        """(stop - start,) uint64 ids ``start`` to ``stop``."""
        ids = np.empty(stop - start, np.uint64)
        self._lane.read(self._file.ids_at + 8 * start, ids)
        return ids

    def rank(self, key: int, low: int, high: int) -> int:
        """Number of ids below ``key``, which is at least ``low`` and at most ``high``."""
        # Halving until one block is left: a few reads of a page each.
        while high - low > BLOCK_IDS:
            middle = (low + high) // 2
            self._lane.read(self._file.ids_at + 8 * middle, self._one)
            if int(self._one[0]) < key:
                low = middle + 1
            else:
                high = middle
        return low + int(np.searchsorted(self.read(low, high), np.uint64(key)))

    def segment(self, start: int, stop: int) -> Segment:
        """Ids ``start`` to ``stop`` as keys."""
        return Segment(self._lane, start, stop, self._file.ids_at, 0, None)

    def write_numbers(self, start: int, numbers: NDArray[np.int64]) -> None:
        """Write the numbers of consecutive ids, of which the first is id ``start`` of the file."""
        self._lane.write(self._file.start + 8 * start, numbers)
