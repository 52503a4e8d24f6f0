"""Stores the vertex data of replicated types once for all ranks, and the rank that owns each vertex."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnnloom.pipeline.shards.rows.row_shuffles import RowPlaces
from gnnloom.pipeline.shards.shard_source import ShardSource
from gnnloom.pipeline.tasks.memory import MIB, WRITING_BYTES
from gnnloom.pipeline.tasks.phase import Needs, Phase, Task
from gnnloom.storage.disk.groups import write_group
from gnnloom.storage.format.arrays import create_array, default_chunk_rows, write_rows
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.matrix.ranges import Span
from gnnloom.storage.shards.typed_row_shards import OWNER, REPLICATED, replicated_folder

#: Bytes of an array that a task copies, about.
_COPIED_BYTES = 16 * MIB


@dataclass(frozen=True)
class ReplicateRowsTask(Task):
    """Copies some rows of an array of vertices.

    Attributes:
        source: artifact with the array.
        array: name of the array there.
        first: row of the array that the first vertex of the type has.
        rows: first and last (exclusive) vertex of the type to copy.
        target: path of the copy.
    """

    source: Path
    array: str
    first: int
    rows: Span
    target: str


@dataclass(frozen=True)
class _HeldArray:
    """An array of a replicated type; attributes as of :class:`ReplicateRowsTask`.

    Attributes:
        shape, dtype, dims: of the copy.
    """

    source: Path
    array: str
    first: int
    target: str
    shape: tuple[int, ...]
    dtype: str
    dims: tuple[str, ...]

    @property
    def chunk_rows(self) -> int:
        return default_chunk_rows(self.shape, np.dtype(self.dtype))

    def tasks(self, writer: ArtifactWriter) -> Iterator[ReplicateRowsTask]:
        """The tasks that copy it: whole chunks each, so that no chunk has two writers."""
        row = np.dtype(self.dtype).itemsize * math.prod(self.shape[1:])
        step = self.chunk_rows * max(1, _COPIED_BYTES // max(1, row * self.chunk_rows))
        for number, start in enumerate(range(0, self.shape[0], step)):
            rows = start, min(start + step, self.shape[0])
            size = row * (rows[1] - rows[0])
            needs, name = Needs(size, size, 1, 2 * size + WRITING_BYTES), f"{self.target}/{number:05d}"
            yield ReplicateRowsTask(writer, name, needs, self.source, self.array, self.first, rows, self.target)


def replicated_phases(source: ShardSource, places: RowPlaces) -> list[Phase]:
    """The phase that stores the rows of replicated types; none if there are none."""
    tasks = [task for each in _held_arrays(source, places) for task in each.tasks(places.writer)]
    return [Phase("replicate rows", replicate_rows, tasks, "vertices", makes_arrays=True)] if tasks else []


def create_replicated(source: ShardSource, places: RowPlaces) -> None:
    """Create the arrays that the tasks of the phase fill."""
    root = places.writer.path
    if source.replicated:
        write_group(root / REPLICATED, {})
    for number in source.replicated:
        write_group(root / replicated_folder(source.types[number].name), {})
    for each in _held_arrays(source, places):
        create_array(root, each.target, each.shape, each.dtype, each.dims)


def replicate_rows(task: ReplicateRowsTask) -> int:
    """Copy some rows; returns their number."""
    start, stop = task.rows
    with task.writer.task(task.name) as output:
        rows = Artifact(task.source).array(task.array).read(task.first + start, task.first + stop)
        output.add(write_rows(task.writer.path, task.target, start, rows))
    return stop - start


def _held_arrays(source: ShardSource, places: RowPlaces) -> Iterator[_HeldArray]:
    """The owner and the vertex data of each replicated type."""
    for number in source.replicated:
        each = source.types[number]
        folder, count = replicated_folder(each.name), each.count
        yield _HeldArray(places.partition, "part", each.first, f"{folder}{OWNER}", (count,), "int32", ("member",))
        path, dims = places.of_types.get(each.name, (Path(), {}))
        for name, (dtype, shape) in (each.vertices.types if each.vertices else {}).items():
            yield _HeldArray(path, name, 0, f"{folder}{name}", (count, *shape), dtype, dims.get(name, ()))
