"""Batches of the vertices that random walks visit.

A walk goes from a vertex to one that its row gathers from; self loops are left out.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.permutation import GOLDEN, mix

#: (num_vertices + 1,) int64 offsets, and (num_neighbors,) int32 or int64 neighbors.
Neighbors: TypeAlias = tuple[NDArray[np.int64], NDArray[Any]]

#: Most vertices in a frontier.
FRONTIER: Final = 1000
#: Steps of a walk after its root.
_LENGTH = 4
#: Steps per wanted vertex after which drawing stops: small components may not hold enough vertices.
_PATIENCE = 50


def load_neighbors(graph: Graph) -> Neighbors:
    """Read the pattern of a graph without self loops into memory.

    Returns:
        (num_vertices + 1,) int64 offsets, and (num_neighbors,) int32 or int64 neighbors of each vertex in turn.
    """
    # The leading 0 turns the cumulative sum into offsets. int64, since the sum counts nonzeros.
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
    # Entries keep their order, so the neighbors stay sorted and a batch depends only on the graph and the key.
    for row in range(len(indptr) - 1):
        start = end
        for position in range(indptr[row], indptr[row + 1]):
            if indices[position] != first_row + row:
                kept[end] = indices[position]
                end += 1
        size[row] = end - start
    # A copy: a view would keep the full-size buffer of every block alive.
    return size, kept[:end].copy()


@njit(cache=True, nogil=True)
def draw_walks(
    key: np.uint64, wanted: int, offset: NDArray[np.int64], neighbor: NDArray[Any], chosen: NDArray[np.bool_]
) -> None:
    """Choose the vertices that walks of 4 steps from uniform roots visit, until ``wanted`` vertices are chosen.

    Args:
        key: random numbers with other keys are independent.
        wanted: vertices to choose, at least 1; fewer are chosen if the walks do not reach as many.
        offset, neighbor: :data:`Neighbors` of the graph.
        chosen: (num_vertices,) bool, all false; set to true for chosen vertices.

    Zeng et al. (GraphSAINT, ICLR 2020), section 3.2, the random walk sampler.
    """
    # One loop over all steps: a walk ends after _LENGTH steps or at a vertex without neighbors, and a new root follows.
    # Every step has its own counter, so the batch depends on the key and the graph only.
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
    """Choose the vertices that leave a frontier of ``size`` uniform vertices, until ``wanted`` vertices are chosen.

    Each step draws a vertex of the frontier with probability proportional to its degree plus 1 and chooses it. One of
    its neighbors takes its position in the frontier, or a uniform vertex if it has no neighbors.

    Args:
        key: random numbers with other keys are independent.
        wanted: vertices to choose, at least 1; fewer are chosen if the frontier does not reach as many.
        size: vertices in the frontier, at least 1.
        offset, neighbor: :data:`Neighbors` of the graph.
        chosen: (num_vertices,) bool, all false; set to true for chosen vertices.

    Ribeiro, Towsley (IMC 2010); Zeng et al. (IPDPS 2019), section 4.1.
    """
    frontier = np.empty(size, np.int64)
    # A tree of sums draws by degree in logarithmic time: leaf ``size + slot`` holds the degree of a slot plus 1, node k
    # the sum of its children 2k and 2k + 1.
    tree = np.zeros(2 * size, np.int64)
    for slot in range(size):
        frontier[slot] = _below(key, slot, len(chosen))
        # Plus 1, so that a vertex without neighbors leaves the frontier at some time, too.
        _set_leaf(tree, size, slot, 1 + offset[frontier[slot] + 1] - offset[frontier[slot]])
    count = 0
    # The roots used the counters 0 to size-1; each step uses the two counters from 2 * size on, so no number is reused.
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
    """A random number in 0..bound-1."""
    value = mix(key + (np.uint64(counter) + np.uint64(1)) * GOLDEN)
    # Scaled instead of a modulo, which favors small numbers. The quotient is at most 1 - 2^-53, so the product rounds
    # to less than ``bound``.
    return int(np.float64(value >> np.uint64(11)) / np.float64(1 << 53) * bound)


@njit(cache=True, nogil=True, inline="always")
def _set_leaf(tree: NDArray[np.int64], size: int, slot: int, value: int) -> None:
    node = size + slot
    # The change is added to all ancestors, so each stays the sum of its children. Integers: the sums are exact.
    change = value - tree[node]
    while node > 0:
        tree[node] += change
        node //= 2


@njit(cache=True, nogil=True, inline="always")
def _find_leaf(tree: NDArray[np.int64], size: int, target: int) -> int:
    """The slot whose range in the cumulative sum of degrees contains ``target``."""
    # Every inner node has two children for any ``size``, so the tree need not have a power of two of leaves.
    node = 1
    while node < size:
        node *= 2
        if target >= tree[node]:
            target -= tree[node]
            node += 1
    return node - size
