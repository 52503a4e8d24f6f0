"""The tasks that make grid cells: scatter a row block's entries by cell, then sort and write one cell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.key_sorter import KeyRange, KeySorter, Segment
from gnnloom.pipeline.external_sort.spill import read_bytes, write_file
from gnnloom.pipeline.shards.part_order import Order
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.storage.artifacts.csr_group import Window, write_csr_group
from gnnloom.storage.artifacts.graph import Graph, block_path
from gnnloom.storage.artifacts.grid_shards import cell_path, crop_chunk_rows
from gnnloom.storage.format.arrays import ArrayAppender, write_array
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.format.groups import write_group
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.ranges import split_range

#: Most entries of one spill file.
MAX_RUN_ENTRIES = 1 << 22
#: Bytes that an entry takes while it is scattered: ids, places, cell and key, and their copies.
_SCATTER_BYTES = 64
#: Bytes that an entry takes while its cell is sorted: two keys, two weights, and the columns written.
_SORT_BYTES = 32

Places = NDArray[np.int64]


@dataclass(frozen=True)
class ScatterTask:
    """Scatters one row block of a matrix into the cells of one variant."""

    writer: ArtifactWriter
    matrix_path: Path
    variant: str
    block: int
    row_order: Order | None
    column_order: Order | None
    grid: tuple[int, int]
    memory: int

    @property
    def name(self) -> str:
        return scatter_name(self.variant, self.block)


@dataclass(frozen=True)
class WriteCellTask:
    """Sorts and writes one cell of a variant."""

    writer: ArtifactWriter
    variant: str
    cell: tuple[int, int]
    grid: tuple[int, int]
    num_vertices: int
    num_blocks: int
    weighted: bool
    memory: int

    @property
    def path(self) -> str:
        return cell_path(self.variant, *self.cell)

    @property
    def name(self) -> str:
        return f"cell/{self.path}"


def scatter_name(variant: str, block: int) -> str:
    """Part that records the spill files of a block."""
    return f"scatter/{variant}/{block:05d}"


def _run_path(work: Path, variant: str, block: int, run: int) -> Path:
    return work / "cells" / variant / f"{block:05d}-{run:04d}.run"


def scatter_block(task: ScatterTask) -> None:
    """Write the block's entries as runs: offsets of the cells, keys (local row, local column), weights."""
    graph = Graph(Artifact(task.matrix_path))
    limit = min(MAX_RUN_ENTRIES, working_memory(task.memory) // _SCATTER_BYTES)
    sizes = []
    with task.writer.task(task.name) as output:
        for run, entries in enumerate(_entries(graph, task.block, limit)):
            arrays = _scattered(task, graph.num_vertices, *entries)
            write_file(_run_path(task.writer.work, task.variant, task.block, run), arrays)
            sizes.append(len(arrays[1]))
        output.facts = {"entries": sizes}


def _entries(graph: Graph, block: int, limit: int) -> Iterator[tuple[Places, NDArray[Any], NDArray[Any] | None]]:
    """Rows, columns and weights of a block's entries, at most ``limit`` at a time."""
    prefix, first_row = block_path(block), graph.block_rows[block]
    indptr = graph.artifact.array(f"{prefix}/indptr").read()
    indices = graph.artifact.array(f"{prefix}/indices")
    data = graph.artifact.array(f"{prefix}/data") if graph.weighted else None
    step = max(indices.chunk_rows, limit // indices.chunk_rows * indices.chunk_rows)
    for start in range(0, len(indices), step):
        stop = min(start + step, len(indices))
        row = first_row + _rows_of(indptr, start, stop)
        yield row, indices.read(start, stop), data.read(start, stop) if data else None


def _scattered(
    task: ScatterTask, num_vertices: int, row: Places, column: NDArray[Any], weight: NDArray[Any] | None
) -> list[NDArray[Any]]:
    rows, columns = task.grid
    row_place = task.row_order.forward(row) if task.row_order else row
    column_place = task.column_order.forward(column) if task.column_order else column.astype(np.int64)
    cell = np.empty(len(row), dtype=np.int32)
    key = np.empty(len(row), dtype=np.uint64)
    _locate(row_place, column_place, num_vertices, rows, columns, column_bits(num_vertices, columns), cell, key)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=rows * columns))]).astype(np.int64)
    values = weight if weight is not None else np.empty(0, np.float32)
    scattered_key, scattered_value = np.empty_like(key), np.empty_like(values)
    _scatter(cell, key, values, offsets[:-1].copy(), scattered_key, scattered_value)
    return [offsets, scattered_key, scattered_value]


def column_bits(num_vertices: int, columns: int) -> int:
    """Bits of a local column in a key: ranges of columns differ by one at most."""
    return (-(-num_vertices // columns)).bit_length()


def write_cell(task: WriteCellTask) -> None:
    """Sort one cell's entries in a bounded buffer and write it as CSR with local ids."""
    rows = _width(task.num_vertices, task.grid[0], task.cell[0])
    width = _width(task.num_vertices, task.grid[1], task.cell[1])
    bits = column_bits(task.num_vertices, task.grid[1])
    segments = list(_segments(task))
    whole = KeyRange(0, max(0, (rows << bits) - 1), segments)
    with task.writer.task(task.name) as output:
        counts = np.zeros(rows, dtype=np.int64)
        indices = ArrayAppender(
            task.writer.path,
            f"{task.path}/indices",
            (whole.entries,),
            index_dtype(width),
            ("nonzero",),
            crop_chunk_rows(whole.entries, index_dtype(width).itemsize),
        )
        data = None
        if task.weighted:
            chunk_rows = crop_chunk_rows(whole.entries, 4)
            data = ArrayAppender(
                task.writer.path, f"{task.path}/data", (whole.entries,), np.float32, ("nonzero",), chunk_rows
            )
        capacity = min(max(1, whole.entries), working_memory(task.memory) // _SORT_BYTES)
        sorter = KeySorter(task.writer.work / "split", capacity, "first" if task.weighted else None)
        for part in sorter.sort(whole) if whole.entries else ():
            _count_rows(part.keys, bits, counts)
            indices.append((part.keys & np.uint64((1 << bits) - 1)).astype(index_dtype(width)))
            if data is not None:
                data.append(part.weights)
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        _describe_cell(task, rows, width, whole.entries)
        chunk_rows = crop_chunk_rows(len(indptr), indptr.itemsize)
        output.add(write_array(task.writer.path, f"{task.path}/indptr", indptr, ("row+1",), chunk_rows))
        output.add(indices.close())
        if data is not None:
            output.add(data.close())
        output.facts = {"nnz": whole.entries}


def _width(size: int, parts: int, number: int) -> int:
    start, stop = split_range(size, parts, number)
    return stop - start


def _segments(task: WriteCellTask) -> Iterator[Segment]:
    recorded = task.writer.recorded(f"scatter/{task.variant}/")
    num_cells = task.grid[0] * task.grid[1]
    number = task.cell[0] * task.grid[1] + task.cell[1]
    entries_at = 8 * (num_cells + 1)
    for block in range(task.num_blocks):
        for run, entries in enumerate(recorded[scatter_name(task.variant, block)].facts["entries"]):
            path = _run_path(task.writer.work, task.variant, block, run)
            bounds = np.empty(2, dtype=np.int64)
            read_bytes(path, 8 * number, bounds)
            if bounds[0] < bounds[1]:
                yield Segment(path, int(bounds[0]), int(bounds[1]), entries_at, entries_at + 8 * entries, None)


def _describe_cell(task: WriteCellTask, rows: int, width: int, nnz: int) -> None:
    folder = task.writer.path
    for part in task.path.split("/")[:-1]:
        folder = folder / part
        write_group(folder, {})
    n = task.num_vertices
    first_row, first_column = (split_range(n, task.grid[axis], task.cell[axis])[0] for axis in (0, 1))
    write_csr_group(task.writer.path / task.path, (rows, width), nnz, Window(first_row, first_column, (n, n)))


@njit(cache=True, nogil=True)
def _rows_of(indptr: NDArray[np.int64], start: int, stop: int) -> Places:
    """(stop - start,) local rows of the entries ``start`` to ``stop``."""
    out = np.empty(stop - start, dtype=np.int64)
    row = int(np.searchsorted(indptr, start, side="right")) - 1
    for k in range(start, stop):
        while indptr[row + 1] <= k:
            row += 1
        out[k - start] = row
    return out


@njit(cache=True, nogil=True)
def _locate(
    row: Places,
    column: Places,
    size: int,
    rows: int,
    columns: int,
    bits: int,
    cell: NDArray[np.int32],
    key: NDArray[np.uint64],
) -> None:
    """Cell of every entry, and its local row and column in one key."""
    for k in range(len(row)):
        # Place x lies in the last range i that begins at or before it: i * size < (x + 1) * parts.
        i = ((row[k] + 1) * rows - 1) // size
        j = ((column[k] + 1) * columns - 1) // size
        cell[k] = i * columns + j
        key[k] = (np.uint64(row[k] - i * size // rows) << np.uint64(bits)) | np.uint64(column[k] - j * size // columns)


@njit(cache=True, nogil=True)
def _scatter(
    cell: NDArray[np.int32],
    key: NDArray[np.uint64],
    value: NDArray[Any],
    position: NDArray[np.int64],
    out_key: NDArray[np.uint64],
    out_value: NDArray[Any],
) -> None:
    for k in range(len(cell)):
        place = position[cell[k]]
        position[cell[k]] = place + 1
        out_key[place] = key[k]
        if len(value):
            out_value[place] = value[k]


@njit(cache=True, nogil=True)
def _count_rows(keys: NDArray[np.uint64], bits: int, counts: NDArray[np.int64]) -> None:
    for k in range(len(keys)):
        counts[np.intp(keys[k] >> np.uint64(bits))] += 1
