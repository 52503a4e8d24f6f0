"""Batches of vertices that random walks meet.

A vertex leads to those whose rows its own row gathers from, loops left out.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.permutation import mix

#: Offsets (num_vertices + 1,) int64 and neighbors (num_neighbors,), int32 or int64.
Neighbors: TypeAlias = tuple[NDArray[np.int64], NDArray[Any]]

#: Vertices in a frontier, at most.
FRONTIER: Final = 1000
#: Steps of a walk from its root.
_LENGTH = 4
#: Steps for each vertex that is wanted, after which a batch stays smaller: small components hold no more.
_PATIENCE = 50


def load_neighbors(graph: Graph) -> Neighbors:
    """The pattern of a graph without its loops, in memory."""
    sizes = [np.zeros(1, dtype=np.int64)]
    neighbors = [np.empty(0, dtype=index_dtype(graph.num_vertices))]
    for block in graph.blocks():
        size, neighbor = _without_loops(block.row_offset, block.indptr, block.indices)
        sizes.append(size)
        neighbors.append(neighbor)
    return np.cumsum(np.concatenate(sizes)), np.concatenate(neighbors)


@njit(cache=True, nogil=True)
def _without_loops(
    first_row: int, indptr: NDArray[np.int64], indices: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    size = np.empty(len(indptr) - 1, np.int64)
    kept = np.empty(len(indices), indices.dtype)
    end = 0
    for row in range(len(indptr) - 1):
        start = end
        for position in range(indptr[row], indptr[row + 1]):
            if indices[position] != first_row + row:
                kept[end] = indices[position]
                end += 1
        size[row] = end - start
    return size, kept[:end].copy()


@njit(cache=True, nogil=True)
def draw_walks(
    key: np.uint64, wanted: int, offset: NDArray[np.int64], neighbor: NDArray[Any], chosen: NDArray[np.bool_]
) -> None:
    """Choose what walks of 4 steps from uniform roots meet, until ``wanted`` vertices are chosen.

    Zeng et al. (GraphSAINT, ICLR 2020), section 3.2, the random walk sampler.
    """
    count, vertex = 0, 0
    for step in range(_PATIENCE * wanted):
        degree = offset[vertex + 1] - offset[vertex]
        if step % (_LENGTH + 1) == 0 or degree == 0:
            vertex = _below(key, step, len(chosen))
        else:
            vertex = neighbor[offset[vertex] + _below(key, step, degree)]
        count += not chosen[vertex]
        chosen[vertex] = True
        if count == wanted:
            return


@njit(cache=True, nogil=True)
def draw_frontier(
    key: np.uint64,
    wanted: int,
    size: int,
    offset: NDArray[np.int64],
    neighbor: NDArray[Any],
    chosen: NDArray[np.bool_],
) -> None:
    """Choose what leaves a frontier of ``size`` uniform vertices, until ``wanted`` vertices are chosen.

    In each step a vertex of the frontier, drawn by its degree with its loop, is chosen, and one of its neighbors
    takes its place; a uniform vertex, where it has none.

    Ribeiro, Towsley (IMC 2010); Zeng et al. (IPDPS 2019), section 4.1.
    """
    frontier = np.empty(size, np.int64)
    # Sums of degrees: leaf ``size + slot`` for a slot, node k for its children 2k and 2k + 1.
    tree = np.zeros(2 * size, np.int64)
    for slot in range(size):
        frontier[slot] = _below(key, slot, len(chosen))
        _set_leaf(tree, size, slot, 1 + offset[frontier[slot] + 1] - offset[frontier[slot]])
    count = 0
    for step in range(size, size + _PATIENCE * wanted):
        slot = _find_leaf(tree, size, _below(key, 2 * step, tree[1]))
        vertex = frontier[slot]
        count += not chosen[vertex]
        chosen[vertex] = True
        if count == wanted:
            return
        degree = offset[vertex + 1] - offset[vertex]
        if degree == 0:
            follower = _below(key, 2 * step + 1, len(chosen))
        else:
            follower = neighbor[offset[vertex] + _below(key, 2 * step + 1, degree)]
        frontier[slot] = follower
        _set_leaf(tree, size, slot, 1 + offset[follower + 1] - offset[follower])


@njit(cache=True, nogil=True, inline="always")
def _below(key: np.uint64, counter: int, bound: int) -> int:
    """A number from 0 up to, not including, ``bound``."""
    value = mix(key + (np.uint64(counter) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
    return int(np.float64(value >> np.uint64(11)) / np.float64(1 << 53) * bound)


@njit(cache=True, nogil=True, inline="always")
def _set_leaf(tree: NDArray[np.int64], size: int, slot: int, value: int) -> None:
    node = size + slot
    change = value - tree[node]
    while node > 0:
        tree[node] += change
        node //= 2


@njit(cache=True, nogil=True, inline="always")
def _find_leaf(tree: NDArray[np.int64], size: int, place: int) -> int:
    """The slot whose range of the sums of degrees holds ``place``."""
    node = 1
    while node < size:
        node *= 2
        if place >= tree[node]:
            place -= tree[node]
            node += 1
    return node - size
