"""The plan of a shuffle: the files of the tasks that route, and the phases of merges between them and the readers.

Every reader needs its positions from every task that routes. With T tasks and P readers, that means T P reads, each of
which gives fewer bytes as T and P grow. The rows of groups of tasks are therefore merged by span of positions, level by
level (:mod:`gnnloom.pipeline.external_sort.merge_levels`), until a reader takes enough bytes from each source.
"""

from __future__ import annotations

import shutil
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gnnloom.pipeline.external_sort.lanes import Lane, LaneSet
from gnnloom.pipeline.external_sort.merge_levels import Level, Merge, merge_levels, merges, most_sources
from gnnloom.pipeline.shuffle.merges import MERGE_MEMORY, MergeTask, merge_runs
from gnnloom.pipeline.shuffle.run_list import At, LaneRuns, save_sources
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.phase import Needs, Phase, WorkFiles
from gnnloom.storage.disk.work_folder import BESIDE, Scratch
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord
from gnnloom.storage.matrix.ranges import Span


@dataclass(frozen=True, eq=False)
class ShufflePlan:
    """Plan that brings the rows of a shuffle to their readers.

    Attributes:
        writer: of the artifact; only its work folder is used.
        num_tasks: tasks that route.
        num_bytes: approximate bytes of all rows.
        num_keys: approximate number of distinct positions of the rows of each task, summed over all tasks.
    """

    writer: ArtifactWriter
    shuffle: Shuffle
    num_tasks: int
    num_bytes: int
    num_keys: int

    @classmethod
    def stated(
        cls, shuffle: Shuffle, num_tasks: int, num_bytes: int, num_keys: int, scratch: Scratch = BESIDE
    ) -> ShufflePlan:
        """A plan that is only counted."""
        return cls(ArtifactWriter(Path(), "", "", scratch=scratch), shuffle, num_tasks, num_bytes, num_keys)

    @classmethod
    def unmerged(cls, writer: ArtifactWriter, shuffle: Shuffle, num_tasks: int) -> ShufflePlan:
        """A plan without merges: for readers that read all rows in few steps, or only rows of known tasks."""
        return cls(writer, shuffle, num_tasks, num_tasks * writer.scratch.source_bytes * shuffle.readers, 0)

    @property
    def files(self) -> LevelFiles:
        """Files that the routing tasks write."""
        return self._levels[0][1]

    @property
    def read_files(self) -> LevelFiles:
        """Files that the readers read."""
        return self._levels[-1][1]

    def lane(self, task: int) -> Lane:
        """Lane that a routing task writes its rows to."""
        return self.files.lanes.lane(task)

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        return merge_levels(self.num_tasks, most_sources(self.num_bytes, self.shuffle.readers, self.writer.scratch))

    @cached_property
    def _levels(self) -> list[tuple[list[Merge], LevelFiles]]:
        """The merges that make each level, and its files."""
        routed = self._files(self.levels[0], [(0, task) for task in range(self.num_tasks)])
        found: list[tuple[list[Merge], LevelFiles]] = [([], routed)]
        for level in self.levels[1:]:
            made = list(merges(self.levels, level, self.shuffle.num_positions))
            found.append((made, self._files(level, [(merge.span, merge.source) for merge in made])))
        return found

    def merges(self, name: str) -> list[Phase]:
        """The phases of merges, which follow the one that routes.

        Args:
            name: of the phases.
        """
        return [
            Phase(
                name,
                merge_runs,
                [self._merge(level, number, merge) for number, merge in enumerate(made)],
                "rows",
                (self._levels[level.number - 1][1],),
                (files,),
                arrays=len(self.shuffle.columns) + 1,
            )
            for level, (made, files) in zip(self.levels[1:], self._levels[1:], strict=True)
        ]

    def _merge(self, level: Level, number: int, merge: Merge) -> MergeTask:
        before, files = self._levels[level.number - 1][1], self._levels[level.number][1]
        first, last = merge.positions
        # Share of the rows, and of their index, that belongs to the positions.
        share = len(merge.group) / self.levels[level.number - 1].sources
        part = share * (last - first) / max(1, self.shuffle.num_positions)
        num_bytes = int(part * (self.num_bytes + 16 * self.num_keys))
        group = (merge.span_before, merge.group.start), (merge.span_before, merge.group.stop)
        num_files = before.num_files(*group)
        return MergeTask(
            self.writer,
            f"merge/{self.shuffle.name}/{self._tag(level)}-{merge.span:06d}-{merge.source:06d}",
            Needs(num_bytes, num_bytes, num_files, MERGE_MEMORY),
            self.shuffle.name,
            self.shuffle.columns,
            before.list_path,
            merge.span_before,
            merge.group,
            merge.positions,
            files.lanes.lane(number),
        )

    def opens(self, positions: Span) -> int:
        """Number of files that a reader of ``positions`` opens."""
        spans = self.shuffle.spans(self.levels[-1].spans, *positions)
        # There are few spans, and a plan of many ranks asks for each span many times.
        if (opens := self._opens.get(spans)) is None:
            opens = self._opens[spans] = self.read_files.num_files((spans.start, 0), (spans.stop, 0))
        return opens

    @cached_property
    def _opens(self) -> dict[range, int]:
        """Files with the runs of spans that :meth:`opens` was asked for."""
        return {}

    def _tag(self, level: Level) -> str:
        # A command with other memory may have other tasks, and then other merges.
        return f"{self.num_tasks}-{level.sources}x{level.spans}"

    def _files(self, level: Level, order: Sequence[At]) -> LevelFiles:
        folder, is_last = f"{self.shuffle.folder}/{self._tag(level)}", level is self.levels[-1]
        lanes = LaneSet.named(f"{folder}/lanes", len(order), self.writer.scratch)
        list_path = self.shuffle.list_path if is_last else f"{folder}.json"
        return LevelFiles(self.writer.work, self.shuffle, folder, list_path, lanes, order, level.spans)


@dataclass(frozen=True, eq=False)
class LevelFiles(WorkFiles):
    """The files with the runs of one level.

    Attributes:
        folder: of the files of this and of earlier commands, relative to the work folder.
        list_path: of the list of the runs, likewise.
        order: span and source of each task, in the order of the tasks, which is the order of spans and sources.
        spans: of the level.
    """

    work: Path
    shuffle: Shuffle
    folder: str
    list_path: str
    lanes: LaneSet
    order: Sequence[At]
    spans: int

    def create(self) -> None:
        self.lanes.touch(self.work)

    def is_intact(self, record: TaskRecord) -> bool:
        # Tasks of one phase may route rows of several shuffles.
        found = LaneRuns.recorded(record, self.shuffle.name)
        return found is None or found.is_intact(self.work)

    def publish(self, records: Sequence[TaskRecord]) -> None:
        own = self.shuffle.recorded(records)
        save_sources(self.work / self.list_path, self.spans, dict(zip(self.order, own, strict=True)))

    def remove(self) -> None:
        shutil.rmtree(self.work / self.folder, ignore_errors=True)

    def num_files(self, first: At, last: At) -> int:
        """Files with the runs of the sources from ``first`` to ``last`` (exclusive), found without naming each."""
        # Consecutive tasks write to different files, as long as there are others.
        return min(bisect_left(self.order, last) - bisect_left(self.order, first), self.lanes.num_files)
