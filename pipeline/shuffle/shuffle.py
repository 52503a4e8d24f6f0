"""One shuffle: what its tasks leave, the levels of merges, and how later tasks read its rows.

Every reader needs its positions from every run. With R runs and P readers, that means R P reads, each of which gives
fewer bytes as R and P grow. Groups of runs are therefore merged by span of positions, level by level
(:mod:`gnnloom.pipeline.external_sort.merge_levels`), until a reader takes enough from each.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, LaneSet, LaneWriter, OpenFiles, num_shared_files, writable
from gnnloom.pipeline.external_sort.merge_levels import Level, count_merges, merge_levels, merges, most_sources
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.gathered import Gathered
from gnnloom.pipeline.shuffle.merges import MergeTask, merge_runs
from gnnloom.pipeline.shuffle.run_list import (
    At,
    LaneRuns,
    RunList,
    RunPlace,
    save_sources,
)
from gnnloom.pipeline.shuffle.runs import Index, Layout, Run, Section, write_run
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase_counts import PhaseCount
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.format.artifact import ArtifactWriter, TaskOutput, TaskRecord
from gnnloom.storage.matrix.ranges import Span, range_of

#: Folder of all shuffles in the work folder.
_FOLDER = "shuffle"


@dataclass(frozen=True)
class Shuffle:
    """Rows of some columns on their way to those who need them; small and picklable.

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

    def create_lanes(self, work: Path, tasks: int) -> LaneSet:
        """Make the lanes of the tasks that route."""
        return LaneSet.create(work, f"{self.folder}/routed/lanes", tasks)

    @contextmanager
    def routed(self, output: TaskOutput, lane: Lane) -> Iterator[RunsWriter]:
        """Write the runs of a task to its lane, and record them at the end of the block."""
        with self.unrecorded(output.writer.work, lane) as runs:
            yield runs
        output.facts.setdefault("runs", {})[self.name] = runs.written.to_json()

    @contextmanager
    def unrecorded(self, work: Path, lane: Lane) -> Iterator[RunsWriter]:
        """Write the runs of a task that leaves no record: it returns what was written, for :meth:`list_runs`."""
        with writable(work, lane) as opened:
            yield RunsWriter(self, lane, opened)

    def is_usable(self, writer: ArtifactWriter, tasks: Sequence[str]) -> Callable[[object, TaskRecord], bool]:
        """Whether a task that routes has to run again: for :func:`~gnnloom.pipeline.tasks.run_missing.run_missing`.

        A record holds if its runs are still there, or have been merged with those of all other tasks.

        Args:
            tasks: names of all tasks that route, in their order.
        """
        is_merged = self.is_merged(writer, tasks)
        return lambda _, record: is_merged or self.has_runs(writer, record)

    def has_runs(self, writer: ArtifactWriter, record: TaskRecord) -> bool:
        """Whether the runs that a task recorded are still there."""
        found = LaneRuns.recorded(record, self.name)
        return found is not None and found.is_intact(writer.work)

    def is_merged(self, writer: ArtifactWriter, tasks: Sequence[str]) -> bool:
        """Whether an earlier run completed a level of merges, whose runs are still there."""
        recorded = writer.recorded_of(tasks)
        found = [LaneRuns.recorded(recorded[task], self.name) if task in recorded else None for task in tasks]
        lanes = [runs for runs in found if runs is not None]
        return len(lanes) == len(tasks) and _Merges.of(self, writer, lanes).kept()[0] > 0

    # Merging

    def merge(self, phase: str, writer: ArtifactWriter, cluster: Cluster, records: Sequence[TaskRecord]) -> None:
        """Merge runs until a reader has few, except for what an earlier command has left; list the last ones.

        Args:
            phase: name of the phase, for the log.
            records: of all tasks that route, in their order: rows of one position keep it.
        """
        _Merges.of(self, writer, self._recorded(records)).run(phase, cluster)

    def list_runs(self, work: Path, lanes: Sequence[LaneRuns]) -> None:
        """List runs instead of merging them, for tasks so few that readers take enough from each.

        Args:
            lanes: of all tasks that route, in their order.
        """
        save_sources(work / self.list_path, 1, {(0, source): each.places for source, each in enumerate(lanes)})

    def _recorded(self, records: Sequence[TaskRecord]) -> list[LaneRuns]:
        return [runs for record in records if (runs := LaneRuns.recorded(record, self.name)) is not None]

    def levels(self, runs: int, num_bytes: int) -> tuple[Level, ...]:
        """Levels of merges.

        Args:
            runs: that are routed.
            num_bytes: of the columns of all rows.
        """
        return merge_levels(runs, most_sources(num_bytes, self.readers))

    def merge_counts(self, phase: str, tasks: int, runs: int, num_keys: int, num_bytes: int) -> list[PhaseCount]:
        """What the merges will do.

        Args:
            phase: name of the phase.
            tasks: that route.
            runs: that they leave.
            num_keys: distinct positions of the rows of each run, summed over all runs.
            num_bytes: of the columns of all rows.
        """
        levels, shared, phases = self.levels(runs, num_bytes), num_shared_files(tasks), []
        for level in levels[1:]:
            count = count_merges(levels, level, self.num_positions)
            # An index has keys and offsets, or offsets of all positions of its span.
            span = self.num_positions // count.spans + 1
            read, written = (num_bytes + min(16 * num_keys, 8 * runs * span) for runs in (count.sources, count.tasks))
            largest, most = read * count.most_sources // count.sources, min(count.most_sources, shared)
            arrays = len(self.columns) + 1
            phases.append(PhaseCount(phase, count.tasks, count.opens(shared), most, arrays, read, written, largest))
            shared = num_shared_files(count.tasks)
        return phases

    def reader_files(self, tasks: int, runs: int, num_bytes: int, positions: Span = (0, 1)) -> int:
        """Files that a reader of some positions opens, if so many tasks leave so many runs with so many bytes.

        Args:
            positions: first and last (exclusive) position; by default any single one.
        """
        levels = self.levels(runs, num_bytes)
        last = levels[-1]
        if last.number:
            tasks = count_merges(levels, last, self.num_positions).tasks
        spans = self.spans(last.spans, *positions)
        return min(last.sources * len(spans), num_shared_files(tasks))

    # Reading

    def rows(self, work: Path, files: OpenFiles) -> ShuffledRows:
        """Open the rows, after :meth:`merge`.

        Args:
            files: of the work folder; they stay open while the rows are read.
        """
        return ShuffledRows(self, work, files)

    def runs_of(self, files: OpenFiles, records: Sequence[TaskRecord]) -> list[Run]:
        """Open the runs that some tasks left, in their order, as they were routed: for readers that know the tasks."""
        places = [place for runs in self._recorded(records) for place in runs.places]
        return [Run(files.lane(place.lane), place.start, self.columns) for place in places]

    def remove(self, work: Path) -> None:
        """Remove all files."""
        shutil.rmtree(work / self.folder, ignore_errors=True)

    def spans(self, count: int, start: int, stop: int) -> range:
        """Of so many spans of positions, those that overlap a range."""
        if start == stop:
            return range(0)
        first, last = (range_of(self.num_positions, count, at) for at in (start, stop - 1))
        return range(first, last + 1)

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
        self._layouts: list[Layout] = []

    @property
    def written(self) -> LaneRuns:
        """The runs so far."""
        return LaneRuns.of(self._lane, self._layouts)

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
        start = self._layouts[-1].stop if self._layouts else 0
        self._layouts.append(write_run(self._opened, start, self._shuffle.columns, index, values))


class ShuffledRows:
    """The rows of a shuffle, read by range of positions."""

    def __init__(self, shuffle: Shuffle, work: Path, files: OpenFiles) -> None:
        self._shuffle, self._files = shuffle, files
        self._list = RunList.read(work / shuffle.list_path)
        self._opened: dict[int, list[Run]] = {}

    def sections(self, start: int, stop: int) -> list[Section]:
        """The rows with positions from ``start`` to ``stop``: in the order of the runs, if that is a single position.

        Raises:
            DamagedWorkError: a file is damaged.
        """
        found = [run.section((start, stop)) for run in self._runs(start, stop)]
        return [section for section in found if section.num_rows]

    def read(self, start: int, stop: int) -> Gathered:
        """The same rows, by position; those of one position are in the order in which they were routed.

        Raises:
            DamagedWorkError: a file is damaged.
        """
        return Gathered(self._shuffle.columns, self.sections(start, stop), (start, stop))

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
        for place in self._list.of(range(1))[0]:
            start, stop = max(rows.start - first, 0), min(rows.stop - first, place.num_rows)
            if start < stop:
                run = self._open(place)
                yield from run.blocks(name, run.extent(name, (start, stop)))
            first += place.num_rows

    def _runs(self, start: int, stop: int) -> Iterator[Run]:
        spans = self._shuffle.spans(self._list.spans, start, stop)
        if not self._opened.keys() >= set(spans):
            found = self._list.of(spans)
            self._opened = {span: [self._open(run) for run in runs if run.num_rows] for span, runs in found.items()}
        for span in spans:
            yield from self._opened[span]

    def _open(self, run: RunPlace) -> Run:
        return Run(self._files.lane(run.lane), run.start, self._shuffle.columns)


@dataclass(frozen=True)
class _Merges:
    """The levels of merges of a shuffle, once all rows are routed.

    Attributes:
        runs: that were routed, in the order of the tasks.
        digest: of the numbers of their rows: tasks with other memory cut their rows into other runs, and nothing else
            makes other merged runs.
    """

    shuffle: Shuffle
    writer: ArtifactWriter
    runs: Sequence[RunPlace]
    levels: tuple[Level, ...]
    digest: str

    @classmethod
    def of(cls, shuffle: Shuffle, writer: ArtifactWriter, lanes: Sequence[LaneRuns]) -> _Merges:
        runs = [place for lane in lanes for place in lane.places]
        num_bytes = sum(lane.num_bytes for lane in lanes)
        digest = xxhash.xxh3_64_hexdigest("".join(f"{run.num_rows} " for run in runs).encode())
        return cls(shuffle, writer, runs, shuffle.levels(len(runs), num_bytes), digest)

    def kept(self) -> tuple[int, dict[At, RunPlace]]:
        """The last level that an earlier run completed, with its runs, if they are still there; 0 if there is none."""
        for level in reversed(self.levels[1:]):
            names = self._names(level)
            recorded = self.writer.recorded_of(names.values())
            if all(task in recorded and self.shuffle.has_runs(self.writer, recorded[task]) for task in names.values()):
                return level.number, {at: self._merged(recorded[task]) for at, task in names.items()}
        return 0, {}

    def run(self, phase: str, cluster: Cluster) -> None:
        number, found = self.kept()
        if not number:
            found = {(0, source): run for source, run in enumerate(self.runs)}
        self._remove_before(number)
        for level in self.levels[number + 1 :]:
            self._save(f"{self.shuffle.folder}/before.json", self.levels[level.number - 1], found)
            found = self._merge_level(phase, level, cluster)
            self._remove_before(level.number)
        self._save(self.shuffle.list_path, self.levels[-1], found)

    def _save(self, path: str, level: Level, found: Mapping[At, RunPlace]) -> None:
        save_sources(self.writer.work / path, level.spans, {at: [run] for at, run in found.items()})

    def _merge_level(self, phase: str, level: Level, cluster: Cluster) -> dict[At, RunPlace]:
        """Merge the runs of the level before; returns those of this one."""
        shuffle, names, tasks = self.shuffle, self._names(level), []
        lanes = LaneSet.create(self.writer.work, f"{self._folder(level)}/lanes", len(names))
        for merge in merges(self.levels, level, shuffle.num_positions):
            name, lane = names[merge.span, merge.source], lanes.lane(len(tasks))
            before = (f"{shuffle.folder}/before.json", merge.span_before, merge.group)
            tasks.append(MergeTask(self.writer, name, shuffle.name, shuffle.columns, *before, merge.positions, lane))
        records = run_missing(
            phase,
            cluster,
            self.writer,
            merge_runs,
            tasks,
            "rows",
            is_usable=lambda _, record: shuffle.has_runs(self.writer, record),
        )
        return dict(zip(names, map(self._merged, records), strict=True))

    def _merged(self, record: TaskRecord) -> RunPlace:
        (lane,) = self.shuffle._recorded([record])  # noqa: SLF001 - the same file
        (run,) = lane.places
        return run

    def _names(self, level: Level) -> dict[At, str]:
        """Names of the tasks of a level, by span and number."""
        folder = f"merge/{self.shuffle.name}/{self.digest}/{level.number}"
        return {
            (merge.span, merge.source): f"{folder}/{merge.span:06d}-{merge.source:06d}"
            for merge in merges(self.levels, level, self.shuffle.num_positions)
        }

    def _folder(self, level: Level) -> str:
        folder = self.shuffle.folder
        return f"{folder}/{self.digest}/{level.number}" if level.number else f"{folder}/routed"

    def _remove_before(self, number: int) -> None:
        """Remove the runs of the levels before one that is complete."""
        for level in self.levels[:number]:
            shutil.rmtree(self.writer.work / self._folder(level), ignore_errors=True)
