"""``walk``: the vertices that random walks visit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.errors import InputError
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.distinct import distinct
from gnnloom.storage.matrix.random_numbers import below
from gnnloom.storage.sampling.sampler import SubgraphSampler, num_neighbors, other_neighbor


class WalkSampler(SubgraphSampler):
    """Walks from uniform roots until ``size`` vertices are visited.

    Args:
        length: steps of a walk after its root; it ends earlier at a vertex without neighbors.

    Raises:
        InputError: a walk has no step.
    """

    kind = "walk"

    def __init__(self, graph: WholeGraph, seed: int, size: int, length: int = 4) -> None:
        super().__init__(graph, seed, size)
        if length < 1:
            raise InputError(f"walks of {length} steps: expected 1 or more")
        self.length = length

    def draw(self, epoch: int, batch: int) -> NDArray[np.int64]:
        key, matrix = self._key(epoch, batch), self.graph.matrix
        return distinct(
            _walk(key, self.size, self.length, matrix.indptr, matrix.indices, self.graph.loop), overwrite=True
        )


@kernel
def _walk(
    key: np.uint64, size: int, length: int, indptr: NDArray[np.int64], indices: NDArray[Any], loop: NDArray[np.bool_]
) -> NDArray[np.int64]:
    visited = np.empty(size, np.int64)
    counter, left, vertex = 0, 0, 0
    for step in range(size):
        if left == 0 or num_neighbors(indptr, loop, vertex) == 0:
            vertex = below(key, counter, len(loop))
            counter += 1
            left = length
        else:
            vertex, counter = other_neighbor(key, counter, indptr, indices, vertex)
            left -= 1
        visited[step] = vertex
    return visited
