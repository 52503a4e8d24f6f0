"""The halo of a rank, and what it sends to others.

The halo has the vertices of other ranks that its rows refer to, numbered by owner and then by id. The third pass of the
row shards looks up what a rank must send in the halos of the ranks that need it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.shards.rows.row_order import Places
from gnnloom.pipeline.shards.rows.row_routed import RoutedMatrix, RoutedRank, RowSegment, part_offsets
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import RunsWriter, Shuffle, ShuffledRows
from gnnloom.storage.format.arrays import ArrayReader, ArrayRecord, write_array
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.local_numbers import LocalNumbers

#: Halo candidates that may wait before they are merged: 8 MiB.
_PENDING_IDS = 1 << 20


@dataclass(frozen=True)
class Halo:
    """The halo of one rank and matrix.

    Attributes:
        vertex: (num_halo,) int64 global ids, ordered by owner, then id.
        offset: (num_parts + 1,) int64; those of owner p are vertex[offset[p]:offset[p + 1]].
        ascending: (num_halo,) int64 the ids in ascending order.
        position: (num_halo,) int64 the position in ``vertex`` of each id of ``ascending``.
    """

    vertex: NDArray[np.int64]
    offset: NDArray[np.int64]
    ascending: NDArray[np.int64]
    position: NDArray[np.int64]

    @classmethod
    def of(cls, ascending: NDArray[np.int64], owner: NDArray[np.int32], num_parts: int) -> Halo:
        """Order the halo's vertices by owner.

        Args:
            ascending: (num_halo,) int64 distinct global ids.
            owner: (num_halo,) int32 the part of each.
        """
        order = np.argsort(owner, kind="stable")
        # The inverse of the sort: from the place among ascending ids to the place by owner.
        position = np.empty_like(order)
        position[order] = np.arange(len(order))
        return cls(ascending[order], part_offsets(owner, num_parts), ascending, position)

    def local_columns(self, vertex: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the halo numbers of (num_ids,) global ids, all of which lie in the halo."""
        return self.position[self._places.of(vertex)]

    @cached_property
    def _places(self) -> Places:
        return Places(self.ascending)


def find_halo(
    segments: Iterable[RowSegment], part: NDArray[np.int32], rank: int, num_parts: int
) -> tuple[Halo, int, int]:
    """Collect the columns that other ranks own.

    Args:
        segments: all rows of the rank.
        part: (num_vertices,) int32, memory-mapped.

    Returns:
        The halo, the number of nonzeros with columns of this rank, and the number with columns of others.
    """
    merged = np.empty(0, dtype=np.int64)
    waiting: list[NDArray[np.int64]] = []
    own_nonzeros = halo_nonzeros = num_waiting = 0
    for segment in segments:
        # One random read of the mapped parts per nonzero; the vector is shared by all tasks of a machine.
        foreign = segment.indices[part[segment.indices] != rank]
        halo_nonzeros += len(foreign)
        own_nonzeros += len(segment.indices) - len(foreign)
        # Rows of a segment share many columns; dropping repeats at once keeps the list short.
        waiting.append(_distinct(foreign).astype(np.int64))
        num_waiting += len(waiting[-1])
        # Merging only once as many ids wait as have been merged sorts each id a few times at most.
        if num_waiting > max(_PENDING_IDS, len(merged)):
            merged, waiting, num_waiting = _distinct(np.concatenate([merged, *waiting])), [], 0
    merged = _distinct(np.concatenate([merged, *waiting]))
    return Halo.of(merged, part[merged], num_parts), own_nonzeros, halo_nonzeros


def _distinct(ids: NDArray[Any]) -> NDArray[Any]:
    """(num_distinct,) ids, ascending; sorts the given ones in place, which is many times as fast as ``np.unique``."""
    ids.sort()
    is_first = np.ones(len(ids), np.bool_)
    np.not_equal(ids[1:], ids[:-1], out=is_first[1:])
    return ids[is_first]


def halo_shuffle(kind: str, num_parts: int) -> Shuffle:
    """The shuffle of halos, from the ranks that need them to those that send them.

    A row has what one rank sends to another; its position is the sender.

    Args:
        kind: of the matrix.
    """
    columns = (Column("receiver", "int64"), Column("count", "int64"), Column("vertex", "int64", lengths="count"))
    return Shuffle(f"halo-{kind}", num_parts, columns, num_parts)


def route_halo(out: RunsWriter, halo: Halo, receiver: int) -> None:
    """Route the halo of a rank."""
    count = np.diff(halo.offset)
    senders = np.flatnonzero(count)
    rows = {"receiver": np.full(len(senders), receiver), "count": count[senders], "vertex": halo.vertex}
    out.add(Index.of_positions(senders), rows)


def sent_rows(rows: ShuffledRows, sender: int, num_parts: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What one rank sends.

    Returns:
        (num_rows,) int64 global ids by receiver, then in the order of the receiver's halo, and the (num_parts + 1,)
        int64 offsets of the receivers.
    """
    # Receivers ascend, as the tasks that route do.
    found = rows.read(sender, sender + 1)
    offset = np.zeros(num_parts + 1, np.int64)
    offset[found.column("receiver") + 1] = found.column("count")
    return found.column("vertex"), np.cumsum(offset)


@dataclass(frozen=True)
class SendListTask(RoutedRank):
    """Writes the send lists of one rank."""


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
