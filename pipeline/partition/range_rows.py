"""Rows of numbers that tasks write to their lanes, grouped by range: each task reads only the rows of its own ranges.

However many tasks there are, each opens at most 16 files to read them.  A lane holds:

    header  (2,) int64                         number of rows, and number of runs
    rows    (num_rows, width) int64 or uint64  run after run, each grouped by range
    begins  (num_runs, num_ranges + 1) int64   row at which each range of each run begins, and the end of the run

The rows of a range keep the order in which they were written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import DTypeLike, NDArray

from gnnloom.pipeline.external_sort.lanes import LaneSet, OpenFiles, OpenLane, writable

#: Bytes of a lane before its rows.
HEADER_BYTES: Final = 16


class RowSpan(NamedTuple):
    """Rows ``start`` to ``stop`` of a lane."""

    lane: OpenLane
    start: int
    stop: int


@dataclass(frozen=True)
class RangeRows:
    """The rows that the tasks of a step write; small and picklable.

    Attributes:
        folder: that the paths of the lanes are relative to, for :class:`OpenFiles`.
        lanes: one for each task.
        width: numbers of a row.
        num_ranges: ranges by which the rows are grouped.
    """

    folder: Path
    lanes: LaneSet
    width: int
    num_ranges: int

    @classmethod
    def create(cls, folder: Path, name: str, tasks: int, width: int, num_ranges: int = 1) -> RangeRows:
        """Create the files for so many tasks."""
        return cls(folder, LaneSet.create(folder, name, tasks), width, num_ranges)

    def write(self, task: int, runs: Iterable[tuple[NDArray[Any], NDArray[np.int64]]]) -> None:
        """Write the rows of a task.

        Args:
            runs: (num_rows, width) int64 or uint64 rows each, and the (num_ranges + 1,) int64 row of the run at which
                each range begins, and their end.
        """
        begins, num_rows, end = [np.empty(0, dtype=np.int64)], 0, HEADER_BYTES
        with writable(self.folder, self.lanes.lane(task)) as lane:
            for rows, begin in runs:
                end = lane.write(end, rows)
                begins.append(num_rows + begin)
                num_rows += len(rows)
            lane.write(end, np.concatenate(begins))
            lane.write(0, np.array([num_rows, len(begins) - 1], dtype=np.int64))

    def write_one(self, task: int, rows: NDArray[Any]) -> None:
        """Write (num_rows, width) rows that are all in one range."""
        self.write(task, [(np.ascontiguousarray(rows), np.array([0, len(rows)]))])

    def spans(self, files: OpenFiles, numbers: range) -> Iterator[RowSpan]:
        """Yield where the rows of some consecutive ranges are, in the order of the tasks and of their runs."""
        begins = np.empty(len(numbers) + 1, dtype=np.int64)
        for task in range(self.lanes.count):
            lane, num_rows, num_runs = self.open(files, task)
            for run in range(num_runs):
                lane.read(self._begins_at(num_rows) + 8 * (run * (self.num_ranges + 1) + numbers.start), begins)
                if begins[0] < begins[-1]:
                    yield RowSpan(lane, int(begins[0]), int(begins[-1]))

    def rows(self, span: RowSpan, dtype: DTypeLike = np.int64) -> NDArray[Any]:
        """Read the rows of a span."""
        found = np.empty((span.stop - span.start, self.width), dtype=dtype)
        span.lane.read(HEADER_BYTES + 8 * self.width * span.start, found)
        return found

    def rows_within(self, files: OpenFiles, numbers: range, dtype: DTypeLike = np.int64) -> NDArray[Any]:
        """(num_rows, width) rows of some consecutive ranges, in the order of :meth:`spans`."""
        spans = list(self.spans(files, numbers))
        found, end = np.empty((sum(span.stop - span.start for span in spans), self.width), dtype=dtype), 0
        for span in spans:
            first, end = end, end + span.stop - span.start
            span.lane.read(HEADER_BYTES + 8 * self.width * span.start, found[first:end])
        return found

    def sizes(self) -> NDArray[np.int64]:
        """(num_ranges,) int64 number of rows of each range."""
        total = np.zeros(self.num_ranges, dtype=np.int64)
        with OpenFiles(self.folder) as files:
            for task in range(self.lanes.count):
                lane, num_rows, num_runs = self.open(files, task)
                begins = np.empty((num_runs, self.num_ranges + 1), dtype=np.int64)
                lane.read(self._begins_at(num_rows), begins)
                total += np.diff(begins, axis=1).sum(axis=0)
        return total

    def open(self, files: OpenFiles, task: int) -> tuple[OpenLane, int, int]:
        """Open the lane of a task; also returns the numbers of its rows and runs."""
        lane, header = files.lane(self.lanes.lane(task)), np.empty(2, dtype=np.int64)
        lane.read(0, header)
        return lane, int(header[0]), int(header[1])

    def remove(self) -> None:
        """Remove the files."""
        self.lanes.remove(self.folder)

    def _begins_at(self, num_rows: int) -> int:
        return HEADER_BYTES + 8 * self.width * num_rows


def grouped_rows(
    runs: Iterable[NDArray[np.int64]], ranges: Sequence[range], column: int = 0
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Group the rows of each run, for :meth:`RangeRows.write`.

    Args:
        runs: (num_rows, width) int64 each.
        ranges: consecutive; in every row, the number in a given column is in one of them.
    """
    stops = np.array([each.stop for each in ranges], dtype=np.int64)
    for rows in runs:
        begin, grouped = np.zeros(len(ranges) + 1, dtype=np.int64), np.empty_like(rows)
        _group(rows, column, stops, begin, grouped)
        yield grouped, begin


@njit(cache=True, nogil=True)
def _group(
    rows: NDArray[np.int64],
    column: int,
    stops: NDArray[np.int64],
    begin: NDArray[np.int64],
    grouped: NDArray[np.int64],
) -> None:
    """Group rows by range.

    Args:
        stops: (num_ranges,) int64 ends of the ranges.
        begin: (num_ranges + 1,) int64 of zeros; range k becomes grouped[begin[k]:begin[k + 1]].
    """
    which = np.empty(len(rows), np.int64)
    for k in range(len(rows)):
        which[k] = np.searchsorted(stops, rows[k, column], side="right")
        begin[which[k] + 1] += 1
    for number in range(1, len(begin)):
        begin[number] += begin[number - 1]
    position = begin[:-1].copy()
    for k in range(len(rows)):
        grouped[position[which[k]]] = rows[k]
        position[which[k]] += 1
