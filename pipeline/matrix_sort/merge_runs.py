"""Between the passes of the bucket sort, if pass 1 left many files: merges, so that a row block opens few of them.

A row block needs the entries of its rows from every file. The number of blocks grows like the number of files F, so
about F^2 opens would each read fewer bytes as F grows. Groups of files are therefore merged by span of units of rows,
in as few levels as :func:`~gnnloom.pipeline.external_sort.merge_levels.merge_levels` allows. Merged files keep the
order of the source within each unit, so the matrix does not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.key_sorter import grouped
from gnnloom.pipeline.external_sort.lanes import Lane, LaneSet, LaneWriter, OpenFiles, writable
from gnnloom.pipeline.external_sort.merge_levels import Level, count_merges, merge_levels, merges
from gnnloom.pipeline.external_sort.spill import SpillFile, unit_shift
from gnnloom.pipeline.matrix_sort.file_rows import FileRows
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord
from gnnloom.storage.matrix.ranges import Span, split_range

#: Most files that one task opens. A row block of ``sort_plan.BLOCK_ENTRIES`` entries then reads 64 KiB or more from
#: each, which takes longer than opening it; one level of merges suffices for 2^18 files, some 10^12 entries.
FAN_IN = 512


@dataclass(frozen=True)
class MergeRunsTask:
    """Merges the entries of a span of units from some files.

    Attributes:
        files: the files, in the order of the source.
        units: first and last (exclusive) unit.
        num_vertices: rows and columns of the matrix.
        merged: name of the merged file.
        lane: where it goes, relative to the work folder.
        memory: bytes that the worker may use.
    """

    writer: ArtifactWriter
    files: tuple[SpillFile, ...]
    units: Span
    num_vertices: int
    merged: str
    lane: Lane
    memory: int

    @property
    def name(self) -> str:
        return f"merge/{self.merged}"

    @property
    def shift(self) -> int:
        return unit_shift(self.num_vertices - 1)

    @property
    def column_bits(self) -> int:
        return (self.num_vertices - 1).bit_length()


@dataclass(frozen=True)
class UnitFiles:
    """Spill files, and the units of rows that each may have entries of.

    Attributes:
        files: in the order of the source for every unit.
        units: (num_files) first and last (exclusive) unit of each.
    """

    files: list[SpillFile]
    units: list[Span]


def merge_runs(writer: ArtifactWriter, files: Sequence[SpillFile], num_vertices: int, cluster: Cluster) -> UnitFiles:
    """Merge spill files until a unit of rows has few of them.

    The files that are given stay, and so do those of levels in between: the caller needs them to continue after a kill,
    until it has stored the result. So every entry is on disk once for each level.
    """
    num_units = ((num_vertices - 1) >> unit_shift(num_vertices - 1)) + 1
    levels = merge_levels(len(files), FAN_IN)
    digest = xxhash.xxh3_64_hexdigest("".join(f"{file.lane} {file.start} " for file in files).encode())
    found = {(0, source): file for source, file in enumerate(files)}
    for level in levels[1:]:
        found = _merge_level(writer, levels, level, found, num_vertices, num_units, digest, cluster)
    spans = levels[-1].spans
    chosen = [(span, file) for (span, _), file in sorted(found.items()) if file.entries]
    return UnitFiles([file for _, file in chosen], [split_range(num_units, spans, span) for span, _ in chosen])


def _merge_level(
    writer: ArtifactWriter,
    levels: Sequence[Level],
    level: Level,
    found: dict[tuple[int, int], SpillFile],
    num_vertices: int,
    num_units: int,
    digest: str,
    cluster: Cluster,
) -> dict[tuple[int, int], SpillFile]:
    """Merge the files of the level before; returns those of this level, by span and number."""
    tasks: dict[tuple[int, int], MergeRunsTask] = {}
    lanes = LaneSet.create(writer.work, "spill/merged", count_merges(levels, level, num_units).tasks)
    for merge in merges(levels, level, num_units):
        group = (found[merge.span_before, source] for source in merge.group)
        files = tuple(file for file in group if file.entries)
        name = f"{digest}/{level.number}-{merge.span:06d}-{merge.source:06d}"
        lane = lanes.lane(len(tasks))
        task = MergeRunsTask(writer, files, merge.positions, num_vertices, name, lane, cluster.memory)
        tasks[merge.span, merge.source] = task
    records = run_missing("merge", cluster, writer, merge_files, list(tasks.values()), "entries", is_usable=_is_merged)
    return {at: _merged_file(record) for at, record in zip(tasks, records, strict=True)}


def _merged_file(record: TaskRecord) -> SpillFile:
    return SpillFile.from_json(record.facts["merged"])


def _is_merged(task: MergeRunsTask, record: TaskRecord) -> bool:
    return _merged_file(record).is_intact(task.writer.work)


def merge_files(task: MergeRunsTask) -> int:
    """Write one merged file; returns its number of entries."""
    with OpenFiles(task.writer.work) as opened, task.writer.task(task.name) as output:
        merged = _merge_files(task, opened)
        output.facts["merged"] = merged.to_json()
    return merged.entries


def _merge_files(task: MergeRunsTask, opened: OpenFiles) -> SpillFile:
    first, last = task.units
    files = [FileRows(opened, file, task.shift, task.column_bits, first, last) for file in task.files]
    sizes = np.zeros(last - first, np.int64)
    for rows in files:
        sizes += rows.unit_entries
    # Offsets of all units, including those before the span: the file is an ordinary spill file.
    offsets = np.zeros(last + 1, np.int64)
    np.cumsum(sizes, out=offsets[first + 1 :])
    weighted = any(file.weighted for file in task.files)
    merged = SpillFile(task.lane, 0, int(offsets[-1]), task.shift, task.column_bits, last, weighted)
    with writable(task.writer.work, task.lane) as out:
        out.write(0, offsets)
        done = 0
        for entries, weights in _entries(task, files, sizes):
            _write_entries(out, merged, done, entries, weights)
            done += len(entries)
    return merged


def _entries(
    task: MergeRunsTask, files: Sequence[FileRows], sizes: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.float32]]]:
    """The entries of the span and their weights, in consecutive blocks that fit in memory: unit by unit."""
    weighted = any(file.weighted for file in task.files)
    # A key and its spare, the encoded halves, and with weights two of these.
    capacity = max(1, min(working_memory(task.memory) // 2 // 32, int(sizes.sum())))
    keys, spare = np.empty(capacity, np.uint64), np.empty(capacity, np.uint64)
    weights, spare_weights = (np.empty(capacity if weighted else 0, np.float32) for _ in range(2))
    # A key counts its row from the first unit of the span; an entry from its own unit.
    mask = np.uint64((1 << (task.shift + task.column_bits)) - 1)
    for start, stop in grouped(sizes, capacity):
        count = int(sizes[start:stop].sum())
        segments = [rows.segment(start, stop) for rows in files]
        if count <= capacity:
            position = np.cumsum(sizes[start:stop]) - sizes[start:stop]
            for segment in segments:
                segment.gather(task.shift, position, keys[:count], weights[:count], (spare, spare_weights))
            yield keys[:count] & mask, weights[:count]
            continue
        # A single unit with more entries than fit: one file after another.
        for segment in segments:
            for begin in range(segment.start, segment.stop, capacity):
                part = replace(segment, start=begin, stop=min(begin + capacity, segment.stop))
                part.read(keys[: len(part)], weights[: len(part)], spare)
                yield keys[: len(part)] & mask, weights[: len(part)]


def _write_entries(
    out: LaneWriter, file: SpillFile, done: int, entries: NDArray[np.uint64], weights: NDArray[np.float32]
) -> None:
    """Write entries after the first ``done`` ones of a spill file."""
    out.write(file.low_at + 4 * done, entries.astype(np.uint32))
    if file.high_dtype is not None:
        high = (entries >> np.uint64(32)).astype(file.high_dtype)
        out.write(file.high_at + file.high_dtype.itemsize * done, high)
    if len(weights):
        out.write(file.weights_at + 4 * done, weights)


def remove_merged_runs(work: Path, files: Sequence[SpillFile], kept: Sequence[SpillFile]) -> None:
    """Remove the files of pass 1 that were merged into others."""
    for path in {file.lane.path for file in files} - {file.lane.path for file in kept}:
        (work / path).unlink(missing_ok=True)
