"""Describes the changes that a round's moves make, and routes them to the tasks that own the nets or clusters.

Every net of a vertex that moves is found once, and routed to the task with its range. Otherwise every such task would
have to read all moves, and look for its own nets among the nets of every moved vertex.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.multilevel.incidence import Incidence
from gnnloom.pipeline.shuffle.runs import BLOCK_BYTES, Index
from gnnloom.pipeline.shuffle.shuffle import RunsWriter
from gnnloom.storage.kernels import count_at_most, kernel

#: Bytes of an update: a net, and the parts or clusters that one of its pins leaves and joins.
UPDATE_BYTES = 24
#: Updates of a run: 24 MiB.
_RUN_UPDATES = 1 << 20


def grouped_bytes(row_bytes: int) -> int:
    """Bytes of a row of ``row_bytes`` bytes while rows are grouped: twice the row, and the number of its range."""
    return 2 * row_bytes + 8


def run_bytes() -> int:
    """Bytes of the updates of a run."""
    return UPDATE_BYTES * _RUN_UPDATES


def spread_bytes() -> int:
    """Bytes that a task holds to find and group updates, the next as well, with the moves that make them."""
    return (grouped_bytes(UPDATE_BYTES) + UPDATE_BYTES) * _RUN_UPDATES + 4 * BLOCK_BYTES


def net_updates(moves: NDArray[np.int64], vertices: Incidence) -> Iterator[NDArray[np.int64]]:
    """Yield an update for each net of each vertex that moves, in the order of the moves, some at a time.

    Args:
        moves: (num_moves, 3) int64 vertex, and what it leaves and joins.
        vertices: the nets of every vertex.

    Yields:
        (num_updates, 3) int64 net, and what the pin leaves and joins.
    """
    offset, ids = vertices.offset(), vertices.ids()
    move, done = 0, 0
    while move < len(moves):
        rows = np.empty((_RUN_UPDATES, 3), dtype=np.int64)
        count, move, done = _fill(moves, offset, ids, move, done, rows)
        yield rows[:count]


@kernel
def _fill(
    moves: NDArray[np.int64],
    offset: NDArray[np.int64],
    ids: NDArray[Any],
    move: int,
    done: int,
    rows: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Fill rows from the nets of a move that are not done; returns how many, and where the next ones begin."""
    count = 0
    while move < len(moves):
        vertex = moves[move, 0]
        for position in range(offset[vertex] + done, offset[vertex + 1]):
            if count == len(rows):
                return count, move, position - offset[vertex]
            rows[count, 0], rows[count, 1], rows[count, 2] = ids[position], moves[move, 1], moves[move, 2]
            count += 1
        move, done = move + 1, 0
    return count, move, done


def route_rows(
    out: RunsWriter, name: str, runs: Iterable[NDArray[np.int64]], ranges: Sequence[range], key: int = 0
) -> None:
    """Route rows of one column by the range of a number of theirs.

    Args:
        name: of the column.
        runs: (num_rows, width) int64 each.
        ranges: consecutive.
        key: which number of a row is in the ranges.
    """
    stops = np.array([each.stop for each in ranges], dtype=np.int64)
    for rows in runs:
        offsets, grouped = np.zeros(len(ranges) + 1, dtype=np.int64), np.empty_like(rows)
        _group(rows, key, stops, offsets, grouped)
        out.add(Index.of_offsets(offsets), {name: grouped})


@kernel
def _group(
    rows: NDArray[np.int64], key: int, stops: NDArray[np.int64], offsets: NDArray[np.int64], grouped: NDArray[np.int64]
) -> None:
    """Group rows by range.

    Args:
        stops: (num_ranges,) int64 ends of the ranges.
        offsets: (num_ranges + 1,) int64 of zeros; range k becomes grouped[offsets[k]:offsets[k + 1]].
    """
    which = np.empty(len(rows), np.int64)
    for k in range(len(rows)):
        which[k] = count_at_most(stops, rows[k, key])
        offsets[which[k] + 1] += 1
    for number in range(1, len(offsets)):
        offsets[number] += offsets[number - 1]
    position = offsets[:-1].copy()
    for k in range(len(rows)):
        grouped[position[which[k]]] = rows[k]
        position[which[k]] += 1
