"""Transpose an incidence on disk: from the pins of nets to the nets of vertices, by an external sort in tasks.

In a first phase, tasks scatter keys (column, row) into buckets of consecutive columns.  In a second phase, each task
sorts a bucket and writes its rows where they belong.  ``TransposeSizes`` has the number of tasks.  The keys are
in lanes, so that a task opens few files to read a bucket, however many tasks scattered keys.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.key_sorter import KeyRange, KeySorter, Segment
from gnnloom.pipeline.external_sort.lanes import BLOCK_BYTES, OpenFiles, table_bytes
from gnnloom.pipeline.external_sort.raw_files import write_at
from gnnloom.pipeline.external_sort.spill import BUCKET_BITS
from gnnloom.pipeline.partition.multilevel.incidence import Incidence, IncidenceBlock, create_incidence
from gnnloom.pipeline.partition.multilevel.pieces import NUMBER_BYTES, RangeTask, phase_over, run_pieces
from gnnloom.pipeline.partition.partitioner import LEVEL_STEPS, LevelSteps
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.run_list import LaneRuns
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.unrecorded import UnrecordedShuffle
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Phase, results
from gnnloom.storage.disk.work_folder import BESIDE, Scratch
from gnnloom.storage.errors import BudgetError
from gnnloom.storage.kernels import count_at_most, kernel
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.system_errors import naming

#: Bytes for each key of a task: the key and a spare in the sorter, its column, its row, and the row as it is stored;
#: keys of columns are counted and summed as well, and NumPy copies some arrays.
_KEY_BYTES = 80


@dataclass(frozen=True)
class TransposeSizes:
    """Numbers of tasks, and of the keys that each holds.

    Attributes:
        capacity: keys in the memory of a task.
        num_runs: runs of keys, each of at most ``capacity``.
        num_ranges: tasks that scatter the keys of a range of rows, each in one or more runs to a lane.
        num_buckets: tasks that sort a bucket.
        width: columns of a bucket.
        scratch: sizes of temporary files.
    """

    capacity: int
    num_runs: int
    num_ranges: int
    num_buckets: int
    width: int
    scratch: Scratch = BESIDE

    @classmethod
    def of(
        cls,
        num_ids: int,
        num_columns: int,
        memory: int,
        workers: int,
        scratch: Scratch = BESIDE,
        steps: LevelSteps = LEVEL_STEPS,
    ) -> TransposeSizes:
        """The sizes for ``num_ids`` ids.

        Args:
            num_columns: all ids are below it.
            memory: bytes for the buffers of a task.
        """
        # Tasks that sort hold the checksums of all lanes; an eighth remains for their other data about each lane.
        buffers = max(memory // 4, memory * 7 // 8 - table_bytes(NUMBER_BYTES * num_ids))
        keys = max(steps.task_keys, -(-num_ids // max(steps.many_tasks, workers)))
        capacity = max(1, min(buffers // _KEY_BYTES, keys))
        runs = max(1, -(-num_ids // capacity))
        ranges = min(runs, max(scratch.files, memory // 16 // (2 * BLOCK_BYTES)))
        width = max(1, -(-num_columns // min(runs, 1 << BUCKET_BITS)))
        return cls(capacity, runs, ranges, -(-num_columns // width), width, scratch)


@dataclass(frozen=True)
class _Transpose:
    """Common fields of the tasks.

    Attributes:
        incidence: the lists to transpose.
        result: the transposed lists.
        keys: of all scatter tasks, by bucket, in runs of at most the capacity.
    """

    incidence: Incidence
    result: Incidence
    keys: UnrecordedShuffle
    sizes: TransposeSizes

    @classmethod
    def of(cls, incidence: Incidence, result: Incidence, folder: Path, sizes: TransposeSizes) -> _Transpose:
        columns = [Column("key", "uint64")]
        keys = UnrecordedShuffle.named(folder, "keys", sizes.num_ranges, columns, sizes.num_buckets, sizes.scratch)
        return cls(incidence, result, keys, sizes)

    @property
    def row_bits(self) -> int:
        return max(1, (self.incidence.num_rows - 1).bit_length())


def transpose_incidence(
    incidence: Incidence,
    num_columns: int,
    folder: Path,
    memory: int,
    cluster: Cluster,
    steps: LevelSteps = LEVEL_STEPS,
) -> Incidence:
    """Write the rows of every column, ascending.

    Args:
        incidence: the lists to transpose.
        num_columns: all ids of ``incidence`` are below it.
        folder: for the new lists, and for files that are deleted at the end.
        memory: bytes for the buffers of a task.
        steps: sizes of the tasks.

    Returns:
        Lists of int32 or int64 rows, one for each of the ``num_columns`` columns.

    Raises:
        BudgetError: a row and a column together need more than 63 bits.
    """
    work = _Transpose.of(
        incidence,
        Incidence(folder, num_columns, incidence.num_ids, index_dtype(incidence.num_rows).name),
        folder / "sort",
        TransposeSizes.of(incidence.num_ids, num_columns, memory, cluster.workers, cluster.scratch, steps),
    )
    if work.row_bits + num_columns.bit_length() > 63:
        raise BudgetError(
            f"{incidence.folder}: {incidence.num_rows:,} nets of {num_columns:,} vertices need sort keys of more than"
            " 63 bits; use method random or block"
        )
    create_incidence(folder, num_columns, incidence.num_ids, np.dtype(work.result.dtype))
    # A killed command may have left it.
    work.keys.work.mkdir(exist_ok=True)
    work.keys.create()
    work.keys.list_runs(results(_scatter_phase(work), cluster))
    with OpenFiles(work.keys.work) as files:
        firsts = [0, *np.cumsum(work.keys.rows(files).num_rows()).tolist()]
    run_pieces(_sort_phase(work, firsts), cluster)
    shutil.rmtree(work.keys.work)
    return work.result


def transpose_phases(
    incidence: Incidence, result: Incidence, memory: int, workers: int, scratch: Scratch, steps: LevelSteps
) -> list[Phase]:
    """The phases of :func:`transpose_incidence`, as if the ids were spread evenly over the columns."""
    sizes = TransposeSizes.of(incidence.num_ids, result.num_rows, memory, workers, scratch, steps)
    work = _Transpose.of(incidence, result, Path(), sizes)
    return [_scatter_phase(work), _sort_phase(work)]


def _scatter_phase(work: _Transpose) -> Phase:
    ranges = work.incidence.ranges(work.sizes.num_ranges)
    keys, index = _keys_and_index(work)
    reads, writes = work.incidence.num_bytes, keys + index
    held = _KEY_BYTES * work.sizes.capacity
    return phase_over(ranges, "scatter pins", _scatter, work, reads=reads, writes=writes, files=2, buffers=held)


def _sort_phase(work: _Transpose, firsts: Sequence[int] | None = None) -> Phase:
    """Sort each bucket, and write the lists of its columns.

    Args:
        firsts: place of the first id of each bucket among all.
    """
    sizes, num_columns = work.sizes, work.result.num_rows
    columns = [range(start, min(start + sizes.width, num_columns)) for start in range(0, num_columns, sizes.width)]
    keys, index = _keys_and_index(work)
    # A bucket that does not fit in memory is scattered once more; on average, a bucket just fits.
    again = keys if sizes.num_buckets > 1 else 0
    reads, writes = keys + index + again, work.result.num_bytes + again
    lanes, held = [sizes.num_ranges], _KEY_BYTES * sizes.capacity + table_bytes(NUMBER_BYTES * work.incidence.num_ids)
    return phase_over(
        columns, "sort pins", _sort, work,
        reads=reads, writes=writes, lanes=lanes, firsts=firsts, buffers=held, at_most=True,
        scratch=sizes.scratch,
    )  # fmt: skip


def _keys_and_index(work: _Transpose) -> tuple[int, int]:
    """Bytes of all keys, and of their index."""
    sizes = work.sizes
    return NUMBER_BYTES * work.incidence.num_ids, NUMBER_BYTES * sizes.num_runs * sizes.num_buckets


def _scatter(task: RangeTask[_Transpose]) -> tuple[int, LaneRuns]:
    """Write the keys ``column << row_bits | row`` of some rows."""
    work = task.work
    with work.keys.routed(task.number) as out:
        for keys in _runs(work, task.rows):
            ends, run = np.zeros(work.sizes.num_buckets + 1, dtype=np.int64), np.empty_like(keys)
            _scatter_keys(keys, work.row_bits, work.sizes.width, ends, run)
            out.add(Index.of_offsets(ends), {"key": run})
    return task.number, out.written


def _runs(work: _Transpose, rows: range) -> Iterator[NDArray[np.uint64]]:
    """Yield the keys of some rows in pieces that a task holds; each piece overwrites the previous one."""
    filled, offset = 0, work.incidence.offset()
    num_keys = int(offset[rows.stop] - offset[rows.start])
    # A row may have more ids than a task holds keys.
    keys = np.empty(min(work.sizes.capacity, num_keys), dtype=np.uint64)
    for block in work.incidence.blocks(rows):
        start = 0
        while start < len(block.ids):
            piece = keys[filled : filled + len(block.ids) - start]
            _fill_keys(block, start, work.row_bits, piece)
            start, filled = start + len(piece), filled + len(piece)
            if filled == len(keys):
                yield keys
                filled = 0
    if filled:
        yield keys[:filled]


def _sort(task: RangeTask[_Transpose]) -> None:
    work, result, row_bits = task.work, task.work.result, task.work.row_bits
    counts, written = np.zeros(len(task.rows), dtype=np.int64), task.first
    dtype = np.dtype(result.dtype)
    with OpenFiles(work.keys.work) as files, (result.folder / "id").open("r+b", buffering=0) as file:
        sections = work.keys.rows(files).sections(task.number, task.number + 1)
        places = [(*section.place("key"), section.num_rows) for section in sections]
        segments = [Segment(lane, 0, num_rows, at, 0, None) for lane, at, num_rows in places]
        whole = KeyRange(task.rows.start << row_bits, (task.rows.stop << row_bits) - 1, segments)
        sorter = KeySorter(work.keys.work / "spill", min(work.sizes.capacity, max(1, whole.entries)), None)
        for piece in sorter.sort(whole):
            columns = (piece.keys >> np.uint64(row_bits)).astype(np.int64) - task.rows.start
            counts += np.bincount(columns, minlength=len(counts))
            rows = (piece.keys & np.uint64((1 << row_bits) - 1)).astype(dtype)
            with naming(result.folder):
                write_at(file.fileno(), dtype.itemsize * written, rows)
            written += len(rows)
    # The offset of the first column of all is 0, as the file was created.
    with naming(result.folder), (result.folder / "offset").open("r+b", buffering=0) as file:
        write_at(file.fileno(), 8 * (task.rows.start + 1), task.first + np.cumsum(counts))


@kernel
def _fill_keys(block: IncidenceBlock, start: int, row_bits: int, key: NDArray[np.uint64]) -> None:
    """Fill ``key`` for the ids of a block of rows from ``start`` on."""
    row = count_at_most(block.offset, start) - 1
    for k in range(len(key)):
        while block.offset[row + 1] <= start + k:
            row += 1
        # The column is in the high bits, so sorted keys are the transposed lists, each ascending.
        key[k] = (np.uint64(block.ids[start + k]) << np.uint64(row_bits)) | np.uint64(block.first_row + row)


@kernel
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
