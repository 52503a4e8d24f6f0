"""Finds the distinct ids of a source by an external sort, for `--ids compact`.

Every range leaves the sorted distinct ids of its chunks (``collect``); ranges of ids, cut by a
sample of those, are merged (``distinct``) and put behind one another in a table (``number``).
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
from gnnloom.pipeline.matrix_sort.id_table import TableShape, allocate_table, is_published, place_ids, publish_table
from gnnloom.pipeline.sources.source import EdgeSource, SourceRange
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.progress import Done, logged
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord
from gnnloom.storage.format.files import read_json, write_json

#: Ids that a run gives to the sample which cuts the ranges of ids.
SAMPLES = 64

#: Collected ids of a range of ids, about.
RANGE_IDS = 1 << 22


@dataclass(frozen=True)
class CollectTask:
    """Collects the ids of one range of the source."""

    writer: ArtifactWriter
    number: int
    source: EdgeSource
    part: SourceRange
    memory: int


@dataclass(frozen=True)
class MergeTask:
    """Merges range ``number`` of the ids."""

    writer: ArtifactWriter
    number: int
    memory: int


@dataclass(frozen=True)
class PlaceTask:
    """Puts the ids of one file into the table."""

    folder: Path
    shape: TableShape
    file: Path
    count: int
    position: int
    previous: int


@dataclass(frozen=True)
class _MergePlan:
    """What was collected, and how it is cut into ranges of ids.

    Attributes:
        runs: path (within the work folder) and number of ids of every file of sorted distinct ids.
        bounds: (num_ranges + 1) first ids of the ranges, and one more than the highest id.
    """

    runs: list[tuple[str, int]]
    bounds: list[int]

    @classmethod
    def load(cls, folder: Path) -> _MergePlan:
        return cls(**read_json(folder / "merge.json"))


def find_distinct_ids(writer: ArtifactWriter, source: EdgeSource, cluster: Cluster) -> None:
    """Make the table of a source's distinct ids in the work folder of an artifact (``ids``).

    Raises:
        InputError: the source's; or it has no edges.
    """
    folder = id_folder(writer)
    if is_published(folder):
        return
    if not (folder / "merge.json").exists():
        write_json(folder / "merge.json", asdict(_merge_plan(_collect(writer, source, cluster))))
    _place(writer, _merge(writer, cluster), cluster)


def id_folder(writer: ArtifactWriter) -> Path:
    """Where the table of an artifact's ids is made."""
    return writer.work / "ids"


def _collect(writer: ArtifactWriter, source: EdgeSource, cluster: Cluster) -> list[TaskRecord]:
    ranges = source.ranges()
    names = [f"collect/{number:05d}" for number in range(len(ranges))]
    recorded = writer.recorded("collect/")
    tasks = [
        CollectTask(writer, number, source, part, cluster.memory)
        for number, part in enumerate(ranges)
        if names[number] not in recorded or recorded[names[number]].facts["range"] != [part.file, part.start, part.stop]
    ]
    for _ in logged("collect", cluster.map(collect_ids, tasks), len(tasks)):
        pass
    recorded = writer.recorded("collect/")
    return [recorded[name] for name in names]


def collect_ids(task: CollectTask) -> Done:
    """Write the distinct ids of a range, sorted, as many at a time as fit the memory; returns its number of edges."""
    edges = 0
    with task.writer.task(f"collect/{task.number:05d}") as output:
        runs, samples = [], []
        for ids, count in _distinct_of_chunks(task):
            edges += count
            path = f"ids/{task.number:05d}-{uuid.uuid4().hex}"
            write_file(task.writer.work / path, [ids])
            runs.append([path, len(ids)])
            samples.append([*ids[:: max(1, len(ids) // SAMPLES)].tolist(), int(ids[-1])])
        part = task.part
        output.facts = {"range": [part.file, part.start, part.stop], "runs": runs, "samples": samples}
    return Done(edges)


def _distinct_of_chunks(task: CollectTask) -> Iterator[tuple[NDArray[np.uint64], int]]:
    """Sorted distinct ids, and the number of edges that they are of, for groups of chunks that fit the memory."""
    capacity = working_memory(task.memory) // 4 // 16
    ids, spare = np.empty(capacity, dtype=np.uint64), np.empty(capacity, dtype=np.uint64)
    filled = 0
    for chunk in task.source.read(task.part):
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
    if int(ids.max()) > np.iinfo(np.int64).max:
        raise InputError(f"vertex id {ids.max().astype(np.int64)}: ids start at 0")
    sort_keys(ids, none, spare[: len(ids)], none, int(ids.max()).bit_length())
    return ids[: unique_keys(ids)]


def _merge_plan(records: Sequence[TaskRecord]) -> _MergePlan:
    runs = [(path, count) for record in records for path, count in record.facts["runs"]]
    if not runs:
        raise InputError("the source has no edges")
    samples = np.sort([sample for record in records for run in record.facts["samples"] for sample in run])
    ranges = max(1, sum(count for _, count in runs) // RANGE_IDS)
    inner = np.unique(samples[np.arange(1, ranges) * len(samples) // ranges])
    inner = inner[inner > samples[0]]
    return _MergePlan(runs, [int(samples[0]), *inner.tolist(), int(samples[-1]) + 1])


def _merge(writer: ArtifactWriter, cluster: Cluster) -> list[TaskRecord]:
    names = [f"merge/{number:05d}" for number in range(len(_MergePlan.load(id_folder(writer)).bounds) - 1)]
    recorded = writer.recorded("merge/")
    tasks = [MergeTask(writer, number, cluster.memory) for number, name in enumerate(names) if name not in recorded]
    for _ in logged("merge", cluster.map(merge_ids, tasks), len(tasks), "ids"):
        pass
    recorded = writer.recorded("merge/")
    return [recorded[name] for name in names]


def merge_ids(task: MergeTask) -> Done:
    """Write the distinct ids of one range of ids, sorted; returns how many were collected there."""
    plan = _MergePlan.load(id_folder(task.writer))
    first, last = plan.bounds[task.number], plan.bounds[task.number + 1] - 1
    segments = [_segment(task.writer.work / path, count, first, last) for path, count in plan.runs]
    whole = KeyRange(first, last, segments)
    capacity = max(1, min(whole.entries, working_memory(task.memory) // 2 // 16))
    with task.writer.task(f"merge/{task.number:05d}") as output:
        path = f"ids/merged-{task.number:05d}"
        temporary = task.writer.work / f"{path}-{uuid.uuid4().hex}"
        count, highest = 0, -1
        with temporary.open("wb", buffering=0) as file:
            for piece in KeySorter(task.writer.work / "ids", capacity, None).slices(whole):
                write_at(file.fileno(), 8 * count, piece.keys)
                count += len(piece.keys)
                highest = int(piece.keys[-1]) if len(piece.keys) else highest
        temporary.replace(task.writer.work / path)
        output.facts = {"path": path, "ids": count, "highest": highest}
    return Done(whole.entries)


def _segment(path: Path, count: int, first: int, last: int) -> Segment:
    """The part of a file of sorted ids that lies between two ids."""
    ids = np.memmap(path, np.int64, mode="r", shape=(count,))
    start, stop = np.searchsorted(ids, first), np.searchsorted(ids, last, side="right")
    return Segment(path, int(start), int(stop), 0, 0, None)


def _place(writer: ArtifactWriter, records: Sequence[TaskRecord], cluster: Cluster) -> None:
    folder = id_folder(writer)
    filled = [record.facts for record in records if record.facts["ids"]]
    shape = TableShape(sum(facts["ids"] for facts in filled), filled[-1]["highest"])
    allocate_table(folder, shape)
    tasks, position, previous = [], 0, -1
    for facts in filled:
        tasks.append(PlaceTask(folder, shape, writer.work / facts["path"], facts["ids"], position, previous))
        position, previous = position + facts["ids"], facts["highest"]
    for _ in logged("number", cluster.map(place_piece, tasks), len(tasks), "ids"):
        pass
    publish_table(folder, shape)


def place_piece(task: PlaceTask) -> Done:
    """Copy merged ids to their place in the table."""
    ids = np.empty(task.count, dtype=np.int64)
    read_bytes(task.file, 0, ids)
    place_ids(task.folder, task.shape, ids, task.position, task.previous)
    return Done(task.count)
