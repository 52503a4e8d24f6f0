"""Second pass of the grid shards: sort the entries of one cell and write them as CSR with local ids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.key_sorter import KeyRange, KeySorter, Segment
from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.shards.grid.grid_scatter import column_bits
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.memory import rows_that_fit
from gnnloom.pipeline.tasks.phase import Task
from gnnloom.storage.artifacts.csr_group import Window, write_csr_group
from gnnloom.storage.disk.groups import write_group
from gnnloom.storage.format.array_pieces import ArrayAppender, ArrayForm
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.storage.shards.grid_shards import cell_path, crop_chunk_rows

#: Bytes of an entry while its cell is sorted: two keys, two weights, and the columns written.
SORT_BYTES = 32


@dataclass(frozen=True)
class WriteCellTask(Task):
    """Sorts and writes one cell of a variant.

    Attributes:
        cell: (row, column) of the cell in ``grid``.
        shuffle: of the variant's entries.
        memory: bytes that the worker may use in total.
    """

    variant: str
    cell: tuple[int, int]
    grid: tuple[int, int]
    num_vertices: int
    shuffle: Shuffle
    memory: int

    @property
    def path(self) -> str:
        """The cell's group in the artifact."""
        return cell_path(self.variant, *self.cell)

    @property
    def weighted(self) -> bool:
        """Whether entries have weights."""
        return any(column.name == "weight" for column in self.shuffle.columns)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the cell."""
        spans = [split_range(self.num_vertices, self.grid[axis], self.cell[axis]) for axis in range(2)]
        return spans[0][1] - spans[0][0], spans[1][1] - spans[1][0]


def cell_name(variant: str, row: int, column: int) -> str:
    """Name of the task that writes a cell."""
    return f"cell/{cell_path(variant, row, column)}"


def write_cell(task: WriteCellTask) -> int:
    """Sort one cell's entries in a bounded buffer and write it; returns its number of entries."""
    rows, width = task.shape
    bits = column_bits(task.num_vertices, task.grid[1])
    # The record follows the arrays: after a kill the task runs again and writes the same bytes over what is there.
    with OpenFiles(task.writer.work) as files, task.writer.task(task.name) as output:
        # A range without rows has no keys, and the highest key may not be negative.
        whole = KeyRange(0, max(0, (rows << bits) - 1), _segments(task, files))
        indices = _appender(task, "indices", whole.entries, index_dtype(width))
        data = _appender(task, "data", whole.entries, np.dtype(np.float32)) if task.weighted else None
        # Columns are written while they are sorted; only then are the row counts, and with them ``indptr``, known.
        counts = _append_sorted(task, whole, bits, indices, data)
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        _describe_cell(task, whole.entries)
        chunk_rows = crop_chunk_rows(len(indptr), indptr.itemsize)
        output.add(write_array(task.writer.path, f"{task.path}/indptr", indptr, ("row+1",), chunk_rows))
        output.add(indices.close())
        if data is not None:
            output.add(data.close())
        output.facts = {"nnz": whole.entries}
    return whole.entries


def _segments(task: WriteCellTask, files: OpenFiles) -> list[Segment]:
    """The entries of the cell, in the order of the blocks."""
    number = task.cell[0] * task.grid[1] + task.cell[1]
    segments = []
    for section in task.shuffle.rows(task.writer.work, files).sections(number, number + 1):
        lane, keys_at = section.place("key")
        weights_at = section.place("weight")[1] if task.weighted else 0
        segments.append(Segment(lane, 0, section.num_rows, keys_at, weights_at, None))
    return segments


def _appender(task: WriteCellTask, name: str, num_entries: int, dtype: np.dtype[np.generic]) -> ArrayAppender:
    chunk_rows = crop_chunk_rows(num_entries, dtype.itemsize)
    form = ArrayForm(f"{task.path}/{name}", (num_entries,), dtype.name, ("nonzero",), chunk_rows)
    return ArrayAppender(task.writer.path, form)


def _append_sorted(
    task: WriteCellTask, whole: KeyRange, bits: int, indices: ArrayAppender, data: ArrayAppender | None
) -> NDArray[np.int64]:
    """Write columns and weights in order; returns the (num_rows,) entries of each row."""
    rows, width = task.shape
    counts = np.zeros(rows, dtype=np.int64)
    # A cell with more entries than the buffer holds is split on disk, so a dense cell takes no more memory.
    capacity = min(max(1, whole.entries), rows_that_fit(task.memory, SORT_BYTES))
    # The graph has no duplicate entries, so merging never happens and any mode gives the same weights.
    sorter = KeySorter(task.writer.work / "split", capacity, "first" if task.weighted else None)
    for piece in sorter.sort(whole) if whole.entries else ():
        count_rows(piece.keys, bits, counts)
        # The low bits of a key are the local column.
        indices.append((piece.keys & np.uint64((1 << bits) - 1)).astype(index_dtype(width)))
        if data is not None:
            data.append(piece.weights)
    return counts


def _describe_cell(task: WriteCellTask, nnz: int) -> None:
    """Write the attributes of the cell's group, and the groups above it, which any of the cells may write first."""
    folder = task.writer.path
    for name in task.path.split("/")[:-1]:
        folder = folder / name
        # Every writer leaves the same content, so tasks need no lock.
        write_group(folder, {})
    n = task.num_vertices
    first_row, first_column = (split_range(n, task.grid[axis], task.cell[axis])[0] for axis in (0, 1))
    write_csr_group(task.writer.path / task.path, task.shape, nnz, Window(first_row, first_column, (n, n)))


@kernel
def count_rows(keys: NDArray[np.uint64], bits: int, counts: NDArray[np.int64]) -> None:
    """Add the entries of each row to ``counts``."""
    # The high bits of a key are the local row.
    for k in range(len(keys)):
        counts[np.intp(keys[k] >> np.uint64(bits))] += 1
