"""Third pass of the row shards: what each rank must send, looked up in the halos of the ranks that need it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnnloom.pipeline.shards.part_file import read_all_parts
from gnnloom.pipeline.shards.row_halo import halo_path
from gnnloom.pipeline.shards.row_order import LocalNumbers, OwnRows
from gnnloom.pipeline.shards.row_routed import RoutedMatrix, RoutedRank
from gnnloom.storage.format.arrays import ArrayRecord, write_array
from gnnloom.storage.matrix.csr import index_dtype


@dataclass(frozen=True)
class SendListTask(RoutedRank):
    """Writes the send lists of one rank."""

    @property
    def name(self) -> str:
        return f"send/{self.rank:05d}"


def regroup_halos(work: Path, kind: str, num_parts: int) -> None:
    """Reorder the halos of all ranks by sender, then receiver, so each sender reads one range of one file.

    Reads every halo twice.  Memory holds one halo at a time and 16 bytes for each pair of parts; the files written are
    memory-mapped.  Called by the client, between the second and the third pass.

    Args:
        work: the artifact's work folder, with the halos that the second pass left.
        kind: of the matrix.
    """
    # The halos of recorded ranks are on disk: each was written before the record of its task.
    halo_paths = [halo_path(work, kind, receiver) for receiver in range(num_parts)]
    begin = np.lib.format.open_memmap(_begin_path(work, kind), mode="w+", dtype=np.int64, shape=(num_parts, num_parts))
    # First the counts: [sender, receiver] rows, whose exclusive sum says where each group begins.
    for receiver, path in enumerate(halo_paths):
        begin[:, receiver] = np.diff(read_all_parts(path, np.dtype(np.int64)).offset)
    rows = begin.reshape(-1)
    total = int(rows.sum())
    # Row-major order of [sender, receiver], so each sender's rows lie together in the file of ids.
    rows[:] = np.cumsum(rows) - rows
    needed = np.lib.format.open_memmap(_needed_path(work, kind), mode="w+", dtype=np.int64, shape=(total,))
    # Then the ids: a receiver's halo is sorted by sender, so one shift per sender moves its ids to their group.
    for receiver, path in enumerate(halo_paths):
        halo = read_all_parts(path, np.dtype(np.int64))
        shift = np.repeat(begin[:, receiver] - halo.offset[:-1], np.diff(halo.offset))
        needed[shift + np.arange(len(halo.entry))] = halo.entry
    # Not recorded: a resumed run rebuilds both files from the halos, with the same content.
    begin.flush()
    needed.flush()


def _begin_path(work: Path, kind: str) -> Path:
    """(num_parts, num_parts) int64: where the rows that [sender] sends to [receiver] begin."""
    return work / f"send-begin-{kind}.npy"


def _needed_path(work: Path, kind: str) -> Path:
    """(num_rows_sent,) int64: global ids by sender, then receiver, then the order of the receiver's halo."""
    return work / f"send-needed-{kind}.npy"


def write_send_lists(task: SendListTask) -> int:
    """Write which local rows one rank sends, in the order of each receiver's halo; returns its number of vertices."""
    with task.writer.task(task.name) as output:
        local = OwnRows.of(*task.own_vertices(), task.reorder).numbering()
        for matrix in task.matrices:
            for record in _write_matrix_send(task, matrix, local):
                output.add(record)
    return len(local.ascending)


def _write_matrix_send(task: SendListTask, matrix: RoutedMatrix, local: LocalNumbers) -> list[ArrayRecord]:
    begin = np.load(_begin_path(task.writer.work, matrix.kind), mmap_mode="r", allow_pickle=False)
    needed = np.load(_needed_path(task.writer.work, matrix.kind), mmap_mode="r", allow_pickle=False)
    # The last receiver's rows end where the next sender's begin.
    end = begin[task.rank + 1, 0] if task.rank + 1 < task.num_parts else len(needed)
    offset = np.append(begin[task.rank], end)
    row = local(needed[offset[0] : offset[-1]]).astype(index_dtype(len(local.ascending)))
    root, prefix = task.writer.path, f"{task.folder}/{matrix.prefix}"
    return [
        write_array(root, f"{prefix}send_row", row, ("send",)),
        write_array(root, f"{prefix}send_offset", offset - offset[0], ("part+1",)),
    ]
