"""The exact counter: the rows that one product sends between parts, measured on the stored matrix.

Reports use these figures, and never the figures of a partitioner. Part p sends the row of vertex j, which it
owns, once to every other part that has a nonzero in column j. So the rows sent for A H are counted over the columns
of A, which are the rows of its transpose. The count takes one pass over the row blocks, with one task for each block,
which reads it in ranges that fit the memory of a worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.mapped_vectors import map_vector
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.memory import MINIMUM_MEMORY, working_memory
from gnnloom.pipeline.tasks.phase import Needs, Phase
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.format.arrays import default_chunk_rows
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.kernels import count_at_most, kernel
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.shards.block_ranges import RANGE_ROWS, row_ranges

#: Bytes of memory for a nonzero of a range: its column, the pair that it makes, and the copies of a sort of pairs.
_NONZERO_BYTES = 48
#: Most nonzeros of a range, about a usual row block.
_MOST_NONZEROS = 1 << 22
#: Bytes of memory for the pointers of a row of a range; and for a cell of the table that is stored: pair and rows,
#: twice.
_ROW_BYTES, _PIECE_BYTES = 16, 32
#: Most cells of a table of pairs: 256 MiB.
_TABLE_CELLS = 1 << 25
#: Pairs that may wait before they are merged: 16 MiB of pairs and counts.
_PENDING_PAIRS = 1 << 20


@dataclass(frozen=True)
class PartExchange:
    """Rows of H sent between parts for one product.

    Attributes:
        num_parts: P.
        pair: (num_pairs,) int64 ``sender * P + receiver``, ascending.
        rows: (num_pairs,) int64 rows sent, at least 1.
    """

    num_parts: int
    pair: NDArray[np.int64]
    rows: NDArray[np.int64]

    @classmethod
    def nothing(cls, num_parts: int) -> PartExchange:
        """No part sends anything."""
        return cls(num_parts, np.empty(0, np.int64), np.empty(0, np.int64))

    @property
    def transposed(self) -> PartExchange:
        """The exchange in the other direction: every receiver sends its number of rows back."""
        sender, receiver = np.divmod(self.pair, self.num_parts)
        pair = receiver * self.num_parts + sender
        order = np.argsort(pair)
        return PartExchange(self.num_parts, pair[order], self.rows[order])

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
    """Buffers of a task that counts a row block; their size does not depend on the block.

    Attributes:
        memory: bytes that the worker may use; with less than the minimum, it counts as with the minimum.
        buffers: bytes of all buffers; None for what the memory of the worker allows.
        least_nonzeros: minimum number of nonzeros of a range, about a stored chunk.
        range_rows: rows whose pointers are read at a time.
        piece_cells: cells of the table that are stored at a time.
    """

    num_parts: int
    memory: int
    buffers: int | None = None
    least_nonzeros: int = 1 << 20
    range_rows: int = RANGE_ROWS
    piece_cells: int = 1 << 20

    @property
    def _room(self) -> int:
        """Bytes of a table and a range."""
        buffers = self.buffers or working_memory(max(self.memory, MINIMUM_MEMORY))
        return buffers - _ROW_BYTES * self.range_rows - 8 * self.num_parts

    @property
    def _table_bytes(self) -> int:
        """Bytes of a table with a cell for each pair."""
        return 8 * self.num_parts**2

    @property
    def has_table(self) -> bool:
        """Whether pairs are counted in a table with a cell for each; otherwise by sorting the pairs of each range."""
        left = self._room - self._table_bytes
        return self.num_parts**2 <= _TABLE_CELLS and left >= _NONZERO_BYTES * self.least_nonzeros

    @property
    def range_nonzeros(self) -> int:
        """Nonzeros that are read at a time, unless a stored chunk has more."""
        left = self._room - (self._table_bytes if self.has_table else 0)
        return min(_MOST_NONZEROS, max(1, left // _NONZERO_BYTES))

    def peak_memory(self, chunk_nonzeros: int) -> int:
        """Bytes of all buffers, where a stored chunk has ``chunk_nonzeros`` nonzeros."""
        table = self._table_bytes if self.has_table else 0
        counted = _ROW_BYTES * self.range_rows + _NONZERO_BYTES * max(self.range_nonzeros, chunk_nonzeros)
        return table + 8 * self.num_parts + max(counted, _PIECE_BYTES * self.piece_cells)


@dataclass(frozen=True)
class CountTask:
    """Counts the rows of a block.

    Attributes:
        part_path: mapped vector of the (num_vertices,) int32 parts, all in 0..num_parts-1.
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
    needs: Needs = field(default_factory=Needs)

    @property
    def name(self) -> str:
        return f"{self.pairs.name}/{self.block:05d}"


def exchange_phase(
    writer: ArtifactWriter, matrix_path: Path, part_path: Path, sizes: GraphSizes, buffers: CountBuffers, direction: str
) -> Phase:
    """The phase that counts the rows that the product with a matrix sends between parts.

    Args:
        matrix_path: the transpose of that matrix; its row j lists the vertices that need vertex j.
        part_path: mapped vector of the (num_vertices,) int32 parts, all in 0..num_parts-1.
        sizes: of the transpose.
        direction: name of the product.
    """
    plan = ShufflePlan.unmerged(writer, pair_shuffle(direction, buffers.num_parts), sizes.num_blocks)
    chunk = default_chunk_rows((max(sizes.block_nnz, default=0),), index_dtype(sizes.num_vertices))
    tasks = [
        CountTask(
            writer,
            matrix_path,
            part_path,
            buffers,
            block,
            plan.shuffle,
            plan.lane(block),
            Needs(
                # Columns and row pointers, and the part of every row and column.
                reads=sizes.entry_bytes * nnz + 8 * (rows + 1) + 4 * (rows + nnz),
                # A nonzero makes a row needed by one more part at the most.
                writes=16 * min(buffers.num_parts**2, nnz),
                opens=1,
                memory=buffers.peak_memory(chunk) + 4 * sizes.num_vertices,
            ),
        )
        for block, (rows, nnz) in enumerate(zip(sizes.block_rows, sizes.block_nnz, strict=True))
    ]
    return Phase("count exchange", count_block, tasks, files=(plan.files,))


def read_exchange(writer: ArtifactWriter, direction: str, num_parts: int) -> PartExchange:
    """Read what :func:`exchange_phase` counted."""
    sums = pair_sums(num_parts)
    with OpenFiles(writer.work) as files:
        for section in pair_shuffle(direction, num_parts).rows(writer.work, files).sections(0, num_parts**2):
            sums.add(section.position(), section.read("rows"))
    return PartExchange(num_parts, *sums.merged())


def pair_shuffle(direction: str, num_parts: int) -> Shuffle:
    """Number of rows that each pair of parts exchanges; the client reads all numbers."""
    return Shuffle(f"parts/exchange-{direction}", num_parts * num_parts, (Column("rows", "int64"),), 1)


def count_block(task: CountTask) -> int:
    """Count the rows of a block; returns its nonzeros."""
    # The pairs go through a file: results of tasks pass through the scheduler and have to stay small.
    with task.writer.task(task.name) as output, task.pairs.routed(output, task.lane) as out:
        for pair, rows in (_table_counts if task.buffers.has_table else _sorted_counts)(task):
            out.add(Index.of_positions(pair), {"rows": rows})
    return int(Graph(Artifact(task.matrix_path)).block_nnz[task.block])


def _table_counts(task: CountTask) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Count the pairs of a block in a table; yields (num_pairs,) int64 distinct pairs, ascending, and their rows."""
    table = np.zeros(task.buffers.num_parts**2, dtype=np.int64)
    for emitted in _emitted(task):
        _add_to_table(emitted, table)
    step = task.buffers.piece_cells
    for start in range(0, len(table), step):
        piece = table[start : start + step]
        cell = np.flatnonzero(piece)
        yield start + cell, piece[cell]


def _sorted_counts(task: CountTask) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Count the pairs of every range of a block by sorting them; yields counts like :func:`_table_counts`."""
    for emitted in _emitted(task):
        yield np.unique(emitted, return_counts=True)


def _emitted(task: CountTask) -> Iterator[NDArray[np.int64]]:
    """Read a block in ranges of nonzeros; yields the pairs of each, in a buffer that the next one overwrites."""
    graph, num_parts = Graph(Artifact(task.matrix_path)), task.buffers.num_parts
    indices = graph.columns(task.block)
    part = map_vector(task.part_path)
    last_row = np.full(num_parts, -1, dtype=np.int64)
    # A nonzero makes its row needed by at most one more part.
    limit = task.buffers.range_nonzeros
    emitted = np.empty(min(len(indices), max(limit, indices.chunk_rows)), dtype=np.int64)
    for rows in row_ranges(graph, task.block, task.buffers.range_rows):
        for start, stop in indices.ranges(limit, int(rows.pointers[0]), int(rows.pointers[-1])):
            columns = indices.read(start, stop)
            length = _emit_pairs(rows.first, rows.pointers, start, columns, part, num_parts, last_row, emitted)
            yield emitted[:length]


@kernel
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
        start: position of the first nonzero, which may lie within a row.
        columns: (num_nonzeros,) columns of the nonzeros.
        last_row: (num_parts,) int64, the last row in which each part occurred, at first -1; updated.
        emitted: (at least num_nonzeros,) int64, filled from the front.
    """
    length = 0
    row = count_at_most(pointers, start) - 1
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


@kernel
def _add_to_table(emitted: NDArray[np.int64], table: NDArray[np.int64]) -> None:
    for pair in emitted:
        table[pair] += 1


def pair_sums(num_parts: int) -> _PairTable | KeySums:
    """An empty sum of counts by pair of parts, as a table if that is small enough."""
    return _PairTable(num_parts) if num_parts * num_parts <= _TABLE_CELLS else KeySums(_PENDING_PAIRS)


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
class KeySums:
    """Sums numbers by key, in memory for about twice the number of distinct keys.

    Merges when the waiting keys are as numerous as the merged keys, so each key is sorted only a few times.

    Attributes:
        least: fewest keys that are merged at a time.
    """

    least: int
    _waiting: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=list)
    _num_merged: int = 0
    _num_waiting: int = 0

    def add(self, key: NDArray[np.int64], number: NDArray[np.int64]) -> None:
        """Add numbers, each to the sum of its key."""
        self._waiting.append((key, number))
        self._num_waiting += len(key)
        if self._num_waiting > max(self.least, self._num_merged):
            self.merged()

    def merged(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All keys so far, ascending, with their sums."""
        empty = np.empty(0, dtype=np.int64)
        distinct, place = np.unique(np.concatenate([empty, *(key for key, _ in self._waiting)]), return_inverse=True)
        total = np.zeros(len(distinct), dtype=np.int64)
        np.add.at(total, place, np.concatenate([empty, *(number for _, number in self._waiting)]))
        self._waiting = [(distinct, total)]
        self._num_merged, self._num_waiting = len(distinct), 0
        return distinct, total
