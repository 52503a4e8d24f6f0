"""Transpose an incidence on disk: from the pins of nets to the nets of vertices, by an external sort in tasks.

In a first phase, tasks scatter keys (column, row) into buckets of consecutive columns.  In a second phase, each task
sorts a bucket and writes its rows where they belong.  ``TransposeSizes`` says how many tasks there are.  The keys are
in lanes, so that a task opens few files to read a bucket, however many tasks scattered keys.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.key_sorter import KeyRange, KeySorter, Segment
from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.external_sort.raw_files import write_at
from gnnloom.pipeline.partition.multilevel.incidence import Incidence, create_incidence
from gnnloom.pipeline.partition.multilevel.transpose_sizes import TransposeSizes
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.run_list import LaneRuns
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.unrecorded import UnrecordedShuffle
from gnnloom.pipeline.tasks.cluster import Cluster, run_tasks
from gnnloom.storage.errors import BudgetError
from gnnloom.storage.matrix.csr import index_dtype


@dataclass(frozen=True)
class _Plan:
    """What the tasks have in common.

    Attributes:
        incidence: the lists to transpose.
        result: the transposed lists.
        keys: of all scatter tasks, by bucket, in runs of at most the capacity.
    """

    incidence: Incidence
    result: Incidence
    keys: UnrecordedShuffle
    sizes: TransposeSizes
    row_bits: int


@dataclass(frozen=True)
class _ScatterTask:
    """Scatters the ids of a range of rows."""

    plan: _Plan
    rows: range
    number: int


@dataclass(frozen=True)
class _SortTask:
    """Sorts a bucket, and writes the lists of its columns.

    Attributes:
        first_id: place of its first id among all.
    """

    plan: _Plan
    bucket: int
    first_id: int


def transpose_incidence(
    incidence: Incidence, num_columns: int, folder: Path, memory: int, cluster: Cluster
) -> Incidence:
    """Write the rows of every column, ascending.

    Args:
        incidence: the lists to transpose.
        num_columns: all ids of ``incidence`` are below it.
        folder: for the new lists, and for files that are deleted at the end.
        memory: bytes for the buffers of a task.

    Returns:
        Lists of int32 or int64 rows, one for each of the ``num_columns`` columns.

    Raises:
        BudgetError: a row and a column together need more than 63 bits.
    """
    row_bits = max(1, (incidence.num_rows - 1).bit_length())
    if row_bits + num_columns.bit_length() > 63:
        raise BudgetError(
            f"{incidence.folder}: {incidence.num_rows:,} nets of {num_columns:,} vertices need sort keys of more than"
            " 63 bits; use method random or block"
        )
    scratch = folder / "sort"
    scratch.mkdir(parents=True, exist_ok=True)
    sizes = TransposeSizes.of(incidence.num_ids, num_columns, memory, cluster.workers)
    result = create_incidence(folder, num_columns, incidence.num_ids, index_dtype(incidence.num_rows))
    ranges = incidence.ranges(sizes.num_ranges)
    keys = UnrecordedShuffle.create(scratch, "keys", len(ranges), [Column("key", "uint64")], sizes.num_buckets)
    plan = _Plan(incidence, result, keys, sizes, row_bits)
    scatters = [_ScatterTask(plan, rows, number) for number, rows in enumerate(ranges)]
    keys.list_runs(cluster.map(_scatter, scatters))
    run_tasks(cluster, _sort, _sort_tasks(plan))
    shutil.rmtree(scratch)
    return result


def _sort_tasks(plan: _Plan) -> list[_SortTask]:
    with OpenFiles(plan.keys.work) as files:
        firsts = [0, *np.cumsum(plan.keys.rows(files).num_rows()).tolist()]
    return [_SortTask(plan, bucket, firsts[bucket]) for bucket in range(plan.sizes.num_buckets)]


def _scatter(task: _ScatterTask) -> tuple[int, LaneRuns]:
    """Write the keys ``column << row_bits | row`` of some rows."""
    plan = task.plan
    with plan.keys.routed(task.number) as out:
        for keys in _runs(task):
            ends, run = np.zeros(plan.sizes.num_buckets + 1, dtype=np.int64), np.empty_like(keys)
            _scatter_keys(keys, plan.row_bits, plan.sizes.width, ends, run)
            out.add(Index.of_offsets(ends), {"key": run})
    return task.number, out.written


def _runs(task: _ScatterTask) -> Iterator[NDArray[np.uint64]]:
    """Yield the keys of some rows, as many at a time as a task holds; each replaces the one before."""
    plan, filled = task.plan, 0
    offset = plan.incidence.offset()
    num_keys = int(offset[task.rows.stop] - offset[task.rows.start])
    # A row may have more ids than a task holds keys.
    keys = np.empty(min(plan.sizes.capacity, num_keys), dtype=np.uint64)
    for block in plan.incidence.blocks(task.rows):
        start = 0
        while start < len(block.ids):
            piece = keys[filled : filled + len(block.ids) - start]
            _fill_keys(block.first_row, block.offset, block.ids, start, plan.row_bits, piece)
            start, filled = start + len(piece), filled + len(piece)
            if filled == len(keys):
                yield keys
                filled = 0
    if filled:
        yield keys[:filled]


def _sort(task: _SortTask) -> None:
    plan, result = task.plan, task.plan.result
    first, last = task.bucket * plan.sizes.width, min(result.num_rows, (task.bucket + 1) * plan.sizes.width)
    counts, written = np.zeros(last - first, dtype=np.int64), task.first_id
    dtype = np.dtype(result.dtype)
    with OpenFiles(plan.keys.work) as files, (result.folder / "id").open("r+b", buffering=0) as file:
        whole = KeyRange(first << plan.row_bits, (last << plan.row_bits) - 1, list(_segments(task, files)))
        sorter = KeySorter(plan.keys.work / "spill", min(plan.sizes.capacity, max(1, whole.entries)), None)
        for piece in sorter.sort(whole):
            _add_counts(piece.keys, plan.row_bits, first, counts)
            rows = (piece.keys & np.uint64((1 << plan.row_bits) - 1)).astype(dtype)
            write_at(file.fileno(), dtype.itemsize * written, rows)
            written += len(rows)
    # The offset of the first column of all is 0, as the file was created.
    with (result.folder / "offset").open("r+b", buffering=0) as file:
        write_at(file.fileno(), 8 * (first + 1), task.first_id + np.cumsum(counts))


def _segments(task: _SortTask, files: OpenFiles) -> Iterator[Segment]:
    """Yield where the keys of a bucket are."""
    for section in task.plan.keys.rows(files).sections(task.bucket, task.bucket + 1):
        lane, at = section.place("key")
        yield Segment(lane, 0, section.num_rows, at, 0, None)


@njit(cache=True, nogil=True)
def _fill_keys(
    first_row: int, offset: NDArray[np.int64], ids: NDArray[Any], start: int, row_bits: int, key: NDArray[np.uint64]
) -> None:
    """Fill ``key`` for the ids of a block of rows from ``start`` on."""
    row = np.searchsorted(offset, start, side="right") - 1
    for k in range(len(key)):
        while offset[row + 1] <= start + k:
            row += 1
        # The column is in the high bits, so sorted keys are the transposed lists, each ascending.
        key[k] = (np.uint64(ids[start + k]) << np.uint64(row_bits)) | np.uint64(first_row + row)


@njit(cache=True, nogil=True)
def _scatter_keys(
    keys: NDArray[np.uint64], row_bits: int, width: int, ends: NDArray[np.int64], scattered: NDArray[np.uint64]
) -> None:
    """Group keys by bucket.

    Args:
        ends: (num_buckets + 1,) int64 of zeros; bucket k becomes scattered[ends[k]:ends[k + 1]].
    """
    for key in keys:
        ends[np.int64(key >> np.uint64(row_bits)) // width + 1] += 1
    for bucket in range(1, len(ends)):
        ends[bucket] += ends[bucket - 1]
    position = ends[:-1].copy()
    for key in keys:
        target = np.int64(key >> np.uint64(row_bits)) // width
        scattered[position[target]] = key
        position[target] += 1


@njit(cache=True, nogil=True)
def _add_counts(keys: NDArray[np.uint64], row_bits: int, first: int, counts: NDArray[np.int64]) -> None:
    """Count the keys of each column from ``first`` on."""
    for key in keys:
        counts[np.int64(key >> np.uint64(row_bits)) - first] += 1
