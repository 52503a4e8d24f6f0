"""First pass of the row shards: what the dataset stores by range of vertices is sorted by the rank that owns it.

Every task reads one range (a row block of a matrix, or a range of vertex data) and leaves a spill
file in which the rows of each part lie together, in ascending order.  So each later task finds its
rows in every range without looking at those of other ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.shards.part_file import PartColumn, part_offsets, read_part, write_part_file
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.progress import logged
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.format.memory_map import map_part_vector
from gnnloom.storage.matrix.csr import CSR

#: Arrays of a vertices artifact that go into the shards.
VERTEX_ARRAYS = ("feature", "label", "multilabel", "split")
#: Nonzeros that a later pass reads at once.
SLICE_NONZEROS = 1 << 20


@dataclass(frozen=True)
class RowSegment:
    """Some rows of one part, as they were routed.

    Attributes:
        row: (num_rows,) int64 global ids, ascending.
        nonzeros: (num_rows,) int64 nonzeros of each.
        indices: (nnz,) global column ids, ascending within a row.
        data: (nnz,) values, or None.
    """

    row: NDArray[np.int64]
    nonzeros: NDArray[np.int64]
    indices: NDArray[Any]
    data: NDArray[Any] | None


@dataclass(frozen=True)
class RoutedMatrix:
    """The adjacency or its transpose: the name of its spill files, and where its shards go below a rank.

    Attributes:
        prefix: of the arrays: nothing, or ``transpose/``.
        data_dtype: of the values; None for a pattern.
    """

    kind: str
    prefix: str
    num_blocks: int
    index_dtype: str
    data_dtype: str | None

    @property
    def dtypes(self) -> list[np.dtype[Any]]:
        """Of the columns of its spill files."""
        names = ["int64", "int64", self.index_dtype]
        return [np.dtype(name) for name in (names if self.data_dtype is None else [*names, self.data_dtype])]


@dataclass(frozen=True)
class RoutedVertexArray:
    """Features, labels or split, and the trailing shape, dtype and dimensions that they are stored with."""

    name: str
    width: tuple[int, ...]
    dtype: str
    dims: tuple[str, ...]
    num_ranges: int


@dataclass(frozen=True)
class _RouteBlockTask:
    writer: ArtifactWriter
    matrix_path: Path
    part_path: Path
    num_parts: int
    name: str
    block: int


@dataclass(frozen=True)
class _RouteVerticesTask:
    writer: ArtifactWriter
    vertices_path: Path
    part_path: Path
    num_parts: int
    name: str
    start: int
    stop: int


def spill_name(kind: str, number: int) -> str:
    """Part name of a routed range, which is also the name of its spill file."""
    return f"route-{kind}/{number:05d}"


def route_blocks(
    writer: ArtifactWriter, kind: str, matrix: Graph, part_path: Path, num_parts: int, cluster: Cluster
) -> None:
    """Route every row block of a matrix; blocks that an earlier run finished are left as they are."""
    recorded = writer.recorded("route")
    tasks = [
        _RouteBlockTask(writer, matrix.artifact.path, part_path, num_parts, spill_name(kind, block), block)
        for block in range(matrix.num_blocks)
        if spill_name(kind, block) not in recorded
    ]
    for _ in logged(f"route {kind}", cluster.map(_route_block, tasks), len(tasks)):
        pass


def route_vertices(
    writer: ArtifactWriter, vertices: Vertices, part_path: Path, num_parts: int, rows: list[int], cluster: Cluster
) -> None:
    """Route features, labels and split in the ranges that ``rows`` bounds."""
    recorded = writer.recorded("route")
    names = [spill_name("vertices", number) for number in range(len(rows) - 1)]
    tasks = [
        _RouteVerticesTask(writer, vertices.artifact.path, part_path, num_parts, name, start, stop)
        for name, start, stop in zip(names, rows[:-1], rows[1:], strict=True)
        if name not in recorded
    ]
    for _ in logged("route vertices", cluster.map(_route_vertices, tasks), len(tasks), "vertices"):
        pass


def _route_block(task: _RouteBlockTask) -> int:
    with task.writer.task(task.name):
        block = Graph(Artifact(task.matrix_path)).block(task.block)
        part = map_part_vector(task.part_path)[block.row_offset : block.row_offset + block.num_rows]
        write_part_file(task.writer.work / task.name, _block_columns(block, part, task.num_parts))
    return block.nnz


def _block_columns(block: CSR, part: NDArray[np.int32], num_parts: int) -> list[PartColumn]:
    """Rows, their nonzeros, column ids and, where there are any, values, all sorted by the row's part."""
    order = np.argsort(part, kind="stable")
    nonzeros = np.diff(block.indptr)[order]
    by_row = part_offsets(part, num_parts)
    by_nonzero = np.concatenate([[0], np.cumsum(nonzeros)])[by_row]
    columns = [
        PartColumn(block.row_offset + order, by_row),
        PartColumn(nonzeros, by_row),
        PartColumn(_gather_rows(block.indptr, block.indices, order), by_nonzero),
    ]
    if block.data is not None:
        columns.append(PartColumn(_gather_rows(block.indptr, block.data, order), by_nonzero))
    return columns


@njit(cache=True, nogil=True)
def _gather_rows(indptr: NDArray[np.int64], entries: NDArray[Any], order: NDArray[np.int64]) -> NDArray[Any]:
    """The entries of the rows in ``order``, one row after the other."""
    gathered = np.empty_like(entries)
    end = 0
    for row in order:
        for position in range(indptr[row], indptr[row + 1]):
            gathered[end] = entries[position]
            end += 1
    return gathered


def _route_vertices(task: _RouteVerticesTask) -> int:
    with task.writer.task(task.name):
        artifact = Artifact(task.vertices_path)
        part = map_part_vector(task.part_path)[task.start : task.stop]
        order = np.argsort(part, kind="stable")
        offset = part_offsets(part, task.num_parts)
        for name in VERTEX_ARRAYS:
            if name in artifact:
                rows = artifact.array(name).read(task.start, task.stop)[order]
                write_part_file(_vertex_file(task.writer.work, task.name, name), [PartColumn(rows, offset)])
    return task.stop - task.start


def _vertex_file(work: Path, task_name: str, array_name: str) -> Path:
    return work / f"{task_name}-{array_name}"


def routed_rows(work: Path, matrix: RoutedMatrix, rank: int) -> NDArray[np.int64]:
    """(num_own,) int64 the global ids of a rank's rows, ascending."""
    found = [np.empty(0, dtype=np.int64)]
    for block in range(matrix.num_blocks):
        found += read_part(work / spill_name(matrix.kind, block), rank, [np.dtype(np.int64)])
    return np.concatenate(found)


def routed_segments(work: Path, matrix: RoutedMatrix, rank: int) -> Iterator[RowSegment]:
    """A rank's rows in ascending order, in segments of at most ``SLICE_NONZEROS`` nonzeros (or one row)."""
    for block in range(matrix.num_blocks):
        columns = read_part(work / spill_name(matrix.kind, block), rank, matrix.dtypes)
        data = columns[3] if len(columns) > 3 else None
        yield from _slices(RowSegment(columns[0], columns[1], columns[2], data))


def _slices(segment: RowSegment) -> Iterator[RowSegment]:
    offset = np.concatenate([[0], np.cumsum(segment.nonzeros)])
    start = 0
    while start < len(segment.row):
        stop = max(start + 1, int(np.searchsorted(offset, offset[start] + SLICE_NONZEROS, side="right")) - 1)
        entries = slice(offset[start], offset[stop])
        data = None if segment.data is None else segment.data[entries]
        yield RowSegment(segment.row[start:stop], segment.nonzeros[start:stop], segment.indices[entries], data)
        start = stop


def routed_vertex_array(work: Path, array: RoutedVertexArray, rank: int) -> Iterator[NDArray[Any]]:
    """A rank's rows of one array of the vertices, range by range."""
    for number in range(array.num_ranges):
        path = _vertex_file(work, spill_name("vertices", number), array.name)
        (rows,) = read_part(path, rank, [np.dtype(array.dtype)])
        yield rows.reshape(-1, *array.width)
