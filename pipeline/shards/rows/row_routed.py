"""First pass of the row shards: data stored by range of vertices are routed to the ranges of the ranks' own rows.

Each task reads a row block of a matrix, or a range of vertex data, and leaves a run in which the rows of each range of
a rank are stored together, in ascending order. A later task then reads its own rows of each run, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane
from gnnloom.pipeline.shards.relation_entries import INDICES
from gnnloom.pipeline.shards.rows.row_numbers import VertexNumbers
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import RunsWriter, Shuffle
from gnnloom.pipeline.tasks.phase import Task
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.ranges import Span
from gnnloom.storage.shards.typed_row_shards import BLOCKS, REPLICATED

#: Name of the column with the values of the entries of a matrix, next to their column ids.
DATA: Final = "data"
#: Name of the column with the ids of vertices, next to the vertex data of a type.
VERTEX: Final = "vertex"


@dataclass(frozen=True)
class RowSteps:
    """Sizes of the steps in which tasks process the rows of a rank.

    The bytes of the shards do not depend on these sizes. Tests make them small, so that little data takes many steps.

    Attributes:
        vertex_chunks: chunks of vertex data that one task routes: about 64 MiB.
        routed_bytes: bytes of the entries of a relation per step of routing, unless a single row has more.
        batch_bytes: bytes of nonzeros that a task holds as routed, unless a single row has more. A range has a little
            less.
        segment_nonzeros: nonzeros per step of renumbering.
        pending_ids: columns of other ranks that may wait before they are merged.
        listed_columns: approximate length of a list of columns of other ranks, in a rank of several ranges.
        joined_bytes: bytes of lists of columns per step of joining.
        moved_bytes: bytes of vertex data per step of reordering.
        place_ranges: maximum number of ranges in the table of :class:`~.row_entries.Places`, of 8 bytes each.
    """

    vertex_chunks: int = 16
    routed_bytes: int = 32 << 20
    batch_bytes: int = 48 << 20
    segment_nonzeros: int = 1 << 19
    pending_ids: int = 1 << 19
    listed_columns: int = 1 << 19
    joined_bytes: int = 12 << 20
    moved_bytes: int = 8 << 20
    place_ranges: int = 1 << 20


#: The sizes of the steps outside of tests.
ROW_STEPS: Final = RowSteps()


@dataclass(frozen=True)
class RoutedMatrix:
    """The adjacency, its transpose, or the matrix of a relation, as routed.

    Attributes:
        prefix: prefix of its arrays in a rank's folder: empty, ``transpose/``, or ``relation/NAME/``.
        rows: shuffle of its rows, by range.
        row_type: number of the type of its rows; None if it has a row for each vertex.
        replicated: first and last (exclusive) vertex of the type of its columns, if every rank holds their rows.
    """

    prefix: str
    rows: Shuffle
    row_type: int | None = None
    replicated: Span | None = None

    @property
    def blocks(self) -> tuple[str, ...]:
        """Names of the matrices that a rank's rows are split into, by who holds the rows of the columns."""
        return BLOCKS if self.replicated is None else (REPLICATED,)

    @property
    def data_dtype(self) -> str | None:
        """Dtype of the values; None for a pattern."""
        return next((column.dtype for column in self.rows.columns if column.name == DATA), None)

    @property
    def edge_columns(self) -> tuple[Column, ...]:
        """Columns of the edges of a relation, beside its matrix."""
        entries = (column for column in self.rows.columns if column.lengths is not None)
        return tuple(column for column in entries if column.name not in {INDICES, DATA})


@dataclass(frozen=True)
class RoutedProduct:
    """The matrices that one exchange of rows serves, as routed.

    Attributes:
        prefix: prefix of the arrays of the exchange in a rank's folder: empty, or ``transpose/``.
        matrices: the matrices, which share a halo.
        found: shuffle of the columns of other ranks in the rows of a range.
        halo: shuffle of the vertices that ranks need; see :mod:`gnnloom.pipeline.shards.rows.row_halo`.
    """

    prefix: str
    matrices: tuple[RoutedMatrix, ...]
    found: Shuffle
    halo: Shuffle


@dataclass(frozen=True)
class RoutedVertices:
    """Features, labels and split, as routed.

    Attributes:
        rows: shuffle of the rows of all arrays, by range.
        dims: names of all dimensions of each array.
        prefix: prefix of the arrays in a rank's folder: empty, or ``type/NAME/``.
        row_type: number of the type of the vertices; None for all vertices.
    """

    rows: Shuffle
    dims: Mapping[str, tuple[str, ...]]
    prefix: str = ""
    row_type: int | None = None


@dataclass(frozen=True)
class RoutedRank(Task):
    """Everything that was routed to one rank; base of the tasks of the later passes.

    Attributes:
        numbers: of all vertices.
        slots: first and last (exclusive) slot of the rank's vertices.
        positions: of the ranges of the rank's rows.
        products: the adjacency and, if directed, its transpose; or all relations of a graph with types.
        vertices: vertex data, by type in a graph with types.
        types: local number at which the vertices of each type begin, and the number of vertices; empty without types.
        steps: sizes of the steps of the task.
    """

    numbers: VertexNumbers
    num_parts: int
    rank: int
    slots: Span
    positions: range
    products: tuple[RoutedProduct, ...]
    vertices: tuple[RoutedVertices, ...]
    types: tuple[int, ...]
    steps: RowSteps

    @property
    def matrices(self) -> list[RoutedMatrix]:
        """The matrices of all products."""
        return [matrix for product in self.products for matrix in product.matrices]

    def own_rows(self, row_type: int | None) -> Span:
        """First and last (exclusive) local number of the vertices of a type, or of all vertices."""
        return (0, self.num_own) if row_type is None else (self.types[row_type], self.types[row_type + 1])

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
    """Routes the vertex data of vertices ``start`` to ``stop``; other attributes as of :class:`RouteBlockTask`.

    Attributes:
        first: number among all vertices of the first vertex that has data.
    """

    vertices_path: Path
    numbers: VertexNumbers
    shuffle: Shuffle
    start: int
    stop: int
    lane: Lane
    first: int = 0


def row_shuffle(
    kind: str,
    num_positions: int,
    num_vertices: int,
    readers: int,
    *,
    weighted: bool,
    edge_columns: tuple[Column, ...] = (),
) -> Shuffle:
    """The shuffle of a matrix's rows, by range: global ids, nonzero counts, column ids and values.

    Args:
        kind: ``forward`` or ``backward``, or the name of a relation.
        num_positions: ranges of all ranks.
        readers: among which a row block is divided.
        edge_columns: further columns of each nonzero.
    """
    columns = [
        Column("row", "int64"),
        Column("nonzeros", "int64"),
        Column(INDICES, index_dtype(num_vertices).name, lengths="nonzeros"),
    ]
    if weighted:
        columns.append(Column(DATA, "float32", lengths="nonzeros"))
    return Shuffle(kind, num_positions, (*columns, *edge_columns), readers)


def vertex_shuffle(
    types: Mapping[str, tuple[str, tuple[int, ...]]], num_positions: int, readers: int, name: str = "vertices"
) -> Shuffle:
    """The shuffle of vertex data, by range.

    Args:
        name: of the shuffle.
        types: dtype and trailing shape of each array.
        num_positions, readers: as of :func:`row_shuffle`.
    """
    columns = tuple(Column(name, dtype, shape) for name, (dtype, shape) in types.items())
    return Shuffle(name, num_positions, columns, readers)


def route_block(task: RouteBlockTask) -> int:
    """Route the rows of a block; returns its nonzeros."""
    with task.writer.task(task.name) as output, task.shuffle.routed(output, task.lane) as out:
        block = Graph(Artifact(task.matrix_path)).block(task.block)
        entries = {INDICES: block.indices, DATA: block.data}
        values = {name: found for name, found in entries.items() if found is not None}
        route_rows(out, task.numbers, block.row_offset, block.indptr, values.__getitem__)
    return block.nnz


def route_rows(
    out: RunsWriter,
    numbers: VertexNumbers,
    first: int,
    indptr: NDArray[np.int64],
    entries: Callable[[str], NDArray[Any]],
    *,
    with_empty: bool = True,
) -> None:
    """Route consecutive rows, one column in memory at a time.

    Args:
        first: number of the first row among all vertices.
        indptr: (num_rows + 1,) int64 where the entries of each row begin, and their end.
        entries: gives the (nnz, ...) values of a column of entries.
        with_empty: also route rows without entries.
    """
    nonzeros = np.diff(indptr)
    chosen = np.arange(len(nonzeros)) if with_empty else np.flatnonzero(nonzeros)
    position = numbers.find_positions(numbers.by_number[first : first + len(nonzeros)][chosen])
    order = _order(position)
    moved = chosen if order is None else chosen[order]
    rows = {"row": first + moved, "nonzeros": nonzeros[moved]}

    def values(name: str) -> NDArray[Any]:
        if name in rows:
            return rows[name]
        found = entries(name)
        if order is None:
            return found
        # A column of several values for each entry is put in order by the places of the entries.
        elements = found if found.ndim == 1 else np.arange(len(found))
        gathered: NDArray[Any] = gather_ranges(elements, indptr[moved], rows["nonzeros"], len(found))
        return gathered if found.ndim == 1 else found.take(gathered, axis=0)

    out.add_columns(Index.of_offsets(position_offsets(position, out.num_positions)), values)


def _order(position: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """(num_rows,) int64 order of rows by position; None if they are in order, as in parts of consecutive ids."""
    if (position[1:] >= position[:-1]).all():
        return None
    # A stable sort keeps the rows of each range ascending, which every later pass relies on.
    return np.argsort(position, kind="stable")


@kernel
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
        slots = task.numbers.by_number[task.first + task.start : task.first + task.stop]
        position = task.numbers.find_positions(slots)
        names, order = [column.name for column in task.shuffle.columns], _order(position)
        values = {name: vertices.array(name).read(task.start, task.stop) for name in names}
        if order is not None:
            values = {name: rows[order] for name, rows in values.items()}
        out.add(Index.of_offsets(position_offsets(position, task.shuffle.num_positions)), values)
    return task.stop - task.start


def route_type(task: RouteVerticesTask) -> int:
    """Route the ids, and the data if there are any, of a range of vertices of one type; returns their number."""
    with task.writer.task(task.name) as output, task.shuffle.routed(output, task.lane) as out:
        first, last = task.first + task.start, task.first + task.stop
        position = task.numbers.find_positions(task.numbers.by_number[first:last])
        names, order = [column.name for column in task.shuffle.columns], _order(position)
        stored = Vertices(Artifact(task.vertices_path)) if len(names) > 1 else None

        def values(name: str) -> NDArray[Any]:
            rows = (
                np.arange(first, last)
                if stored is None or name == VERTEX
                else stored.array(name).read(task.start, task.stop)
            )
            return rows if order is None else rows[order]

        out.add_columns(Index.of_offsets(position_offsets(position, out.num_positions)), values)
    return task.stop - task.start


def position_offsets(position: NDArray[np.int64], num_positions: int) -> NDArray[np.int64]:
    """Compute where the rows of each position begin after sorting by position, as (num_positions + 1,) int64.

    Args:
        position: (num_rows,) int64, all in 0..num_positions-1.
    """
    return np.concatenate([[0], np.cumsum(np.bincount(position, minlength=num_positions))]).astype(np.int64)
