"""One shuffle: its columns, the rows that tasks route, and the readers of later tasks.

:mod:`gnnloom.pipeline.shuffle.plan` has the phases that merge the routed rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, LaneWriter, OpenFiles, writable
from gnnloom.pipeline.shuffle.columns import Column, lengths_of
from gnnloom.pipeline.shuffle.run_list import LaneRuns, RunList
from gnnloom.pipeline.shuffle.runs import Index, RunLayout, RunWriter, Section, SortedRun
from gnnloom.pipeline.shuffle.section_rows import SectionRows, in_steps
from gnnloom.storage.format.artifact import TaskOutput, TaskRecord
from gnnloom.storage.matrix.ranges import range_of

#: Folder of all shuffles in the work folder.
_FOLDER = "shuffle"


@dataclass(frozen=True)
class Shuffle:
    """Rows of some columns on their way to the tasks that need them; small and picklable.

    Attributes:
        name: of the shuffle, in names of tasks and files; may have slashes.
        num_positions: positions are 0 to ``num_positions - 1``.
        columns: of the rows.
        readers: ranges of positions that tasks will read, about equally long; they decide whether runs are merged.
    """

    name: str
    num_positions: int
    columns: tuple[Column, ...]
    readers: int

    # Routing

    @contextmanager
    def routed(self, output: TaskOutput, lane: Lane) -> Iterator[RunsWriter]:
        """Write the runs of a task to its lane, and record them at the end of the block."""
        with self.unrecorded(output.writer.work, lane) as runs:
            yield runs
        output.facts.setdefault("runs", {})[self.name] = runs.written.to_json()

    @contextmanager
    def unrecorded(self, work: Path, lane: Lane) -> Iterator[RunsWriter]:
        """Write the runs of a task that leaves no record; the task returns the list of runs."""
        with writable(work, lane) as opened:
            yield RunsWriter(self, lane, opened)

    def recorded(self, records: Sequence[TaskRecord]) -> list[LaneRuns]:
        """The runs that some finished tasks recorded, in their order."""
        return [runs for record in records if (runs := LaneRuns.recorded(record, self.name)) is not None]

    # Reading

    def rows(self, work: Path, files: OpenFiles) -> ShuffledRows:
        """Open the rows, once they are listed.

        Args:
            files: of the work folder; they stay open while the rows are read.
        """
        return ShuffledRows(self, work / self.list_path, files)

    def recorded_sections(self, files: OpenFiles, records: Sequence[TaskRecord]) -> Iterator[Section]:
        """All rows that some finished tasks left, run by run, as they were routed: for readers that know the tasks.

        Raises:
            DamagedWorkError: a file is damaged.
        """
        for lane in self.recorded(records):
            for run in lane.open(files, self.columns):
                yield run.section((0, self.num_positions))

    def remove(self, work: Path) -> None:
        """Remove all files."""
        shutil.rmtree(work / self.folder, ignore_errors=True)

    def spans(self, count: int, start: int, stop: int) -> range:
        """The numbers of those ``count`` spans of positions that overlap a range."""
        if start == stop:
            return range(0)
        first = range_of(self.num_positions, count, start)
        return range(first, range_of(self.num_positions, count, stop - 1) + 1)

    @property
    def folder(self) -> str:
        """Folder of all files, relative to the work folder."""
        return f"{_FOLDER}/{self.name}"

    @property
    def list_path(self) -> str:
        """The list of the runs that are read, relative to the work folder."""
        return f"{self.folder}/runs.json"


class RunsWriter:
    """Writes the runs of one task, one after another."""

    def __init__(self, shuffle: Shuffle, lane: Lane, opened: LaneWriter) -> None:
        self._shuffle, self._lane, self._opened = shuffle, lane, opened
        self._end, self._num_rows = 0, 0

    @property
    def num_positions(self) -> int:
        """Number of positions of the shuffle."""
        return self._shuffle.num_positions

    @property
    def written(self) -> LaneRuns:
        """The runs so far."""
        return LaneRuns(self._lane, self._end, self._num_rows)

    def add(self, index: Index, values: Mapping[str, NDArray[Any]]) -> None:
        """Write a run.

        Args:
            index: of the rows, which are sorted by position.
            values: the elements of each column, in the order of the rows.
        """
        self.add_columns(index, values.__getitem__)

    def add_columns(self, index: Index, values: Callable[[str], NDArray[Any]]) -> None:
        """Write a run whose columns are made one after another, so that memory holds one at a time.

        Args:
            index: of the rows, which are sorted by position.
            values: gives the elements of a column, in the order of the rows; asked twice for lengths.
        """
        columns = self._shuffle.columns
        run = self.begin(index, tuple(int(values(name).sum()) for name in lengths_of(columns)))
        for column in columns:
            run.put(column.name, values(column.name))

    def begin(self, index: Index, totals: tuple[int, ...] = ()) -> RunWriter:
        """Begin a run whose columns do not fit in memory; all columns are written before the next run begins.

        Args:
            index: of the rows, which are sorted by position.
            totals: for each column of lengths, the sum of its lengths.
        """
        has_keys, has_offsets = index.keys is not None, index.offsets is not None
        of_index = index.num_rows, index.num_keys, index.first, has_keys, has_offsets
        run = RunWriter(self._opened, RunLayout(self._end, *of_index, self._shuffle.columns, totals))
        run.put_index(index.keys, index.offsets)
        self._end, self._num_rows = run.layout.stop, self._num_rows + index.num_rows
        return run


class ShuffledRows:
    """The rows of a shuffle, read by range of positions."""

    def __init__(self, shuffle: Shuffle, path: Path, files: OpenFiles) -> None:
        """Read the list of the runs.

        Args:
            path: of the list.
        """
        self._shuffle, self._files = shuffle, files
        self._list = RunList.read(path)
        self._listed: dict[int, list[LaneRuns]] = {}
        self._opened: dict[LaneRuns, list[SortedRun]] = {}

    def sections(self, start: int, stop: int) -> list[Section]:
        """The rows with positions from ``start`` to ``stop``: in the order of the runs, if that is a single position.

        Raises:
            DamagedWorkError: a file is damaged.
        """
        found = [run.section((start, stop)) for run in self._runs(start, stop)]
        return [section for section in found if section.num_rows]

    def read(self, start: int, stop: int) -> SectionRows:
        """The same rows, by position; rows of one position are in the order in which they were routed.

        Raises:
            DamagedWorkError: a file is damaged.
        """
        return SectionRows(self._shuffle.columns, self.sections(start, stop), (start, stop))

    def steps(self, most_bytes: int, start: int = 0, stop: int | None = None) -> Iterator[SectionRows]:
        """The rows with positions from ``start`` to ``stop``, by default all, some positions at a time.

        They exceed ``most_bytes`` only if they have a single position.
        """
        end = self._shuffle.num_positions if stop is None else stop
        for _, rows in in_steps(self._shuffle.columns, self.sections(start, end), start, end, most_bytes):
            yield rows

    def num_rows(self) -> NDArray[np.int64]:
        """(num_positions,) int64 number of rows of each position."""
        total = np.zeros(self._shuffle.num_positions, np.int64)
        for run in self._runs(0, self._shuffle.num_positions):
            keys = run.keys(0, run.layout.num_keys)
            np.add.at(total, keys, np.diff(run.offsets(0, run.layout.num_keys)))
        return total

    def numbered(self, rows: range, name: str) -> Iterator[NDArray[Any]]:
        """A column of rows ``rows`` in the order in which they were routed, whatever their positions, in steps.

        For readers that share all rows evenly; the runs are not merged.
        """
        first = 0
        for lane in self._lanes(range(self._list.spans)):
            end = first + lane.num_rows
            if first < rows.stop and end > rows.start:
                for run in self._open(lane):
                    last = first + run.layout.num_rows
                    start, stop = max(rows.start, first), min(rows.stop, last)
                    if start < stop:
                        yield from run.blocks(name, run.extent(name, (start - first, stop - first)))
                    first = last
            first = end

    def _runs(self, start: int, stop: int) -> Iterator[SortedRun]:
        spans = self._shuffle.spans(self._list.spans, start, stop)
        for lane in self._lanes(spans):
            if lane.num_rows:
                yield from self._open(lane)

    def _lanes(self, spans: range) -> Iterator[LaneRuns]:
        if not self._listed.keys() >= set(spans):
            self._listed = self._list.of(spans)
            self._opened.clear()
        for span in spans:
            yield from self._listed[span]

    def _open(self, lane: LaneRuns) -> list[SortedRun]:
        if lane not in self._opened:
            self._opened[lane] = list(lane.open(self._files, self._shuffle.columns))
        return self._opened[lane]
