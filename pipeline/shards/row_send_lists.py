"""Third pass of the row shards: what each rank must send, looked up in the halos of the ranks that need it."""

from __future__ import annotations

from dataclasses import dataclass

from gnnloom.pipeline.shards.halo_regrouping import sent_rows
from gnnloom.pipeline.shards.row_order import OwnRows
from gnnloom.pipeline.shards.row_routed import RoutedMatrix, RoutedRank
from gnnloom.storage.format.arrays import ArrayRecord, write_array
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.local_numbers import LocalNumbers


@dataclass(frozen=True)
class SendListTask(RoutedRank):
    """Writes the send lists of one rank."""

    @property
    def name(self) -> str:
        return f"send/{self.rank:05d}"


def write_send_lists(task: SendListTask) -> int:
    """Write which local rows one rank sends, in the order of each receiver's halo; returns its number of vertices."""
    with task.writer.task(task.name) as output:
        local = OwnRows.of(*task.own_vertices(), task.reorder).numbering()
        for matrix in task.matrices:
            for record in _write_matrix_send(task, matrix, local):
                output.add(record)
    return len(local.ascending)


def _write_matrix_send(task: SendListTask, matrix: RoutedMatrix, local: LocalNumbers) -> list[ArrayRecord]:
    sent = sent_rows(task.writer.work, matrix.kind, task.num_parts, task.rank)
    needed, offset = sent.entry, sent.offset - sent.offset[0]
    row = local(needed).astype(index_dtype(len(local.ascending)))
    root, prefix = task.writer.path, f"{task.folder}/{matrix.prefix}"
    return [
        write_array(root, f"{prefix}send_row", row, ("send",)),
        write_array(root, f"{prefix}send_offset", offset, ("part+1",)),
    ]
