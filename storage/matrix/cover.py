"""The minimum vertex cover of a block of a matrix: the fewest rows and columns that hold all of its nonzeros.

Koenig (1931): in a bipartite graph, the minimum cover is as large as the maximum matching, and follows from any maximum
matching. The matching is found by Hopcroft, Karp, "An n^5/2 Algorithm for Maximum Matchings in Bipartite Graphs" (SIAM
Journal on Computing 2(4), 1973), after a greedy one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

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
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    indices: NDArray[Any],
    columns: tuple[int, int],
    column_weight: int = 1,
) -> Cover:
    """Find the cover of the least weight, where a row weighs 1 and a column ``column_weight``.

    Several covers may have this weight; the one with the most rows is returned (Dulmage, Mendelsohn, "Coverings of
    Bipartite Graphs", 1958). It depends on the nonzeros alone, and neither on the order of the rows nor of the columns,
    so two processes that number them differently find the same cover.

    Takes about 17 bytes for each row, and 5 for each column times its weight.

    Args:
        begin, end: (num_rows,) int64 positions of the first entry of each row and after its last entry.
        indices: (nnz,) int32 or int64 columns of the entries.
        columns: the first column of the block and the one after its last; all entries of the rows lie in between.
        column_weight: number of rows that weigh as much as a column, at least 1.
    """
    first, stop = columns
    # A column of weight w is w slots; each slot is matched with one of its rows.
    row_of = np.full(column_weight * (stop - first), -1, index_dtype(len(begin)))
    distance = np.empty(len(begin), np.int32)
    _match(_Block(begin, end, indices, first, column_weight), row_of, distance)
    if not len(begin):
        return Cover(np.zeros(0, bool), np.zeros(stop - first, bool))
    # Slots of a column have the same rows, so alternating paths reach all of the slots or none.
    matched = row_of[::column_weight]
    return Cover(distance < 0, (matched >= 0) & (distance[matched] >= 0))


class _Block(NamedTuple):
    """The block to cover; ``copies`` is the number of slots of a column, and the others are the arguments above.

    Position p of a row's edges, from ``begin * copies`` to ``end * copies``, leads to one slot of a column.
    """

    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    indices: NDArray[Any]
    first: int
    copies: int


@njit(cache=True, nogil=True)
def _slot(block: _Block, edge: int) -> int:
    """The slot to which an edge leads."""
    # Most columns weigh 1, and a division takes as long as the rest of the step.
    if block.copies == 1:
        return block.indices[edge] - block.first
    return (block.indices[edge // block.copies] - block.first) * block.copies + edge % block.copies


@njit(cache=True, nogil=True)
def _match(block: _Block, row_of: NDArray[Any], distance: NDArray[np.int32]) -> None:
    """Find a maximum matching of rows with slots.

    Args:
        row_of: (num_slots,) the row of each slot, or -1; filled in.
        distance: (num_rows,) length of the shortest alternating path from an unmatched row to each row, counted in
            rows; negative if there is none. Filled in for the maximum matching.
    """
    num_rows = len(distance)
    is_free = np.ones(num_rows, np.bool_)
    for row in range(num_rows):
        for edge in range(block.begin[row] * block.copies, block.end[row] * block.copies):
            slot = _slot(block, edge)
            if row_of[slot] < 0:
                row_of[slot] = row
                is_free[row] = False
                break
    # Breadth first, it is the queue of rows; depth first, the stack of the rows on a path.
    path = np.empty(num_rows, row_of.dtype)
    edge_of = np.empty(num_rows, np.int64)
    while _find_distances(block, row_of, distance, is_free, path):
        for row in range(num_rows):
            edge_of[row] = block.begin[row] * block.copies
        for row in range(num_rows):
            if is_free[row] and _augment(block, row_of, distance, path, edge_of, row):
                is_free[row] = False


@njit(cache=True, nogil=True)
def _find_distances(
    block: _Block, row_of: NDArray[Any], distance: NDArray[np.int32], is_free: NDArray[np.bool_], queue: NDArray[Any]
) -> bool:
    """Find the distances of all rows from unmatched rows; returns whether some path ends at an unmatched slot."""
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
        for edge in range(block.begin[row] * block.copies, block.end[row] * block.copies):
            other = row_of[_slot(block, edge)]
            if other < 0:
                ends = True
            elif distance[other] == _UNREACHED:
                distance[other] = distance[row] + 1
                queue[waiting] = other
                waiting += 1
    return ends


@njit(cache=True, nogil=True)
def _augment(
    block: _Block,
    row_of: NDArray[Any],
    distance: NDArray[np.int32],
    path: NDArray[Any],
    edge_of: NDArray[np.int64],
    start: int,
) -> bool:
    """Find a shortest path from an unmatched row to an unmatched slot, and match along it; returns whether it did.

    Args:
        edge_of: (num_rows,) int64 next edge to follow from each row in this phase; updated.
    """
    length = 1
    path[0] = start
    while length > 0:
        row = path[length - 1]
        if edge_of[row] == block.end[row] * block.copies:
            distance[row] = _EXHAUSTED
            length -= 1
            if length > 0:
                edge_of[path[length - 1]] += 1
            continue
        other = row_of[_slot(block, edge_of[row])]
        if other < 0:
            for k in range(length):
                row_of[_slot(block, edge_of[path[k]])] = path[k]
            return True
        if distance[other] == distance[row] + 1:
            path[length] = other
            length += 1
        else:
            edge_of[row] += 1
    return False
