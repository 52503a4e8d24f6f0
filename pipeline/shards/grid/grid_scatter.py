"""First pass of the grid shards: scatter the entries of a row block by grid cell into spill files, called runs.

The runs of a block follow each other in the lane of its task (:mod:`gnnloom.pipeline.external_sort.lanes`). A run holds
(num_cells + 1,) int64 offsets, counted in entries; then the uint64 keys of all entries, sorted by cell; then their
float32 weights, if there are any. A key is ``local row << column_bits | local column``.
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
from gnnloom.pipeline.external_sort.lanes import Lane, LaneWriter, OpenFiles, writable
from gnnloom.pipeline.shards.grid.part_order import Order
from gnnloom.pipeline.shards.lane_records import lane_facts, lanes_from_json, lanes_to_json, recorded_lane
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.storage.artifacts.graph import Graph
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
        lane: where the runs go, relative to the work folder.
    """

    writer: ArtifactWriter
    matrix_path: Path
    variant: str
    block: int
    row_order: Order | None
    column_order: Order | None
    grid: tuple[int, int]
    memory: int
    lane: Lane

    @property
    def name(self) -> str:
        return scatter_name(self.variant, self.block)


def scatter_name(variant: str, block: int) -> str:
    """Name of the task that scatters a block."""
    return f"scatter/{variant}/{block:05d}"


def runs_folder(variant: str) -> str:
    """Folder of the runs that the scatter leaves, relative to the work folder."""
    return f"cells/{variant}"


def scatter_to_cells(task: ScatterToCellsTask) -> int:
    """Write the entries of a block as runs, and record where each begins and its length; returns their number."""
    with task.writer.task(task.name) as output, writable(task.writer.work, task.lane) as lane:
        starts, sizes, end = _write_runs(task, lane)
        output.facts = {"starts": starts, "entries": sizes, **lane_facts(task.lane, end)}
    return sum(sizes)


def _write_runs(task: ScatterToCellsTask, lane: LaneWriter) -> tuple[list[int], list[int], int]:
    """Write the runs of a block; returns the byte at which each begins, its entries, and the bytes of all."""
    graph = Graph(Artifact(task.matrix_path))
    starts: list[int] = []
    sizes: list[int] = []
    end = 0
    for entries in _entries(graph, task.block, run_entries(task.memory)):
        arrays = _scattered(task, graph.num_vertices, *entries)
        starts.append(end)
        sizes.append(len(arrays[1]))
        for array in arrays:
            end = lane.write(end, array)
    return starts, sizes, end


def run_entries(memory: int) -> int:
    """Approximate maximum number of entries of a run, for workers that may use ``memory`` bytes."""
    return min(MAX_RUN_ENTRIES, working_memory(memory) // SCATTER_BYTES)


@dataclass(frozen=True)
class Run:
    """Entries sorted by cell, in a lane.

    Attributes:
        lane: the lane, relative to the work folder.
        start: byte of the lane at which the run begins.
    """

    lane: Lane
    start: int
    entries: int

    def offsets(self, files: OpenFiles, first: int, last: int) -> NDArray[np.int64]:
        """Read the (last - first + 1,) first entries of cells ``first`` to ``last``."""
        # Reading the whole header in every cell's task would take O(cells^2) per run.
        offsets = np.empty(last - first + 1, dtype=np.int64)
        files.lane(self.lane).read(self.start + 8 * first, offsets)
        return offsets

    def keys_at(self, num_cells: int) -> int:
        """Byte of the lane at which the keys begin."""
        return self.start + 8 * (num_cells + 1)

    def weights_at(self, num_cells: int) -> int:
        """Byte of the lane at which the weights begin, if there are any."""
        return self.keys_at(num_cells) + KEY_BYTES * self.entries


def save_runs(work: Path, variant: str, spans: Sequence[Sequence[Run]]) -> None:
    """Write the list of the runs of a variant into one file, which every cell's task reads instead of all records.

    Args:
        spans: the runs of each span of cells.
    """
    runs = [run for of_span in spans for run in of_span]
    content = {
        "spans": np.cumsum([0, *map(len, spans)]).tolist(),
        "lanes": lanes_to_json([run.lane for run in runs]),
        "starts": [run.start for run in runs],
        "entries": [run.entries for run in runs],
    }
    write_json(_list(work, variant), content, durable=False, indent=None)


def runs_of_cell(work: Path, variant: str, num_cells: int, number: int) -> list[Run]:
    """The runs that may have entries of a cell, in the order of the blocks."""
    content = read_json(_list(work, variant))
    span = range_of(num_cells, len(content["spans"]) - 1, number)
    start, stop = content["spans"][span : span + 2]
    lanes = lanes_from_json(content["lanes"], start, stop)
    return list(map(Run, lanes, content["starts"][start:stop], content["entries"][start:stop]))


def _list(work: Path, variant: str) -> Path:
    return work / _RUNS / f"{variant}.json"


def scattered_runs(records: Sequence[TaskRecord]) -> list[Run]:
    """The runs that the scatter of a variant left, in the order of the blocks.

    Args:
        records: records of the variant's tasks, in the order of the blocks.
    """
    return [
        Run(lane, start, entries)
        for record in records
        for lane in [recorded_lane(record)]
        for start, entries in zip(record.facts["starts"], record.facts["entries"], strict=True)
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
    for run in runs_of_cell(writer.work, variant, num_cells, number):
        start, stop = run.offsets(files, number, number + 1).tolist()
        if start < stop:
            places = run.keys_at(num_cells), run.weights_at(num_cells)
            yield Segment(files.lane(run.lane), start, stop, *places, None)


def column_bits(num_vertices: int, columns: int) -> int:
    """Bits of a local column in a key; enough for the widest range of columns."""
    return (-(-num_vertices // columns)).bit_length()


def _entries(graph: Graph, block: int, limit: int) -> Iterator[tuple[Positions, NDArray[Any], NDArray[Any] | None]]:
    """Yield rows, columns and weights of a block's entries, about ``limit`` at a time."""
    first_row, indptr = graph.block_rows[block], graph.pointers(block)
    indices, data = graph.columns(block), graph.weights(block)
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
