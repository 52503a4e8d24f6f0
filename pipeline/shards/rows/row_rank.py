"""Later passes of the row shards: write the matrices of each rank, renumbered, and its vertex data.

A rank whose rows fit a task is written by one. Others are cut into ranges of rows: a task for each lists the columns of
other ranks, another one joins these lists to the halo of the rank, then a task for each range writes its rows, and the
last one writes the chunks of arrays that ranges share. The functions are the same, and so are the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.shards.relation_entries import INDICES
from gnnloom.pipeline.shards.rows.row_entries import (
    Places,
    RangeRows,
    SplitRows,
    foreign_columns,
    row_spans,
)
from gnnloom.pipeline.shards.rows.row_halo import (
    BLOCK_NUMBERS,
    HaloPiece,
    MatrixSizes,
    halo_slots,
    join_halos,
    stored_sizes,
    write_halo,
)
from gnnloom.pipeline.shards.rows.row_routed import (
    DATA,
    VERTEX,
    RoutedMatrix,
    RoutedRank,
    RoutedVertices,
)
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.runs import Index, Section
from gnnloom.pipeline.shuffle.shuffle import RunsWriter, Shuffle
from gnnloom.storage.artifacts.csr_group import write_csr_group
from gnnloom.storage.disk.groups import write_group
from gnnloom.storage.format.array_pieces import ArrayAppender, ArrayForm, Edge, join_pieces
from gnnloom.storage.format.array_record import ArrayRecord, Piece
from gnnloom.storage.format.artifact import TaskOutput
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.ranges import Span


@dataclass(frozen=True)
class ShardRankTask(RoutedRank):
    """Writes the halo of one rank, and, if it has a single range, its rows.

    Attributes:
        halo_lanes: where the halo of each matrix goes.
    """

    halo_lanes: tuple[Lane, ...]


@dataclass(frozen=True)
class WriteRangeTask(RoutedRank):
    """Writes the rows of one range of a rank of several.

    Attributes:
        number: number of the range within its rank.
        edges: shuffle of the rows that are left to the task that joins.
        lane: where they go.
    """

    number: int
    edges: Shuffle
    lane: Lane


@dataclass(frozen=True)
class JoinRangesTask(RoutedRank):
    """Writes the chunks that the ranges of a rank share.

    Attributes:
        edges: shuffle of the rows that these have left.
    """

    edges: Shuffle


def write_range_name(rank: int, number: int) -> str:
    """Name of the task that writes the rows of a range.

    Args:
        number: number of the range within its rank.
    """
    return f"range/{rank:05d}-{number:06d}"


def edge_shuffle(num_arrays: int) -> Shuffle:
    """The shuffle of the rows of chunks that several tasks share, by array; those who join know who wrote them.

    Args:
        num_arrays: arrays of a rank.
    """
    columns = (Column("first", "int64"), Column("size", "int64"), Column("bytes", "uint8", lengths="size"))
    return Shuffle("edges", num_arrays, columns, 1)


# Tasks


def shard_rank(task: ShardRankTask) -> int:
    """Write the halo of one rank, and its rows if these are one range; returns its number of vertices."""
    with OpenFiles(task.writer.work) as files, task.writer.task(task.name) as output:
        attributes = {"rank": task.rank, "num_parts": task.num_parts, "num_own": task.num_own}
        write_group(task.writer.path / task.folder, attributes)
        # No group without arrays: a type may have no data.
        having = [each for each in task.vertices if each.dims]
        prefixes = [each.prefix for each in task.products if each.prefix]
        prefixes += [each.prefix for each in task.matrices if each.prefix] + [
            each.prefix for each in having if each.prefix
        ]
        for folder in dict.fromkeys(parent for prefix in prefixes for parent in _folders(prefix)):
            write_group(task.writer.path / task.folder / folder, {})
        if len(task.positions) == 1:
            _write_alone(task, files, output)
        else:
            join_halos(task, files, output, task.halo_lanes)
            for matrix, sizes in zip(task.matrices, stored_sizes(task), strict=True):
                _describe_matrix(task, matrix, sizes)
    return task.num_own


def _folders(prefix: str) -> list[PurePosixPath]:
    """The folder of a prefix after the folders above it."""
    folder = PurePosixPath(prefix)
    return [*reversed(folder.parents[:-1]), folder]


def _write_alone(task: ShardRankTask, files: OpenFiles, output: TaskOutput) -> None:
    """Write a rank of a single range."""
    writer = _RangeWriter(task, files, output, 0)
    for product, lane in zip(task.products, task.halo_lanes, strict=True):
        matrices = [writer.rows(matrix) for matrix in product.matrices]
        halo_nonzeros: list[int] = []
        (vertex,) = foreign_columns(matrices, task, halo_nonzeros)
        halo = HaloPiece.of(vertex, task.numbers)
        write_halo(task, product, halo, output, lane)
        for matrix, rows, nonzeros in zip(product.matrices, matrices, halo_nonzeros, strict=True):
            sizes = MatrixSizes.of(len(halo.slot), [[rows.num_nonzeros - nonzeros, nonzeros]])
            _describe_matrix(task, matrix, sizes)
            writer.write_matrix(matrix, rows, sizes, halo.slot)
        if product is task.products[0]:
            writer.write_vertices(matrices[0])


def write_range(task: WriteRangeTask) -> int:
    """Write the rows of one range; returns their number."""
    with OpenFiles(task.writer.work) as files, task.writer.task(task.name) as output:
        number = {path: index for index, path in enumerate(array_paths(task))}
        with task.edges.routed(output, task.lane) as out:
            writer, sizes = _RangeWriter(task, files, output, task.number, _Leaver(out, number)), stored_sizes(task)
            halos = [halo_slots(task, product) for product in task.products for _ in product.matrices]
            for matrix, each, halo in zip(task.matrices, sizes, halos, strict=True):
                rows = writer.rows(matrix)
                writer.write_matrix(matrix, rows, each, halo)
                if matrix is task.products[0].matrices[0]:
                    writer.write_vertices(rows)
    return writer.num_rows


def join_ranges(task: JoinRangesTask) -> int:
    """Write the chunks that the ranges of a rank share; returns its number of vertices."""
    names = [write_range_name(task.rank, number) for number in range(len(task.positions))]
    recorded = task.writer.recorded_of(names)
    records = [recorded[name] for name in names]
    pieces: dict[str, list[Piece]] = {}
    for record in records:
        for array in record.arrays:
            pieces.setdefault(array.path, []).extend(array.pieces)
    with OpenFiles(task.writer.work) as files, task.writer.task(task.name) as output:
        left: dict[int, list[Section]] = {}
        # Ranges ascend, and so do the rows that a range left of an array.
        for section in task.edges.recorded_sections(files, records):
            left.setdefault(int(section.position()[0]), []).append(section)
        for number, form in enumerate(_forms(task, stored_sizes(task))):
            edges = _edges(form, left.get(number, []))
            output.add(join_pieces(task.writer.path, form, pieces.get(form.path, []), edges))
    return task.num_own


@dataclass(frozen=True)
class _Leaver:
    """Leaves rows to the task that joins, each edge in a run of its own, so that none waits in memory.

    Attributes:
        number: of each array.
    """

    out: RunsWriter
    number: Mapping[str, int]

    def __call__(self, path: str, edge: Edge) -> None:
        content = np.ascontiguousarray(edge.rows).reshape(-1).view(np.uint8)
        row = {"first": np.array([edge.first]), "size": np.array([len(content)]), "bytes": content}
        self.out.add(Index.of_positions(np.array([self.number[path]])), row)


def _edges(form: ArrayForm, sections: Sequence[Section]) -> Iterator[Edge]:
    """Edges of an array, as the tasks wrote them, one piece after another."""
    for section in sections:
        rows = section.read("bytes").view(form.dtype).reshape(-1, *form.shape[1:])
        yield Edge(int(section.read("first")[0]), rows)


# Arrays


def array_paths(task: RoutedRank) -> list[str]:
    """The arrays of a rank that its ranges write."""
    paths = ["vertex"]
    for matrix in task.matrices:
        names = ["indptr", INDICES, *((DATA,) if matrix.data_dtype else ())]
        names += [column.name for column in matrix.edge_columns]
        paths += [f"{matrix.prefix}{block}/{name}" for block in matrix.blocks for name in names]
    paths += [f"{each.prefix}{name}" for each in task.vertices for name in each.dims]
    return [f"{task.folder}/{path}" for path in paths]


def _forms(task: RoutedRank, sizes: Sequence[MatrixSizes]) -> list[ArrayForm]:
    """The same arrays."""
    matrices = zip(task.matrices, sizes, strict=True)
    forms = [
        form for matrix, each in matrices for block in matrix.blocks for form in _block_forms(task, matrix, each, block)
    ]
    return [_vertex_form(task), *forms, *(form for each in task.vertices for form in _data_forms(task, each))]


def _vertex_form(task: RoutedRank) -> ArrayForm:
    return ArrayForm(f"{task.folder}/vertex", (task.num_own,), "int64", ("row",))


def _data_forms(task: RoutedRank, vertices: RoutedVertices) -> list[ArrayForm]:
    """Features, labels and split."""
    first, last = task.own_rows(vertices.row_type)
    forms = []
    for name, dims in vertices.dims.items():
        column, path = _column(vertices, name), f"{task.folder}/{vertices.prefix}{name}"
        forms.append(ArrayForm(path, (last - first, *column.trailing), column.dtype, dims))
    return forms


def _column(vertices: RoutedVertices, name: str) -> Column:
    return next(each for each in vertices.rows.columns if each.name == name)


def _block_forms(task: RoutedRank, matrix: RoutedMatrix, sizes: MatrixSizes, block: str) -> list[ArrayForm]:
    """Row pointers, columns and values of a block."""
    path, nnz = f"{task.folder}/{matrix.prefix}{block}", sizes.nonzeros(block)
    first, last = task.own_rows(matrix.row_type)
    forms = [
        ArrayForm(f"{path}/indptr", (last - first + 1,), "int64", ("row+1",)),
        ArrayForm(f"{path}/indices", (nnz,), index_dtype(_width(task, matrix, sizes, block)).name, ("nonzero",)),
    ]
    if matrix.data_dtype:
        forms.append(ArrayForm(f"{path}/{DATA}", (nnz,), matrix.data_dtype, ("nonzero",)))
    for column in matrix.edge_columns:
        shape, dims = (nnz, *column.trailing), ("nonzero", "value")[: 1 + len(column.trailing)]
        forms.append(ArrayForm(f"{path}/{column.name}", shape, column.dtype, dims))
    return forms


def _width(task: RoutedRank, matrix: RoutedMatrix, sizes: MatrixSizes, block: str) -> int:
    if matrix.replicated is not None:
        return matrix.replicated[1] - matrix.replicated[0]
    return task.num_own if block == "own" else sizes.num_halo


def _describe_matrix(task: RoutedRank, matrix: RoutedMatrix, sizes: MatrixSizes) -> None:
    """Write the attributes of the groups of the blocks."""
    for block in matrix.blocks:
        first, last = task.own_rows(matrix.row_type)
        shape = last - first, _width(task, matrix, sizes, block)
        write_csr_group(task.writer.path / task.folder / matrix.prefix / block, shape, sizes.nonzeros(block))


class _RangeWriter:
    """Writes the arrays of one range of a rank."""

    def __init__(
        self,
        task: RoutedRank,
        files: OpenFiles,
        output: TaskOutput,
        number: int,
        leave: Callable[[str, Edge], None] | None = None,
    ) -> None:
        """Find the rows.

        Args:
            number: number of the range within its rank.
            leave: keeps rows of chunks that other ranges share, with the path of the array; None if there are none.
        """
        self._task, self._files, self._output, self._number, self._leave = task, files, output, number, leave
        self._position = task.positions[number]
        first, last = map(int, task.numbers.bounds[self._position : self._position + 2])
        self._rows = first - task.slots[0], last - task.slots[0]

    @property
    def num_rows(self) -> int:
        """Number of rows of the range."""
        return self._rows[1] - self._rows[0]

    def rows(self, matrix: RoutedMatrix) -> RangeRows:
        return RangeRows(self._task, self._files, matrix, self._position)

    def write_vertices(self, rows: RangeRows) -> None:
        """Write the ids of the vertices, and their data.

        Args:
            rows: of the adjacency.
        """
        task = self._task
        vertex = self._appender(_vertex_form(task), self._rows)
        if task.types:
            # Not every type has rows in a matrix. Types ascend with the ids, and so do local numbers.
            for part in (part for each in task.vertices for part in self._ordered(each, VERTEX, None)):
                vertex.append(part)
        else:
            vertex.append(rows.vertex)
        self._output.add(vertex.close())
        for vertices in task.vertices:
            order = None if task.types else rows.order
            for name, form in zip(vertices.dims, _data_forms(task, vertices), strict=True):
                appender = self._appender(form, self._own(vertices.row_type))
                for part in self._ordered(vertices, name, order):
                    appender.append(part)
                self._output.add(appender.close())

    def _own(self, row_type: int | None) -> Span:
        """First and last (exclusive) row of the range among the rank's vertices of a type, or among all vertices."""
        start, stop = self._task.own_rows(row_type)
        first, last = (min(max(row, start), stop) - start for row in self._rows)
        return first, last

    def _ordered(self, vertices: RoutedVertices, name: str, order: NDArray[np.int64] | None) -> Iterator[NDArray[Any]]:
        """The rows of a vertex array, some at a time."""
        routed = vertices.rows.rows(self._task.writer.work, self._files).read(self._position, self._position + 1)
        if order is None:
            for section in routed.sections:
                yield from section.blocks(name)
            return
        rows = routed.column(name)
        step = max(1, self._task.steps.moved_bytes // max(1, _column(vertices, name).num_bytes))
        for start in range(0, len(order), step):
            yield rows[order[start : start + step]]

    def write_matrix(self, matrix: RoutedMatrix, rows: RangeRows, sizes: MatrixSizes, halo: NDArray[Any]) -> None:
        """Write the blocks of the rows: ``own`` and ``halo``, or ``replicated``.

        Args:
            halo: (num_halo,) slots of the rank's halo, ascending.
        """
        outs = [self._block(matrix, sizes, block) for block in matrix.blocks]
        places, number, done = Places(halo, self._task.steps.place_ranges), self._row_numbers(matrix, rows), 0
        for batch in rows.batches():
            for span in row_spans(batch.length, self._task.steps.segment_nonzeros):
                routed = None if number is None else number[done + span[0] : done + span[1]]
                if matrix.replicated is None:
                    own, others = rows.columns.split(batch, span)
                    outs[0].append(own, own.column, routed)
                    outs[1].append(others, places.of(others.column), routed)
                else:
                    held = rows.columns.whole(batch, span)
                    outs[0].append(held, held.column - matrix.replicated[0], routed)
            done += len(batch.length)
            for column in matrix.edge_columns:
                values = rows.values(column.name)
                for out in outs:
                    out.append_values(column, values)
            for out in outs:
                out.end_batch()
        first, last = self._own(matrix.row_type)
        for out in outs:
            for record in out.close(last - first):
                self._output.add(record)

    def _row_numbers(self, matrix: RoutedMatrix, rows: RangeRows) -> NDArray[np.int64] | None:
        """(num_rows,) int64 number of each routed row among the rows of the range; None if all rows are routed."""
        if matrix.row_type is None:
            return None
        start, _ = self._task.own_rows(matrix.row_type)
        slot: NDArray[np.int64] = self._task.numbers.by_number[rows.vertex].astype(np.int64)
        return slot - self._task.slots[0] - start - self._own(matrix.row_type)[0]

    def _block(self, matrix: RoutedMatrix, sizes: MatrixSizes, block: str) -> _BlockAppender:
        begin, end = sizes.begin[self._number : self._number + 2, BLOCK_NUMBERS[block]].tolist()
        first, last = self._own(matrix.row_type)
        # The first range has the zero that all pointers begin with.
        pointers, entries = (first + 1 if self._number else 0, last + 1), (begin, end)
        forms = _block_forms(self._task, matrix, sizes, block)
        appenders = [self._appender(forms[0], pointers), *(self._appender(form, entries) for form in forms[1:])]
        if not self._number:
            appenders[0].append(np.zeros(1, np.int64))
        names = [column.name for column in matrix.edge_columns]
        return _BlockAppender(appenders, np.dtype(forms[1].dtype), begin, names, self._task.steps.moved_bytes)

    def _appender(self, form: ArrayForm, rows: Span) -> ArrayAppender:
        leave = None if self._leave is None else partial(self._leave, form.path)
        return ArrayAppender(self._task.writer.path, form, rows, leave)


class _BlockAppender:
    """Writes some rows of a CSR matrix."""

    def __init__(
        self,
        appenders: Sequence[ArrayAppender],
        dtype: np.dtype[Any],
        begin: int,
        edge_columns: Sequence[str],
        step_bytes: int,
    ) -> None:
        """Begin to write.

        Args:
            appenders: of row pointers, columns and, if there are any, values or columns of edges.
            dtype: of the columns.
            begin: number of entries before these rows.
            edge_columns: names of the columns of edges; the values of the rows are then positions of the edges.
            step_bytes: bytes of values of edges per step.
        """
        self._step_bytes = step_bytes
        self._appenders, self._dtype, self._count, self._num_rows = appenders, dtype, begin, 0
        self._edge_columns = dict(zip(edge_columns, appenders[2:], strict=False)) if edge_columns else {}
        #: Positions, in the batch, of the entries of the rows since the last batch.
        self._positions: list[NDArray[np.int64]] = []

    def append(self, rows: SplitRows, column: NDArray[Any], number: NDArray[np.int64] | None = None) -> None:
        """Add rows.

        Args:
            column: (count,) local columns.
            number: (num_rows,) int64 numbers of the rows, ascending; the rows between them are empty. None if the rows
                follow each other.
        """
        pointers, indices, *values = self._appenders
        ends = rows.end
        if number is not None and len(number):
            before = np.searchsorted(number, np.arange(self._num_rows, number[-1] + 1), side="right")
            ends = np.concatenate([np.zeros(1, np.int64), rows.end])[before]
        pointers.append(self._count + ends)
        self._num_rows += len(ends)
        indices.append(column.astype(self._dtype, copy=False))
        if self._edge_columns:
            self._positions.append(rows.data)
        else:
            for data in values:
                data.append(rows.data)
        self._count += len(column)

    def append_values(self, column: Column, values: NDArray[Any]) -> None:
        """Add a column of the edges of all rows of a batch.

        Args:
            values: (nnz, ...) values of the entries of the batch.
        """
        appender, step = self._edge_columns[column.name], max(1, self._step_bytes // max(1, column.num_bytes))
        for positions in self._positions:
            for start in range(0, len(positions), step):
                appender.append(values[positions[start : start + step]])

    def end_batch(self) -> None:
        """Begin a batch, whose entries are at other positions."""
        self._positions.clear()

    def close(self, num_rows: int) -> list[ArrayRecord]:
        """Write the end of the last rows, which are empty.

        Args:
            num_rows: rows of the range.
        """
        self._appenders[0].append(np.full(num_rows - self._num_rows, self._count))
        return [appender.close() for appender in self._appenders]
