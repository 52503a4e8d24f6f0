"""``edge``: both ends of random edges."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.distinct import distinct
from gnnloom.storage.matrix.random_numbers import below
from gnnloom.storage.sampling.edge_probabilities import EdgeNormalization
from gnnloom.storage.sampling.sampler import Normalization, SubgraphSampler, num_neighbors, other_neighbor


class EdgeSampler(SubgraphSampler):
    """Draws ``size / 2`` edges: a uniform vertex, and a uniform neighbor of it.

    In an undirected graph an edge is drawn with a probability proportional to the sum of 1/degree of its two ends,
    which gives the least variance (GraphSAINT, sections 3.3 and 3.4). A vertex without neighbors is drawn alone.
    """

    kind = "edge"

    def draw(self, epoch: int, batch: int) -> NDArray[np.int64]:
        matrix = self.graph.matrix
        return distinct(
            _draw_edges(self._key(epoch, batch), self.size, matrix.indptr, matrix.indices, self.graph.loop),
            overwrite=True,
        )

    def exact_normalization(self, *, symmetric: bool) -> Normalization:
        """See :meth:`SubgraphSampler.exact_normalization`."""
        return EdgeNormalization(self.graph, self.size, symmetric=symmetric)


@kernel
def _draw_edges(
    key: np.uint64, size: int, indptr: NDArray[np.int64], indices: NDArray[Any], loop: NDArray[np.bool_]
) -> NDArray[np.int64]:
    drawn = np.empty(size, np.int64)
    counter, count = 0, 0
    while count < size:
        vertex = below(key, counter, len(loop))
        counter += 1
        drawn[count] = vertex
        count += 1
        if count < size and num_neighbors(indptr, loop, vertex) > 0:
            drawn[count], counter = other_neighbor(key, counter, indptr, indices, vertex)
            count += 1
    return drawn
