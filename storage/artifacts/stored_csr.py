"""A CSR matrix whose entries stay on disk; they are read in blocks of whole rows, in the order stored.

Zheng, Mhembere, Lyzinski, Vogelstein, Priebe, Burns, "Semi-External Memory Sparse Matrix Multiplication for
Billion-Node Graphs" (IEEE TPDS 28(5), 2017), keep dense matrices in memory and stream the sparse one in this way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.format.arrays import ArrayReader, ReadCounter
from gnnloom.storage.format.chunks import FileBuffer
from gnnloom.storage.matrix.csr import CSR

#: Most entries of a block, unless a single row has more: 8 MiB of int32 column ids.
BLOCK_ENTRIES: Final = 1 << 21
#: Most rows of a block.
BLOCK_ROWS: Final = 1 << 20


@dataclass(frozen=True)
class StoredBlock:
    """Some rows of a stored matrix, in a buffer that a later block overwrites.

    Attributes:
        rows: the rows; ``row_offset`` is the number of the first row.
        num_bytes, num_files: stored bytes and files read for these rows.
    """

    rows: CSR
    num_bytes: int
    num_files: int

    @property
    def span(self) -> slice:
        """The block's rows in the whole matrix."""
        return slice(self.rows.row_offset, self.rows.row_offset + self.rows.num_rows)


class StoredCSR:
    """The rows of a matrix on disk; memory holds only the row pointers."""

    def __init__(
        self,
        indptr: NDArray[np.int64],
        indices: ArrayReader,
        data: ArrayReader | None,
        num_columns: int,
        counter: ReadCounter | None = None,
        block_entries: int = BLOCK_ENTRIES,
    ) -> None:
        """Read nothing yet.

        Args:
            indptr: (num_rows + 1,) int64, starting at 0.
            indices: (nnz,) int32 or int64 column ids, ascending within a row.
            data: (nnz,) weights, or None for a pattern.
            num_columns: width of the matrix.
            counter: counts the bytes read for blocks, in the thread that takes the blocks: reading itself may run in
                another thread.
            block_entries: most entries of a block, unless a single row has more.
        """
        self.indptr, self.num_columns = indptr, num_columns
        self.counter = counter if counter is not None else ReadCounter()
        #: The stored arrays: column ids and, if there are any, weights.
        self.entries = [indices] if data is None else [indices, data]
        self.block_entries = block_entries

    @property
    def num_rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        return int(self.indptr[-1])

    @property
    def is_weighted(self) -> bool:
        return len(self.entries) > 1

    @cached_property
    def bounds(self) -> NDArray[np.int64]:
        """(num_blocks + 1,) int64 first row of each block, and the number of rows."""
        bounds = [0]
        while bounds[-1] < self.num_rows:
            start = bounds[-1]
            most = np.searchsorted(self.indptr, self.indptr[start] + self.block_entries, side="right") - 1
            bounds.append(min(max(start + 1, int(most)), start + BLOCK_ROWS, self.num_rows))
        return np.array(bounds, np.int64)

    def sweep(self, num_buffers: int = 1) -> Sweep:
        """A reader of the blocks with ``num_buffers`` buffers of its own."""
        return Sweep(self, num_buffers)

    def blocks(self) -> Iterator[StoredBlock]:
        """All blocks in order, read when asked for. A block is valid until the next one."""
        sweep = self.sweep()
        for number in range(len(self.bounds) - 1):
            block = sweep.read(number)
            self.count(block.num_bytes, block.num_files)
            yield block

    def count(self, num_bytes: int, num_files: int) -> None:
        """Count the bytes and files read for a block, in the thread that counts everything else."""
        self.counter.bytes += num_bytes
        self.counter.files += num_files

    def row_sums(self) -> NDArray[np.float64]:
        """(num_rows,) float64 sums of the rows; reads the weights, if there are any."""
        if not self.is_weighted:
            return np.diff(self.indptr).astype(np.float64)
        sums = np.empty(self.num_rows, np.float64)
        for block in self.blocks():
            sums[block.span] = _row_sums(block.rows)
        return sums


def row_sums(matrix: CSR | StoredCSR) -> NDArray[np.float64]:
    """(num_rows,) float64 sums of the rows of a matrix in memory or on disk."""
    return matrix.row_sums() if isinstance(matrix, StoredCSR) else _row_sums(matrix)


def _row_sums(matrix: CSR) -> NDArray[np.float64]:
    if matrix.data is None:
        return np.diff(matrix.indptr).astype(np.float64)
    rows = np.repeat(np.arange(matrix.num_rows), np.diff(matrix.indptr))
    # Of float64 even without rows.
    return np.bincount(rows, weights=matrix.data, minlength=matrix.num_rows).astype(np.float64)


class Sweep:
    """Reads blocks of a stored matrix, one after the other, into buffers that it reuses.

    Blocks that follow each other are the cheapest: every chunk is then decoded once. Not for several threads at a time.
    """

    def __init__(self, matrix: StoredCSR, num_buffers: int) -> None:
        """Allocate the buffers."""
        self._matrix = matrix
        # A block's entries may begin and end inside a chunk.
        bounds = matrix.indptr[matrix.bounds]
        most = int(np.diff(bounds).max(initial=0))
        self._streams = [_EntryStream(reader, most, num_buffers) for reader in matrix.entries]

    def read(self, number: int, buffer: int = 0) -> StoredBlock:
        """Read the block of a number into a buffer; the block that was there is no longer valid.

        Raises:
            CorruptError: a chunk is missing or damaged; the message names the file.
        """
        matrix = self._matrix
        first, last = matrix.bounds[number : number + 2].tolist()
        begin, end = int(matrix.indptr[first]), int(matrix.indptr[last])
        read = [stream.take(begin, end, buffer) for stream in self._streams]
        indices, *data = (entries for entries, _, _ in read)
        indptr = matrix.indptr[first : last + 1] - begin
        rows = CSR(first, indptr, indices, data[0] if data else None, matrix.num_columns)
        return StoredBlock(rows, sum(size for _, size, _ in read), sum(files for _, _, files in read))


class _EntryStream:
    """Reads ranges of one stored array, and decodes a chunk once if the ranges follow each other."""

    def __init__(self, reader: ArrayReader, most: int, num_buffers: int) -> None:
        """Allocate the buffers.

        Args:
            most: length of the longest range.
        """
        self._reader = reader
        # A range may begin and end inside a chunk, and only whole chunks are decoded.
        length = most + 2 * reader.chunk_rows if len(reader) else 0
        self._buffers = [np.empty(length, reader.dtype) for _ in range(num_buffers)]
        self._files = FileBuffer()
        #: Decoded entries after the last range, and the position of the first such entry.
        self._left, self._position = np.empty(0, reader.dtype), 0

    def take(self, start: int, stop: int, number: int) -> tuple[NDArray[Any], int, int]:
        """Read entries ``start`` to ``stop`` into the buffer of a number.

        Returns:
            The entries, and the bytes and files that were read for them.
        """
        buffer, length = self._buffers[number], self._reader.chunk_rows
        if start != self._position:
            self._left, self._position = self._left[:0], start - start % length
        skipped, filled, num_bytes, num_files = start - self._position, len(self._left), 0, 0
        # From the buffer of the previous range: another buffer, which nobody writes, or this one.
        buffer[:filled] = self._left
        while self._position + filled < stop:
            chunk = (self._position + filled) // length
            num_bytes += self._reader.read_chunk(chunk, buffer[filled : filled + length], self._files)
            filled, num_files = filled + length, num_files + 1
        end = skipped + stop - start
        self._left, self._position = buffer[end:filled], stop
        return buffer[skipped:end], num_bytes, num_files
