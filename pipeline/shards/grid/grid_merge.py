"""Merges runs between the passes of the grid shards, if the scatter left many, so that a cell reads few of them.

Every cell needs its entries from every run. With R runs and C cells, that means R C reads, each of which gives fewer
bytes as R and C grow. Groups of runs are therefore merged by span of cells, until a cell reads at least 64 KiB from
each.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import xxhash
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.byte_ranges import ByteRange, copy_ranges
from gnnloom.pipeline.external_sort.lanes import Lane, LaneSet, OpenFiles, OpenLane, writable
from gnnloom.pipeline.external_sort.merge_levels import Level, count_merges, merge_levels, merges, most_sources
from gnnloom.pipeline.shards.grid.grid_scatter import (
    KEY_BYTES,
    WEIGHT_BYTES,
    Run,
    runs_folder,
    save_runs,
    scatter_name,
    scattered_runs,
)
from gnnloom.pipeline.shards.lane_records import At, has_lane, kept_level, lane_facts, recorded_lane
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord
from gnnloom.storage.matrix.ranges import Span

#: Runs of a level by span and number.
_Found = Mapping[At, Run]


def most_runs(entries: int, num_cells: int) -> int:
    """Most runs that a task reads for each cell of a variant with so many entries."""
    return most_sources(entries * KEY_BYTES, num_cells)


@dataclass(frozen=True)
class MergeRunsTask:
    """Merges the entries of some cells from several runs.

    Attributes:
        name: name of the task.
        runs: in the order of the blocks.
        cells: first and last (exclusive) cell.
        num_cells: cells of the grid.
        lane: where the merged run goes, relative to the work folder.
    """

    writer: ArtifactWriter
    name: str
    runs: tuple[Run, ...]
    cells: Span
    num_cells: int
    weighted: bool
    lane: Lane


@dataclass(frozen=True)
class RunMerges:
    """The merges of one variant.

    Attributes:
        runs: what the scatter left, in the order of the blocks.
        num_cells: cells of the grid.
    """

    writer: ArtifactWriter
    variant: str
    runs: Sequence[Run]
    num_cells: int
    weighted: bool

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        return merge_levels(len(self.runs), most_runs(sum(run.entries for run in self.runs), self.num_cells))

    @cached_property
    def _digest(self) -> str:
        # Workers with another amount of memory cut the blocks into other runs. Nothing else makes other merged runs.
        return xxhash.xxh3_64_hexdigest("".join(f"{run.entries} " for run in self.runs).encode())

    def _folder(self, level: Level) -> str:
        if not level.number:
            return runs_folder(self.variant)
        return f"merged-cells/{self.variant}/{self._digest}/{level.number}"

    def _names(self, level: Level) -> dict[tuple[int, int], str]:
        """Names of the tasks that make the runs of a level, by span and number."""
        return {
            (merge.span, merge.source): f"merge/{self._folder(level)}/{merge.span:06d}-{merge.source:06d}"
            for merge in merges(self.levels, level, self.num_cells)
        }

    def kept(self) -> tuple[int, _Found] | None:
        """The last level of merges that an earlier run completed, and its runs, if they are all still there."""
        number, records = kept_level(self.writer, self.levels, self._names)
        return (number, _merged_runs(records)) if number else None

    def run(self, cluster: Cluster) -> None:
        """Merge runs until every cell has few of them, except for what an earlier run has left; list the last ones."""
        number, found = self.kept() or (0, {(0, source): run for source, run in enumerate(self.runs)})
        self._remove(number)
        for level in self.levels[number + 1 :]:
            found = self._merge_level(level, found, cluster)
            self._remove(level.number)
        spans: list[list[Run]] = [[] for _ in range(self.levels[-1].spans)]
        for (span, _), run in sorted(found.items(), key=lambda item: item[0]):
            spans[span].append(run)
        save_runs(self.writer.work, self.variant, spans)

    def _merge_level(self, level: Level, found: _Found, cluster: Cluster) -> _Found:
        """Merge the runs of the level before; returns those of this one, by span and number."""
        names = self._names(level)
        tasks: list[MergeRunsTask] = []
        count = count_merges(self.levels, level, self.num_cells).tasks
        lanes = LaneSet.create(self.writer.work, f"{self._folder(level)}/lanes", count)
        for merge in merges(self.levels, level, self.num_cells):
            group = tuple(found[merge.span_before, source] for source in merge.group)
            name, lane = names[merge.span, merge.source], lanes.lane(len(tasks))
            task = MergeRunsTask(self.writer, name, group, merge.positions, self.num_cells, self.weighted, lane)
            tasks.append(task)
        records = run_missing("merge cells", cluster, self.writer, merge_cells, tasks, "entries", is_usable=has_lane)
        return _merged_runs(dict(zip(names, records, strict=True)))

    def _remove(self, number: int) -> None:
        """Remove the runs of the levels before one that is complete."""
        for level in self.levels[:number]:
            shutil.rmtree(self.writer.work / self._folder(level), ignore_errors=True)


def is_merged(writer: ArtifactWriter, variant: str, num_blocks: int, num_cells: int, *, weighted: bool) -> bool:
    """Whether an earlier run has completed a level of merges of a variant, so that no block has to be scattered."""
    tasks = [scatter_name(variant, block) for block in range(num_blocks)]
    recorded = writer.recorded_of(tasks)
    # Records of earlier versions do not say where runs are.
    if not all(task in recorded and "lane" in recorded[task].facts for task in tasks):
        return False
    runs = scattered_runs([recorded[task] for task in tasks])
    return RunMerges(writer, variant, runs, num_cells, weighted).kept() is not None


def _merged_runs(records: Mapping[At, TaskRecord]) -> _Found:
    """The runs that the tasks of a level left, by span and number."""
    return {at: Run(recorded_lane(record), 0, record.facts["entries"]) for at, record in records.items()}


def merge_cells(task: MergeRunsTask) -> int:
    """Write one merged run and record its entries; returns their number."""
    first, last = task.cells
    with task.writer.task(task.name) as output, OpenFiles(task.writer.work) as files:
        sources = [_Source.of(files, task, run) for run in task.runs]
        # Offsets of all cells, including those outside the span: the spill file is an ordinary run.
        offsets = np.zeros(task.num_cells + 1, np.int64)
        np.cumsum(sum(np.diff(source.bounds) for source in sources), out=offsets[first + 1 : last + 1])
        offsets[last + 1 :] = offsets[last]
        entries = int(offsets[-1])
        with writable(task.writer.work, task.lane) as out:
            # Weights follow the keys, so one copy serves both.
            ranges = (
                source.bytes_of(column, cell)
                for column in range(2 if task.weighted else 1)
                for cell in range(last - first)
                for source in sources
            )
            end = copy_ranges(ranges, out, out.write(0, offsets))
        output.facts = {"entries": entries, **lane_facts(task.lane, end)}
    return entries


@dataclass(frozen=True)
class _Source:
    """Some cells of a run.

    Attributes:
        columns: byte at which keys and weights begin, and the bytes of each.
        bounds: (num_chosen + 1,) int64 first entry of each chosen cell, and the end of the last one.
    """

    lane: OpenLane
    columns: tuple[tuple[int, int], tuple[int, int]]
    bounds: NDArray[np.int64]

    @classmethod
    def of(cls, files: OpenFiles, task: MergeRunsTask, run: Run) -> _Source:
        """Read where the cells lie."""
        columns = (run.keys_at(task.num_cells), KEY_BYTES), (run.weights_at(task.num_cells), WEIGHT_BYTES)
        return cls(files.lane(run.lane), columns, run.offsets(files, *task.cells))

    def bytes_of(self, column: int, cell: int) -> ByteRange:
        """The keys (column 0) or weights (column 1) of a cell, counted from the first chosen one."""
        begin, width = self.columns[column]
        start, stop = (begin + width * int(bound) for bound in self.bounds[cell : cell + 2])
        return ByteRange(self.lane, start, stop)
