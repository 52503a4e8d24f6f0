"""``vertex``: uniform vertices. The batches of one epoch are disjoint, and together have every vertex."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.permutation import KeyedPermutation
from gnnloom.storage.matrix.random_numbers import stream_key
from gnnloom.storage.sampling.normalization import DealtNormalization
from gnnloom.storage.sampling.sampler import Normalization, SubgraphSampler
from gnnloom.storage.wording import counted


class VertexSampler(SubgraphSampler):
    """Takes the next ``size`` vertices of a random order of all vertices, which differs between epochs."""

    kind = "vertex"

    def draw(self, epoch: int, batch: int) -> NDArray[np.int64]:
        """See :meth:`Sampler.draw`.

        Raises:
            InputError: the epoch has fewer batches.
        """
        return members(self.graph.num_vertices, self.size, self.seed, epoch, batch)

    def exact_normalization(self, *, symmetric: bool) -> Normalization:  # noqa: ARG002 - the same for all graphs
        """See :meth:`SubgraphSampler.exact_normalization`."""
        n = self.graph.num_vertices
        return DealtNormalization(n, n, self.size, None)


def members(num_vertices: int, size: int, seed: int, epoch: int, batch: int) -> NDArray[np.int64]:
    """The numbers of a batch, if 0..num_vertices-1 are split at random into batches of ``size``; the last is smaller.

    Returns:
        (at most size,) int64, ascending.

    Raises:
        InputError: the epoch has fewer batches.
    """
    first = batch * size
    if not 0 <= first < num_vertices:
        raise InputError(f"batch {batch} of an epoch of {counted(-(-num_vertices // size), 'batch')}")
    positions = np.arange(first, min(first + size, num_vertices), dtype=np.int64)
    found = _order(num_vertices, seed, epoch).inverse(positions)
    found.sort()
    return found


def batch_of(num_vertices: int, size: int, seed: int, epoch: int, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of the batch of an epoch that contains each vertex; the inverse of :func:`members`.

    It is computed, without a table: any process knows the batch of any vertex without asking.

    Args:
        vertices: (num_asked,) int64.

    Returns:
        (num_asked,) int64.
    """
    return _order(num_vertices, seed, epoch).forward(vertices) // size


def _order(num_vertices: int, seed: int, epoch: int) -> KeyedPermutation:
    return KeyedPermutation(num_vertices, int(stream_key(seed, f"order/{epoch}")))
