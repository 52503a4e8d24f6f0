"""Merges runs between the passes of the grid shards, if the scatter left many, so that a cell opens few of them.

Every cell needs its entries from every run. With R runs and C cells, that means R C opens, each of which reads fewer
bytes as R and C grow. Groups of runs are therefore merged by span of cells, until a cell reads at least 64 KiB from
each.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.byte_ranges import ByteRange, copy_ranges
from gnnloom.pipeline.external_sort.merge_levels import Level, merge_levels, merges, most_sources
from gnnloom.pipeline.external_sort.raw_files import read_open_file, write_at
from gnnloom.pipeline.shards.grid_scatter import KEY_BYTES, WEIGHT_BYTES, CellRuns, Run, runs_folder
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.format.files import written_aside
from gnnloom.storage.matrix.ranges import Span


def most_runs(entries: int, num_cells: int) -> int:
    """Most runs that a task opens for each cell of a variant with so many entries."""
    return most_sources(entries * KEY_BYTES, num_cells)


@dataclass(frozen=True)
class MergeRunsTask:
    """Merges the entries of some cells from several runs.

    Attributes:
        runs: in the order of the blocks.
        cells: first and last (exclusive) cell.
        num_cells: cells of the grid.
        merged: path of the merged run, relative to the work folder.
    """

    writer: ArtifactWriter
    runs: tuple[Run, ...]
    cells: Span
    num_cells: int
    weighted: bool
    merged: str

    @property
    def name(self) -> str:
        return f"merge/{self.merged}"


def merge_runs(
    writer: ArtifactWriter, variant: str, runs: Sequence[Run], num_cells: int, *, weighted: bool, cluster: Cluster
) -> CellRuns:
    """Merge the runs of a variant until every cell has few of them, unless an earlier run has done so."""
    levels = merge_levels(len(runs), most_runs(sum(run.entries for run in runs), num_cells))
    digest = xxhash.xxh3_64_hexdigest("".join(f"{run.path} {run.entries} " for run in runs).encode())
    found = {(0, source): run for source, run in enumerate(runs)}
    for level in levels[1:]:
        tasks = {}
        for merge in merges(levels, level, num_cells):
            group = tuple(found[merge.span_before, source] for source in merge.group)
            path = f"{_folder(variant, digest, level)}/{merge.span:06d}-{merge.source:06d}.run"
            task = MergeRunsTask(writer, group, merge.positions, num_cells, weighted, path)
            tasks[merge.span, merge.source] = task
        records = run_missing("merge cells", cluster, writer, merge_cells, list(tasks.values()), "entries")
        sizes = [int(record.facts["entries"]) for record in records]
        found = {at: Run(task.merged, size) for (at, task), size in zip(tasks.items(), sizes, strict=True)}
        before = runs_folder(variant) if level.number == 1 else _folder(variant, digest, levels[level.number - 1])
        shutil.rmtree(writer.work / before, ignore_errors=True)
    spans: list[list[Run]] = [[] for _ in range(levels[-1].spans)]
    for (span, _), run in sorted(found.items()):
        spans[span].append(run)
    return CellRuns(spans)


def _folder(variant: str, digest: str, level: Level) -> str:
    return f"merged-cells/{variant}/{digest}/{level.number}"


def merge_cells(task: MergeRunsTask) -> int:
    """Write one merged run and record its entries; returns their number."""
    first, last = task.cells
    path = task.writer.work / task.merged
    path.parent.mkdir(parents=True, exist_ok=True)
    with task.writer.task(task.name) as output, ExitStack() as stack:
        sources = [_Source.open(stack, task, run) for run in task.runs]
        # Offsets of all cells, including those outside the span: the file is an ordinary run.
        offsets = np.zeros(task.num_cells + 1, np.int64)
        np.cumsum(sum(np.diff(source.bounds) for source in sources), out=offsets[first + 1 : last + 1])
        offsets[last + 1 :] = offsets[last]
        entries = int(offsets[-1])
        with written_aside(path) as aside, aside.open("wb", buffering=0) as file:
            write_at(file.fileno(), 0, offsets)
            # Weights follow the keys, so one copy serves both.
            ranges = (
                source.bytes_of(column, cell)
                for column in range(2 if task.weighted else 1)
                for cell in range(last - first)
                for source in sources
            )
            copy_ranges(ranges, file.fileno(), offsets.nbytes)
        output.facts["entries"] = entries
    return entries


@dataclass(frozen=True)
class _Source:
    """Some cells of an open run.

    Attributes:
        columns: byte at which keys and weights begin, and the bytes of each.
        bounds: (num_chosen + 1,) int64 first entry of each chosen cell, and the end of the last one.
    """

    descriptor: int
    path: Path
    columns: tuple[tuple[int, int], tuple[int, int]]
    bounds: NDArray[np.int64]

    @classmethod
    def open(cls, stack: ExitStack, task: MergeRunsTask, run: Run) -> _Source:
        """Open a run until the stack is closed."""
        path = task.writer.work / run.path
        descriptor = os.open(path, os.O_RDONLY)
        stack.callback(os.close, descriptor)
        bounds = np.empty(task.cells[1] - task.cells[0] + 1, np.int64)
        read_open_file(descriptor, path, 8 * task.cells[0], bounds)
        keys_at = 8 * (task.num_cells + 1)
        columns = ((keys_at, KEY_BYTES), (keys_at + KEY_BYTES * run.entries, WEIGHT_BYTES))
        return cls(descriptor, path, columns, bounds)

    def bytes_of(self, column: int, cell: int) -> ByteRange:
        """The keys (column 0) or weights (column 1) of a cell, counted from the first chosen one."""
        begin, width = self.columns[column]
        start, stop = (begin + width * int(bound) for bound in self.bounds[cell : cell + 2])
        return ByteRange(self.descriptor, self.path, start, stop)
