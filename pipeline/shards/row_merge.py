"""Merges routed files between the passes of the row shards, if there are many files and ranks.

Every rank needs its rows from every routed file. With F files and P ranks, that means F P opens, each of which reads
fewer bytes as F and P grow. Groups of files are therefore merged by span of ranks, until a rank reads at least 64 KiB
from each.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnnloom.pipeline.external_sort.byte_ranges import copy_ranges
from gnnloom.pipeline.external_sort.merge_levels import Level, merge_levels, merges, most_sources
from gnnloom.pipeline.external_sort.raw_files import write_at
from gnnloom.pipeline.shards.part_file import OpenParts, PartLayout
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.format.files import written_aside
from gnnloom.storage.matrix.ranges import Span, range_of

#: Kind of the files that have all arrays of vertex data, one column each.
VERTEX_DATA = "vertex-data"


@dataclass(frozen=True)
class RoutedFiles:
    """Files of rows by part: those that tasks have routed, or those that they were merged into.

    Attributes:
        kind: ``forward``, ``backward`` or ``VERTEX_DATA``; part of the names of the files.
        num_files: files that were routed.
        num_bytes: bytes of all rows.
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
    """Make the levels of merged files, unless an earlier run has done so."""
    levels = files.levels
    for level in levels[1:]:
        before, tasks = levels[level.number - 1], []
        for merge in merges(levels, level, files.num_parts):
            paths = tuple(files.path(writer.work, before, merge.span_before, source) for source in merge.group)
            merged = files.path(writer.work, level, merge.span, merge.source)
            tasks.append(MergePartsTask(writer, paths, merge.positions, files.num_parts, merged))
        run_missing("merge rows", cluster, writer, merge_parts, tasks, "bytes")
        files.remove(writer.work, before)


def merge_parts(task: MergePartsTask) -> int:
    """Write one merged file, which is laid out like a routed one; returns its bytes."""
    first, last = task.parts
    task.merged.parent.mkdir(parents=True, exist_ok=True)
    with task.writer.task(task.name), ExitStack() as stack:
        sources = [OpenParts.of(stack, path, task.parts) for path in task.paths]
        counts = np.sum([np.diff(source.bounds, axis=1) for source in sources], axis=0)
        # Offsets of all parts, including those outside the span.
        offsets = np.zeros((len(counts), task.num_parts + 1), np.int64)
        offsets[:, first + 1 : last + 1] = np.cumsum(counts, axis=1)
        offsets[:, last + 1 :] = offsets[:, last : last + 1]
        layout = PartLayout(sources[0].widths, offsets)
        with written_aside(task.merged) as aside, aside.open("wb", buffering=0) as file:
            write_at(file.fileno(), 0, layout.header)
            # Columns follow each other, so one copy serves all.
            ranges = (
                source.bytes_of(column, part)
                for column in range(len(counts))
                for part in range(last - first)
                for source in sources
            )
            copy_ranges(ranges, file.fileno(), layout.header.nbytes)
    return layout.size
