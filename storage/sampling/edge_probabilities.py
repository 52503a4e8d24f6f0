"""The probabilities with which batches of random edges have each vertex and each nonzero, in closed form.

A batch of ``size`` draws is a sequence of rounds. A round draws a vertex u, uniform among all n, and then, if u has
neighbors and a draw is left, a uniform one of its d(u) neighbors. A nonzero is in the induced subgraph if both of its
ends are drawn, by one round or by two.

Let S be one vertex, or the two ends of a nonzero. With r draws left, let a(r) be the probability that no draw hits S. A
round of one draw misses S with probability A = (vertices without neighbors, outside of S) / n. A round of two misses it
with probability B. It hits S with probability h = s / n - (vertices of S without neighbors) / n, where

    s({v}) = 1 + sum of 1 / d(w) over the w that have v as a neighbor,
    s({u, v}) = s({u}) + s({v}) - [v is a neighbor of u] / d(u) - [u is a neighbor of v] / d(v),

as the last two terms are the rounds that draw both. Hence a(0) = 1, a(1) = 1 - |S| / n, and

    a(r) = A a(r - 1) + B a(r - 2) = c1 x1^r + c2 x2^r,

where x1 > x2 are the roots of x^2 = A x + B. The batch has v with probability p(v) = 1 - a({v}), and both ends with
p(u) + p(v) - (1 - a({u, v})). If no vertex lacks neighbors and ``size`` is even, 1 - a is 1 - (1 - s / n)^(size / 2),
which counts every edge of a batch as an independent draw, as Zeng et al. do (GraphSAINT, ICLR 2020, section 3.3).
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.kernels import count_below, kernel
from gnnloom.storage.sampling.sampler import Normalization, Sample, Weights, num_neighbors

#: The sums over rows with more nonzeros than this are kept: a hub is in almost every batch.
_LONG: Final = 1 << 16


class EdgeNormalization(Normalization):
    """The weights of batches of random edges.

    They are computed for one sample at a time. In a directed graph, the rows do not list who has a vertex as a
    neighbor: s of all vertices is then summed once, in 8 bytes per vertex.
    """

    def __init__(self, graph: WholeGraph, size: int, *, symmetric: bool) -> None:
        """Count the vertices without neighbors.

        Args:
            size: draws of a batch.
            symmetric: the graph's pattern equals its transpose.
        """
        self._graph, self._size = graph, size
        self._num_alone = _count_alone(graph.matrix.indptr, graph.loop)
        self._all = None if symmetric else _all_shares(graph.matrix.indptr, graph.matrix.indices, graph.loop)
        self._long: dict[int, float] = {}

    def weights(self, sample: Sample) -> Weights:
        (block,) = sample.blocks
        num_vertices, matrix = self._graph.num_vertices, block.matrix
        degree = block.row_nnz - self._graph.loop[sample.vertices]
        share = self._shares(sample.vertices, block.row_nnz) if self._all is None else self._all[sample.vertices]
        facts = (num_vertices, self._num_alone, self._size)
        drawn, entry = _weigh(matrix.indptr, matrix.indices, degree, share, *facts)
        return Weights(1 / (num_vertices * drawn), entry)

    def _shares(self, vertices: NDArray[np.int64], row_nnz: NDArray[np.int64]) -> NDArray[np.float64]:
        """(num_vertices,) float64, s of each vertex of a symmetric graph."""
        matrix, loop = self._graph.matrix, self._graph.loop
        long = row_nnz > _LONG
        share = np.empty(len(vertices), np.float64)
        share[~long] = _shares(vertices[~long], matrix.indptr, matrix.indices, loop)
        for position in np.flatnonzero(long).tolist():
            vertex = int(vertices[position])
            if vertex not in self._long:
                self._long[vertex] = float(_shares(vertices[[position]], matrix.indptr, matrix.indices, loop)[0])
            share[position] = self._long[vertex]
        return share


@kernel
def _count_alone(indptr: NDArray[np.int64], loop: NDArray[np.bool_]) -> int:
    count = 0
    for vertex in range(len(loop)):
        count += num_neighbors(indptr, loop, vertex) == 0
    return count


@kernel
def _shares(
    vertices: NDArray[np.int64], indptr: NDArray[np.int64], indices: NDArray[Any], loop: NDArray[np.bool_]
) -> NDArray[np.float64]:
    share = np.ones(len(vertices), np.float64)
    for position in range(len(vertices)):
        vertex = vertices[position]
        for entry in range(indptr[vertex], indptr[vertex + 1]):
            neighbor = int(indices[entry])
            if neighbor != vertex:
                share[position] += 1.0 / max(1, num_neighbors(indptr, loop, neighbor))
    return share


@kernel
def _all_shares(indptr: NDArray[np.int64], indices: NDArray[Any], loop: NDArray[np.bool_]) -> NDArray[np.float64]:
    share = np.ones(len(loop), np.float64)
    for vertex in range(len(loop)):
        for entry in range(indptr[vertex], indptr[vertex + 1]):
            neighbor = int(indices[entry])
            if neighbor != vertex:
                share[neighbor] += 1.0 / max(1, num_neighbors(indptr, loop, vertex))
    return share


@kernel
def _weigh(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    degree: NDArray[np.int64],
    share: NDArray[np.float64],
    num_vertices: int,
    num_alone: int,
    size: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The probabilities of a sample's vertices, and the factors of its nonzeros.

    Args:
        indptr, indices: of the sample's block.
        degree: (num_sampled,) int64 neighbors of each vertex in the graph.
        share: (num_sampled,) float64, s of each vertex.
        num_vertices, num_alone: number of vertices, and of vertices without neighbors.
    """
    drawn, factor = np.empty(len(share), np.float64), np.ones(len(indices), np.float64)
    for row in range(len(share)):
        drawn[row] = _hit(share[row], 1, degree[row] == 0, num_vertices, num_alone, size)
    for row in range(len(share)):
        for entry in range(indptr[row], indptr[row + 1]):
            column = indices[entry]
            if column != row:
                both = 1.0 / degree[row]
                start, stop = indptr[column], indptr[column + 1]
                place = start + count_below(indices[start:stop], row)
                if place < stop and indices[place] == row:
                    both += 1.0 / degree[column]
                either = _hit(share[row] + share[column] - both, 2, degree[column] == 0, num_vertices, num_alone, size)
                factor[entry] = drawn[row] / (drawn[row] + drawn[column] - either)
    return drawn, factor


@kernel
def _hit(share: float, count: int, alone: int, num_vertices: int, num_alone: int, size: int) -> float:
    """Probability that a batch draws at least one of ``count`` vertices, where ``alone`` vertices have no neighbors.

    Args:
        share: s of the vertices.
    """
    step = (num_alone - alone) / num_vertices
    chance = share / num_vertices
    # The roots, from x1 = 1 - gap and x1 + x2 = step. In this form small probabilities keep their digits.
    spread = math.sqrt(max((2.0 - step) ** 2 - 4.0 * chance, 0.0))
    gap = 2.0 * chance / (2.0 - step + spread)
    if gap >= 1.0 or spread == 0.0:
        return 1.0 if size > 1 else count / num_vertices
    upper, lower = 1.0 - gap, step - 1.0 + gap
    rest = (count / num_vertices - gap) / spread
    return rest * (upper**size - lower**size) - math.expm1(size * math.log1p(-gap))
