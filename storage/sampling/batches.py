"""Mini-batches that are drawn independently of each other: uniform vertices, or the ends of uniform edges.

A batch is the subgraph that its vertices induce.  Every draw is a hash of the seed, the batch's number and the
vertex or edge, so that any range of a graph can be drawn anywhere.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.graph import Graph
from gnnloom.storage.permutation import mix


def draw_batch(kind: str, graph: Graph, rate: float, seed: int, number: int) -> NDArray[np.bool_]:
    """(num_vertices,) which vertices are in a batch.

    Args:
        kind: ``vertex``: every vertex with probability ``rate``; ``edge``: the two ends of every nonzero that is drawn
            with that probability (self loops are not).
        number: of the batch; batches with other numbers or seeds are independent.
    """
    key = np.uint64(int.from_bytes(hashlib.sha256(f"{seed}/batch/{number}".encode()).digest()[:8], "little"))
    limit = np.uint64(int(rate * (1 << 53)))
    chosen = np.zeros(graph.num_vertices, dtype=np.bool_)
    if kind == "vertex":
        _draw_vertices(key, limit, chosen)
        return chosen
    first = 0
    for block in graph.blocks():
        _draw_edges(key, limit, first, block.row_offset, block.indptr, block.indices, chosen)
        first += block.nnz
    return chosen


@njit(cache=True, nogil=True)
def _draw_vertices(key: np.uint64, limit: np.uint64, chosen: NDArray[np.bool_]) -> None:
    for vertex in range(len(chosen)):
        chosen[vertex] = _is_drawn(key, limit, vertex)


@njit(cache=True, nogil=True)
def _draw_edges(
    key: np.uint64,
    limit: np.uint64,
    first: int,
    row_offset: int,
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    chosen: NDArray[np.bool_],
) -> None:
    for row in range(len(indptr) - 1):
        for position in range(indptr[row], indptr[row + 1]):
            column = indices[position]
            if column != row_offset + row and _is_drawn(key, limit, first + position):
                chosen[row_offset + row] = True
                chosen[column] = True


@njit(cache=True, nogil=True, inline="always")
def _is_drawn(key: np.uint64, limit: np.uint64, number: int) -> bool:
    value = mix(key + (np.uint64(number) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
    return bool((value >> np.uint64(11)) < limit)
