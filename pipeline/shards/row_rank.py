"""Second pass of the row shards: one rank's matrices, renumbered, from what was routed to it.

Memory holds the rank's own vertices, its halo and a segment of rows; never the shard.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.shards.part_file import PartColumn, part_offsets, write_part_file
from gnnloom.pipeline.shards.row_routing import (
    RoutedMatrix,
    RoutedVertexArray,
    RowSegment,
    routed_rows,
    routed_segments,
    routed_vertex_array,
)
from gnnloom.storage.artifacts.csr_group import write_csr_group
from gnnloom.storage.format.arrays import ArrayAppender, ArrayRecord, write_array
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.format.groups import write_group
from gnnloom.storage.format.memory_map import map_part_vector
from gnnloom.storage.matrix.csr import index_dtype

#: Halo candidates that may wait before they are merged.
_PENDING_IDS = 1 << 20


@dataclass(frozen=True)
class RankTask:
    """All that makes the shard of one rank; ``matrices`` are the adjacency and, if directed, its transpose."""

    writer: ArtifactWriter
    part_path: Path
    num_parts: int
    rank: int
    matrices: tuple[RoutedMatrix, ...]
    vertex_arrays: tuple[RoutedVertexArray, ...]

    @property
    def folder(self) -> str:
        return f"row/{self.rank:05d}"

    def own_vertices(self) -> NDArray[np.int64]:
        """(num_own,) int64 global ids, ascending."""
        return routed_rows(self.writer.work, self.matrices[0], self.rank)

    def segments(self, matrix: RoutedMatrix) -> Iterator[RowSegment]:
        """The rank's rows of a matrix in ascending order."""
        return routed_segments(self.writer.work, matrix, self.rank)


@dataclass(frozen=True)
class Halo:
    """Vertices of other ranks that a rank's rows refer to.

    Attributes:
        vertex: (num_halo,) int64 global ids, ordered by owner, then id.
        offset: (num_parts + 1,) int64; those of owner p are vertex[offset[p]:offset[p + 1]].
        ascending: (num_halo,) int64 the ids in ascending order.
        place: (num_halo,) int64 the position in ``vertex`` of each of ``ascending``.
    """

    vertex: NDArray[np.int64]
    offset: NDArray[np.int64]
    ascending: NDArray[np.int64]
    place: NDArray[np.int64]

    @classmethod
    def of(cls, ascending: NDArray[np.int64], owner: NDArray[np.int32], num_parts: int) -> Halo:
        order = np.argsort(owner, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return cls(ascending[order], part_offsets(owner, num_parts), ascending, place)


def halo_file(work: Path, kind: str, rank: int) -> Path:
    """Spill file that tells the third pass which vertices a rank needs, sorted by their owner."""
    return work / f"halo-{kind}" / f"{rank:05d}"


def shard_rank(task: RankTask) -> int:
    """Write all of one rank's shard but its send lists; returns its number of vertices."""
    with task.writer.task(task.folder) as output:
        root = task.writer.path
        vertex = task.own_vertices()
        write_group(root / task.folder, {"rank": task.rank, "num_parts": task.num_parts, "num_own": len(vertex)})
        output.add(write_array(root, f"{task.folder}/vertex", vertex, ("row",)))
        part = map_part_vector(task.part_path)
        for matrix in task.matrices:
            for record in _write_matrix(task, matrix, vertex, part):
                output.add(record)
        for array in task.vertex_arrays:
            output.add(_write_vertex_array(task, array, len(vertex)))
    return len(vertex)


def _write_vertex_array(task: RankTask, array: RoutedVertexArray, num_own: int) -> ArrayRecord:
    path = f"{task.folder}/{array.name}"
    appender = ArrayAppender(task.writer.path, path, (num_own, *array.width), array.dtype, array.dims)
    for rows in routed_vertex_array(task.writer.work, array, task.rank):
        appender.append(rows)
    return appender.close()


def _write_matrix(
    task: RankTask, matrix: RoutedMatrix, vertex: NDArray[np.int64], part: NDArray[np.int32]
) -> list[ArrayRecord]:
    """The own and the halo part of one matrix, and the halo; the halo also as a spill file for the third pass."""
    halo, own_nonzeros, halo_nonzeros = _find_halo(task, matrix, part)
    root, prefix = task.writer.path, f"{task.folder}/{matrix.prefix}"
    if matrix.prefix:
        write_group(root / prefix, {})
    own_out = _MatrixAppender(root, f"{prefix}own", (len(vertex), len(vertex)), own_nonzeros, matrix.data_dtype)
    halo_out = _MatrixAppender(root, f"{prefix}halo", (len(vertex), len(halo.vertex)), halo_nonzeros, matrix.data_dtype)
    for segment in task.segments(matrix):
        mine = part[segment.indices] == task.rank
        own_out.append(segment, mine, np.searchsorted(vertex, segment.indices[mine]))
        halo_out.append(segment, ~mine, halo.place[np.searchsorted(halo.ascending, segment.indices[~mine])])
    write_part_file(halo_file(task.writer.work, matrix.kind, task.rank), [PartColumn(halo.vertex, halo.offset)])
    return [
        *own_out.close(),
        *halo_out.close(),
        write_array(root, f"{prefix}halo_vertex", halo.vertex, ("halo",)),
        write_array(root, f"{prefix}halo_offset", halo.offset, ("part+1",)),
    ]


def _find_halo(task: RankTask, matrix: RoutedMatrix, part: NDArray[np.int32]) -> tuple[Halo, int, int]:
    """The halo of one matrix, and how many nonzeros have own and halo columns."""
    merged = np.empty(0, dtype=np.int64)
    waiting: list[NDArray[np.int64]] = []
    own_nonzeros = halo_nonzeros = num_waiting = 0
    for segment in task.segments(matrix):
        foreign = segment.indices[part[segment.indices] != task.rank]
        halo_nonzeros += len(foreign)
        own_nonzeros += len(segment.indices) - len(foreign)
        waiting.append(np.unique(foreign).astype(np.int64))
        num_waiting += len(waiting[-1])
        # Merging only once as many wait as were merged sorts each id a few times at most.
        if num_waiting > max(_PENDING_IDS, len(merged)):
            merged, waiting, num_waiting = np.unique(np.concatenate([merged, *waiting])), [], 0
    merged = np.unique(np.concatenate([merged, *waiting]))
    return Halo.of(merged, part[merged], task.num_parts), own_nonzeros, halo_nonzeros


class _MatrixAppender:
    """Writes one CSR matrix of a shard from segments of rows, with its group's attributes."""

    def __init__(
        self, root: Path, path: str, shape: tuple[int, int], num_nonzeros: int, data_dtype: str | None
    ) -> None:
        write_csr_group(root / path, shape, num_nonzeros)
        self._dtype = index_dtype(shape[1])
        self._indptr = ArrayAppender(root, f"{path}/indptr", (shape[0] + 1,), np.int64, ("row+1",))
        self._indices = ArrayAppender(root, f"{path}/indices", (num_nonzeros,), self._dtype, ("nonzero",))
        self._data = None
        if data_dtype is not None:
            self._data = ArrayAppender(root, f"{path}/data", (num_nonzeros,), data_dtype, ("nonzero",))
        self._count = 0
        self._indptr.append(np.zeros(1, dtype=np.int64))

    def append(self, segment: RowSegment, chosen: NDArray[np.bool_], column: NDArray[np.int64]) -> None:
        """Add the chosen nonzeros of a segment's rows, with local columns ``column``; sorts them within each row."""
        row = np.repeat(np.arange(len(segment.row)), segment.nonzeros)[chosen]
        end = self._count + np.cumsum(np.bincount(row, minlength=len(segment.row)))
        order = np.lexsort((column, row))
        self._indptr.append(end)
        self._indices.append(column[order].astype(self._dtype))
        if self._data is not None and segment.data is not None:
            self._data.append(segment.data[chosen][order])
        self._count += len(column)

    def close(self) -> list[ArrayRecord]:
        appenders = (self._indptr, self._indices, self._data)
        return [appender.close() for appender in appenders if appender is not None]
