"""Finds the distinct ids of a source by an external sort, for `--ids compact`.

Every range of the source leaves files of the sorted distinct ids of its chunks (phase ``collect``). A sample of those
cuts the ids into ranges, which are merged (phase ``merge``) and copied one after another into a table (phase
``number``).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.key_sorter import KeyRange, KeySorter, Segment
from gnnloom.pipeline.external_sort.radix import sort_keys, unique_keys
from gnnloom.pipeline.external_sort.spill import read_bytes, write_at, write_file
from gnnloom.pipeline.ingest.id_table import (
    CompactIds,
    TableShape,
    allocate_table,
    is_published,
    publish_table,
    write_ids,
)
from gnnloom.pipeline.matrix_sort.scatter import range_facts
from gnnloom.pipeline.sources.source import EdgeSource, SourceRange
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.progress import Done
from gnnloom.pipeline.tasks.run_missing import run_all, run_missing
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord
from gnnloom.storage.format.files import read_json, write_json

#: Ids that each file contributes to the sample. With 64 from each of F files, a range of ids is off its intended size
#: by about 1/sqrt(64 F) of all ids.
SAMPLES = 64

#: Approximate number of collected ids in a range of ids: 32 MiB, a second of work.
RANGE_IDS = 1 << 22


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
        return f"collect/{self.number:05d}"


@dataclass(frozen=True)
class MergeIdsTask:
    """Merges range ``number`` of the ids."""

    writer: ArtifactWriter
    number: int
    memory: int

    @property
    def name(self) -> str:
        return f"merge/{self.number:05d}"


@dataclass(frozen=True)
class CopyIdsTask:
    """Copies the ids of one file into the table.

    Attributes:
        folder: folder of the table.
        shape: size of the table.
        file: (count,) int64 merged ids, ascending.
        count: number of ids in the file.
        position: position of the first of them in the table.
        previous: id before the first of them; -1 if there is none.
    """

    folder: Path
    shape: TableShape
    file: Path
    count: int
    position: int
    previous: int


@dataclass(frozen=True)
class _IdRanges:
    """The collected ids, and how they are cut into ranges.

    Attributes:
        runs: path (within the work folder) and number of ids of every file of sorted distinct ids.
        bounds: (num_ranges + 1) first id of each range, and one more than the highest id.
    """

    runs: list[tuple[str, int]]
    bounds: list[int]

    @classmethod
    def load(cls, folder: Path) -> _IdRanges:
        return cls(**read_json(folder / "merge.json"))


def find_distinct_ids(writer: ArtifactWriter, source: EdgeSource, cluster: Cluster) -> CompactIds:
    """Make, finish or find the table of a source's distinct ids in the work folder of an artifact.

    Raises:
        InputError: the source cannot be read, has no edges or has a negative id.
    """
    folder = writer.work / "ids"
    if not is_published(folder):
        if not (folder / "merge.json").exists():
            # The file fixes the ranges of ids, to which the records of the merge refer by number: it is written once.
            write_json(folder / "merge.json", asdict(_cut_ids(_collect(writer, source, cluster))))
        _fill_table(writer, _merge(writer, cluster), cluster)
    return CompactIds(folder)


# Collecting


def _collect(writer: ArtifactWriter, source: EdgeSource, cluster: Cluster) -> list[TaskRecord]:
    tasks = [
        CollectIdsTask(writer, number, source, source_range, cluster.memory)
        for number, source_range in enumerate(source.ranges())
    ]
    return run_missing("collect", cluster, writer, collect_ids, tasks, is_usable=_is_collected)


def _is_collected(task: CollectIdsTask, record: TaskRecord) -> bool:
    found: bool = record.facts["range"] == range_facts(task.range)
    return found


def collect_ids(task: CollectIdsTask) -> Done:
    """Write the sorted distinct ids of a range, as many at a time as fit in memory; returns its number of edges."""
    edges = 0
    with task.writer.task(task.name) as output:
        files, samples = [], []
        for ids, count in _distinct_of_chunks(task):
            edges += count
            # A random name, because a worker that was taken for dead may still be writing files for the same range.
            path = f"ids/{task.number:05d}-{uuid.uuid4().hex}"
            write_file(task.writer.work / path, [ids])
            files.append([path, len(ids)])
            samples.append([*ids[:: max(1, len(ids) // SAMPLES)].tolist(), int(ids[-1])])
        output.facts = {"range": range_facts(task.range), "runs": files, "samples": samples}
    return Done(edges)


def _distinct_of_chunks(task: CollectIdsTask) -> Iterator[tuple[NDArray[np.uint64], int]]:
    """The sorted distinct ids of as many edges as fit in memory, and the number of these edges."""
    # A quarter of the memory for the ids and their spare copy; the rest is for the chunk and the source's buffers.
    capacity = working_memory(task.memory) // 4 // 16
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


def _cut_ids(records: Sequence[TaskRecord]) -> _IdRanges:
    files = [(path, count) for record in records for path, count in record.facts["runs"]]
    if not files:
        raise InputError("the source has no edges")
    samples = np.sort([sample for record in records for ids in record.facts["samples"] for sample in ids])
    ranges = max(1, sum(count for _, count in files) // RANGE_IDS)
    inner = np.unique(samples[np.arange(1, ranges) * len(samples) // ranges])
    inner = inner[inner > samples[0]]
    # The sample holds the lowest and the highest id of every file, so these bounds cover all ids.
    return _IdRanges(files, [int(samples[0]), *inner.tolist(), int(samples[-1]) + 1])


def _merge(writer: ArtifactWriter, cluster: Cluster) -> list[TaskRecord]:
    ranges = _IdRanges.load(writer.work / "ids")
    tasks = [MergeIdsTask(writer, number, cluster.memory) for number in range(len(ranges.bounds) - 1)]
    return run_missing("merge", cluster, writer, merge_ids, tasks, "ids")


def merge_ids(task: MergeIdsTask) -> Done:
    """Write the sorted distinct ids of one range of ids; returns how many were collected in it."""
    folder = task.writer.work / "ids"
    ranges = _IdRanges.load(folder)
    first, last = ranges.bounds[task.number], ranges.bounds[task.number + 1] - 1
    segments = [_segment(task.writer.work / path, count, first, last) for path, count in ranges.runs]
    whole = KeyRange(first, last, segments)
    capacity = max(1, min(whole.entries, working_memory(task.memory) // 2 // 16))
    with task.writer.task(task.name) as output:
        path = f"ids/merged-{task.number:05d}"
        temporary = task.writer.work / f"{path}-{uuid.uuid4().hex}"
        count, highest = 0, -1
        with temporary.open("wb", buffering=0) as file:
            for merged in KeySorter(folder, capacity, None).sort(whole):
                write_at(file.fileno(), 8 * count, merged.keys)
                count += len(merged.keys)
                highest = int(merged.keys[-1]) if len(merged.keys) else highest
        # The rename comes before the record, so a recorded range has a complete file.
        temporary.replace(task.writer.work / path)
        output.facts = {"path": path, "ids": count, "highest": highest}
    return Done(whole.entries)


def _segment(path: Path, count: int, first: int, last: int) -> Segment:
    """The ids from ``first`` to ``last`` (inclusive) in a file of sorted ids."""
    # Mapped, so that the binary searches read a few pages and not the file.
    ids = np.memmap(path, np.int64, mode="r", shape=(count,))
    start, stop = np.searchsorted(ids, first), np.searchsorted(ids, last, side="right")
    return Segment(path, int(start), int(stop), 0, 0, None)


# Filling the table


def _fill_table(writer: ArtifactWriter, records: Sequence[TaskRecord], cluster: Cluster) -> None:
    folder = writer.work / "ids"
    # The tasks need the last id before their own, which a range without ids cannot give.
    filled = [record.facts for record in records if record.facts["ids"]]
    shape = TableShape(sum(facts["ids"] for facts in filled), filled[-1]["highest"])
    allocate_table(folder, shape)
    tasks, position, previous = [], 0, -1
    for facts in filled:
        tasks.append(CopyIdsTask(folder, shape, writer.work / facts["path"], facts["ids"], position, previous))
        position, previous = position + facts["ids"], facts["highest"]
    # These tasks leave no record: they are short, and writing the same bytes twice is harmless.
    run_all("number", cluster, copy_ids, tasks, "ids")
    publish_table(folder, shape)


def copy_ids(task: CopyIdsTask) -> Done:
    """Copy merged ids to their positions in the table; returns their number."""
    ids = np.empty(task.count, dtype=np.int64)
    read_bytes(task.file, 0, ids)
    write_ids(task.folder, task.shape, ids, task.position, task.previous)
    return Done(task.count)
