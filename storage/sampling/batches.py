"""Draws mini-batches independently of each other; a batch is the subgraph that its vertices induce.

``vertex`` draws every vertex with the same probability. ``edge`` draws every nonzero except self loops with the same
probability, and takes both its ends. ``walk`` and ``frontier`` walk at random until a share of the vertices is drawn
(:mod:`gnnloom.storage.sampling.walks`). Every choice is a hash of the seed, the batch's number, and the vertex, nonzero
or step, so that any process draws the same batch.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.matrix.permutation import GOLDEN, mix
from gnnloom.storage.sampling.walks import FRONTIER, Neighbors, draw_frontier, draw_walks, load_neighbors


class BatchDrawer:
    """Draws the batches of a graph.

    Args:
        kind: one of ``BATCHES``.
        graph: the graph to draw from.
        rate: expected share of the vertices in a batch; for ``edge``, of the nonzeros.
        seed: batches with other seeds are independent.

    ``walk`` and ``frontier`` hold the graph's pattern in memory, the others one row block at a time.
    """

    def __init__(self, kind: str, graph: Graph, rate: float, seed: int) -> None:
        self._kind, self._graph, self._rate, self._seed = kind, graph, rate, seed
        self._neighbors: Neighbors | None = load_neighbors(graph) if kind in {"walk", "frontier"} else None

    def draw(self, number: int) -> NDArray[np.bool_]:
        """Draw the batch with this number; batches with other numbers are independent.

        Returns:
            (num_vertices,) bool, true for the vertices in the batch.
        """
        digest = hashlib.sha256(f"{self._seed}/batch/{number}".encode()).digest()
        key = np.uint64(int.from_bytes(digest[:8], "little"))
        # Compared with the upper 53 bits of a hash. Scaling by a power of two is exact, so every machine agrees.
        limit = np.uint64(int(self._rate * (1 << 53)))
        chosen = np.zeros(self._graph.num_vertices, dtype=np.bool_)
        if self._neighbors is not None:
            offset, neighbor = self._neighbors
            wanted = max(1, round(self._rate * len(chosen)))
            if self._kind == "walk":
                draw_walks(key, wanted, offset, neighbor, chosen)
            else:
                # With a larger frontier, most vertices would be uniform draws rather than neighbors of others.
                draw_frontier(key, wanted, min(FRONTIER, -(-wanted // 8)), offset, neighbor, chosen)
        elif self._kind == "vertex":
            _draw_vertices(key, limit, chosen)
        else:
            first = 0
            for block in self._graph.blocks():
                _draw_edges(key, limit, first, block.row_offset, block.indptr, block.indices, chosen)
                # Nonzeros are numbered through all blocks, so equal positions in two blocks have different hashes.
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
    # Both ends may be set more than once, also from other blocks; only true is ever written, so the order is
    # irrelevant.
    for row in range(len(indptr) - 1):
        for position in range(indptr[row], indptr[row + 1]):
            column = indices[position]
            if column != row_offset + row and _is_drawn(key, limit, first + position):
                chosen[row_offset + row] = True
                chosen[column] = True


@njit(cache=True, nogil=True, inline="always")
def _is_drawn(key: np.uint64, limit: np.uint64, number: int) -> bool:
    # Counters start at 1, as in SplitMix64, which adds the increment before it mixes.
    value = mix(key + (np.uint64(number) + np.uint64(1)) * GOLDEN)
    return bool((value >> np.uint64(11)) < limit)
