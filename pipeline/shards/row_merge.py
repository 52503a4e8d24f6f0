"""Merges routed files between the passes of the row shards, if there are many files and ranks.

Every rank needs its rows from every routed file. With F files and P ranks, that means F P opens, each of which reads
fewer bytes as F and P grow. Groups of files are therefore merged by span of ranks, until a rank reads at least 64 KiB
from each.
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.merge_levels import Level, merge_levels, merges, most_sources
from gnnloom.pipeline.external_sort.spill import read_open_file, write_at
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.format.files import written_aside
from gnnloom.storage.matrix.ranges import Span, range_of

#: Bytes that are copied at a time.
_BLOCK_BYTES = 4 << 20
#: Kind of the files that have all arrays of vertex data, one column each.
VERTEX_DATA = "vertex-data"


@dataclass(frozen=True)
class RoutedFiles:
    """Files of rows by part: those that tasks have routed, or those that they were merged into.

    Attributes:
        kind: ``forward``, ``backward`` or ``VERTEX_DATA``; part of the names of the files.
        num_files: files that were routed.
        num_bytes: of all rows.
    """

    kind: str
    num_files: int
    num_parts: int
    num_bytes: int

    @property
    def levels(self) -> tuple[Level, ...]:
        return merge_levels(self.num_files, most_sources(self.num_bytes, self.num_parts))

    def path(self, work: Path, level: Level, span: int, source: int) -> Path:
        """One file of a level."""
        if not level.number:
            return work / routed_name(self.kind, source)
        return self._folder(work, level) / f"{span:06d}-{source:06d}"

    def _folder(self, work: Path, level: Level) -> Path:
        return work / f"merged-{self.kind}" / str(level.number)

    def of_part(self, work: Path, part: int) -> list[Path]:
        """The files that hold the rows of a part, in the order of the vertices."""
        last = self.levels[-1]
        span = range_of(self.num_parts, last.spans, part)
        return [self.path(work, last, span, source) for source in range(last.sources)]

    def remove(self, work: Path, level: Level) -> None:
        """Remove the files of a level, which have been merged."""
        if level.number:
            shutil.rmtree(self._folder(work, level), ignore_errors=True)
            return
        for source in range(level.sources):
            self.path(work, level, 0, source).unlink(missing_ok=True)


def routed_name(kind: str, number: int) -> str:
    """Name of the task that routes a range; also the name of the range's spill file."""
    return f"route-{kind}/{number:05d}"


@dataclass(frozen=True)
class MergePartsTask:
    """Merges the rows of some parts from several files.

    Attributes:
        paths: the files, in the order of the vertices.
        parts: first and last (exclusive) part.
    """

    writer: ArtifactWriter
    paths: tuple[Path, ...]
    parts: Span
    num_parts: int
    merged: Path

    @property
    def name(self) -> str:
        return f"merge/{'/'.join(self.merged.parts[-3:])}"


def merge_routed(writer: ArtifactWriter, files: RoutedFiles, cluster: Cluster) -> None:
    """Make the levels of merged files, unless that is done already."""
    levels = files.levels
    for level in levels[1:]:
        before, tasks = levels[level.number - 1], []
        for merge in merges(levels, level, files.num_parts):
            paths = tuple(files.path(writer.work, before, merge.span_before, source) for source in merge.group)
            merged = files.path(writer.work, level, merge.span, merge.source)
            tasks.append(MergePartsTask(writer, paths, merge.positions, files.num_parts, merged))
        run_missing("merge rows", cluster, writer, merge_parts, tasks, "bytes")
        files.remove(writer.work, before)


@dataclass(frozen=True)
class _Source:
    """An opened file: widths and begins of its columns, and (num_columns, num_parts + 1) bounds of the task's parts."""

    descriptor: int
    path: Path
    widths: NDArray[np.int64]
    begins: NDArray[np.int64]
    bounds: NDArray[np.int64]

    @classmethod
    def open(cls, stack: ExitStack, path: Path, task: MergePartsTask) -> _Source:
        descriptor = os.open(path, os.O_RDONLY)
        stack.callback(os.close, descriptor)
        counts = np.empty(2, np.int64)
        read_open_file(descriptor, path, 0, counts)
        columns = int(counts[0])
        layout = np.empty((2, columns), np.int64)
        read_open_file(descriptor, path, 16, layout)
        first, last = task.parts
        bounds = np.empty((columns, last - first + 1), np.int64)
        for column in range(columns):
            at = 8 * (2 + 2 * columns + column * (task.num_parts + 1) + first)
            read_open_file(descriptor, path, at, bounds[column])
        return cls(descriptor, path, layout[0], layout[1], bounds)

    def copy(self, column: int, part: int, descriptor: int, at: int) -> int:
        """Copy a part of a column to a byte of another file; returns the byte after it."""
        width, begin = int(self.widths[column]), int(self.begins[column])
        start, stop = (begin + width * int(bound) for bound in self.bounds[column, part : part + 2])
        for first in range(start, stop, _BLOCK_BYTES):
            piece = np.empty(min(_BLOCK_BYTES, stop - first), np.uint8)
            read_open_file(self.descriptor, self.path, first, piece)
            write_at(descriptor, at, piece)
            at += len(piece)
        return at


def merge_parts(task: MergePartsTask) -> int:
    """Write one merged file, which is laid out like a routed one; returns its bytes."""
    first, last = task.parts
    task.merged.parent.mkdir(parents=True, exist_ok=True)
    with task.writer.task(task.name), ExitStack() as stack:
        sources = [_Source.open(stack, path, task) for path in task.paths]
        columns, widths = len(sources[0].widths), sources[0].widths
        counts = np.sum([np.diff(source.bounds, axis=1) for source in sources], axis=0)
        # Offsets of all parts, also of those outside of the span.
        offsets = np.zeros((columns, task.num_parts + 1), np.int64)
        offsets[:, first + 1 : last + 1] = np.cumsum(counts, axis=1)
        offsets[:, last + 1 :] = offsets[:, last : last + 1]
        sizes = widths * offsets[:, -1]
        header = 8 * (2 + 2 * columns) + offsets.nbytes
        begins = header + np.cumsum(sizes) - sizes
        with written_aside(task.merged) as aside, aside.open("wb", buffering=0) as file:
            counted = np.array([columns, task.num_parts, *widths, *begins], np.int64)
            write_at(file.fileno(), 0, counted)
            write_at(file.fileno(), counted.nbytes, offsets)
            for column in range(columns):
                at = int(begins[column])
                for part in range(last - first):
                    for source in sources:
                        at = source.copy(column, part, file.fileno(), at)
    return header + int(sizes.sum())
