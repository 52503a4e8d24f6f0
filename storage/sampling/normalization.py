"""GraphSAINT's normalization: weights of vertices and edges that make a subgraph's loss and sums unbiased.

Samplers draw some vertices and edges more often than others. A counted pre-sampling estimates how often; the loss of a
vertex, and what an edge carries, are divided by that. Zeng et al. (GraphSAINT, ICLR 2020), section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.errors import InputError
from gnnloom.storage.sampling.sampler import Block, Sample, SubgraphSampler

#: Last epoch of the counted batches. Epochs of training are not negative, so the random streams are independent.
_COUNTED = -1


@dataclass(frozen=True)
class Normalization:
    """How often vertices and edges were drawn.

    Attributes:
        samples: number of counted batches.
        vertex_count: (num_vertices,) int32 batches that had each vertex.
        entry_count: (nnz,) int32 batches that had each nonzero of the graph's matrix.
    """

    samples: int
    vertex_count: NDArray[np.int32]
    entry_count: NDArray[np.int32]

    def loss_weight(self, sample: Sample) -> NDArray[np.float64]:
        """Weights of the losses of a sample's vertices: their weighted sum is, on average, the mean over all vertices.

        Returns:
            (num_vertices,) float64; 1 / (n p), where p is the share of the batches that had the vertex.
        """
        # A vertex that no counted batch had counts as if one had had it.
        count = np.maximum(self.vertex_count[sample.vertices], 1)
        return self.samples / (count * float(len(self.vertex_count)))

    def entry_weight(self, block: Block, vertices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Factors of a block's nonzeros: a row's weighted sum is the full one on average over the batches with it.

        Args:
            vertices: the vertices of the sample.

        Returns:
            (nnz,) float64; the batches that had the row's vertex, over those that had the nonzero.
        """
        rows = np.repeat(vertices[: block.matrix.num_rows], np.diff(block.matrix.indptr))
        counts = np.maximum(self.entry_count[block.entry], 1)
        return np.maximum(self.vertex_count[rows], 1) / counts.astype(np.float64)


def count_samples(sampler: SubgraphSampler, samples: int) -> Normalization:
    """Draw batches and count what is in them; no batch of an epoch from 0 on is among them.

    Args:
        samples: number of batches; the error of the weights falls with its square root.

    Raises:
        InputError: no batch is asked for.
    """
    if samples < 1:
        raise InputError(f"a pre-sampling of {samples} batches: expected 1 or more")
    vertex_count = np.zeros(sampler.graph.num_vertices, np.int32)
    entry_count = np.zeros(sampler.graph.matrix.nnz, np.int32)
    for number in range(samples):
        # A sampler that covers epochs draws its batches without replacement within one, so every one is counted.
        sample = sampler.sample(_COUNTED - number // sampler.num_batches, number % sampler.num_batches)
        _count(vertex_count, sample.vertices)
        _count(entry_count, sample.blocks[0].entry)
    return Normalization(samples, vertex_count, entry_count)


@njit(cache=True, nogil=True)
def _count(count: NDArray[np.int32], drawn: NDArray[Any]) -> None:
    for number in drawn:
        count[number] += 1
