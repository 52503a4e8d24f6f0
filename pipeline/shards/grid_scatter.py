"""First pass of the grid shards: scatter the entries of a row block by grid cell into spill files, called runs.

A run holds (num_cells + 1,) int64 offsets, counted in entries; then the uint64 keys of all entries, sorted by cell;
then their float32 weights, if there are any. A key is ``local row << column_bits | local column``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.key_sorter import Segment
from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.external_sort.raw_files import write_file
from gnnloom.pipeline.shards.part_order import Order
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.storage.artifacts.graph import Graph, block_path
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, TaskRecord
from gnnloom.storage.format.files import read_json, write_json
from gnnloom.storage.matrix.ranges import range_of

#: Most entries of one run: 32 MiB of keys and 16 MiB of weights.
MAX_RUN_ENTRIES = 1 << 22
#: Bytes of an entry while it is scattered: ids, positions, cell and key, and their copies.
SCATTER_BYTES = 64

#: Bytes of an entry in a run: of its key, and of its weight if there is one.
KEY_BYTES, WEIGHT_BYTES = 8, 4
#: Folder of the work folder with the list of the runs of each variant.
_RUNS = "runs"

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class ScatterToCellsTask:
    """Scatters one row block of a matrix into the cells of one variant.

    Attributes:
        row_order: None for the order of the ids.
        column_order: likewise.
        grid: (p, q) cells.
        memory: bytes that the worker may use in total.
    """

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
        return _scatter_name(self.variant, self.block)


def _scatter_name(variant: str, block: int) -> str:
    return f"scatter/{variant}/{block:05d}"


def runs_folder(variant: str) -> str:
    """Folder of the runs that the scatter leaves, relative to the work folder."""
    return f"cells/{variant}"


def _run_path(variant: str, block: int, run: int) -> str:
    return f"{runs_folder(variant)}/{block:05d}-{run:04d}.run"


def scatter_to_cells(task: ScatterToCellsTask) -> int:
    """Write the entries of a block as runs and record the length of each; returns the number of entries."""
    graph = Graph(Artifact(task.matrix_path))
    limit = run_entries(task.memory)
    sizes = []
    with task.writer.task(task.name) as output:
        for run, entries in enumerate(_entries(graph, task.block, limit)):
            arrays = _scattered(task, graph.num_vertices, *entries)
            write_file(task.writer.work / _run_path(task.variant, task.block, run), arrays)
            sizes.append(len(arrays[1]))
        # Later passes read only the runs that the record counts, so runs that a killed task left do no harm.
        output.facts = {"entries": sizes}
    return sum(sizes)


def run_entries(memory: int) -> int:
    """Approximate maximum number of entries of a run, for workers that may use ``memory`` bytes."""
    return min(MAX_RUN_ENTRIES, working_memory(memory) // SCATTER_BYTES)


@dataclass(frozen=True)
class Run:
    """A spill file of entries, sorted by cell.

    Attributes:
        path: relative to the work folder.
    """

    path: str
    entries: int


@dataclass(frozen=True)
class CellRuns:
    """The runs of a variant that hold each cell's entries: the same ones for all cells of a span."""

    spans: Sequence[Sequence[Run]]

    def save(self, work: Path, variant: str) -> None:
        """Write the list into one file, which every cell's task reads instead of all records."""
        spans = [[[run.path, run.entries] for run in runs] for runs in self.spans]
        write_json(work / _RUNS / f"{variant}.json", {"spans": spans}, durable=False)

    @classmethod
    def load(cls, work: Path, variant: str) -> CellRuns:
        content = read_json(work / _RUNS / f"{variant}.json")
        return cls([[Run(*run) for run in runs] for runs in content["spans"]])

    def of_cell(self, num_cells: int, number: int) -> Sequence[Run]:
        """The runs that may have entries of a cell, in the order of the blocks."""
        return self.spans[range_of(num_cells, len(self.spans), number)]


def scattered_runs(variant: str, records: Sequence[TaskRecord]) -> list[Run]:
    """The runs that the scatter of a variant left, in the order of the blocks.

    Args:
        records: records of the variant's tasks, in the order of the blocks.
    """
    return [
        Run(_run_path(variant, block, number), entries)
        for block, record in enumerate(records)
        for number, entries in enumerate(record.facts["entries"])
    ]


def cell_segments(
    writer: ArtifactWriter, files: OpenFiles, variant: str, num_cells: int, number: int
) -> Iterator[Segment]:
    """Yield the entries of one cell in all runs, in the order of the blocks.

    Args:
        files: files of the work folder, which stay open while the entries are read.
        num_cells: cells of the grid.
        number: number of the cell, by row and then column.
    """
    entries_at = 8 * (num_cells + 1)
    for run in CellRuns.load(writer.work, variant).of_cell(num_cells, number):
        lane = files.lane(Lane(run.path))
        # Only two offsets: reading the whole header in every cell's task would take O(cells^2) per run.
        bounds = np.empty(2, dtype=np.int64)
        lane.read(8 * number, bounds)
        if bounds[0] < bounds[1]:
            yield Segment(lane, int(bounds[0]), int(bounds[1]), entries_at, entries_at + KEY_BYTES * run.entries, None)


def column_bits(num_vertices: int, columns: int) -> int:
    """Bits of a local column in a key; enough for the widest range of columns."""
    return (-(-num_vertices // columns)).bit_length()


def _entries(graph: Graph, block: int, limit: int) -> Iterator[tuple[Positions, NDArray[Any], NDArray[Any] | None]]:
    """Yield rows, columns and weights of a block's entries, about ``limit`` at a time."""
    prefix, first_row = block_path(block), graph.block_rows[block]
    indptr = graph.artifact.array(f"{prefix}/indptr").read()
    indices = graph.artifact.array(f"{prefix}/indices")
    data = graph.artifact.array(f"{prefix}/data") if graph.weighted else None
    for start, stop in indices.ranges(limit):
        # Rows of the matrix from rows of the block: positions and cells are those of the whole matrix.
        row = first_row + _rows_of(indptr, start, stop)
        yield row, indices.read(start, stop), data.read(start, stop) if data else None


def _scattered(
    task: ScatterToCellsTask,
    num_vertices: int,
    row: Positions,
    column: NDArray[Any],
    weight: NDArray[Any] | None,
) -> list[NDArray[Any]]:
    """Offsets of the cells, and keys and weights sorted by cell."""
    rows, columns = task.grid
    row_position = task.row_order.forward(row) if task.row_order else row
    column_position = task.column_order.forward(column) if task.column_order else column.astype(np.int64)
    # A grid has at most 999^2 cells, so int32 holds their numbers.
    cell = np.empty(len(row), dtype=np.int32)
    key = np.empty(len(row), dtype=np.uint64)
    bits = column_bits(num_vertices, columns)
    _locate(row_position, column_position, num_vertices, rows, columns, bits, cell, key)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=rows * columns))]).astype(np.int64)
    values = weight if weight is not None else np.empty(0, np.float32)
    scattered_key, scattered_value = np.empty_like(key), np.empty_like(values)
    _scatter(cell, key, values, offsets[:-1].copy(), scattered_key, scattered_value)
    return [offsets, scattered_key, scattered_value]


@njit(cache=True, nogil=True)
def _rows_of(indptr: NDArray[np.int64], start: int, stop: int) -> Positions:
    """Return the (stop - start,) local rows of the entries ``start`` to ``stop``."""
    out = np.empty(stop - start, dtype=np.int64)
    # The last row that begins at or before the first entry, after any empty rows.
    row = int(np.searchsorted(indptr, start, side="right")) - 1
    # One walk over entries and rows together; the inner loop skips empty rows.
    for k in range(start, stop):
        while indptr[row + 1] <= k:
            row += 1
        out[k - start] = row
    return out


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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
