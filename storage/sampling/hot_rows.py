"""The vertices whose features batches read most often, found by a counted pre-sampling.

Yang et al., "GNNLab: A Factored System for Sample-based GNN Training over GPUs" (EuroSys 2022), section 6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.sampling.layers.seeds import VertexSeeds
from gnnloom.storage.sampling.neighbor import NeighborSampler

#: Batches that are counted; their vertices bound the memory.
COUNTED_BATCHES: Final = 16
#: Epoch of the counted batches. Epochs of training are not negative, so the random streams are independent.
_COUNTED_EPOCH: Final = -1

Choice = Callable[[NDArray[np.int64]], NDArray[np.bool_]]


def hot_vertices(
    sampler: NeighborSampler, seeds: VertexSeeds, most: int, chosen: Choice | None = None
) -> NDArray[np.int64]:
    """The vertices that most of the counted batches contain; of equally frequent ones, the lowest.

    Args:
        most: number of vertices to return, at most.
        chosen: which of some (num_vertices,) int64 vertices may be returned; by default, all.

    Returns:
        (num_hot,) int64, ascending. No array with an entry for every vertex is made.
    """
    return np.sort(by_frequency(sampler, seeds, chosen)[:most]) if most > 0 else np.empty(0, np.int64)


def by_frequency(sampler: NeighborSampler, seeds: VertexSeeds, chosen: Choice | None = None) -> NDArray[np.int64]:
    """(num_vertices,) int64 vertices of the counted batches, the most frequent first; of equal ones, the lowest first.

    Args:
        chosen: as for :func:`hot_vertices`.
    """
    numbers = range(min(COUNTED_BATCHES, seeds.num_batches))
    batches = [(seeds.of(_COUNTED_EPOCH, number), number) for number in numbers]
    drawn = [sampler.sample_of(some, _COUNTED_EPOCH, number).vertices for some, number in batches]
    vertices, count = np.unique(np.concatenate([np.empty(0, np.int64), *drawn]), return_counts=True)
    if chosen is not None:
        mask = chosen(vertices)
        vertices, count = vertices[mask], count[mask]
    # Stable, so that equally frequent vertices stay in ascending order.
    found: NDArray[np.int64] = vertices[np.argsort(-count, kind="stable")]
    return found
