"""Transpose an incidence on disk: from the pins of nets to the nets of vertices, by an external sort in tasks.

The tasks of a first phase scatter keys (column, row) into buckets of consecutive columns; those of a second phase sort
a bucket each, and write its rows where they belong.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.key_sorter import KeyRange, KeySorter, Segment
from gnnloom.pipeline.external_sort.spill import BUCKET_BITS, write_at
from gnnloom.pipeline.partition.multilevel.incidence import Incidence, create_incidence
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.errors import BudgetError
from gnnloom.storage.matrix.csr import index_dtype

#: Bytes for each key of a task: the key and a spare in the sorter, its column, its row, and the row as it is stored.
_KEY_BYTES = 40
#: Most keys of a task: 32 MiB of them, so that graphs of millions of edges keep several workers busy.
_TASK_KEYS = 1 << 22


@dataclass(frozen=True)
class _Plan:
    """What the tasks have in common.

    Attributes:
        capacity: keys in the memory of a task.
        width: columns of a bucket.
    """

    incidence: Incidence
    num_columns: int
    folder: Path
    capacity: int
    row_bits: int
    width: int

    @property
    def num_buckets(self) -> int:
        return -(-self.num_columns // self.width)


@dataclass(frozen=True)
class _ScatterTask:
    """Scatters the ids of a range of rows."""

    plan: _Plan
    rows: range
    number: int

    @property
    def path(self) -> Path:
        return self.plan.folder / f"keys-{self.number:05d}"


@dataclass(frozen=True)
class _SortTask:
    """Sorts a bucket, and writes the lists of its columns.

    Attributes:
        first_id: place of its first id among all.
    """

    plan: _Plan
    bucket: int
    segments: tuple[Segment, ...]
    first_id: int
    result: Incidence


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
    capacity = max(1, min(memory // _KEY_BYTES, _TASK_KEYS))
    num_tasks = max(1, -(-incidence.num_ids // capacity))
    width = max(1, -(-num_columns // min(num_tasks, 1 << BUCKET_BITS)))
    plan = _Plan(incidence, num_columns, scratch, capacity, row_bits, width)
    scatters = [_ScatterTask(plan, rows, number) for number, rows in enumerate(incidence.ranges(num_tasks))]
    ends = dict(cluster.map(_scatter, scatters))
    result = create_incidence(folder, num_columns, incidence.num_ids, index_dtype(incidence.num_rows))
    for _ in cluster.map(_sort, _sort_tasks(plan, [(task.path, ends[task.number]) for task in scatters], result)):
        pass
    shutil.rmtree(scratch)
    return result


def _sort_tasks(plan: _Plan, files: Sequence[tuple[Path, NDArray[np.int64]]], result: Incidence) -> list[_SortTask]:
    tasks, first_id = [], 0
    for bucket in range(plan.num_buckets):
        ranges = [(path, int(ends[bucket]), int(ends[bucket + 1])) for path, ends in files]
        segments = tuple(Segment(path, a, b, 0, 0, None) for path, a, b in ranges if a < b)
        tasks.append(_SortTask(plan, bucket, segments, first_id, result))
        first_id += sum(map(len, segments))
    return tasks


def _scatter(task: _ScatterTask) -> tuple[int, NDArray[np.int64]]:
    """Write the keys ``column << row_bits | row`` of some rows, bucket after bucket; where each bucket begins."""
    plan = task.plan
    offset = plan.incidence.offset()
    keys = np.empty(int(offset[task.rows.stop] - offset[task.rows.start]), dtype=np.uint64)
    filled = 0
    for block in plan.incidence.blocks(task.rows):
        piece = keys[filled : filled + len(block.ids)]
        _fill_keys(block.first_row, block.offset, block.ids, plan.row_bits, piece)
        filled += len(piece)
    ends, scattered = np.zeros(plan.num_buckets + 1, dtype=np.int64), np.empty_like(keys)
    _scatter_keys(keys, plan.row_bits, plan.width, ends, scattered)
    with task.path.open("wb", buffering=0) as file:
        write_at(file.fileno(), 0, scattered)
    return task.number, ends


def _sort(task: _SortTask) -> None:
    plan = task.plan
    first, last = task.bucket * plan.width, min(plan.num_columns, (task.bucket + 1) * plan.width)
    counts, written = np.zeros(last - first, dtype=np.int64), task.first_id
    dtype = np.dtype(task.result.dtype)
    whole = KeyRange(first << plan.row_bits, (last << plan.row_bits) - 1, task.segments)
    sorter = KeySorter(plan.folder / "spill", min(plan.capacity, max(1, whole.entries)), None)
    descriptor = os.open(task.result.folder / "id", os.O_WRONLY)
    try:
        for piece in sorter.sort(whole):
            _add_counts(piece.keys, plan.row_bits, first, counts)
            rows = (piece.keys & np.uint64((1 << plan.row_bits) - 1)).astype(dtype)
            write_at(descriptor, dtype.itemsize * written, rows)
            written += len(rows)
    finally:
        os.close(descriptor)
    # The offset of the first column of all is 0, as the file was created.
    descriptor = os.open(task.result.folder / "offset", os.O_WRONLY)
    try:
        write_at(descriptor, 8 * (first + 1), task.first_id + np.cumsum(counts))
    finally:
        os.close(descriptor)


@njit(cache=True, nogil=True)
def _fill_keys(
    first_row: int, offset: NDArray[np.int64], ids: NDArray[Any], row_bits: int, key: NDArray[np.uint64]
) -> None:
    """Fill ``key`` for a block of rows."""
    # The column is in the high bits, so sorted keys are the transposed lists, each ascending.
    for row in range(len(offset) - 1):
        for position in range(offset[row], offset[row + 1]):
            key[position] = (np.uint64(ids[position]) << np.uint64(row_bits)) | np.uint64(first_row + row)


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
