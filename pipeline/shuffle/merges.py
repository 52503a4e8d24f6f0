"""Merges of runs: several become one, for a range of positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gnnloom.pipeline.external_sort.lanes import Lane, LaneWriter, OpenFiles, writable
from gnnloom.pipeline.shuffle.columns import Column, lengths_of
from gnnloom.pipeline.shuffle.run_list import LaneRuns, RunList
from gnnloom.pipeline.shuffle.runs import RunLayout, RunWriter, Section
from gnnloom.pipeline.shuffle.section_rows import SectionRows, in_steps
from gnnloom.pipeline.tasks.phase import Task
from gnnloom.storage.format.artifact import TaskOutput
from gnnloom.storage.matrix.ranges import Span

#: Bytes of the rows in memory at once; sorting them by position takes the same number of bytes again.
_STEP_BYTES: Final = 24 << 20
#: Bytes that a merge holds: two copies of a step, as read and in the order of the positions, and their positions.
MERGE_MEMORY: Final = 3 * _STEP_BYTES


@dataclass(frozen=True)
class MergeTask(Task):
    """Merges the rows of some positions from several runs.

    Attributes:
        shuffle: name of the shuffle, for the record.
        columns: of the rows.
        list_path: list of the runs of the level before, relative to the work folder.
        span: of that level.
        group: numbers of the sources of that span, whose runs are merged; rows of one position keep their order.
        positions: first and last (exclusive) position.
        lane: where the merged run goes.
    """

    shuffle: str
    columns: tuple[Column, ...]
    list_path: str
    span: int
    group: range
    positions: Span
    lane: Lane

    def lanes(self) -> list[LaneRuns]:
        """The runs to merge."""
        listed = RunList.read(self.writer.work / self.list_path)
        return listed.of(range(self.span, self.span + 1), self.group)[self.span]

    def record(self, output: TaskOutput, num_bytes: int, num_rows: int) -> None:
        """Record the merged run."""
        output.facts = {"runs": {self.shuffle: LaneRuns(self.lane, num_bytes, num_rows).to_json()}}


def merge_runs(task: MergeTask) -> int:
    """Write one merged run; returns its rows."""
    work = task.writer.work
    with task.writer.task(task.name) as output, OpenFiles(work) as files, writable(work, task.lane) as lane:
        runs = [run for found in task.lanes() if found.num_rows for run in found.open(files, task.columns)]
        layout = _write(lane, task, [run.section(task.positions) for run in runs])
        task.record(output, layout.stop, layout.num_rows)
    return layout.num_rows


def _write(lane: LaneWriter, task: MergeTask, sections: Sequence[Section]) -> RunLayout:
    layout = _layout(task, sections)
    writer = RunWriter(lane, layout)
    rows, first = 0, task.positions[0]
    for last, found in in_steps(task.columns, sections, *task.positions, _STEP_BYTES):
        if last - first == 1:
            _put_one_position(writer, found, first, rows)
        else:
            counts = np.bincount(found.position - first, minlength=last - first)
            writer.put_index(found.position, rows + np.cumsum(counts) - counts)
            for column in found.columns:
                writer.put(column.name, found.column(column.name))
        rows, first = rows + found.num_rows, last
    writer.put_index(None, np.array([rows]))
    return layout


def _put_one_position(writer: RunWriter, found: SectionRows, position: int, rows: int) -> None:
    """Write the rows of one position, which may be more than memory has room for: they follow each other run by run."""
    writer.put_index(np.full(found.num_rows, position), np.array([rows]))
    for column in found.columns:
        for section in found.sections:
            for block in section.blocks(column.name):
                writer.put(column.name, block)


def _layout(task: MergeTask, sections: Sequence[Section]) -> RunLayout:
    """The layout of the merged run: with keys, one for each row, unless offsets of all positions take fewer bytes."""
    num_rows, (first, last) = sum(section.num_rows for section in sections), task.positions
    has_keys = num_rows < last - first + 1
    totals = []
    for name in lengths_of(task.columns):
        ragged = next(column.name for column in task.columns if column.lengths == name)
        extents = [section.run.extent(ragged, section.rows) for section in sections]
        totals.append(sum(stop - start for start, stop in extents))
    num_keys = num_rows if has_keys else last - first
    return RunLayout(0, num_rows, num_keys, first, has_keys, not has_keys, task.columns, tuple(totals))
