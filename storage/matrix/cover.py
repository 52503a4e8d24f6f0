"""The minimum vertex cover of a block of a matrix: the fewest rows and columns that hold all of its nonzeros.

Koenig (1931): in a bipartite graph, the minimum cover is as large as the maximum matching, and follows from any maximum
matching. The matching is found by Hopcroft, Karp, "An n^5/2 Algorithm for Maximum Matchings in Bipartite Graphs" (SIAM
Journal on Computing 2(4), 1973), after a greedy one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.csr import index_dtype

#: Distance of a row that no alternating path reaches, and of a row from which the current phase finds no path.
_UNREACHED, _EXHAUSTED = -1, -2


class Cover(NamedTuple):
    """The rows and columns of a cover.

    Attributes:
        row: (num_rows,) bool.
        column: (num_columns,) bool.
    """

    row: NDArray[np.bool_]
    column: NDArray[np.bool_]


def minimum_cover(
    begin: NDArray[np.int64], end: NDArray[np.int64], indices: NDArray[Any], columns: tuple[int, int]
) -> Cover:
    """Find a cover of the fewest rows and columns.

    Several covers may have this size; the one with the most rows is returned (Dulmage, Mendelsohn, "Coverings of
    Bipartite Graphs", 1958). It depends on the nonzeros alone, and neither on the order of the rows nor of the columns,
    so two processes that number them differently find the same cover.

    Takes about 17 bytes for each row, and 5 for each column.

    Args:
        begin, end: (num_rows,) int64 positions of the first entry of each row and after its last entry.
        indices: (nnz,) int32 or int64 columns of the entries.
        columns: the first column of the block and the one after its last; all entries of the rows lie in between.
    """
    first, stop = columns
    row_of = np.full(stop - first, -1, index_dtype(len(begin)))
    distance = np.empty(len(begin), np.int32)
    _match(_Block(begin, end, indices, first), row_of, distance)
    if not len(begin):
        return Cover(np.zeros(0, bool), np.zeros(stop - first, bool))
    return Cover(distance < 0, (row_of >= 0) & (distance[row_of] >= 0))


class _Block(NamedTuple):
    """The block to cover, with the arguments of :func:`minimum_cover`; ``first`` is its first column."""

    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    indices: NDArray[Any]
    first: int


@kernel
def _match(block: _Block, row_of: NDArray[Any], distance: NDArray[np.int32]) -> None:
    """Find a maximum matching of rows with columns.

    Args:
        row_of: (num_columns,) the row of each column, or -1; filled in.
        distance: (num_rows,) length of the shortest alternating path from an unmatched row to each row, counted in
            rows; negative if there is none. Filled in for the maximum matching.
    """
    num_rows = len(distance)
    is_free = np.ones(num_rows, np.bool_)
    for row in range(num_rows):
        for entry in range(block.begin[row], block.end[row]):
            column = block.indices[entry] - block.first
            if row_of[column] < 0:
                row_of[column] = row
                is_free[row] = False
                break
    # Breadth first, it is the queue of rows; depth first, the stack of the rows on a path.
    path = np.empty(num_rows, row_of.dtype)
    entry_of = np.empty(num_rows, np.int64)
    while _find_distances(block, row_of, distance, is_free, path):
        for row in range(num_rows):
            entry_of[row] = block.begin[row]
        for row in range(num_rows):
            if is_free[row] and _augment(block, row_of, distance, path, entry_of, row):
                is_free[row] = False


@kernel
def _find_distances(
    block: _Block, row_of: NDArray[Any], distance: NDArray[np.int32], is_free: NDArray[np.bool_], queue: NDArray[Any]
) -> bool:
    """Find the distances of all rows from unmatched rows; returns whether some path ends at an unmatched column."""
    waiting = 0
    for row in range(len(distance)):
        distance[row] = _UNREACHED
        if is_free[row]:
            distance[row] = 0
            queue[waiting] = row
            waiting += 1
    ends = False
    done = 0
    while done < waiting:
        row = queue[done]
        done += 1
        for entry in range(block.begin[row], block.end[row]):
            other = row_of[block.indices[entry] - block.first]
            if other < 0:
                ends = True
            elif distance[other] == _UNREACHED:
                distance[other] = distance[row] + 1
                queue[waiting] = other
                waiting += 1
    return ends


@kernel
def _augment(
    block: _Block,
    row_of: NDArray[Any],
    distance: NDArray[np.int32],
    path: NDArray[Any],
    entry_of: NDArray[np.int64],
    start: int,
) -> bool:
    """Find a shortest path from an unmatched row to an unmatched column, and match along it; returns whether it did.

    Args:
        entry_of: (num_rows,) int64 next entry to follow from each row in this phase; updated.
    """
    length = 1
    path[0] = start
    while length > 0:
        row = path[length - 1]
        if entry_of[row] == block.end[row]:
            distance[row] = _EXHAUSTED
            length -= 1
            if length > 0:
                entry_of[path[length - 1]] += 1
            continue
        other = row_of[block.indices[entry_of[row]] - block.first]
        if other < 0:
            for k in range(length):
                row_of[block.indices[entry_of[path[k]]] - block.first] = path[k]
            return True
        if distance[other] == distance[row] + 1:
            path[length] = other
            length += 1
        else:
            entry_of[row] += 1
    return False
