"""Numbers the distinct ids of a source by an external sort, for `--ids compact`.

Every range of the source leaves files of the sorted distinct ids of some of its edges (phase ``collect``). A sample of
those cuts the ids into ranges, which are merged; for every file, the merge leaves the number of each of its ids (phase
``merge``). The edges are then read again, those of one file at a time, and look their ids up among the ids of that file
only, never in a table of all ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.key_sorter import KeyRange, KeySorter, Segment, SortedKeys
from gnnloom.pipeline.external_sort.lanes import Lane, LaneSet, OpenFiles, writable
from gnnloom.pipeline.external_sort.radix import sort_keys, unique_keys
from gnnloom.pipeline.ingest.id_files import BLOCK_IDS, IdFile, LaneFiles, OpenIds
from gnnloom.pipeline.ingest.id_table import IdNumbers, IdTable
from gnnloom.pipeline.matrix_sort.scatter import range_facts
from gnnloom.pipeline.sources.source import EdgeChunk, EdgeSource, SourceRange
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.progress import Done
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.errors import CorruptError, InputError
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord
from gnnloom.storage.format.files import read_json, write_json

#: Ids that each file contributes to the sample. With 64 from each of F files, a range of ids is off its intended size
#: by about 1/sqrt(64 F) of all ids.
SAMPLES = 64

#: Approximate number of collected ids in a range of ids: 32 MiB, a second of work.
RANGE_IDS = 1 << 22

#: Minimum number of ids that a range takes from each file on average: 64 KiB. With fewer, merging would mostly search
#: for the ids of the range and wait for short reads.
FILE_RANGE_IDS = 1 << 13

#: Bytes per id of a file while its edges are renumbered: the id, its number, and an entry of a directory while it is
#: made.
FILE_ID_BYTES = 40

_FOLDER, _RANGES, _TABLE = "ids", "plan.json", "table.json"
#: Prefix of the names of the tasks that collect ids.
_COLLECT = "collect/"


@dataclass(frozen=True)
class CollectIdsTask:
    """Collects the ids of one range of the source.

    Attributes:
        memory: bytes that the worker may use.
        lane: where the files go, relative to the work folder.
    """

    writer: ArtifactWriter
    number: int
    source: EdgeSource
    range: SourceRange
    memory: int
    lane: Lane

    @property
    def name(self) -> str:
        return _collect_name(self.number)


def _collect_name(number: int) -> str:
    return f"{_COLLECT}{number:05d}"


@dataclass(frozen=True)
class MergeIdsTask:
    """Merges range ``number`` of the ids.

    Attributes:
        digest: digest of all ranges of ids.
        memory: bytes that the worker may use.
        lane: where the distinct ids go, relative to the work folder.
    """

    writer: ArtifactWriter
    number: int
    digest: str
    memory: int
    lane: Lane

    @property
    def name(self) -> str:
        return f"merge/{self.digest}-{self.number:05d}"


@dataclass(frozen=True)
class _IdRanges:
    """The collected ids, and how they are cut into ranges.

    Attributes:
        collected: (num_source_ranges) files of each range of the source.
        bounds: (num_ranges + 1) first id of each range, and one more than the highest id.
    """

    collected: list[LaneFiles]
    bounds: list[int]

    @classmethod
    def of(cls, records: Sequence[TaskRecord]) -> _IdRanges:
        """Cut the ids of these records by their samples."""
        collected = [LaneFiles.of(record.facts) for record in records]
        counts = [file.num_ids for file in chain.from_iterable(collected)]
        if not counts:
            raise InputError("the source has no edges")
        samples = np.sort([sample for record in records for ids in record.facts["samples"] for sample in ids])
        ranges = max(1, sum(counts) // range_ids(len(counts)))
        inner = np.unique(samples[np.arange(1, ranges) * len(samples) // ranges])
        inner = inner[inner > samples[0]]
        # The sample holds the lowest and the highest id of every file, so these bounds cover all ids.
        return cls(collected, [int(samples[0]), *inner.tolist(), int(samples[-1]) + 1])

    @property
    def digest(self) -> str:
        """Changes when a range of the source is collected again, so that an earlier merge is not used for it."""
        return xxhash.xxh3_64_hexdigest(json.dumps(self.to_json()).encode())

    def to_json(self) -> dict[str, Any]:
        return {"collected": [each.__dict__ for each in self.collected], "bounds": self.bounds}

    @classmethod
    def load(cls, folder: Path) -> _IdRanges:
        content: dict[str, Any] = read_json(folder / _RANGES)
        return cls([LaneFiles(**each) for each in content["collected"]], content["bounds"])

    def is_merged(self, work: Path) -> bool:
        """Whether an earlier run merged these ranges, and all that it left still exists."""
        folder = work / _FOLDER
        if not (folder / _TABLE).exists() or read_json(folder / _RANGES) != self.to_json():
            return False
        return IdTable.load(folder / _TABLE).is_intact(work)


def number_ids(writer: ArtifactWriter, source: EdgeSource, cluster: Cluster) -> NumberedIds:
    """Number the distinct ids of a source in ascending order, unless an earlier run has done so.

    Raises:
        InputError: the source cannot be read, has no edges or has a negative id.
    """
    folder = writer.work / _FOLDER
    ranges = _IdRanges.of(_collect(writer, source, cluster))
    # A range that was collected again has another lane: its ids must be merged again.
    if not ranges.is_merged(writer.work):
        # The table goes before its ranges are replaced: a kill between these lines leaves no table of other ranges.
        (folder / _TABLE).unlink(missing_ok=True)
        write_json(folder / _RANGES, ranges.to_json())
        IdTable.of(_merge(writer, ranges, cluster), ranges.bounds).save(folder / _TABLE)
    return NumberedIds(writer, source)


# Collecting


def _collect(writer: ArtifactWriter, source: EdgeSource, cluster: Cluster) -> list[TaskRecord]:
    ranges = source.ranges()
    lanes = LaneSet.create(writer.work, f"{_FOLDER}/collected", len(ranges))
    tasks = [
        CollectIdsTask(writer, number, source, source_range, cluster.memory, lanes.lane(number))
        for number, source_range in enumerate(ranges)
    ]
    return run_missing("collect", cluster, writer, collect_ids, tasks, is_usable=_is_collected)


def _is_collected(task: CollectIdsTask, record: TaskRecord) -> bool:
    # Earlier versions wrote no lanes.
    if "lane" not in record.facts or record.facts["range"] != range_facts(task.range):
        return False
    return LaneFiles.of(record.facts).is_intact(task.writer.work)


def collect_ids(task: CollectIdsTask) -> Done:
    """Write the sorted distinct ids of a range, as many at a time as fit in memory; returns its number of edges."""
    edges = end = 0
    with task.writer.task(task.name) as output, writable(task.writer.work, task.lane) as lane:
        files, samples = [], []
        for ids, count in _distinct_of_chunks(task):
            file = IdFile(task.lane, end, len(ids), count)
            lane.write(file.ids_at, ids)
            edges, end = edges + count, file.stop
            files.append([file.start, file.num_ids, file.num_edges])
            samples.append([*ids[:: max(1, len(ids) // SAMPLES)].tolist(), int(ids[-1])])
        output.facts = {
            "range": range_facts(task.range),
            "lane": task.lane.to_json(),
            "files": files,
            "samples": samples,
        }
    return Done(edges)


def file_edges(memory: int) -> int:
    """Edges whose ids are collected in one file, by a worker that may use ``memory`` bytes."""
    # A quarter of the memory for the ids and what they need when the edges are renumbered; the rest is for the chunk,
    # for the source's buffers and, then, for those of the sort.
    return working_memory(memory) // 4 // FILE_ID_BYTES // 2


def range_ids(num_files: int) -> int:
    """Approximate number of collected ids in a range of ids, if they are in this many files."""
    return max(RANGE_IDS, num_files * FILE_RANGE_IDS)


def _distinct_of_chunks(task: CollectIdsTask) -> Iterator[tuple[NDArray[np.uint64], int]]:
    """The sorted distinct ids of as many edges as fit in memory, and the number of these edges."""
    capacity = 2 * file_edges(task.memory)
    ids, spare = np.empty(capacity, dtype=np.uint64), np.empty(capacity, dtype=np.uint64)
    filled = 0
    for chunk in task.source.read(task.range):
        for start in range(0, len(chunk.source), capacity // 2):
            stop = min(start + capacity // 2, len(chunk.source))
            if filled + 2 * (stop - start) > capacity:
                yield _distinct(ids[:filled], spare), filled // 2
                filled = 0
            for column in (chunk.source, chunk.target):
                ids[filled : filled + stop - start] = column[start:stop]
                filled += stop - start
    if filled:
        yield _distinct(ids[:filled], spare), filled // 2


def _distinct(ids: NDArray[np.uint64], spare: NDArray[np.uint64]) -> NDArray[np.uint64]:
    none = np.empty(0, dtype=np.float32)
    # A negative id became one above 2^63 when it was stored as uint64.
    if int(ids.max()) > np.iinfo(np.int64).max:
        raise InputError(f"vertex id {ids.max().astype(np.int64)}: ids start at 0")
    sort_keys(ids, none, spare[: len(ids)], none, int(ids.max()).bit_length())
    return ids[: unique_keys(ids)]


# Merging


def _merge(writer: ArtifactWriter, ranges: _IdRanges, cluster: Cluster) -> list[TaskRecord]:
    digest, count = ranges.digest, len(ranges.bounds) - 1
    lanes = LaneSet.create(writer.work, f"{_FOLDER}/merged", count)
    tasks = [MergeIdsTask(writer, number, digest, cluster.memory, lanes.lane(number)) for number in range(count)]
    return run_missing("merge", cluster, writer, merge_ids, tasks, "ids", is_usable=_is_merged)


def _is_merged(task: MergeIdsTask, record: TaskRecord) -> bool:
    return Lane.from_json(record.facts["lane"]).is_intact(task.writer.work, 8 * record.facts["ids"])


@dataclass
class _Numbering:
    """A file while the ids of one range of ids are numbered: those from ``at`` to ``stop`` have no number yet.

    Attributes:
        last: last id of the range.
    """

    ids: OpenIds
    at: int
    stop: int
    last: int

    @classmethod
    def of(cls, file: IdFile, opened: OpenFiles, first: int, last: int) -> _Numbering:
        """The ids from ``first`` to ``last`` (inclusive)."""
        ids = OpenIds(file, opened)
        start = ids.rank(first, 0, file.num_ids)
        return cls(ids, start, ids.rank(last + 1, start, file.num_ids), last)

    def segment(self) -> Segment:
        return self.ids.segment(self.at, self.stop)

    def write(self, merged: SortedKeys, count: int) -> None:
        """Write the numbers of the ids among the merged ones, of which the first has the number ``count``."""
        is_last = merged.last_key == self.last
        until = self.stop if is_last else self.ids.rank(merged.last_key + 1, self.at, self.stop)
        for start in range(self.at, until, BLOCK_IDS):
            ids = self.ids.read(start, min(start + BLOCK_IDS, until))
            # Ranges of ids are ranges of every file, so no two tasks write the same bytes.
            self.ids.write_numbers(start, np.searchsorted(merged.keys, ids) + count)
        self.at = until


def merge_ids(task: MergeIdsTask) -> Done:
    """Write the sorted distinct ids of one range of ids, and their numbers; returns how many were collected in it."""
    work = task.writer.work
    ranges = _IdRanges.load(work / _FOLDER)
    first, last = ranges.bounds[task.number], ranges.bounds[task.number + 1] - 1
    with OpenFiles(work) as opened, task.writer.task(task.name) as output:
        every = (_Numbering.of(file, opened, first, last) for file in chain.from_iterable(ranges.collected))
        numbered = [each for each in every if each.at < each.stop]
        whole = KeyRange(first, last, [each.segment() for each in numbered])
        capacity = max(1, min(whole.entries, working_memory(task.memory) // 2 // 16))
        count = 0
        with writable(work, task.lane) as lane:
            for merged in KeySorter(work / _FOLDER, capacity, None).sort(whole):
                lane.write(8 * count, merged.keys)
                for each in numbered:
                    each.write(merged, count)
                count += len(merged.keys)
        output.facts = {"lane": task.lane.to_json(), "ids": count}
    return Done(whole.entries)


# Renumbering


@dataclass(frozen=True)
class NumberedIds:
    """The edges of a source with numbers for ids; implements :class:`~gnnloom.pipeline.sources.source.EdgeSource`.

    Its :meth:`ids` are the original ids, for :class:`~gnnloom.pipeline.matrix_sort.bucket_sort.BucketSort`.
    """

    writer: ArtifactWriter
    source: EdgeSource

    def _table(self) -> IdTable:
        return IdTable.load(self.writer.work / _FOLDER / _TABLE)

    def identity(self) -> dict[str, Any]:
        return {"format": "numbered ids"}

    def num_vertices(self) -> int | None:
        return self._table().num_ids

    def ids(self, start: int, stop: int) -> NDArray[np.int64]:
        """(stop - start,) int64 ids that have the numbers ``start`` to ``stop``."""
        return self._table().read_ids(self.writer.work, start, stop)

    def ranges(self) -> Sequence[SourceRange]:
        # An earlier run may have left records of more ranges than the source has now.
        names = [_collect_name(number) for number in range(len(self.source.ranges()))]
        found = self.writer.recorded_of(names)
        counts = [sum(file.num_edges for file in LaneFiles.of(found[name].facts)) for name in names]
        return [SourceRange(number, 0, count) for number, count in enumerate(counts)]

    def read(self, source_range: SourceRange) -> Iterator[EdgeChunk]:
        with OpenFiles(self.writer.work) as opened:
            yield from self._read(source_range, opened)

    def _read(self, source_range: SourceRange, opened: OpenFiles) -> Iterator[EdgeChunk]:
        work, table, name = self.writer.work, self._table(), _collect_name(source_range.file)
        record = self.writer.recorded_of([name])[name]
        files = iter(LaneFiles.of(record.facts))
        numbers: IdNumbers | None = None
        left = 0
        for chunk in self.source.read(SourceRange(*record.facts["range"])):
            start = 0
            while start < len(chunk.source):
                if numbers is None or not left:
                    # Dropped before the next is read: the memory is for the ids of one file.
                    numbers = None
                    file = next(files, None)
                    if file is None:
                        raise _changed(work, source_range, "more")
                    numbers, left = file.numbers(opened, table), file.num_edges
                stop = min(len(chunk.source), start + left)
                ends = (np.ascontiguousarray(ids[start:stop], np.int64) for ids in (chunk.source, chunk.target))
                source, target = (numbers.of(ids) for ids in ends)
                yield EdgeChunk(source, target, None if chunk.weight is None else chunk.weight[start:stop])
                left, start = left - (stop - start), stop
        if left or next(files, None) is not None:
            raise _changed(work, source_range, "fewer")


def _changed(work: Path, source_range: SourceRange, how: str) -> CorruptError:
    return CorruptError(
        f"{work}: range {source_range.file} of the source has {how} edges than when its ids were collected"
    )
