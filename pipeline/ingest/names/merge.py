"""Second step for names as ids: the names of all files are cut into ranges of names, merged, and numbered.

A task merges one range of names. It writes the distinct names, ascending, and, for every file, the number of each of
its names within the range. A range that does not fit in memory is halved at a name until it does.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from gnnloom.pipeline.external_sort.lanes import Lane, LaneSet, LaneWriter, OpenFiles, writable
from gnnloom.pipeline.ingest.names.collect import NAME_MEMORY, sorted_distinct
from gnnloom.pipeline.ingest.names.spill import LaneNames, SortedNames
from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.progress import Done
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord
from gnnloom.storage.format.files import read_json, write_json

#: Approximate number of collected bytes (the text, and 8 per name) of a range of names: a few seconds of work.
RANGE_BYTES = 64 << 20

#: Minimum of collected bytes that a range takes from each file on average. With fewer, merging would mostly search for
#: the names of the range and wait for short reads.
FILE_RANGE_BYTES = 64 << 10


def num_name_ranges(collected: int, num_files: int) -> int:
    """Return the number of ranges of names: so few that a range takes 64 KiB or more from each file.

    Args:
        collected: bytes of the text, and 8 per name, in all files.
    """
    return max(1, collected // max(RANGE_BYTES, num_files * FILE_RANGE_BYTES))


@dataclass(frozen=True)
class NameRanges:
    """The collected names, and how they are cut into ranges.

    Attributes:
        collected: (num_source_ranges) files of each range of the source.
        bounds: (num_ranges - 1) first name of each range of names but the first.
    """

    collected: list[LaneNames]
    bounds: list[bytes]

    @classmethod
    def of(cls, records: Sequence[TaskRecord]) -> NameRanges:
        """Cut the names of these records by their samples."""
        collected = [LaneNames.of(record.facts) for record in records]
        samples = sorted(bytes.fromhex(sample) for record in records for sample in record.facts["samples"])
        sizes = [file.text_bytes + 8 * file.num_names for file in chain.from_iterable(collected)]
        ranges = num_name_ranges(sum(sizes), len(sizes))
        # Sampled names may be cut off; a prefix of a name is a bound like any other.
        cuts = {samples[number * len(samples) // ranges] for number in range(1, ranges)}
        return cls(collected, sorted(cuts - {samples[0]}))

    def to_json(self) -> dict[str, Any]:
        collected = [each.__dict__ for each in self.collected]
        return {"collected": collected, "bounds": [bound.hex() for bound in self.bounds]}

    @property
    def digest(self) -> str:
        """Changes when a range of the source is collected again, so that an earlier merge is not used for it."""
        return xxhash.xxh3_64_hexdigest(json.dumps(self.to_json(), sort_keys=True).encode())

    def save(self, path: Path) -> None:
        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: Path) -> NameRanges:
        content: dict[str, Any] = read_json(path)
        collected = [LaneNames(**each) for each in content["collected"]]
        return cls(collected, [bytes.fromhex(bound) for bound in content["bounds"]])

    def are_saved(self, path: Path) -> bool:
        """Whether a file holds these ranges; one of an earlier version does not."""
        return path.exists() and bool(read_json(path) == self.to_json())

    def cut(self, names: SortedNames, number: int) -> int:
        """Position of the first name of range ``number`` in a file."""
        if number == 0:
            return 0
        return len(names) if number > len(self.bounds) else bisect_left(names, self.bounds[number - 1])


@dataclass(frozen=True)
class MergeNamesTask:
    """Merges range ``number`` of the names.

    Attributes:
        ranges: file of the name ranges.
        digest: their digest.
        memory: bytes that the worker may use.
        ends: where the ends of the distinct names go, relative to the work folder.
        text: where their text goes.
    """

    writer: ArtifactWriter
    number: int
    ranges: Path
    digest: str
    memory: int
    ends: Lane
    text: Lane

    @property
    def name(self) -> str:
        return f"merge-names/{self.digest}-{self.number:05d}"


def merge_names(writer: ArtifactWriter, ranges_path: Path, cluster: Cluster) -> list[TaskRecord]:
    """Merge the ranges of names that are not recorded; returns the records of all, ascending."""
    ranges = NameRanges.load(ranges_path)
    digest, count = ranges.digest, len(ranges.bounds) + 1
    ends, text = (LaneSet.create(writer.work, f"names/{kind}", count) for kind in ("ends", "text"))
    tasks = [
        MergeNamesTask(writer, number, ranges_path, digest, cluster.memory, ends.lane(number), text.lane(number))
        for number in range(count)
    ]
    return run_missing("merge names", cluster, writer, merge_range, tasks, "names", is_usable=_is_merged)


def _is_merged(task: MergeNamesTask, record: TaskRecord) -> bool:
    facts, work = record.facts, task.writer.work
    ends, text = (Lane.from_json(facts[kind]) for kind in ("ends", "text"))
    return ends.is_intact(work, 8 * facts["names"]) and text.is_intact(work, facts["text_bytes"])


@dataclass(frozen=True)
class _Segment:
    """Names ``start`` to ``stop`` of a file."""

    names: SortedNames
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def memory(self) -> int:
        """Approximate bytes that merging these names takes."""
        # Arrow holds the text as read, joined, distinct and sorted.
        return 4 * self.names.text_bytes(self.start, self.stop) + NAME_MEMORY * len(self)

    def divided(self, name: bytes) -> tuple[_Segment, _Segment]:
        """The names before ``name``, and the others."""
        middle = bisect_left(self.names, name, self.start, self.stop)
        return _Segment(self.names, self.start, middle), _Segment(self.names, middle, self.stop)


def merge_range(task: MergeNamesTask) -> Done:
    """Write the distinct names of a range, and their numbers for every file; returns how many were collected in it."""
    ranges, work = NameRanges.load(task.ranges), task.writer.work
    with OpenFiles(work) as opened, task.writer.task(task.name) as output:
        every = [SortedNames(opened, file) for file in chain.from_iterable(ranges.collected)]
        segments = [
            _Segment(names, ranges.cut(names, task.number), ranges.cut(names, task.number + 1)) for names in every
        ]
        with writable(work, task.ends) as ends, writable(work, task.text) as text:
            count, text_bytes = _merge(ends, text, segments, working_memory(task.memory) // 2)
        output.facts = {
            "ends": task.ends.to_json(),
            "text": task.text.to_json(),
            "names": count,
            "text_bytes": text_bytes,
        }
    return Done(sum(map(len, segments)))


def _merge(ends: LaneWriter, text: LaneWriter, segments: list[_Segment], memory: int) -> tuple[int, int]:
    """Write the ends and the text of the distinct names; returns their number and the text's bytes."""
    count = text_bytes = 0
    for pieces in _fitting(segments, memory):
        found = _merge_pieces(pieces, count)
        # Pieces ascend and do not share a name, so their results follow each other without another merge.
        ends.write(8 * count, found.offset[1:] + text_bytes)
        text.write(text_bytes, found.text)
        count, text_bytes = count + len(found), text_bytes + len(found.text)
    return count, text_bytes


def _fitting(segments: list[_Segment], memory: int) -> Iterator[list[_Segment]]:
    """Consecutive ranges of names that fit in memory, or that cannot be divided further; ascending."""
    segments = [segment for segment in segments if len(segment)]
    needed = [segment.memory for segment in segments]
    longest = max(range(len(segments)), key=lambda k: (len(segments[k]) > 1, needed[k]), default=None)
    if longest is None:
        return
    if sum(needed) <= memory or len(segments[longest]) == 1:
        yield segments
        return
    # Halving every segment at the same name keeps all copies of a name in one half, so that no merge sees only some.
    chosen = segments[longest]
    halves = [segment.divided(chosen.names[(chosen.start + chosen.stop) // 2]) for segment in segments]
    yield from _fitting([half[0] for half in halves], memory)
    yield from _fitting([half[1] for half in halves], memory)


def _merge_pieces(pieces: list[_Segment], first: int) -> Names:
    """The distinct names of some segments, ascending; writes their numbers, counted from ``first``, for each file."""
    arrays = [piece.names.read(piece.start, piece.stop).to_arrow() for piece in pieces]
    names, positions = sorted_distinct(arrays)
    begin = 0
    for piece in pieces:
        numbers = positions[begin : begin + len(piece)].astype(np.int64) + first
        # Tasks merge disjoint ranges of names, so no two of them write the same part of this file; a task that runs
        # twice writes the same bytes.
        piece.names.file.write_numbers(piece.names.files, piece.start, numbers)
        begin += len(piece)
    return names
