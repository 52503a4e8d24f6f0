"""First pass of the row shards: data stored by range of vertices are routed to the ranges of the ranks' own rows.

Each task reads a row block of a matrix, or a range of vertex data, and leaves a run in which the rows of each range of
a rank are stored together, in ascending order. A later task then reads its own rows of each run, and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane
from gnnloom.pipeline.shards.rows.row_numbers import VertexNumbers
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.phase import Task
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.ranges import Span


@dataclass(frozen=True)
class RoutedMatrix:
    """The adjacency or its transpose, as routed.

    Attributes:
        prefix: prefix of its arrays in a rank's folder: empty, or ``transpose/``.
        rows: shuffle of its rows, by range.
        found: shuffle of the columns of other ranks in the rows of a range.
        halo: shuffle of the vertices that ranks need; see :mod:`gnnloom.pipeline.shards.rows.row_halo`.
    """

    prefix: str
    rows: Shuffle
    found: Shuffle
    halo: Shuffle

    @property
    def data_dtype(self) -> str | None:
        """Dtype of the values; None for a pattern."""
        return next((column.dtype for column in self.rows.columns if column.name == "data"), None)


@dataclass(frozen=True)
class RoutedVertices:
    """Features, labels and split, as routed.

    Attributes:
        rows: shuffle of the rows of all arrays, by range.
        dims: names of all dimensions of each array.
    """

    rows: Shuffle
    dims: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class RoutedRank(Task):
    """Everything that was routed to one rank; base of the tasks of the later passes.

    Attributes:
        numbers: of all vertices.
        slots: first and last (exclusive) slot of the rank's vertices.
        positions: of the ranges of the rank's rows.
        matrices: the adjacency and, if directed, its transpose.
        vertices: None if the dataset has no vertex data.
    """

    numbers: VertexNumbers
    num_parts: int
    rank: int
    slots: Span
    positions: range
    matrices: tuple[RoutedMatrix, ...]
    vertices: RoutedVertices | None

    @property
    def folder(self) -> str:
        """The rank's folder in the artifact."""
        return rank_folder(self.rank)

    @property
    def num_own(self) -> int:
        """Vertices that the rank owns."""
        return self.slots[1] - self.slots[0]


def rank_folder(rank: int) -> str:
    """The folder of a rank in the artifact; also the name of the task that writes its halo."""
    return f"row/{rank:05d}"


@dataclass(frozen=True)
class RouteBlockTask(Task):
    """Routes one row block of a matrix by the range of each row.

    Attributes:
        numbers: of all vertices.
        lane: where the run goes, relative to the work folder.
    """

    matrix_path: Path
    numbers: VertexNumbers
    shuffle: Shuffle
    block: int
    lane: Lane


@dataclass(frozen=True)
class RouteVerticesTask(Task):
    """Routes the vertex data of vertices ``start`` to ``stop``; attributes as of :class:`RouteBlockTask`."""

    vertices_path: Path
    numbers: VertexNumbers
    shuffle: Shuffle
    start: int
    stop: int
    lane: Lane


def row_shuffle(kind: str, num_positions: int, num_vertices: int, readers: int, *, weighted: bool) -> Shuffle:
    """The shuffle of a matrix's rows, by range: global ids, nonzeros, and the column ids and values of these.

    Args:
        kind: ``forward`` or ``backward``.
        num_positions: ranges of all ranks.
        readers: among which a row block is divided.
    """
    columns = [
        Column("row", "int64"),
        Column("nonzeros", "int64"),
        Column("indices", index_dtype(num_vertices).name, lengths="nonzeros"),
    ]
    if weighted:
        columns.append(Column("data", "float32", lengths="nonzeros"))
    return Shuffle(kind, num_positions, tuple(columns), readers)


def vertex_shuffle(types: Mapping[str, tuple[str, tuple[int, ...]]], num_positions: int, readers: int) -> Shuffle:
    """The shuffle of vertex data, by range.

    Args:
        types: dtype and trailing shape of each array.
        num_positions, readers: as of :func:`row_shuffle`.
    """
    columns = tuple(Column(name, dtype, shape) for name, (dtype, shape) in types.items())
    return Shuffle("vertices", num_positions, columns, readers)


def route_block(task: RouteBlockTask) -> int:
    """Route the rows of a block; returns its nonzeros."""
    with task.writer.task(task.name) as output, task.shuffle.routed(output, task.lane) as out:
        block = Graph(Artifact(task.matrix_path)).block(task.block)
        slot = task.numbers.by_number[block.row_offset : block.row_offset + block.num_rows]
        position = task.numbers.find_positions(slot)
        entries = {"indices": block.indices, "data": block.data}
        values = {name: found for name, found in entries.items() if found is not None}
        row, length = block.row_offset + np.arange(block.num_rows), np.diff(block.indptr)
        if (order := _order(position)) is not None:
            begin, row, length = block.indptr[order], row[order], length[order]
            values = {name: gather_ranges(found, begin, length, block.nnz) for name, found in values.items()}
        values |= {"row": row, "nonzeros": length}
        out.add(Index.of_offsets(position_offsets(position, task.shuffle.num_positions)), values)
    return block.nnz


def _order(position: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """(num_rows,) int64 order of rows by position; None if they are in order, as in parts of consecutive ids."""
    if (position[1:] >= position[:-1]).all():
        return None
    # A stable sort keeps the rows of each range ascending, which every later pass relies on.
    return np.argsort(position, kind="stable")


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
        position = task.numbers.find_positions(task.numbers.by_number[task.start : task.stop])
        names, order = [column.name for column in task.shuffle.columns], _order(position)
        values = {name: vertices.array(name).read(task.start, task.stop) for name in names}
        if order is not None:
            values = {name: rows[order] for name, rows in values.items()}
        out.add(Index.of_offsets(position_offsets(position, task.shuffle.num_positions)), values)
    return task.stop - task.start


def position_offsets(position: NDArray[np.int64], num_positions: int) -> NDArray[np.int64]:
    """Compute where the rows of each position begin after sorting by position, as (num_positions + 1,) int64.

    Args:
        position: (num_rows,) int64, all in 0..num_positions-1.
    """
    return np.concatenate([[0], np.cumsum(np.bincount(position, minlength=num_positions))]).astype(np.int64)
