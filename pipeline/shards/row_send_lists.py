"""Third pass of the row shards: what every rank must send, from the halos of those that need it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.shards.part_file import read_all_parts
from gnnloom.pipeline.shards.row_rank import RankTask, halo_file
from gnnloom.pipeline.shards.row_routing import RoutedMatrix
from gnnloom.storage.format.arrays import ArrayRecord, write_array
from gnnloom.storage.matrix.csr import index_dtype


def send_part(rank: int) -> str:
    """Part name of a rank's send lists."""
    return f"send/{rank:05d}"


def turn_halos(work: Path, kind: str, num_parts: int) -> None:
    """Reorder the halos of all ranks by sender, then receiver, so that each sender reads one range of one file.

    Reads every halo once; memory holds one halo, the files are mapped.
    """
    halo_paths = [halo_file(work, kind, receiver) for receiver in range(num_parts)]
    begin = np.lib.format.open_memmap(_begin_file(work, kind), mode="w+", dtype=np.int64, shape=(num_parts, num_parts))
    for receiver, path in enumerate(halo_paths):
        begin[:, receiver] = np.diff(read_all_parts(path, np.dtype(np.int64)).offset)
    rows = begin.reshape(-1)
    total = int(rows.sum())
    rows[:] = np.cumsum(rows) - rows
    needed = np.lib.format.open_memmap(_needed_file(work, kind), mode="w+", dtype=np.int64, shape=(total,))
    for receiver, path in enumerate(halo_paths):
        halo = read_all_parts(path, np.dtype(np.int64))
        shift = np.repeat(begin[:, receiver] - halo.offset[:-1], np.diff(halo.offset))
        needed[shift + np.arange(len(halo.entry))] = halo.entry
    begin.flush()
    needed.flush()


def _begin_file(work: Path, kind: str) -> Path:
    """(num_parts, num_parts) int64: where the rows that [sender] sends to [receiver] begin."""
    return work / f"send-begin-{kind}.npy"


def _needed_file(work: Path, kind: str) -> Path:
    """(num_rows_sent,) int64 global ids."""
    return work / f"send-needed-{kind}.npy"


def write_send_lists(task: RankTask) -> int:
    """Write which local rows one rank sends, in the order of each receiver's halo; returns its number of vertices."""
    with task.writer.task(send_part(task.rank)) as output:
        vertex = task.own_vertices()
        for matrix in task.matrices:
            for record in _write_matrix_send(task, matrix, vertex):
                output.add(record)
    return len(vertex)


def _write_matrix_send(task: RankTask, matrix: RoutedMatrix, vertex: NDArray[np.int64]) -> list[ArrayRecord]:
    begin = np.load(_begin_file(task.writer.work, matrix.kind), mmap_mode="r", allow_pickle=False)
    needed = np.load(_needed_file(task.writer.work, matrix.kind), mmap_mode="r", allow_pickle=False)
    end = begin[task.rank + 1, 0] if task.rank + 1 < task.num_parts else len(needed)
    offset = np.append(begin[task.rank], end)
    row = np.searchsorted(vertex, needed[offset[0] : offset[-1]]).astype(index_dtype(len(vertex)))
    root, prefix = task.writer.path, f"{task.folder}/{matrix.prefix}"
    return [
        write_array(root, f"{prefix}send_row", row, ("send",)),
        write_array(root, f"{prefix}send_offset", offset - offset[0], ("part+1",)),
    ]
