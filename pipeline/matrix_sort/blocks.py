"""Pass 2 of the bucket sort: the entries of a range of rows become a stored row block."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.key_sorter import Encoding, KeyRange, KeySorter, Segment, Slice, Units, grouped
from gnnloom.pipeline.external_sort.spill import read_offsets
from gnnloom.pipeline.matrix_sort.sort_plan import SortPlan
from gnnloom.pipeline.tasks.memory import MIB, working_memory
from gnnloom.pipeline.tasks.progress import Done
from gnnloom.storage.artifacts.graph import BlockWriter, block_path
from gnnloom.storage.errors import BudgetError
from gnnloom.storage.format.arrays import ArrayRecord
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.matrix.csr import index_dtype

#: Bytes of memory for each row of a block: its pointer, its count, and what both are made with.
ROW_MEMORY = 48


def block_rows_limit(memory: int) -> int:
    """Most rows of a block that leave room to sort in a worker with ``memory`` bytes."""
    return (working_memory(memory) * 3 // 4 - 8 * MIB) // ROW_MEMORY


@dataclass(frozen=True)
class BlockTask:
    """Makes one row block of what the plan lists."""

    writer: ArtifactWriter
    number: int
    plan: Path
    memory: int


def make_block(task: BlockTask) -> Done:
    """Sort, merge and store one row block; returns its number of entries.

    Raises:
        BudgetError: the block's row pointers alone do not fit the memory.
    """
    started = time.perf_counter()
    plan = SortPlan.load(task.plan)
    with task.writer.task(block_path(task.number)) as output:
        block = _Block(task, plan)
        output.arrays = block.write()
        output.facts = {
            "entries": plan.block_entries[task.number],
            "nnz": block.nnz,
            "duplicates": block.duplicates,
            "seconds": round(time.perf_counter() - started, 4),
        }
    return Done(plan.block_entries[task.number])


class _Block:
    """One row block while it is made."""

    def __init__(self, task: BlockTask, plan: SortPlan) -> None:
        self.task, self.plan = task, plan
        self.first_row, self.stop_row = plan.block_rows[task.number : task.number + 2]
        self.num_rows = self.stop_row - self.first_row
        self.capacity = self._capacity()
        self.nnz = 0
        self.duplicates = 0

    def _capacity(self) -> int:
        """Entries to sort at once: what the budget allows, or the block needs."""
        free = working_memory(self.task.memory) * 3 // 4 - ROW_MEMORY * self.num_rows
        entry_bytes = 16 + (12 if self.plan.merge else 0)
        if self.num_rows > block_rows_limit(self.task.memory):
            raise BudgetError(
                f"{self.task.writer.path}: block {self.task.number} has {self.num_rows:,} rows, too many for"
                f" {self.task.memory // MIB} MiB per worker; give more memory"
            )
        return max(1, min(free // entry_bytes, self.plan.block_entries[self.task.number]))

    def write(self) -> list[ArrayRecord]:
        """Write the block aside and put it in its place."""
        writer = self.task.writer
        aside = writer.work / "blocks" / uuid.uuid4().hex
        records = self._write_matrix(aside)
        _put_in_place(aside / block_path(self.task.number), writer.path / block_path(self.task.number))
        shutil.rmtree(aside, ignore_errors=True)
        return records

    def _write_matrix(self, root: Path) -> list[ArrayRecord]:
        plan = self.plan
        data_dtype = np.dtype(np.float32) if plan.merge else None
        output = BlockWriter(root, self.task.number, plan.num_vertices, data_dtype, plan.codec)
        room = self.capacity + (self.num_rows if plan.add_loops else 0)
        dtype = index_dtype(plan.num_vertices)
        sorter = KeySorter(self.task.writer.work / "spill", self.capacity, plan.merge, room * dtype.itemsize)
        columns = sorter.scratch[: room * dtype.itemsize].view(dtype)
        data = np.empty(room if plan.merge else 0, dtype=np.float32)
        row_counts = np.zeros(self.num_rows, dtype=np.int64)
        for part in self._ranges():
            for piece in sorter.slices(part):
                count = self._emit(piece, row_counts, columns, data)
                output.append(columns[:count], data[:count] if plan.merge else None)
                self.duplicates += piece.entries - len(piece.keys)
                self.nnz += count
        indptr = np.zeros(self.num_rows + 1, dtype=np.int64)
        np.cumsum(row_counts, out=indptr[1:])
        return output.close(self.first_row, indptr)

    def _emit(
        self, piece: Slice, row_counts: NDArray[np.int64], columns: NDArray[np.integer], data: NDArray[np.float32]
    ) -> int:
        count: int = _emit(
            piece.keys,
            piece.weights,
            piece.first_key,
            piece.last_key,
            self.plan.column_bits,
            self.first_row,
            self.plan.add_loops,
            row_counts,
            columns,
            data,
        )
        return count

    def _ranges(self) -> Iterator[KeyRange]:
        """Consecutive units of the block that can be sorted at once, or single ones that cannot."""
        plan = self.plan
        first, last = plan.block_units[self.task.number : self.task.number + 2]
        runs = [_RunRows(self.task.writer.work, plan, number, first, last) for number in range(len(plan.runs))]
        sizes = np.zeros(last - first, dtype=np.int64)
        for run in runs:
            sizes += run.unit_entries
        for start, stop in grouped(sizes, self.capacity):
            stop_row = min(stop << plan.shift, self.num_rows)
            first_key = (start << plan.shift) << plan.column_bits
            last_key = (stop_row << plan.column_bits) - 1
            units = Units(plan.shift, plan.shift + plan.column_bits, sizes[start:stop])
            yield KeyRange(first_key, last_key, [run.segment(start, stop) for run in runs], units)


class _RunRows:
    """The entries of a row block in one run."""

    def __init__(self, work: Path, plan: SortPlan, number: int, first_unit: int, last_unit: int) -> None:
        run = self.run = plan.runs[number]
        self._path = work / run.path
        self._plan = plan
        #: Buckets of the run in a unit of the graph.
        self._per_unit = 1 << (plan.shift - run.shift)
        self._offsets = read_offsets(work, run, first_unit * self._per_unit, last_unit * self._per_unit)
        edges = np.arange(last_unit - first_unit + 1) * self._per_unit
        #: (num_units + 1) first entry of each unit.
        self._unit_offsets = self._offsets[np.minimum(edges, len(self._offsets) - 1)]
        self.unit_entries = np.diff(self._unit_offsets)

    def segment(self, start: int, stop: int) -> Segment:
        """Entries of the units ``start`` to ``stop`` of the block."""
        run = self.run
        bucket = min(start * self._per_unit, len(self._offsets) - 1)
        encoding = Encoding(
            run.high_at,
            run.high_dtype,
            self._offsets[bucket:],
            bucket << run.shift,
            run.shift,
            run.column_bits,
            self._plan.column_bits,
        )
        first, last = int(self._unit_offsets[start]), int(self._unit_offsets[stop])
        return Segment(self._path, first, last, run.low_at, run.weights_at, encoding)


def _put_in_place(made: Path, final: Path) -> None:
    """Give a finished block its name, unless one is there: of a task that was taken for dead, with the same bytes."""
    final.parent.mkdir(exist_ok=True)
    try:
        made.rename(final)
    except OSError:
        if not final.exists():
            raise


@njit(cache=True, nogil=True)
def _emit(
    keys: NDArray[np.uint64],
    weights: NDArray[np.float32],
    first_key: int,
    last_key: int,
    column_bits: int,
    first_row: int,
    add_loops: bool,
    row_counts: NDArray[np.int64],
    columns: NDArray[np.integer],
    data: NDArray[np.float32],
) -> int:
    """Write the columns of sorted distinct keys, with the self loops that the range lacks; returns their number."""
    column_mask = np.uint64((1 << column_bits) - 1)
    count = 0
    loop_row = first_key >> column_bits
    if (loop_row << column_bits) | (first_row + loop_row) < first_key:
        loop_row += 1
    loop_key = (loop_row << column_bits) | (first_row + loop_row)
    k = 0
    while True:
        loops_left = add_loops and loop_key <= last_key
        if k < keys.size and (not loops_left or np.int64(keys[k]) <= loop_key):
            key = np.int64(keys[k])
            columns[count] = keys[k] & column_mask
            row_counts[key >> column_bits] += 1
            if data.size:
                data[count] = weights[k]
            k += 1
            if loops_left and key == loop_key:
                loop_row += 1
        elif loops_left:
            columns[count] = first_row + loop_row
            row_counts[loop_row] += 1
            if data.size:
                data[count] = 1.0
            loop_row += 1
        else:
            return count
        count += 1
        loop_key = (loop_row << column_bits) | (first_row + loop_row)
