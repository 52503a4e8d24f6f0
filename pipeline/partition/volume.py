"""The exact counter: the rows that one product sends between parts, measured on the stored matrix.

These are the figures that are reported, whatever a partitioner claims.  Part p sends the row of vertex j, which it
owns, once to every other part that has a nonzero in column j.  So the rows sent for A H are counted over the columns
of A, which are the rows of its transpose.  The count takes one pass over the row blocks, with one task for each block;
only pairs of parts that exchange rows take memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.kept_results import keep_result, kept_results
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.memory_map import map_part_vector

#: Up to this many cells, a task counts pairs in a table (32 MiB at most); beyond, by sorting.
_TABLE_CELLS = 1 << 22
#: The same limit for the table that sums up the tasks' counts: 256 MiB, because there is only one.
_SUM_CELLS = 1 << 25
#: Pairs that may wait before they are merged: 16 MiB of pairs and counts.
_PENDING_PAIRS = 1 << 20


@dataclass(frozen=True)
class Exchange:
    """Rows of H sent between parts for one product.

    Attributes:
        num_parts: P.
        pair: (num_pairs,) int64 ``sender * P + receiver``, ascending.
        rows: (num_pairs,) int64 rows sent, at least 1.
    """

    num_parts: int
    pair: NDArray[np.int64]
    rows: NDArray[np.int64]

    @property
    def total(self) -> int:
        """Rows sent by all parts together, which is the connectivity-1 cut of the column-net hypergraph."""
        return int(self.rows.sum())

    def sent(self) -> NDArray[np.int64]:
        """(P,) int64 rows that each part sends."""
        return self._sum_by(self.pair // self.num_parts)

    def received(self) -> NDArray[np.int64]:
        """(P,) int64 rows that each part receives."""
        return self._sum_by(self.pair % self.num_parts)

    def messages(self) -> NDArray[np.int64]:
        """(P,) int64 number of parts that each part sends to."""
        return np.bincount(self.pair // self.num_parts, minlength=self.num_parts)

    def messages_received(self) -> NDArray[np.int64]:
        """(P,) int64 number of parts that each part receives from."""
        return np.bincount(self.pair % self.num_parts, minlength=self.num_parts)

    def matrix(self) -> NDArray[np.int64]:
        """(P, P) int64 rows that part [p] sends to part [q]."""
        matrix = np.zeros(self.num_parts * self.num_parts, dtype=np.int64)
        matrix[self.pair] = self.rows
        return matrix.reshape(self.num_parts, self.num_parts)

    def _sum_by(self, part: NDArray[np.int64]) -> NDArray[np.int64]:
        total = np.zeros(self.num_parts, dtype=np.int64)
        # ``bincount`` with weights would sum in float64, which is exact only up to 2^53.
        np.add.at(total, part, self.rows)
        return total


@dataclass(frozen=True)
class _CountTask:
    matrix_path: Path
    part_path: Path
    num_parts: int
    block: int
    result_path: Path


def count_exchange(transpose: Graph, part_path: Path, num_parts: int, work: Path, cluster: Cluster) -> Exchange:
    """Count the rows that the product with a matrix sends between parts.

    Args:
        transpose: the transpose of that matrix; its row j lists the vertices that need vertex j.
        part_path: ``.npy`` file with the (num_vertices,) int32 parts, all in 0..num_parts-1; workers share its memory.
        work: folder for the tasks' results.
    """
    work.mkdir(parents=True, exist_ok=True)
    tasks = [
        _CountTask(transpose.artifact.path, part_path, num_parts, block, work / f"{block:05d}.npy")
        for block in range(transpose.num_blocks)
    ]
    pairs = pair_sums(num_parts)
    for pair, rows in kept_results(_count_block, tasks, cluster):
        pairs.add(pair, rows)
    return Exchange(num_parts, *pairs.merged())


def _count_block(task: _CountTask) -> None:
    block = Graph(Artifact(task.matrix_path)).block(task.block)
    part = map_part_vector(task.part_path)
    # A nonzero makes its row needed by at most one more part.
    emitted = np.empty(block.nnz, dtype=np.int64)
    last_row = np.full(task.num_parts, -1, dtype=np.int64)
    length = _emit_pairs(block.row_offset, block.indptr, block.indices, part, task.num_parts, last_row, emitted)
    # The pairs go through a file: what a task returns passes through the scheduler and has to stay small.
    keep_result(task.result_path, np.stack(_tally(emitted[:length], task.num_parts)))


@njit(cache=True, nogil=True)
def _emit_pairs(
    row_offset: int,
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    part: NDArray[np.int32],
    num_parts: int,
    last_row: NDArray[np.int64],
    emitted: NDArray[np.int64],
) -> int:
    """List ``sender * P + receiver`` once for every row and every other part that needs it; returns how many.

    Args:
        last_row: (num_parts,) int64, all -1; the last row in which each part occurred.
        emitted: (nnz,) int64, filled from the front.
    """
    length = 0
    # A part has been counted for this row if the row is the last one in which it occurred; no table is cleared.
    for row in range(len(indptr) - 1):
        sender = part[row_offset + row]
        last_row[sender] = row
        for position in range(indptr[row], indptr[row + 1]):
            receiver = part[indices[position]]
            if last_row[receiver] != row:
                last_row[receiver] = row
                # P^2 may exceed 32 bits, so the product is formed in 64.
                emitted[length] = np.int64(sender) * num_parts + receiver
                length += 1
    return length


def _tally(emitted: NDArray[np.int64], num_parts: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct pairs, ascending, and the number of times that each occurs; both (num_pairs,) int64."""
    if num_parts * num_parts > _TABLE_CELLS:
        return np.unique(emitted, return_counts=True)
    # Below the limit a table is cheaper than a sort of all pairs.
    table = np.bincount(emitted, minlength=num_parts * num_parts)
    pair = np.flatnonzero(table)
    return pair, table[pair]


def pair_sums(num_parts: int) -> _PairTable | _PairCounts:
    """An empty sum of counts by pair of parts, as a table if that is small enough."""
    return _PairTable(num_parts) if num_parts * num_parts <= _SUM_CELLS else _PairCounts()


class _PairTable:
    """Sums counts by pair in a table with one cell for each; pages of cells that stay zero take no memory."""

    def __init__(self, num_parts: int) -> None:
        self._rows = np.zeros(num_parts * num_parts, dtype=np.int64)

    def add(self, pair: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Add the counts of distinct pairs."""
        self._rows[pair] += rows

    def merged(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All pairs so far, ascending, with their sums."""
        pair = np.flatnonzero(self._rows)
        return pair, self._rows[pair]


@dataclass
class _PairCounts:
    """Sums counts by pair in lists.

    Merges when as many pairs wait as were merged before, so each pair is sorted only a few times.
    """

    _waiting: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=list)
    _num_merged: int = 0
    _num_waiting: int = 0

    def add(self, pair: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Add the counts of distinct pairs."""
        self._waiting.append((pair, rows))
        self._num_waiting += len(pair)
        if self._num_waiting > max(_PENDING_PAIRS, self._num_merged):
            self.merged()

    def merged(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All pairs so far, ascending, with their sums."""
        empty = np.empty(0, dtype=np.int64)
        pairs = np.concatenate([empty, *(pair for pair, _ in self._waiting)])
        distinct, position = np.unique(pairs, return_inverse=True)
        total = np.zeros(len(distinct), dtype=np.int64)
        np.add.at(total, position, np.concatenate([empty, *(rows for _, rows in self._waiting)]))
        self._waiting = [(distinct, total)]
        self._num_merged, self._num_waiting = len(distinct), 0
        return distinct, total
