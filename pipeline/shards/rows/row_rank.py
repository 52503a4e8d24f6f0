"""Second pass of the row shards: renumber one rank's matrices and write them with its vertex data.

Memory holds the rank's own vertices, its halo and one segment of rows; never the whole shard. If vertices are
reordered, rows wait in temporary files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.shards.rows.row_halo import Halo, find_halo, route_halo
from gnnloom.pipeline.shards.rows.row_order import OwnRows, reordered_rows, reordered_segments
from gnnloom.pipeline.shards.rows.row_routed import RoutedMatrix, RoutedRank, RoutedVertices, RowSegment
from gnnloom.pipeline.shuffle.mapped_vectors import map_vector
from gnnloom.storage.artifacts.csr_group import write_csr_group
from gnnloom.storage.format.arrays import ArrayAppender, ArrayRecord, write_array
from gnnloom.storage.format.groups import write_group
from gnnloom.storage.matrix.csr import index_dtype


@dataclass(frozen=True)
class ShardRankTask(RoutedRank):
    """Writes the shard of one rank, except for its send lists.

    Attributes:
        halo_lanes: where the halo of each matrix goes.
    """

    halo_lanes: tuple[Lane, ...]


def shard_rank(task: ShardRankTask) -> int:
    """Write one rank's vertices, matrices, halos and vertex data; returns its number of vertices."""
    with OpenFiles(task.writer.work) as files, task.writer.task(task.name) as output:
        root = task.writer.path
        own = OwnRows.of(*task.own_vertices(files), task.reorder)
        write_group(root / task.folder, {"rank": task.rank, "num_parts": task.num_parts, "num_own": len(own)})
        output.add(write_array(root, f"{task.folder}/vertex", own.vertex, ("row",)))
        part = map_vector(task.part_path)
        for matrix, lane in zip(task.matrices, task.halo_lanes, strict=True):
            records, halo = _write_matrix(task, files, matrix, own, part)
            for record in records:
                output.add(record)
            with matrix.halo.routed(output, lane) as out:
                route_halo(out, halo, task.rank)
        if task.vertices is not None:
            for name in task.vertices.dims:
                output.add(_write_vertex_array(task, files, task.vertices, name, own))
    return len(own)


def _write_vertex_array(
    task: ShardRankTask, files: OpenFiles, vertices: RoutedVertices, name: str, own: OwnRows
) -> ArrayRecord:
    path, column = f"{task.folder}/{name}", next(each for each in vertices.rows.columns if each.name == name)
    shape, dims = (len(own), *column.trailing), vertices.dims[name]
    appender = ArrayAppender(task.writer.path, path, shape, column.dtype, dims)
    rows = task.vertex_rows(files, vertices, name)
    for part in rows if own.order is None else reordered_rows(rows, own.order, task.writer.work):
        appender.append(part)
    return appender.close()


def _write_matrix(
    task: ShardRankTask, files: OpenFiles, matrix: RoutedMatrix, own: OwnRows, part: NDArray[np.int32]
) -> tuple[list[ArrayRecord], Halo]:
    """Write the own and the halo matrix, and the halo; returns the arrays, and the halo."""
    halo, own_nonzeros, halo_nonzeros = find_halo(task.segments(files, matrix), part, task.rank, task.num_parts)
    root, prefix = task.writer.path, f"{task.folder}/{matrix.prefix}"
    if matrix.prefix:
        write_group(root / prefix, {})
    own_out = _MatrixAppender(root, f"{prefix}own", (len(own), len(own)), own_nonzeros, matrix.data_dtype)
    halo_out = _MatrixAppender(root, f"{prefix}halo", (len(own), len(halo.vertex)), halo_nonzeros, matrix.data_dtype)
    local, segments = own.numbering(), task.segments(files, matrix)
    # A second reading of the rows: local column numbers are known only now that the halo is complete.
    for segment in segments if own.order is None else reordered_segments(segments, own.order, task.writer.work):
        mine = part[segment.indices] == task.rank
        own_out.append(segment, mine, local(segment.indices[mine]))
        halo_out.append(segment, ~mine, halo.local_columns(segment.indices[~mine]))
    records = [
        *own_out.close(),
        *halo_out.close(),
        write_array(root, f"{prefix}halo_vertex", halo.vertex, ("halo",)),
        write_array(root, f"{prefix}halo_offset", halo.offset, ("part+1",)),
    ]
    return records, halo


class _MatrixAppender:
    """Writes one CSR matrix of a shard from segments of rows, and the attributes of its group."""

    def __init__(
        self, root: Path, path: str, shape: tuple[int, int], num_nonzeros: int, data_dtype: str | None
    ) -> None:
        write_csr_group(root / path, shape, num_nonzeros)
        self._dtype, self._width = index_dtype(shape[1]), max(1, shape[1])
        self._indptr = ArrayAppender(root, f"{path}/indptr", (shape[0] + 1,), np.int64, ("row+1",))
        self._indices = ArrayAppender(root, f"{path}/indices", (num_nonzeros,), self._dtype, ("nonzero",))
        self._data = None
        if data_dtype is not None:
            self._data = ArrayAppender(root, f"{path}/data", (num_nonzeros,), data_dtype, ("nonzero",))
        self._count = 0
        self._indptr.append(np.zeros(1, dtype=np.int64))

    def append(self, segment: RowSegment, chosen: NDArray[np.bool_], column: NDArray[np.int64]) -> None:
        """Add the chosen nonzeros of a segment's rows, sorting them by column within each row.

        Args:
            chosen: (nnz of the segment,) whether each nonzero belongs to this matrix.
            column: (num_chosen,) int64 local columns.
        """
        row = np.repeat(np.arange(len(segment.row)), segment.nonzeros)[chosen]
        end = self._count + np.cumsum(np.bincount(row, minlength=len(segment.row)))
        # Halo numbers follow the owners and not the global ids, and own ones may be reordered: rows are sorted again.
        # Sorting by one key is faster than by two, and fastest if rows ascend already, as own ones do unless reordered.
        order = np.argsort(row * self._width + column, kind="stable")
        self._indptr.append(end)
        self._indices.append(column[order].astype(self._dtype))
        if self._data is not None and segment.data is not None:
            self._data.append(segment.data[chosen][order])
        self._count += len(column)

    def close(self) -> list[ArrayRecord]:
        """Finish the arrays and return their records."""
        appenders = (self._indptr, self._indices, self._data)
        return [appender.close() for appender in appenders if appender is not None]
