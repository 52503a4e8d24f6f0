"""Numbers the distinct ids of a source by an external sort, for `--ids compact`.

Every range of the source leaves files of the sorted distinct ids of some of its edges (phase ``collect``). A sample of
those cuts the ids into ranges, which are merged; for every file, the merge leaves the number of each of its ids (phase
``merge``). The edges are then read again, those of one file at a time, and look their ids up among the ids of that file
only, never in a table of all ids.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.key_sorter import KeyRange, KeySorter, Segment, SortedKeys
from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.external_sort.radix import sort_keys, unique_keys
from gnnloom.pipeline.external_sort.raw_files import read_bytes, write_at, write_file
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

#: Minimum number of ids that a range takes from each file on average: 64 KiB, which take longer to read than a file
#: takes to open.
FILE_RANGE_IDS = 1 << 13

#: Bytes per id of a file while its edges are renumbered: the id, its number, and an entry of a directory while it is
#: made.
FILE_ID_BYTES = 40

_FOLDER, _RANGES, _TABLE = "ids", "plan.json", "table.json"
#: Prefix of the names of the tasks that collect ids.
_COLLECT = "collect/"


@dataclass(frozen=True)
class IdFile:
    """The sorted distinct ids of some consecutive edges of a range of the source.

    Attributes:
        path: path of the (num_ids,) int64 ids, relative to the work folder.
        num_edges: edges whose ids they are.
    """

    path: str
    num_ids: int
    num_edges: int

    @property
    def numbers_path(self) -> str:
        """Path of the (num_ids,) int64 numbers of the ids within their ranges of ids, once these are merged."""
        return f"{self.path}.numbers"

    def is_intact(self, work: Path) -> bool:
        """Whether both files exist in their full length."""
        try:
            sizes = {(work / path).stat().st_size for path in (self.path, self.numbers_path)}
        except FileNotFoundError:
            return False
        return sizes == {8 * self.num_ids}

    def mapped(self, work: Path) -> NDArray[np.uint64]:
        """The ids, mapped, so that binary searches read a few pages rather than the whole file."""
        return np.memmap(work / self.path, np.uint64, mode="r", shape=(self.num_ids,))

    def numbers(self, work: Path, table: IdTable) -> IdNumbers:
        """The ids with their numbers in the table."""
        ids, numbers = np.empty((2, self.num_ids), np.int64)
        read_bytes(work / self.path, 0, ids)
        read_bytes(work / self.numbers_path, 0, numbers)
        table.whole_numbers(ids, numbers)
        return IdNumbers(ids, numbers, work / self.path)


def _files(record: TaskRecord) -> list[IdFile]:
    """The files that a finished task wrote."""
    return [IdFile(*content) for content in record.facts["files"]]


@dataclass(frozen=True)
class CollectIdsTask:
    """Collects the ids of one range of the source."""

    writer: ArtifactWriter
    number: int
    source: EdgeSource
    range: SourceRange
    memory: int

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
    """

    writer: ArtifactWriter
    number: int
    digest: str
    memory: int

    @property
    def name(self) -> str:
        return f"merge/{self.digest}-{self.number:05d}"


@dataclass(frozen=True)
class _IdRanges:
    """The collected ids, and how they are cut into ranges.

    Attributes:
        files: path, number of ids and number of edges of every file.
        bounds: (num_ranges + 1) first id of each range, and one more than the highest id.
    """

    files: list[list[Any]]
    bounds: list[int]

    @classmethod
    def of(cls, records: Sequence[TaskRecord]) -> _IdRanges:
        """Cut the ids of these records by their samples."""
        files = [content for record in records for content in record.facts["files"]]
        if not files:
            raise InputError("the source has no edges")
        samples = np.sort([sample for record in records for ids in record.facts["samples"] for sample in ids])
        ranges = max(1, sum(count for _, count, _ in files) // range_ids(len(files)))
        inner = np.unique(samples[np.arange(1, ranges) * len(samples) // ranges])
        inner = inner[inner > samples[0]]
        # The sample holds the lowest and the highest id of every file, so these bounds cover all ids.
        return cls(files, [int(samples[0]), *inner.tolist(), int(samples[-1]) + 1])

    @property
    def digest(self) -> str:
        """Changes when a range of the source is collected again, so that an earlier merge is not used for it."""
        return xxhash.xxh3_64_hexdigest(json.dumps(asdict(self)).encode())

    @classmethod
    def load(cls, folder: Path) -> _IdRanges:
        return cls(**read_json(folder / _RANGES))


def number_ids(writer: ArtifactWriter, source: EdgeSource, cluster: Cluster) -> NumberedIds:
    """Number the distinct ids of a source in ascending order, unless an earlier run has done so.

    Raises:
        InputError: the source cannot be read, has no edges or has a negative id.
    """
    folder = writer.work / _FOLDER
    ranges = _IdRanges.of(_collect(writer, source, cluster))
    # A range that was collected again has other files: its ids must be merged again.
    if not (folder / _TABLE).exists() or _IdRanges.load(folder) != ranges:
        # The table goes before its ranges are replaced: a kill between these lines leaves no table of other ranges.
        (folder / _TABLE).unlink(missing_ok=True)
        write_json(folder / _RANGES, asdict(ranges))
        IdTable.of(_merge(writer, ranges, cluster), ranges.bounds).save(folder / _TABLE)
    return NumberedIds(writer, source)


# Collecting


def _collect(writer: ArtifactWriter, source: EdgeSource, cluster: Cluster) -> list[TaskRecord]:
    tasks = [
        CollectIdsTask(writer, number, source, source_range, cluster.memory)
        for number, source_range in enumerate(source.ranges())
    ]
    return run_missing("collect", cluster, writer, collect_ids, tasks, is_usable=_is_collected)


def _is_collected(task: CollectIdsTask, record: TaskRecord) -> bool:
    # Earlier versions left no numbers.
    if "files" not in record.facts or record.facts["range"] != range_facts(task.range):
        return False
    return all(file.is_intact(task.writer.work) for file in _files(record))


def collect_ids(task: CollectIdsTask) -> Done:
    """Write the sorted distinct ids of a range, as many at a time as fit in memory; returns its number of edges."""
    edges = 0
    with task.writer.task(task.name) as output:
        files, samples = [], []
        for ids, count in _distinct_of_chunks(task):
            edges += count
            # A random name, because a worker that was taken for dead may still be writing files for the same range.
            file = IdFile(f"{_FOLDER}/{task.number:05d}-{uuid.uuid4().hex}", len(ids), count)
            write_file(task.writer.work / file.path, [ids])
            # A hole of the right length, which the merge fills in.
            with (task.writer.work / file.numbers_path).open("wb") as numbers:
                numbers.truncate(8 * file.num_ids)
            files.append([file.path, file.num_ids, file.num_edges])
            samples.append([*ids[:: max(1, len(ids) // SAMPLES)].tolist(), int(ids[-1])])
        output.facts = {"range": range_facts(task.range), "files": files, "samples": samples}
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
    digest = ranges.digest
    tasks = [MergeIdsTask(writer, number, digest, cluster.memory) for number in range(len(ranges.bounds) - 1)]
    return run_missing("merge", cluster, writer, merge_ids, tasks, "ids")


@dataclass
class _Numbering:
    """A file while the ids of one range of ids are numbered: those from ``at`` to ``stop`` have no number yet."""

    file: IdFile
    work: Path
    ids: NDArray[np.uint64]
    at: int
    stop: int

    @classmethod
    def of(cls, file: IdFile, work: Path, first: int, last: int) -> _Numbering:
        """The ids from ``first`` to ``last`` (inclusive)."""
        ids = file.mapped(work)
        start, stop = np.searchsorted(ids, np.uint64(first)), np.searchsorted(ids, np.uint64(last), side="right")
        return cls(file, work, ids, int(start), int(stop))

    def segment(self, opened: OpenFiles) -> Segment:
        return Segment(opened.lane(Lane(self.file.path)), self.at, self.stop, 0, 0, None)

    def write(self, merged: SortedKeys, count: int) -> None:
        """Write the numbers of the ids among the merged ones, of which the first has the number ``count``."""
        until = self.at + int(np.searchsorted(self.ids[self.at : self.stop], np.uint64(merged.last_key), side="right"))
        if until > self.at:
            numbers = np.searchsorted(merged.keys, self.ids[self.at : until]) + count
            # Ranges of ids are ranges of every file, so no two tasks write the same bytes.
            with (self.work / self.file.numbers_path).open("r+b", buffering=0) as out:
                write_at(out.fileno(), 8 * self.at, numbers.astype(np.int64))
        self.at = until


def merge_ids(task: MergeIdsTask) -> Done:
    """Write the sorted distinct ids of one range of ids, and their numbers; returns how many were collected in it."""
    work = task.writer.work
    ranges = _IdRanges.load(work / _FOLDER)
    first, last = ranges.bounds[task.number], ranges.bounds[task.number + 1] - 1
    every = (_Numbering.of(IdFile(*content), work, first, last) for content in ranges.files)
    numbered = [each for each in every if each.at < each.stop]
    with OpenFiles(work) as opened, task.writer.task(task.name) as output:
        whole = KeyRange(first, last, [each.segment(opened) for each in numbered])
        capacity = max(1, min(whole.entries, working_memory(task.memory) // 2 // 16))
        path = f"{_FOLDER}/merged-{task.digest}-{task.number:05d}"
        temporary = work / f"{path}-{uuid.uuid4().hex}"
        count = 0
        with temporary.open("wb", buffering=0) as file:
            for merged in KeySorter(work / _FOLDER, capacity, None).sort(whole):
                write_at(file.fileno(), 8 * count, merged.keys)
                for each in numbered:
                    each.write(merged, count)
                count += len(merged.keys)
        # The rename comes before the record, so a recorded range has a complete file.
        temporary.replace(work / path)
        output.facts = {"path": path, "ids": count}
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
        counts = [sum(file.num_edges for file in _files(found[name])) for name in names]
        return [SourceRange(number, 0, count) for number, count in enumerate(counts)]

    def read(self, source_range: SourceRange) -> Iterator[EdgeChunk]:
        work, table, name = self.writer.work, self._table(), _collect_name(source_range.file)
        record = self.writer.recorded_of([name])[name]
        files = iter(_files(record))
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
                    numbers, left = file.numbers(work, table), file.num_edges
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
