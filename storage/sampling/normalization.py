"""GraphSAINT's normalization from counts, for samplers whose probabilities are not known.

Samplers draw some vertices and edges more often than others. A counted pre-sampling estimates their frequencies; the
loss of a vertex and the message of an edge are divided by them. Zeng et al. (GraphSAINT, ICLR 2020), section 3.2.

With N batches and a count C, the inverse of C / N is infinite on average, and too large if zeros are left out. Counting
one more batch that has everything corrects this: if batches are independent and have a vertex with probability p, then
the mean of (N + 1) / (C + 1) is (1 - (1 - p)^(N + 1)) / p, which differs from 1 / p only by the probability that no
batch has the vertex. Likewise, (C + 1) / (D + 1) for an edge that D of the C batches with its target have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.errors import InputError
from gnnloom.storage.kernels import kernel
from gnnloom.storage.samplers.kind import MOST_COUNTED, SUFFICIENT
from gnnloom.storage.sampling.sampler import Normalization, Sample, SubgraphSampler, Weights

#: Last epoch of the counted batches. Epochs of training are not negative, so the random streams are independent.
_COUNTED = -1


@dataclass(frozen=True)
class CountedNormalization(Normalization):
    """Normalization by counts: how often vertices and edges were drawn.

    Attributes:
        samples: number of counted batches.
        vertex_count: (num_vertices,) int32 batches that had each vertex.
        entry_count: (nnz,) int32 batches that had each nonzero of the graph's matrix.
    """

    samples: int
    vertex_count: NDArray[np.int32]
    entry_count: NDArray[np.int32]

    @property
    def mean_count(self) -> float:
        """Number of counted batches that had a vertex, averaged over the vertices."""
        return float(self.vertex_count.mean())

    def weights(self, sample: Sample) -> Weights:
        count = self.vertex_count[sample.vertices] + 1.0
        (block,) = sample.blocks
        rows = np.repeat(count, np.diff(block.matrix.indptr))
        loss = (self.samples + 1) / (count * len(self.vertex_count))
        return Weights(loss, rows / (self.entry_count[block.entry] + 1.0))


def count_samples(sampler: SubgraphSampler, samples: int) -> CountedNormalization:
    """Draw batches and count what is in them; no batch of an epoch from 0 on is among them.

    Args:
        samples: number of batches; the error of the weights falls with its square root.

    Raises:
        InputError: no batch is asked for.
    """
    if samples < 1:
        raise InputError(f"a pre-sampling of {samples} batches: expected 1 or more")
    return _counted(sampler, samples, np.inf)


def count_sufficiently(sampler: SubgraphSampler) -> CountedNormalization:
    """Count like :func:`count_samples`, until vertices were counted :data:`SUFFICIENT` times on average.

    At most :data:`MOST_COUNTED` batches are drawn; the mean count may then be lower.
    """
    return _counted(sampler, MOST_COUNTED, float(SUFFICIENT))


def _counted(sampler: SubgraphSampler, most: int, wanted: float) -> CountedNormalization:
    """Count ``most`` batches, or fewer if the vertices have a mean count of ``wanted`` before."""
    vertex_count = np.zeros(sampler.graph.num_vertices, np.int32)
    entry_count = np.zeros(sampler.graph.matrix.nnz, np.int32)
    number, drawn = 0, 0
    while number < most and drawn < wanted * len(vertex_count):
        # A sampler that covers epochs draws its batches without replacement within one, so every one is counted.
        sample = sampler.sample(_COUNTED - number // sampler.num_batches, number % sampler.num_batches)
        _count(vertex_count, sample.vertices)
        _count(entry_count, sample.blocks[0].entry)
        number, drawn = number + 1, drawn + len(sample.vertices)
    return CountedNormalization(number, vertex_count, entry_count)


@kernel
def _count(count: NDArray[np.int32], drawn: NDArray[Any]) -> None:
    for number in drawn:
        count[number] += 1


class DealtNormalization(Normalization):
    """The probabilities if a batch takes the next ``per_batch`` groups of a random order; the last one has the rest.

    A vertex is in one of the B batches of an epoch, so p = 1 / B. Two vertices of one group are always together. Of g
    groups, two are both in a batch of m with probability m (m - 1) / (g (g - 1)); the sum over the batches, divided by
    B, is the probability of a nonzero between groups.
    """

    def __init__(self, num_vertices: int, num_groups: int, per_batch: int, group: NDArray[np.int32] | None) -> None:
        """Compute the probabilities.

        Args:
            group: (num_vertices,) int32 group of each vertex; None if each vertex is one.
        """
        full, rest = divmod(num_groups, per_batch)
        num_batches = full + (rest > 0)
        together = full * per_batch * (per_batch - 1) + rest * (rest - 1)
        self._loss, self._group = num_batches / num_vertices, group
        # Without two groups in any batch, no sample has a nonzero between groups.
        self._between = num_groups * (num_groups - 1) / together if together else 1.0

    def weights(self, sample: Sample) -> Weights:
        matrix = sample.blocks[0].matrix
        group = np.arange(len(sample.vertices)) if self._group is None else self._group[sample.vertices]
        same = np.repeat(group, np.diff(matrix.indptr)) == group[matrix.indices]
        loss = np.full(len(sample.vertices), self._loss)
        return Weights(loss, np.where(same, 1.0, self._between))
