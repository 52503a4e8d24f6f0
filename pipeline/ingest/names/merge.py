"""Second step for names as ids: the names of all runs, cut into ranges of names, are merged, and the runs told.

A task merges one range of names.  It writes the distinct ones, ascending, and beside every run the number that
each of its names has within the range.  What does not fit the memory is halved at a name until it does.
"""

from __future__ import annotations

import json
import uuid
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from gnnloom.pipeline.external_sort.spill import write_at
from gnnloom.pipeline.ingest.names.collect import NAME_MEMORY, sorted_distinct
from gnnloom.pipeline.ingest.names.sorted_runs import NameRun, SortedNames
from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.progress import Done, logged
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord
from gnnloom.storage.format.files import read_json, write_json

#: Collected bytes (text, and 8 for each name) of a range of names, about.
RANGE_BYTES = 64 << 20


@dataclass(frozen=True)
class NamePlan:
    """What was collected, and how it is cut.

    Attributes:
        runs: of each range of the source.
        bounds: first names of the ranges of names from the second on.
    """

    runs: list[list[NameRun]]
    bounds: list[bytes]

    @classmethod
    def of(cls, records: Sequence[TaskRecord]) -> NamePlan:
        """Cut the names of these records by their samples."""
        runs = [[NameRun.from_json(run) for run in record.facts["runs"]] for record in records]
        samples = sorted(bytes.fromhex(sample) for record in records for sample in record.facts["samples"])
        collected = sum(run.text_bytes + 8 * run.num_names for group in runs for run in group)
        ranges = max(1, collected // RANGE_BYTES)
        cuts = {samples[number * len(samples) // ranges] for number in range(1, ranges)}
        return cls(runs, sorted(cuts - {samples[0]}))

    def to_json(self) -> dict[str, Any]:
        runs = [[run.to_json() for run in group] for group in self.runs]
        return {"runs": runs, "bounds": [bound.hex() for bound in self.bounds]}

    @property
    def digest(self) -> str:
        """Changes when a range was collected anew, so that nothing merged before is taken for its merge."""
        return xxhash.xxh3_64_hexdigest(json.dumps(self.to_json(), sort_keys=True).encode())

    def save(self, path: Path) -> None:
        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: Path) -> NamePlan:
        content: dict[str, Any] = read_json(path)
        runs = [[NameRun.from_json(run) for run in group] for group in content["runs"]]
        return cls(runs, [bytes.fromhex(bound) for bound in content["bounds"]])

    def cut(self, names: SortedNames, number: int) -> int:
        """Where range ``number`` of the names begins in a run."""
        if number == 0:
            return 0
        return len(names) if number > len(self.bounds) else bisect_left(names, self.bounds[number - 1])


@dataclass(frozen=True)
class MergeTask:
    """Merges range ``number`` of the names."""

    writer: ArtifactWriter
    number: int
    plan: Path
    digest: str
    memory: int

    @property
    def name(self) -> str:
        return f"merge-names/{self.digest}-{self.number:05d}"


def merge_names(writer: ArtifactWriter, plan_path: Path, cluster: Cluster) -> list[TaskRecord]:
    """Merge the ranges of names that were not yet; returns the records of all, ascending."""
    plan = NamePlan.load(plan_path)
    tasks = [
        MergeTask(writer, number, plan_path, plan.digest, cluster.memory) for number in range(len(plan.bounds) + 1)
    ]
    recorded = writer.recorded("merge-names/")
    missing = [task for task in tasks if task.name not in recorded]
    for _ in logged("merge names", cluster.map(merge_range, missing), len(missing), "names"):
        pass
    recorded = writer.recorded("merge-names/")
    return [recorded[task.name] for task in tasks]


@dataclass(frozen=True)
class _Segment:
    """Names ``start`` to ``stop`` of a run."""

    names: SortedNames
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def memory(self) -> int:
        """Bytes that merging them takes, about."""
        return 4 * self.names.text_bytes(self.start, self.stop) + NAME_MEMORY * len(self)

    def divided(self, name: bytes) -> tuple[_Segment, _Segment]:
        """The names before one, and the others."""
        middle = bisect_left(self.names, name, self.start, self.stop)
        return _Segment(self.names, self.start, middle), _Segment(self.names, middle, self.stop)


def merge_range(task: MergeTask) -> Done:
    """Write the distinct names of a range, and their numbers beside the runs; returns how many were collected."""
    plan, work = NamePlan.load(task.plan), task.writer.work
    with task.writer.task(task.name) as output:
        opened = [SortedNames(work, run) for runs in plan.runs for run in runs]
        segments = [_Segment(names, plan.cut(names, task.number), plan.cut(names, task.number + 1)) for names in opened]
        path = f"names/merged-{task.digest}-{task.number:05d}"
        count, text_bytes = _merge(work, path, segments, working_memory(task.memory) // 2)
        output.facts = {"path": path, "names": count, "text_bytes": text_bytes}
    return Done(sum(map(len, segments)))


def _merge(work: Path, path: str, segments: list[_Segment], memory: int) -> tuple[int, int]:
    """Write the ends and the text of the distinct names, each to a file; returns their number and bytes."""
    kinds = ("end", "text")
    aside = [work / f"{path}-{uuid.uuid4().hex}.{kind}" for kind in kinds]
    count = text_bytes = 0
    with aside[0].open("wb", buffering=0) as ends, aside[1].open("wb", buffering=0) as text:
        for pieces in _fitting(segments, memory):
            found = _merge_pieces(work, pieces, count)
            write_at(ends.fileno(), 8 * count, found.offset[1:] + text_bytes)
            write_at(text.fileno(), text_bytes, found.text)
            count, text_bytes = count + len(found), text_bytes + len(found.text)
    for temporary, kind in zip(aside, kinds, strict=True):
        temporary.replace(work / f"{path}.{kind}")
    return count, text_bytes


def _fitting(segments: list[_Segment], memory: int) -> Iterator[list[_Segment]]:
    """Consecutive ranges of names that fit the memory, or that nothing divides further; ascending."""
    segments = [segment for segment in segments if len(segment)]
    needed = [segment.memory for segment in segments]
    longest = max(range(len(segments)), key=lambda k: (len(segments[k]) > 1, needed[k]), default=None)
    if longest is None:
        return
    if sum(needed) <= memory or len(segments[longest]) == 1:
        yield segments
        return
    chosen = segments[longest]
    halves = [segment.divided(chosen.names[(chosen.start + chosen.stop) // 2]) for segment in segments]
    yield from _fitting([half[0] for half in halves], memory)
    yield from _fitting([half[1] for half in halves], memory)


def _merge_pieces(work: Path, pieces: list[_Segment], first: int) -> Names:
    """The distinct names of some segments, ascending; writes their numbers, from ``first`` on, beside the runs."""
    arrays = [piece.names.run.read_names(work, piece.start, piece.stop).to_arrow() for piece in pieces]
    names, places = sorted_distinct(arrays)
    begin = 0
    for piece in pieces:
        numbers = places[begin : begin + len(piece)].astype(np.int64) + first
        with (work / piece.names.run.numbers_path).open("r+b") as file:
            write_at(file.fileno(), 8 * piece.start, numbers)
        begin += len(piece)
    return names
