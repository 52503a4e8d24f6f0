"""The row pointers of a row block in ranges of rows, because a block of a graph with billions of rows has many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.block_matrix import BlockMatrix
from gnnloom.storage.artifacts.offsets import check_some_offsets

#: Rows whose pointers are in memory at a time: 16 MiB. Graphs of up to 2^31 vertices have no larger blocks.
RANGE_ROWS = 1 << 21

#: Bytes of memory for a range of rows: its pointers, and pointers that were read ahead.
RANGE_BYTES = 16 * RANGE_ROWS


@dataclass(frozen=True)
class RowRange:
    """Some rows of a row block.

    Attributes:
        first: first row of the range, counted from the first row of the matrix.
        pointers: (num_rows + 1,) int64 positions in the block at which the entries of each row begin, and their end.
    """

    first: int
    pointers: NDArray[np.int64]

    @property
    def nonzeros(self) -> NDArray[np.int64]:
        """(num_rows,) int64 nonzeros of each row."""
        return np.diff(self.pointers)


def row_ranges(graph: BlockMatrix, number: int, most_rows: int = RANGE_ROWS) -> Iterator[RowRange]:
    """Read the row pointers of one block in ranges of about ``most_rows`` rows."""
    pointers, num_nonzeros = graph.stored_pointers(number), graph.stored_nonzeros(number)
    first, before = graph.block_rows[number], np.empty(0, np.int64)
    for start, stop in pointers.ranges(most_rows):
        # A row ends where the next one begins, which is the last pointer of the range before.
        found = RowRange(first, np.concatenate([before, pointers.read(start, stop)]))
        check_some_offsets(pointers.where, found.pointers, num_nonzeros)
        yield found
        first, before = first + len(found.pointers) - 1, found.pointers[-1:]
