"""First pass of the row shards: data stored by range of vertices are routed to the rank that owns them, and read back.

Each task reads one range (a row block of a matrix, or a range of vertex data), and leaves a run in which the rows of
each part are stored together, in ascending order. Later tasks then find their rows in every range without reading those
of other ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.mapped_vectors import map_vector
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.phase import Task
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.ranges import Span

#: Nonzeros that a later pass holds at once: 8 MiB of int64 column ids, and a few times that while they are sorted.
SEGMENT_NONZEROS = 1 << 20


@dataclass(frozen=True)
class RowSegment:
    """Some rows of one part, as they were routed.

    Attributes:
        row: (num_rows,) int64 global ids, ascending.
        nonzeros: (num_rows,) int64 nonzeros of each row.
        indices: (nnz,) global column ids, ascending within a row.
        data: (nnz,) values, or None for a pattern.
    """

    row: NDArray[np.int64]
    nonzeros: NDArray[np.int64]
    indices: NDArray[Any]
    data: NDArray[Any] | None


@dataclass(frozen=True)
class RoutedMatrix:
    """The adjacency or its transpose, as routed.

    Attributes:
        prefix: prefix of its arrays in a rank's folder: empty, or ``transpose/``.
        rows: shuffle of its rows, by part.
        halo: shuffle of the vertices that ranks need; see :mod:`gnnloom.pipeline.shards.rows.row_halo`.
    """

    prefix: str
    rows: Shuffle
    halo: Shuffle

    @property
    def data_dtype(self) -> str | None:
        """Dtype of the values; None for a pattern."""
        return next((column.dtype for column in self.rows.columns if column.name == "data"), None)


@dataclass(frozen=True)
class RoutedVertices:
    """Features, labels and split, as routed.

    Attributes:
        rows: shuffle of the rows of all arrays, by part.
        dims: names of all dimensions of each array.
    """

    rows: Shuffle
    dims: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class RoutedRank(Task):
    """Everything that was routed to one rank; base of the tasks of the later passes.

    What its methods take as ``files`` are files of the work folder, which stay open while the task reads.

    Attributes:
        part_path: mapped vector of the (num_vertices,) int32 parts.
        matrices: the adjacency and, if directed, its transpose.
        vertices: None if the dataset has no vertex data.
        reorder: order of the local numbers, see :data:`gnnloom.pipeline.shards.shard_options.REORDERS`.
    """

    part_path: Path
    num_parts: int
    rank: int
    matrices: tuple[RoutedMatrix, ...]
    vertices: RoutedVertices | None
    reorder: str

    @property
    def folder(self) -> str:
        """The rank's folder in the artifact."""
        return rank_folder(self.rank)

    def own_vertices(self, files: OpenFiles) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the (num_own,) int64 global ids of the rank's rows, ascending, and the nonzeros of each."""
        # Blocks ascend, and so do the rows of a part within each, so the joined ids ascend.
        rows = self.matrices[0].rows.rows(self.writer.work, files).read(self.rank, self.rank + 1)
        return rows.column("row"), rows.column("nonzeros")

    def segments(self, files: OpenFiles, matrix: RoutedMatrix) -> Iterator[RowSegment]:
        """Yield the rank's rows of a matrix, ascending, at most ``SEGMENT_NONZEROS`` nonzeros (or one row) each."""
        waiting: list[list[NDArray[Any]]] = []
        size = 0
        for section in matrix.rows.rows(self.writer.work, files).sections(self.rank, self.rank + 1):
            columns = [section.read(column.name) for column in matrix.rows.columns]
            # Few rows of many runs are joined: what a segment repeats is dropped at once.
            added = len(columns[0]) + len(columns[2])
            if waiting and size + added > SEGMENT_NONZEROS:
                yield from _cut(_joined(waiting))
                waiting, size = [], 0
            waiting.append(columns)
            size += added
        if waiting:
            yield from _cut(_joined(waiting))

    def vertex_rows(self, files: OpenFiles, vertices: RoutedVertices, name: str) -> Iterator[NDArray[Any]]:
        """Yield the rank's (num_rows, ...) rows of a vertex array, one run at a time."""
        for section in vertices.rows.rows(self.writer.work, files).sections(self.rank, self.rank + 1):
            yield section.read(name)


def rank_folder(rank: int) -> str:
    """The folder of a rank in the artifact; also the name of the task that writes its rows."""
    return f"row/{rank:05d}"


def _joined(runs: list[list[NDArray[Any]]]) -> RowSegment:
    """The rows of several runs as one segment; ``runs`` is emptied."""
    row, nonzeros, indices, *data = (np.concatenate(column) for column in zip(*runs, strict=True))
    runs.clear()
    return RowSegment(row, nonzeros, indices, data[0] if data else None)


def _cut(segment: RowSegment) -> Iterator[RowSegment]:
    """Cut a segment into ones of at most ``SEGMENT_NONZEROS`` nonzeros, or a single row."""
    offset = np.concatenate([[0], np.cumsum(segment.nonzeros)])
    for start, stop in row_spans(segment.nonzeros):
        entries = slice(offset[start], offset[stop])
        data = None if segment.data is None else segment.data[entries]
        yield RowSegment(segment.row[start:stop], segment.nonzeros[start:stop], segment.indices[entries], data)


def row_spans(nonzeros: NDArray[np.int64]) -> Iterator[Span]:
    """Cut rows into ranges of at most ``SEGMENT_NONZEROS`` nonzeros, or a single row.

    Args:
        nonzeros: (num_rows,) int64 nonzeros of each row.
    """
    end = np.cumsum(nonzeros)
    start = before = 0
    while start < len(end):
        stop = max(start + 1, int(np.searchsorted(end, before + SEGMENT_NONZEROS, side="right")))
        yield start, stop
        start, before = stop, int(end[stop - 1])


@dataclass(frozen=True)
class RouteBlockTask(Task):
    """Routes one row block of a matrix by the part of each row.

    Attributes:
        part_path: mapped vector of the (num_vertices,) int32 parts.
        lane: where the run goes, relative to the work folder.
    """

    matrix_path: Path
    part_path: Path
    shuffle: Shuffle
    block: int
    lane: Lane


@dataclass(frozen=True)
class RouteVerticesTask(Task):
    """Routes the vertex data of vertices ``start`` to ``stop``; attributes as of :class:`RouteBlockTask`."""

    vertices_path: Path
    part_path: Path
    shuffle: Shuffle
    start: int
    stop: int
    lane: Lane


def row_shuffle(kind: str, num_parts: int, num_vertices: int, *, weighted: bool) -> Shuffle:
    """The shuffle of a matrix's rows, by part: global ids, nonzeros, and the column ids and values of these.

    Args:
        kind: ``forward`` or ``backward``.
    """
    columns = [
        Column("row", "int64"),
        Column("nonzeros", "int64"),
        Column("indices", index_dtype(num_vertices).name, lengths="nonzeros"),
    ]
    if weighted:
        columns.append(Column("data", "float32", lengths="nonzeros"))
    return Shuffle(kind, num_parts, tuple(columns), num_parts)


def vertex_shuffle(types: Mapping[str, tuple[str, tuple[int, ...]]], num_parts: int) -> Shuffle:
    """The shuffle of vertex data, by part.

    Args:
        types: dtype and trailing shape of each array.
    """
    columns = tuple(Column(name, dtype, shape) for name, (dtype, shape) in types.items())
    return Shuffle("vertices", num_parts, columns, num_parts)


def route_block(task: RouteBlockTask) -> int:
    """Route the rows of a block; returns its nonzeros."""
    with task.writer.task(task.name) as output, task.shuffle.routed(output, task.lane) as out:
        block = Graph(Artifact(task.matrix_path)).block(task.block)
        part = map_vector(task.part_path)[block.row_offset : block.row_offset + block.num_rows]
        # A stable sort keeps the rows of each part ascending, which every later pass relies on.
        order = np.argsort(part, kind="stable")
        begin, length = block.indptr[order], np.diff(block.indptr)[order]
        values = {"row": block.row_offset + order, "nonzeros": length}
        for name, entries in (("indices", block.indices), ("data", block.data)):
            if entries is not None:
                values[name] = gather_ranges(entries, begin, length, block.nnz)
        out.add(Index.of_offsets(part_offsets(part, task.shuffle.num_positions)), values)
    return block.nnz


@njit(cache=True, nogil=True)
def gather_ranges(
    entries: NDArray[Any], begin: NDArray[np.int64], length: NDArray[np.int64], total: int
) -> NDArray[Any]:
    """(total,) entries of some ranges, one after the other.

    Args:
        begin, length: (num_ranges,) int64 first entry and number of entries of each.
        total: sum of the lengths.
    """
    gathered = np.empty(total, entries.dtype)
    end = 0
    # A loop over ranges needs no index per entry, which fancy indexing would allocate.
    for number in range(len(begin)):
        for position in range(begin[number], begin[number] + length[number]):
            gathered[end] = entries[position]
            end += 1
    return gathered


def route_vertices(task: RouteVerticesTask) -> int:
    """Route the rows of a range of vertices; returns their number."""
    with task.writer.task(task.name) as output, task.shuffle.routed(output, task.lane) as out:
        vertices = Vertices(Artifact(task.vertices_path))
        part = map_vector(task.part_path)[task.start : task.stop]
        order = np.argsort(part, kind="stable")
        names = [column.name for column in task.shuffle.columns]
        values = {name: vertices.array(name).read(task.start, task.stop)[order] for name in names}
        out.add(Index.of_offsets(part_offsets(part, task.shuffle.num_positions)), values)
    return task.stop - task.start


def part_offsets(part: NDArray[np.int32], num_parts: int) -> NDArray[np.int64]:
    """Compute where each part begins after sorting by part, as (num_parts + 1,) int64.

    Args:
        part: (num_entries,) int32, all in 0..num_parts-1.
    """
    return np.concatenate([[0], np.cumsum(np.bincount(part, minlength=num_parts))]).astype(np.int64)
