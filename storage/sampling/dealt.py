"""The normalization of samplers whose batches deal out all vertices, or whole groups of them, in a random order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.sampling.sampler import Normalization, Sample, Weights


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
