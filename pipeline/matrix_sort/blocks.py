"""Pass 2 of the bucket sort: the entries of a range of rows become a stored row block, and these give the degrees."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.key_sorter import (
    KeyRange,
    KeySorter,
    SortedKeys,
    UnequalDirectionsError,
    Units,
    grouped,
)
from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.external_sort.spill import KeyForm, value_dtype
from gnnloom.pipeline.matrix_sort.spilled import unit_rows
from gnnloom.pipeline.shuffle.run_list import RunList
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.memory import MIB, WRITING_BYTES, rows_that_fit
from gnnloom.pipeline.tasks.phase import Task
from gnnloom.storage.artifacts.block_matrix import BlockWriter, block_path
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.errors import BudgetError, InputError
from gnnloom.storage.format.arrays import CHUNK_BYTES, ArrayReader, ArrayRecord, write_rows
from gnnloom.storage.format.artifact import ArtifactWriter, TaskOutput
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.csr import TIME_BYTES, index_dtype
from gnnloom.storage.matrix.fingerprint import asymmetry
from gnnloom.storage.matrix.ranges import Span
from gnnloom.storage.matrix.ticks import floats_of_ticks, ticks_of_floats
from gnnloom.storage.meters import Done

#: Bytes of memory per row of a block: its count and pointer (8 each), and the copies made while the pointers are
#: summed up, compressed and written.
ROW_MEMORY = 48


@dataclass(frozen=True)
class MatrixForm:
    """Form of a matrix, known to every task that makes it.

    Attributes:
        keys: form of the keys of its entries.
        merge: how the values of equal edges are merged; None for a matrix without values.
        add_loops: whether every row gets a self loop.
        codec: compression of the arrays.
        value_bytes: bytes of a value: a weight, or a time; 0 if there are none.
        has_ticks: times are whole numbers, and are stored as these.
        compares_directions: determine whether the matrix equals its transpose, apart from the diagonal.
        keeps: equal edges are entries of their own, in the order of the source.
        values: name of the array of values; empty for ``data``, or ``time``.
    """

    keys: KeyForm
    merge: str | None
    add_loops: bool
    codec: str
    value_bytes: int = 0
    has_ticks: bool = False
    compares_directions: bool = False
    keeps: bool = False
    values: str = ""

    @property
    def entry_bytes(self) -> int:
        """Bytes of an entry as it is stored, uncompressed."""
        return int(index_dtype(self.keys.num_columns).itemsize) + self.value_bytes

    @property
    def sort_bytes(self) -> int:
        """Bytes of an entry while it is sorted: a key and its spare; a value, its spare, and the value as stored."""
        return 16 + 3 * self.value_bytes

    def rows_of(self, units: Span) -> Span:
        """First and last (exclusive) row of some units."""
        first, last = (min(unit << self.keys.shift, self.keys.num_rows) for unit in units)
        return first, last


class UnequalWeightsError(InputError):
    """The two directions of an undirected edge have different weights.

    Attributes:
        ends: names of the source and target of an edge, for messages.
        weights: the weight of the edge, and the weight of the edge from the target to the source.
    """

    def __init__(self, source: str, target: str, weight: str, reverse: str) -> None:
        # The arguments are the constructor's arguments, so that the error can be sent between processes.
        super().__init__(source, target, weight, reverse)
        self.ends, self.weights = (source, target), (weight, reverse)

    def __str__(self) -> str:
        (source, target), (weight, reverse) = self.ends, self.weights
        return (
            f"edge {source} {target} has weight {weight}, and {target} {source} has {reverse}: an undirected edge has"
            " one weight; combine both with `--merge max`, min, sum or first"
        )


def block_rows_limit(memory: int) -> int:
    """Maximum number of rows of a block that leaves 8 MiB to sort in a worker with ``memory`` bytes."""
    return rows_that_fit(memory, ROW_MEMORY, WRITING_BYTES + 8 * MIB)


def block_capacity(num_rows: int, memory: int, form: MatrixForm, scratch: Scratch) -> int:
    """Entries of a block that are sorted at a time."""
    return scratch.sorted_entries or rows_that_fit(memory, form.sort_bytes, WRITING_BYTES + ROW_MEMORY * num_rows)


@dataclass(frozen=True)
class BlockTask(Task):
    """Makes one row block.

    Attributes:
        spilled: the shuffle of the spill files.
        units: first and last (exclusive) unit of rows.
        entries: of the block in the spill files.
        memory: bytes that the worker may use.
        folder: beginning of the paths of the matrix's arrays.
    """

    number: int
    spilled: Shuffle
    form: MatrixForm
    units: Span
    entries: int
    memory: int
    folder: str = ""


def make_block(task: BlockTask) -> Done:
    """Sort, merge and store one row block; returns the number of sorted entries.

    Raises:
        BudgetError: the block's row pointers alone do not fit in memory.
        DamagedWorkError: a spill file is damaged.
        UnequalWeightsError: the two directions of an undirected edge have different weights, and no option says how to
            merge them.
    """
    first_row, stop_row = task.form.rows_of(task.units)
    if stop_row - first_row > block_rows_limit(task.memory):
        raise BudgetError(
            f"{task.writer.path}: block {task.number} has {stop_row - first_row:,} rows, too many for"
            f" {task.memory // MIB} MiB per worker; increase --memory"
        )
    with task.writer.task(task.name) as output, block_aside(task.writer, task.name) as aside:
        _write_matrix(task, (first_row, stop_row), aside, output)
    return Done(task.entries)


@contextmanager
def block_aside(writer: ArtifactWriter, path: str) -> Iterator[Path]:
    """Give the folder of an artifact to write a row block below; the block gets its place at the end.

    Args:
        path: of the block in the artifact.
    """
    aside, final = writer.new_aside(), writer.path / path
    yield aside
    final.parent.mkdir(parents=True, exist_ok=True)
    try:
        (aside / path).rename(final)
    except OSError:
        # A worker that was taken for dead may have finished the same task, with the same bytes.
        if not final.exists():
            raise
    shutil.rmtree(aside, ignore_errors=True)


def _write_matrix(task: BlockTask, rows: Span, root: Path, output: TaskOutput) -> None:
    """Sort the entries of a block and write it below another folder; records its arrays and the merged edges."""
    form, first_row, num_rows = task.form, rows[0], rows[1] - rows[0]
    # Entries per sort: the number that the memory allows, at most the entries of the block.
    capacity = min(block_capacity(num_rows, task.memory, form, task.writer.scratch), max(1, task.entries))
    room, dtype = capacity + (num_rows if form.add_loops else 0), index_dtype(form.keys.num_columns)
    sorter = KeySorter(
        task.writer.work / "split",
        capacity,
        form.merge,
        room * dtype.itemsize,
        form.value_bytes,
        marked=form.keys.marked,
        keeps=form.keeps,
    )
    # The columns are written into the sorter's spare keys, which are idle while its result is being used.
    columns = sorter.scratch[: room * dtype.itemsize].view(dtype)
    data = np.empty(room if form.merge else 0, value_dtype(form.value_bytes))
    row_counts = np.zeros(num_rows, dtype=np.int64)
    has_times = form.value_bytes == TIME_BYTES
    has_ticks = has_times and form.has_ticks
    values = None if not form.merge else np.dtype(np.int64) if has_ticks else data.dtype
    # A loop that is added weighs 1, as in PyG's ``gcn_norm``. Its time is 0.
    loop_value = 1.0 if not has_times else float(floats_of_ticks(np.zeros(1, np.int64))[0]) if has_ticks else 0.0
    block = BlockWriter(
        root,
        task.number,
        form.keys.num_columns,
        values,
        form.codec,
        has_times=has_times,
        num_rows=form.keys.num_rows,
        prefix=task.folder,
        values=form.values,
    )
    nnz = duplicates = joined = negative = edges = excess = parallel = 0
    last = -1
    # The sorter drops the marks.
    column_bits = replace(form.keys, marked=False).column_bits
    # Ranges ascend, so the block is written from front to back and never held in memory as a whole.
    with OpenFiles(task.writer.work) as files:
        for merged in _sorted(sorter, _ranges(task, num_rows, capacity, files), first_row, column_bits):
            count: int = _emit(
                merged.keys,
                merged.weights,
                merged.first_key,
                merged.last_key,
                column_bits,
                first_row,
                form.add_loops,
                loop_value,
                row_counts,
                columns,
                data,
            )
            stored = ticks_of_floats(data[:count]) if has_ticks else data[:count]
            block.append(columns[:count], stored if form.merge else None)
            duplicates += merged.entries - len(merged.keys)
            joined += merged.joined
            negative += 0 if has_times else int(np.count_nonzero(data[: count if form.merge else 0] < 0))
            nnz += count
            if form.keeps and len(merged.keys):
                parallel += int(np.count_nonzero(merged.keys[1:] == merged.keys[:-1])) + (int(merged.keys[0]) == last)
                last = int(merged.keys[-1])
            if form.compares_directions:
                bits = merged.weights.view(f"u{merged.weights.itemsize}")
                own, compared = asymmetry(merged.keys, bits, column_bits, first_row)
                excess, edges = excess + int(own), edges + compared
    indptr = np.zeros(num_rows + 1, dtype=np.int64)
    np.cumsum(row_counts, out=indptr[1:])
    output.arrays = block.close(first_row, indptr)
    output.facts = {"nnz": nnz, "duplicates": duplicates, "joined": joined, "negative_weights": negative}
    if parallel:
        output.facts["parallel"] = parallel
    if form.compares_directions:
        output.facts |= {"edges": edges, "asymmetry": excess % (1 << 64)}


def _sorted(sorter: KeySorter, ranges: Iterator[KeyRange], first_row: int, column_bits: int) -> Iterator[SortedKeys]:
    """Sort ranges of a block one after another; an edge whose directions differ is named by its vertices."""
    try:
        yield from chain.from_iterable(map(sorter.sort, ranges))
    except UnequalDirectionsError as error:
        # The entry A[i, j] is the edge j -> i.
        ends = error.key & ((1 << column_bits) - 1), first_row + (error.key >> column_bits)
        raise UnequalWeightsError(*map(str, (*ends, *error.weights))) from None


def _ranges(task: BlockTask, num_rows: int, capacity: int, files: OpenFiles) -> Iterator[KeyRange]:
    """Consecutive units of the block that can be sorted at once, and single units that cannot."""
    shift, bits = task.form.keys.shift, task.form.keys.column_bits
    listed = RunList.read(task.writer.work / task.spilled.list_path)
    lanes = listed.of(task.spilled.spans(listed.spans, *task.units))
    # In the order of the source, on which merging by "first" depends.
    found, sizes = unit_rows(files, chain.from_iterable(lanes.values()), task.form.keys, task.units)
    for start, stop in grouped(sizes, capacity):
        first_key = (start << shift) << bits
        last_key = (min(stop << shift, num_rows) << bits) - 1
        units = Units(shift, shift + bits, sizes[start:stop])
        yield KeyRange(first_key, last_key, [rows.segment(start, stop) for rows in found], units)


@kernel
def _emit(
    keys: NDArray[np.uint64],
    weights: NDArray[np.floating[Any]],
    first_key: int,
    last_key: int,
    column_bits: int,
    first_row: int,
    add_loops: bool,
    loop_value: float,
    row_counts: NDArray[np.int64],
    columns: NDArray[np.integer],
    data: NDArray[np.floating[Any]],
) -> int:
    """Write the columns of sorted distinct keys and, if wanted, the missing self loops; return how many were written.

    The loops of a row block ascend as the keys do, so that this is a merge of two sorted sequences.
    """
    column_mask = np.uint64((1 << column_bits) - 1)
    count = 0
    # The range may begin within a row, after its diagonal.
    loop_row = first_key >> column_bits
    if (loop_row << column_bits) | (first_row + loop_row) < first_key:
        loop_row += 1
    loop_key = (loop_row << column_bits) | (first_row + loop_row)
    k = 0
    while True:
        loops_left = add_loops and loop_key <= last_key
        # A key takes at most 63 bits (see ``MAX_VERTICES``), so it may be compared as int64 with the loop's key.
        if k < keys.size and (not loops_left or np.int64(keys[k]) <= loop_key):
            key = np.int64(keys[k])
            columns[count] = keys[k] & column_mask
            row_counts[key >> column_bits] += 1
            if data.size:
                data[count] = weights[k]
            k += 1
            # The source has this loop already: it keeps its weight, and no second one is added.
            if loops_left and key == loop_key:
                loop_row += 1
        elif loops_left:
            columns[count] = first_row + loop_row
            row_counts[loop_row] += 1
            if data.size:
                data[count] = loop_value
            loop_row += 1
        else:
            return count
        count += 1
        loop_key = (loop_row << column_bits) | (first_row + loop_row)


#: Vertices of a chunk of int64.
CHUNK_VERTICES = CHUNK_BYTES // 8

#: Vertices of a task: whole chunks, so that no two tasks write the same one.
TASK_VERTICES = 4 * CHUNK_VERTICES


@dataclass(frozen=True)
class DegreeTask(Task):
    """Writes the degrees of a range of vertices.

    Attributes:
        vertices: first and last (exclusive) vertex.
        blocks: number, first row and last (exclusive) row of the blocks that have these vertices.
        folder: beginning of the paths of the matrix's arrays.
    """

    vertices: Span
    blocks: Sequence[tuple[int, int, int]]
    folder: str = ""


def write_degrees(task: DegreeTask) -> Done:
    """Write the row lengths of a range of vertices, from the row pointers of the blocks; returns their number."""
    start, stop = task.vertices
    degrees = np.empty(stop - start, dtype=np.int64)
    for number, first_row, stop_row in task.blocks:
        first, last = max(start, first_row), min(stop, stop_row)
        # The task knows the shape of the pointers, so no metadata has to be read per block.
        path = f"{task.folder}{block_path(number)}/indptr"
        record = ArrayRecord(path, (stop_row - first_row + 1,), "int64", ("row+1",), ())
        indptr = ArrayReader(task.writer.path, record).read(first - first_row, last - first_row + 1)
        np.subtract(indptr[1:], indptr[:-1], out=degrees[first - start : last - start])
    with task.writer.task(task.name) as output:
        output.add(write_rows(task.writer.path, f"{task.folder}degree", start, degrees))
    return Done(stop - start)
