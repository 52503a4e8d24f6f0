"""The two passes over the entries of relations for grid shards: scatter by cell, then sort and write each cell.

The position of an entry is its cell times the number of relations, plus the number of its relation, so that a cell has
its relations one after another. Where edges have columns, an entry carries the number of its edge; the columns are
looked up by it while the cell is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.key_sorter import KeyRange, KeySorter, Segment
from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.shards.grid.grid_cells import count_rows
from gnnloom.pipeline.shards.grid.grid_scatter import column_bits, rows_of, run_entries, scattered
from gnnloom.pipeline.shards.grid.part_order import Order
from gnnloom.pipeline.shards.relation_entries import INDICES, EntryColumns, edge_columns, mapped_columns
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.memory import rows_that_fit
from gnnloom.pipeline.tasks.phase import Task
from gnnloom.storage.artifacts.csr_group import Window, write_csr_group
from gnnloom.storage.artifacts.typed.union import PlacedMatrix, TypedMatrices
from gnnloom.storage.disk.groups import write_group
from gnnloom.storage.disk.mapped_rows import take_rows
from gnnloom.storage.format.array_pieces import ArrayAppender, ArrayForm
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.format.artifact import TaskOutput
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.storage.shards.grid_shards import cell_path, crop_chunk_rows
from gnnloom.storage.shards.typed_grid_shards import relation_cell_path
from gnnloom.storage.shards.typed_row_shards import EDGE

#: Bytes of an entry while its cell is sorted: two keys, two numbers of edges, and the columns written.
SORT_BYTES: Final = 48
#: Edges per lookup of their columns.
LOOKED_UP: Final = 1 << 18


@dataclass(frozen=True)
class ScatterRelationTask(Task):
    """Scatters one row block of a relation into the cells of one variant.

    Attributes:
        matrices: the relations, or for a transposed variant their reverses.
        matrix, num_matrices: number of the matrix, and how many there are.
        num_vertices: of the graph.
        row_order, column_order: None for the order of the ids.
        grid: (p, q) cells.
        memory: bytes that the worker may use in total.
        lane: where the runs go, relative to the work folder.
    """

    matrices: TypedMatrices
    matrix: int
    num_matrices: int
    num_vertices: int
    shuffle: Shuffle
    block: int
    row_order: Order | None
    column_order: Order | None
    grid: tuple[int, int]
    memory: int
    lane: Lane


@dataclass(frozen=True)
class WriteRelationCellsTask(Task):
    """Sorts and writes the blocks of all relations in one cell of a variant.

    Attributes:
        matrices: as of :class:`ScatterRelationTask`.
        cell: (row, column) of the cell in ``grid``.
        shuffle: of the variant's entries.
        memory: bytes that the worker may use in total.
    """

    matrices: TypedMatrices
    variant: str
    cell: tuple[int, int]
    grid: tuple[int, int]
    num_vertices: int
    shuffle: Shuffle
    memory: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the cell."""
        spans = [split_range(self.num_vertices, self.grid[axis], self.cell[axis]) for axis in range(2)]
        return spans[0][1] - spans[0][0], spans[1][1] - spans[1][0]


def relation_shuffle(variant: str, grid: tuple[int, int], num_matrices: int, *, numbered: bool) -> Shuffle:
    """The shuffle of a variant's entries, by cell and relation.

    Args:
        numbered: whether entries carry the numbers of their edges.
    """
    columns = [Column("key", "uint64"), *([Column(EDGE, "int64")] if numbered else [])]
    return Shuffle(f"cells/{variant}", grid[0] * grid[1] * num_matrices, tuple(columns), grid[0] * grid[1])


def scatter_relation(task: ScatterRelationTask) -> int:
    """Scatter the entries of a block, as one run or several; returns their number."""
    placed = task.matrices.opened()[task.matrix]
    first_row, pointers = placed.bounds[task.block], placed.matrix.pointers(task.block)
    # Other relations may have columns where this one has none.
    numbered, has_columns = len(task.shuffle.columns) > 1, bool(edge_columns(placed.relation))
    with task.writer.task(task.name) as output, task.shuffle.routed(output, task.lane) as out:
        for start, stop in placed.matrix.columns(task.block).ranges(run_entries(task.memory)):
            read = EntryColumns(task.matrices.graph, placed, task.block, (start, stop), np.dtype(np.int64))
            edge = np.empty(0, np.int64)
            if numbered:
                edge = read.column(EDGE) if has_columns else np.zeros(stop - start, np.int64)
            row = first_row + rows_of(pointers, start, stop)
            orders = task.row_order, task.column_order
            cells, key, edge = scattered(row, read.column(INDICES), edge, task.num_vertices, task.grid, *orders)
            position = np.repeat(np.arange(len(cells) - 1), np.diff(cells)) * task.num_matrices + task.matrix
            out.add(Index.of_positions(position), {"key": key, **({EDGE: edge} if numbered else {})})
    return int(pointers[-1])


def write_relation_cells(task: WriteRelationCellsTask) -> int:
    """Sort and write the entries of all relations in a cell; returns their number."""
    total, number = 0, task.cell[0] * task.grid[1] + task.cell[1]
    with OpenFiles(task.writer.work) as files, task.writer.task(task.name) as output:
        matrices = task.matrices.opened()
        rows = task.shuffle.rows(task.writer.work, files)
        for index, placed in enumerate(matrices):
            position = number * len(matrices) + index
            segments = []
            for section in rows.sections(position, position + 1):
                lane, keys_at = section.place("key")
                edges_at = section.place(EDGE)[1] if len(task.shuffle.columns) > 1 else 0
                segments.append(Segment(lane, 0, section.num_rows, keys_at, edges_at, None))
            # A block without entries has no arrays.
            if any(map(len, segments)):
                _write_groups(task)
                total += _write_block(task, output, placed, segments)
        output.facts = {"nnz": total}
    return total


def _write_groups(task: WriteRelationCellsTask) -> None:
    """Write the groups above the blocks, which any of the cells may write first, all with the same content."""
    folder = task.writer.path
    for name in [*cell_path(task.variant, *task.cell).split("/"), "relation"]:
        folder = folder / name
        write_group(folder, {})


def _write_block(
    task: WriteRelationCellsTask, output: TaskOutput, placed: PlacedMatrix, segments: list[Segment]
) -> int:
    """Write the block of one relation; returns its number of entries."""
    rows, width = task.shape
    bits, columns = column_bits(task.num_vertices, task.grid[1]), edge_columns(placed.relation)
    whole = KeyRange(0, (rows << bits) - 1, segments)
    path = relation_cell_path(task.variant, *task.cell, placed.relation.name)
    indices = _appender(task, f"{path}/indices", whole.entries, Column(INDICES, index_dtype(width).name))
    appenders = {each.name: _appender(task, f"{path}/{each.name}", whole.entries, each) for each in columns}
    values = mapped_columns(task.matrices.graph, placed.relation.name) if columns else {}
    counts = np.zeros(rows, np.int64)
    for keys, edges in _sorted(task, whole, numbered=bool(columns)):
        count_rows(keys, bits, counts)
        indices.append((keys & np.uint64((1 << bits) - 1)).astype(index_dtype(width)))
        for name, appender in appenders.items():
            for start in range(0, len(edges), LOOKED_UP):
                some = edges[start : start + LOOKED_UP]
                appender.append(some if name == EDGE else take_rows(values[name], some))
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    first_row, first_column = (split_range(task.num_vertices, task.grid[axis], task.cell[axis])[0] for axis in (0, 1))
    window = Window(first_row, first_column, (task.num_vertices,) * 2)
    write_csr_group(task.writer.path / path, task.shape, whole.entries, window)
    chunk_rows = crop_chunk_rows(len(indptr), indptr.itemsize)
    output.add(write_array(task.writer.path, f"{path}/indptr", indptr, ("row+1",), chunk_rows))
    for appender in (indices, *appenders.values()):
        output.add(appender.close())
    return whole.entries


def _sorted(
    task: WriteRelationCellsTask, whole: KeyRange, *, numbered: bool
) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
    """Keys in order, and the numbers of their edges; parallel edges stay in the order of their numbers."""
    capacity = min(whole.entries, rows_that_fit(task.memory, SORT_BYTES))
    # Numbers of edges travel as weights of 8 bytes, and the sorter only moves their bits.
    merge = "first" if numbered else None
    sorter = KeySorter(task.writer.work / "split", capacity, merge, value_bytes=8 if numbered else 0, keeps=True)
    for piece in sorter.sort(whole):
        yield piece.keys, piece.weights.view(np.int64) if numbered else np.empty(0, np.int64)


def _appender(task: WriteRelationCellsTask, path: str, num_entries: int, column: Column) -> ArrayAppender:
    dims = ("nonzero", "value")[: 1 + len(column.trailing)]
    chunk_rows = crop_chunk_rows(num_entries, column.num_bytes)
    return ArrayAppender(
        task.writer.path, ArrayForm(path, (num_entries, *column.trailing), column.dtype, dims, chunk_rows)
    )
