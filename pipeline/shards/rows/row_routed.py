"""What the first pass of the row shards leaves for each rank, and how the later passes read it back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.shards.rows.part_file import read_part
from gnnloom.pipeline.shards.rows.row_merge import RoutedFiles
from gnnloom.storage.format.artifact import ArtifactWriter

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
        kind: ``forward`` or ``backward``; part of the names of its spill files.
        prefix: prefix of its arrays in a rank's folder: empty, or ``transpose/``.
        files: rows by part, from every row block.
        index_dtype: dtype of the global column ids.
        data_dtype: dtype of the values; None for a pattern.
    """

    kind: str
    prefix: str
    files: RoutedFiles
    index_dtype: str
    data_dtype: str | None

    @property
    def dtypes(self) -> list[np.dtype[Any]]:
        """Dtypes of the columns of a spill file: rows, nonzeros, column ids and, if there are any, values."""
        names = ["int64", "int64", self.index_dtype]
        return [np.dtype(name) for name in (names if self.data_dtype is None else [*names, self.data_dtype])]


@dataclass(frozen=True)
class RoutedVertexArray:
    """Features, labels or split, as routed.

    Attributes:
        name: name of the array.
        width: trailing shape of a row.
        dtype: dtype of the elements.
        dims: names of all dimensions.
        files: rows by part, from every range of vertices.
        column: number of the array among the columns of these files.
    """

    name: str
    width: tuple[int, ...]
    dtype: str
    dims: tuple[str, ...]
    files: RoutedFiles
    column: int


@dataclass(frozen=True)
class RoutedRank:
    """Everything that was routed to one rank; base of the tasks of the later passes.

    What its methods take as ``files`` are files of the work folder, which stay open while the task reads.

    Attributes:
        part_path: ``.npy`` file of the (num_vertices,) int32 parts.
        matrices: the adjacency and, if directed, its transpose.
        vertex_arrays: empty if the dataset has no vertex data.
        reorder: order of the local numbers, see :data:`gnnloom.pipeline.shards.rows.row_options.REORDERS`.
    """

    writer: ArtifactWriter
    part_path: Path
    num_parts: int
    rank: int
    matrices: tuple[RoutedMatrix, ...]
    vertex_arrays: tuple[RoutedVertexArray, ...]
    reorder: str = "none"

    @property
    def folder(self) -> str:
        """The rank's folder in the artifact."""
        return rank_folder(self.rank)

    def own_vertices(self, files: OpenFiles) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the (num_own,) int64 global ids of the rank's rows, ascending, and the nonzeros of each."""
        # Blocks ascend, and so do the rows of a part within each, so the joined ids ascend.
        found = [[np.empty(0, dtype=np.int64)] * 2]
        lanes = self.matrices[0].files.of_part(self.writer.work, self.rank)
        found.extend(read_part(files.lane(lane), self.rank, [np.dtype(np.int64)] * 2) for lane in lanes)
        rows, nonzeros = zip(*found, strict=True)
        return np.concatenate(rows), np.concatenate(nonzeros)

    def segments(self, files: OpenFiles, matrix: RoutedMatrix) -> Iterator[RowSegment]:
        """Yield the rank's rows of a matrix, ascending, at most ``SEGMENT_NONZEROS`` nonzeros (or one row) each."""
        waiting: list[list[NDArray[Any]]] = []
        size = 0
        for lane in matrix.files.of_part(self.writer.work, self.rank):
            columns = read_part(files.lane(lane), self.rank, matrix.dtypes)
            # Few rows of many lanes are joined: what a segment repeats is dropped at once.
            added = len(columns[0]) + len(columns[2])
            if waiting and size + added > SEGMENT_NONZEROS:
                yield from _cut(_joined(waiting))
                waiting, size = [], 0
            waiting.append(columns)
            size += added
        if waiting:
            yield from _cut(_joined(waiting))

    def vertex_rows(self, files: OpenFiles, array: RoutedVertexArray) -> Iterator[NDArray[Any]]:
        """Yield the rank's (num_rows, ...) rows of a vertex array, one routed range at a time."""
        for lane in array.files.of_part(self.writer.work, self.rank):
            (rows,) = read_part(files.lane(lane), self.rank, [np.dtype(array.dtype)], array.column)
            yield rows.reshape(-1, *array.width)


def rank_folder(rank: int) -> str:
    """The folder of a rank in the artifact; also the name of the task that writes its rows."""
    return f"row/{rank:05d}"


def _joined(lanes: list[list[NDArray[Any]]]) -> RowSegment:
    """The rows of several lanes as one segment; ``lanes`` is emptied."""
    row, nonzeros, indices, *data = (np.concatenate(column) for column in zip(*lanes, strict=True))
    lanes.clear()
    return RowSegment(row, nonzeros, indices, data[0] if data else None)


def _cut(segment: RowSegment) -> Iterator[RowSegment]:
    """Cut a segment into ones of at most ``SEGMENT_NONZEROS`` nonzeros, or a single row."""
    offset = np.concatenate([[0], np.cumsum(segment.nonzeros)])
    start = 0
    while start < len(segment.row):
        stop = max(start + 1, int(np.searchsorted(offset, offset[start] + SEGMENT_NONZEROS, side="right")) - 1)
        entries = slice(offset[start], offset[stop])
        data = None if segment.data is None else segment.data[entries]
        yield RowSegment(segment.row[start:stop], segment.nonzeros[start:stop], segment.indices[entries], data)
        start = stop
