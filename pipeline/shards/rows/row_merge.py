"""What was routed, where it lies, and the merges between the passes of the row shards, if ranges and ranks are many.

Every rank needs its rows from every range. With F ranges and P ranks, that means F P reads, each of which gives fewer
bytes as F and P grow. Groups of spill files are therefore merged by span of ranks, until a rank reads at least 64 KiB
from each.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from gnnloom.pipeline.external_sort.byte_ranges import copy_ranges
from gnnloom.pipeline.external_sort.lanes import Lane, LaneSet, OpenFiles, writable
from gnnloom.pipeline.external_sort.merge_levels import Level, count_merges, merge_levels, merges, most_sources
from gnnloom.pipeline.shards.lane_records import (
    has_lane,
    kept_level,
    lane_facts,
    lanes_of_spans,
    recorded_lane,
    save_lanes,
)
from gnnloom.pipeline.shards.rows.part_file import OpenParts, PartLayout
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord
from gnnloom.storage.format.files import sync_paths
from gnnloom.storage.matrix.ranges import Span, range_of

#: Kind of the spill files that have all arrays of vertex data, one column each.
VERTEX_DATA = "vertex-data"

#: The lanes of a level by span and number.
_Found = Mapping[tuple[int, int], Lane]


@dataclass(frozen=True)
class RoutedFiles:
    """Spill files of rows by part: those that tasks have routed, or those that they were merged into.

    Each is a lane. Which one is known when its task has finished; the lanes of the last level are in a list.

    Attributes:
        kind: ``forward``, ``backward`` or ``VERTEX_DATA``; part of the names of the files.
        num_files: spill files that were routed.
        num_bytes: bytes of all rows.
    """

    kind: str
    num_files: int
    num_parts: int
    num_bytes: int

    @property
    def levels(self) -> tuple[Level, ...]:
        return merge_levels(self.num_files, most_sources(self.num_bytes, self.num_parts))

    def create_lanes(self, work: Path, level: Level, count: int) -> LaneSet:
        """Make the lanes of the tasks of a level."""
        lanes = LaneSet.create(work, f"{self._folder(level)}/lanes", count)
        # Tasks sync what they write, but the names are made here.
        sync_paths(folder for folder in (work / lanes.prefix).parents if folder.is_relative_to(work))
        return lanes

    def _folder(self, level: Level) -> str:
        return f"routed/{self.kind}/{level.number}"

    def remove(self, work: Path, level: Level) -> None:
        """Remove the files of a level, which have been merged, and of those before it."""
        for number in range(level.number + 1):
            shutil.rmtree(work / self._folder(self.levels[number]), ignore_errors=True)

    def list_path(self, work: Path) -> Path:
        """The list of the lanes of the last level, by span of parts."""
        return work / "routed" / f"{self.kind}.json"

    def of_part(self, work: Path, part: int) -> list[Lane]:
        """The lanes that hold the rows of a part, in the order of the vertices."""
        span = range_of(self.num_parts, self.levels[-1].spans, part)
        return lanes_of_spans(self.list_path(work), [span])[span]


@dataclass(frozen=True)
class MergePartsTask:
    """Merges the rows of some parts from several spill files.

    Attributes:
        name: name of the task.
        sources: the spill files, in the order of the vertices.
        parts: first and last (exclusive) part.
        lane: where the merged spill file goes.
    """

    writer: ArtifactWriter
    name: str
    sources: tuple[Lane, ...]
    parts: Span
    num_parts: int
    lane: Lane


def merge_routed(
    writer: ArtifactWriter, files: RoutedFiles, route: Callable[[], Sequence[TaskRecord]], cluster: Cluster
) -> None:
    """Route rows and make the levels of merged files, except for what an earlier run has left; list the last ones.

    Args:
        route: routes the rows; returns the records of the tasks. Not called if what they left has been merged.
    """
    levels = files.levels
    number, kept = kept_level(writer, levels, partial(_merge_names, files))
    found: _Found = {at: recorded_lane(record) for at, record in kept.items()}
    if not number:
        found = {(0, source): recorded_lane(record) for source, record in enumerate(route())}
    else:
        files.remove(writer.work, levels[number - 1])
    for level in levels[number + 1 :]:
        found = _merge_level(writer, files, level, found, cluster)
        files.remove(writer.work, levels[level.number - 1])
    save_lanes(files.list_path(writer.work), found)


def _merge_names(files: RoutedFiles, level: Level) -> dict[tuple[int, int], str]:
    """Names of the tasks that make the files of a level, by span and number."""
    return {
        (merge.span, merge.source): f"merge/merged-{files.kind}/{level.number}/{merge.span:06d}-{merge.source:06d}"
        for merge in merges(files.levels, level, files.num_parts)
    }


def _merge_level(writer: ArtifactWriter, files: RoutedFiles, level: Level, found: _Found, cluster: Cluster) -> _Found:
    """Merge the files of the level before; returns the lanes of this one, by span and number."""
    names = _merge_names(files, level)
    tasks: list[MergePartsTask] = []
    lanes = files.create_lanes(writer.work, level, count_merges(files.levels, level, files.num_parts).tasks)
    for merge in merges(files.levels, level, files.num_parts):
        sources = tuple(found[merge.span_before, source] for source in merge.group)
        name, lane = names[merge.span, merge.source], lanes.lane(len(tasks))
        tasks.append(MergePartsTask(writer, name, sources, merge.positions, files.num_parts, lane))
    records = run_missing("merge rows", cluster, writer, merge_parts, tasks, "bytes", is_usable=has_lane)
    return dict(zip(names, map(recorded_lane, records), strict=True))


def merge_parts(task: MergePartsTask) -> int:
    """Write one merged spill file, which is laid out like a routed one; returns its bytes."""
    first, last = task.parts
    with task.writer.task(task.name) as output, OpenFiles(task.writer.work) as files:
        sources = [OpenParts.of(files.lane(lane), task.parts) for lane in task.sources]
        counts = np.sum([np.diff(source.bounds, axis=1) for source in sources], axis=0)
        # Offsets of all parts, including those outside the span.
        offsets = np.zeros((len(counts), task.num_parts + 1), np.int64)
        offsets[:, first + 1 : last + 1] = np.cumsum(counts, axis=1)
        offsets[:, last + 1 :] = offsets[:, last : last + 1]
        layout = PartLayout(sources[0].widths, offsets)
        with writable(task.writer.work, task.lane) as out:
            # Columns follow each other, so one copy serves all.
            ranges = (
                source.bytes_of(column, part)
                for column in range(len(counts))
                for part in range(last - first)
                for source in sources
            )
            copy_ranges(ranges, out, out.write(0, layout.header))
        output.facts = lane_facts(task.lane, layout.size)
    return layout.size
