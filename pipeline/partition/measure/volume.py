"""The exact counter: the rows that one product sends between parts, measured on the stored matrix.

These are the figures that are reported, whatever a partitioner claims.  Part p sends the row of vertex j, which it
owns, once to every other part that has a nonzero in column j.  So the rows sent for A H are counted over the columns
of A, which are the rows of its transpose.  The count takes one pass over the row blocks, with one task for each block,
which reads it in ranges that fit the memory of a worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.partition.measure.pair_sums import TABLE_CELLS, pair_sums
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.memory import MINIMUM_MEMORY, working_memory
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.artifacts.block_ranges import RANGE_BYTES, row_ranges
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.format.memory_map import map_part_vector

#: Bytes of memory for a nonzero of a range: its column, the pair that it makes, and the copies of a sort of pairs.
_NONZERO_BYTES = 48
#: Cells of the table that are stored at a time, and bytes of memory for each: pair and rows, twice.
_PIECE_CELLS, _PIECE_BYTES = 1 << 20, 32


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
class CountBuffers:
    """What a task that counts a row block holds, whatever the size of the block.

    Attributes:
        memory: bytes that the worker may use; with less than the minimum, it counts as with the minimum.
    """

    num_parts: int
    memory: int

    @property
    def _share(self) -> int:
        """Bytes of the table, and of a range."""
        return working_memory(max(self.memory, MINIMUM_MEMORY)) // 4

    @property
    def has_table(self) -> bool:
        """Whether pairs are counted in a table with a cell for each; otherwise by sorting those of each range."""
        return 8 * self.num_parts**2 <= min(8 * TABLE_CELLS, self._share)

    @property
    def range_nonzeros(self) -> int:
        """Nonzeros that are read at a time, unless a stored chunk has more."""
        return self._share // _NONZERO_BYTES

    def peak_memory(self, chunk_nonzeros: int) -> int:
        """Bytes of all buffers, where a stored chunk has ``chunk_nonzeros`` nonzeros."""
        table = 8 * self.num_parts**2 if self.has_table else 0
        counted = RANGE_BYTES + _NONZERO_BYTES * max(self.range_nonzeros, chunk_nonzeros)
        return table + 8 * self.num_parts + max(counted, _PIECE_BYTES * _PIECE_CELLS)


@dataclass(frozen=True)
class _CountTask:
    """Counts the rows of a block.

    Attributes:
        pairs: the rows that each pair of parts exchanges, by pair.
        lane: where the task writes them.
    """

    writer: ArtifactWriter
    matrix_path: Path
    part_path: Path
    buffers: CountBuffers
    block: int
    pairs: Shuffle
    lane: Lane

    @property
    def name(self) -> str:
        return f"{self.pairs.name}/{self.block:05d}"


def count_exchange(
    transpose: Graph, part_path: Path, num_parts: int, direction: str, writer: ArtifactWriter, cluster: Cluster
) -> Exchange:
    """Count the rows that the product with a matrix sends between parts.

    Args:
        transpose: the transpose of that matrix; its row j lists the vertices that need vertex j.
        part_path: ``.npy`` file with the (num_vertices,) int32 parts, all in 0..num_parts-1; workers share its memory.
        direction: name of the product.
        writer: of the artifact that the figures describe; finished tasks leave their records there.
    """
    buffers = CountBuffers(num_parts, cluster.memory)
    pairs = _pair_shuffle(direction, num_parts)
    lanes = pairs.create_lanes(writer.work, transpose.num_blocks)
    tasks = [
        _CountTask(writer, transpose.artifact.path, part_path, buffers, block, pairs, lanes.lane(block))
        for block in range(transpose.num_blocks)
    ]
    phase = f"count {direction} exchange"
    records = run_missing(phase, cluster, writer, _count_block, tasks, is_usable=pairs.has_runs)
    sums = pair_sums(num_parts)
    with OpenFiles(writer.work) as files:
        for section in pairs.recorded_sections(files, records):
            sums.add(section.position(), section.read("rows"))
    return Exchange(num_parts, *sums.merged())


def _pair_shuffle(direction: str, num_parts: int) -> Shuffle:
    """The rows that pairs of parts exchange, by pair; the client reads all of them."""
    return Shuffle(f"exchange-{direction}", num_parts * num_parts, (Column("rows", "int64"),), 1)


def _count_block(task: _CountTask) -> int:
    """Count the rows of a block; returns its nonzeros."""
    # The pairs go through a file: what a task returns passes through the scheduler and has to stay small.
    with task.writer.task(task.name) as output, task.pairs.routed(output, task.lane) as out:
        for pair, rows in (_table_counts if task.buffers.has_table else _sorted_counts)(task):
            out.add(Index.of_positions(pair), {"rows": rows})
    return int(Graph(Artifact(task.matrix_path)).block_nnz[task.block])


def _table_counts(task: _CountTask) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Count the pairs of a block in a table; yields (num_pairs,) int64 distinct pairs, ascending, and their rows."""
    table = np.zeros(task.buffers.num_parts**2, dtype=np.int64)
    for emitted in _emitted(task):
        _add_to_table(emitted, table)
    for start in range(0, len(table), _PIECE_CELLS):
        piece = table[start : start + _PIECE_CELLS]
        cell = np.flatnonzero(piece)
        yield start + cell, piece[cell]


def _sorted_counts(task: _CountTask) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Count the pairs of every range of a block by sorting them; yields those of each, as :func:`_table_counts`."""
    for emitted in _emitted(task):
        yield np.unique(emitted, return_counts=True)


def _emitted(task: _CountTask) -> Iterator[NDArray[np.int64]]:
    """Read a block in ranges of nonzeros; yields the pairs of each, in a buffer that the next one overwrites."""
    graph, num_parts = Graph(Artifact(task.matrix_path)), task.buffers.num_parts
    indices = graph.columns(task.block)
    part = map_part_vector(task.part_path)
    last_row = np.full(num_parts, -1, dtype=np.int64)
    # A nonzero makes its row needed by at most one more part.
    limit = task.buffers.range_nonzeros
    emitted = np.empty(min(len(indices), max(limit, indices.chunk_rows)), dtype=np.int64)
    for rows in row_ranges(graph, task.block):
        for start, stop in indices.ranges(limit, int(rows.pointers[0]), int(rows.pointers[-1])):
            columns = indices.read(start, stop)
            length = _emit_pairs(rows.first, rows.pointers, start, columns, part, num_parts, last_row, emitted)
            yield emitted[:length]


@njit(cache=True, nogil=True)
def _emit_pairs(
    first_row: int,
    pointers: NDArray[np.int64],
    start: int,
    columns: NDArray[Any],
    part: NDArray[np.int32],
    num_parts: int,
    last_row: NDArray[np.int64],
    emitted: NDArray[np.int64],
) -> int:
    """List ``sender * P + receiver`` once for every row and every other part that needs it; returns how many.

    Args:
        first_row: row of the matrix to which the first pointer belongs.
        pointers: (num_rows + 1,) int64 positions of rows.
        start: position of the first of these nonzeros, which may lie within a row.
        columns: (num_nonzeros,) their columns.
        last_row: (num_parts,) int64, the last row in which each part occurred, at first -1; updated.
        emitted: (at least num_nonzeros,) int64, filled from the front.
    """
    length = 0
    row = np.searchsorted(pointers, start, side="right") - 1
    position, stop = start, start + len(columns)
    # A part has been counted for this row if the row is the last one in which it occurred; no table is cleared.
    while position < stop:
        while pointers[row + 1] <= position:
            row += 1
        own = first_row + row
        sender = part[own]
        last_row[sender] = own
        end = min(pointers[row + 1], stop)
        for k in range(position - start, end - start):
            receiver = part[columns[k]]
            if last_row[receiver] != own:
                last_row[receiver] = own
                # P^2 may exceed 32 bits, so the product is formed in 64.
                emitted[length] = np.int64(sender) * num_parts + receiver
                length += 1
        position = end
    return length


@njit(cache=True, nogil=True)
def _add_to_table(emitted: NDArray[np.int64], table: NDArray[np.int64]) -> None:
    for pair in emitted:
        table[pair] += 1
