"""Third pass of the row shards: what each rank must send, looked up in the halos of the ranks that need it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.shards.rows.row_halo import sent_rows
from gnnloom.pipeline.shards.rows.row_routed import RoutedMatrix, RoutedRank
from gnnloom.storage.format.arrays import ArrayReader, ArrayRecord, write_array
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
        local = LocalNumbers.of(_own_vertices(task))
        for matrix in task.matrices:
            for record in _write_matrix_send(task, matrix, local):
                output.add(record)
    return len(local.ascending)


def _own_vertices(task: SendListTask) -> NDArray[np.int64]:
    """(num_own,) int64 global ids by local number, as the pass before has written them."""
    # Every row block left some of them, and opening all of these files once more would take longer.
    written = task.writer.recorded_of([task.folder])[task.folder]
    record = next(array for array in written.arrays if array.path == f"{task.folder}/vertex")
    vertex: NDArray[np.int64] = ArrayReader(task.writer.path, record).read()
    return vertex


def _write_matrix_send(task: SendListTask, matrix: RoutedMatrix, local: LocalNumbers) -> list[ArrayRecord]:
    with OpenFiles(task.writer.work) as files:
        needed, offset = sent_rows(matrix.halo.rows(task.writer.work, files), task.rank, task.num_parts)
    row = local(needed).astype(index_dtype(len(local.ascending)))
    root, prefix = task.writer.path, f"{task.folder}/{matrix.prefix}"
    return [
        write_array(root, f"{prefix}send_row", row, ("send",)),
        write_array(root, f"{prefix}send_offset", offset, ("part+1",)),
    ]
