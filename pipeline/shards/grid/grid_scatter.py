"""First pass of the grid shards: the entries of each row block are scattered by grid cell.

The position of an entry is its cell, by row and then column of the grid. Its key is
``local row << column_bits | local column``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane
from gnnloom.pipeline.shards.grid.part_order import Order
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.memory import rows_that_fit
from gnnloom.pipeline.tasks.phase import Task
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.kernels import count_at_most, kernel

#: Most entries of one run: 32 MiB of keys and 16 MiB of weights.
MAX_RUN_ENTRIES = 1 << 22
#: Bytes of an entry while it is scattered: ids, positions, cell and key, and their copies.
SCATTER_BYTES = 64

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class ScatterToCellsTask(Task):
    """Scatters one row block of a matrix into the cells of one variant.

    Attributes:
        row_order: None for the order of the ids.
        column_order: likewise.
        grid: (p, q) cells.
        memory: bytes that the worker may use in total.
        lane: where the runs go, relative to the work folder.
    """

    matrix_path: Path
    shuffle: Shuffle
    block: int
    row_order: Order | None
    column_order: Order | None
    grid: tuple[int, int]
    memory: int
    lane: Lane


def cell_shuffle(variant: str, grid: tuple[int, int], *, weighted: bool) -> Shuffle:
    """The shuffle of a variant's entries, by cell."""
    columns = [Column("key", "uint64"), *([Column("weight", "float32")] if weighted else [])]
    return Shuffle(f"cells/{variant}", grid[0] * grid[1], tuple(columns), grid[0] * grid[1])


def scatter_to_cells(task: ScatterToCellsTask) -> int:
    """Scatter the entries of a block, as one run or several; returns their number."""
    graph = Graph(Artifact(task.matrix_path))
    with task.writer.task(task.name) as output, task.shuffle.routed(output, task.lane) as out:
        for entries in _entries(graph, task.block, run_entries(task.memory)):
            row, column, weight = entries
            values = weight if weight is not None else np.empty(0, np.float32)
            orders = task.row_order, task.column_order
            cells, key, values = scattered(row, column, values, graph.num_vertices, task.grid, *orders)
            out.add(Index.of_offsets(cells), {"key": key, "weight": values})
    return graph.block_nnz[task.block]


def run_entries(memory: int) -> int:
    """Approximate maximum number of entries of a run, for workers that may use ``memory`` bytes."""
    return min(MAX_RUN_ENTRIES, rows_that_fit(memory, SCATTER_BYTES))


def column_bits(num_vertices: int, columns: int) -> int:
    """Bits of a local column in a key; enough for the widest range of columns."""
    return (-(-num_vertices // columns)).bit_length()


def _entries(graph: Graph, block: int, limit: int) -> Iterator[tuple[Positions, NDArray[Any], NDArray[Any] | None]]:
    """Yield rows, columns and weights of a block's entries, about ``limit`` at a time."""
    first_row, indptr = graph.block_rows[block], graph.pointers(block)
    indices, data = graph.columns(block), graph.weights(block)
    for start, stop in indices.ranges(limit):
        # Rows of the matrix from rows of the block: positions and cells refer to the whole matrix.
        row = first_row + rows_of(indptr, start, stop)
        yield row, indices.read(start, stop), data.read(start, stop) if data else None


def scattered(
    row: Positions,
    column: NDArray[Any],
    values: NDArray[Any],
    num_vertices: int,
    grid: tuple[int, int],
    row_order: Order | None,
    column_order: Order | None,
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[Any]]:
    """Sort entries by cell.

    Args:
        row, column: (num_entries,) vertices of the entries.
        values: (num_entries,) values of the entries, or empty.
        row_order, column_order: None for the order of the ids.

    Returns:
        (num_cells + 1,) int64 entry at which each cell begins, (num_entries,) keys, and the values, by cell.
    """
    rows, columns = grid
    row_position = row_order.forward(row) if row_order else row
    column_position = column_order.forward(column) if column_order else column.astype(np.int64)
    # A grid has at most 999^2 cells, so int32 holds their numbers.
    cell = np.empty(len(row), dtype=np.int32)
    key = np.empty(len(row), dtype=np.uint64)
    bits = column_bits(num_vertices, columns)
    _locate(row_position, column_position, num_vertices, rows, columns, bits, cell, key)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=rows * columns))]).astype(np.int64)
    scattered_key, scattered_value = np.empty_like(key), np.empty_like(values)
    _scatter(cell, key, values, offsets[:-1].copy(), scattered_key, scattered_value)
    return offsets, scattered_key, scattered_value


@kernel
def rows_of(indptr: NDArray[np.int64], start: int, stop: int) -> Positions:
    """Return the (stop - start,) local rows of the entries ``start`` to ``stop``."""
    out = np.empty(stop - start, dtype=np.int64)
    # The last row that begins at or before the first entry, after any empty rows.
    row = count_at_most(indptr, start) - 1
    # One walk over entries and rows together; the inner loop skips empty rows.
    for k in range(start, stop):
        while indptr[row + 1] <= k:
            row += 1
        out[k - start] = row
    return out


@kernel
def _locate(
    row: Positions,
    column: Positions,
    size: int,
    rows: int,
    columns: int,
    bits: int,
    cell: NDArray[np.int32],
    key: NDArray[np.uint64],
) -> None:
    """Compute the cell of every entry, and its key from the local row and column."""
    # Position x lies in the last range i that begins at or before it, i * size // parts <= x; for integers that is
    # i * size < (x + 1) * parts. Grids have at most 999 ranges in each direction, so no product comes near 2^63.
    for k in range(len(row)):
        i = ((row[k] + 1) * rows - 1) // size
        j = ((column[k] + 1) * columns - 1) // size
        cell[k] = i * columns + j
        key[k] = (np.uint64(row[k] - i * size // rows) << np.uint64(bits)) | np.uint64(column[k] - j * size // columns)


@kernel
def _scatter(
    cell: NDArray[np.int32],
    key: NDArray[np.uint64],
    value: NDArray[Any],
    position: NDArray[np.int64],
    out_key: NDArray[np.uint64],
    out_value: NDArray[Any],
) -> None:
    """Sort keys and values by cell; ``position`` holds the next free position of each cell and is advanced."""
    # The second half of a counting sort: a single pass over the entries.
    for k in range(len(cell)):
        target = position[cell[k]]
        position[cell[k]] = target + 1
        out_key[target] = key[k]
        if len(value):
            out_value[target] = value[k]
