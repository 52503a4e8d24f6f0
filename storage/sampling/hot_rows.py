"""The vertices whose features batches read most often, found by a counted pre-sampling.

Yang et al., "GNNLab: A Factored System for Sample-based GNN Training over GPUs" (EuroSys 2022), section 6.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.samples import ONLY_TYPE
from gnnloom.storage.sampling.layers.seeds import VertexSeeds
from gnnloom.storage.sampling.neighbor import NeighborSampler

#: Batches that are counted together; their vertices bound the memory.
COUNTED_BATCHES: Final = 16
#: Batches after which no more are counted, even if they have fewer vertices than there is room for.
_MOST_COUNTED: Final = 64
#: Epoch of the counted batches. Epochs of training are not negative, so the random streams are independent.
_COUNTED_EPOCH: Final = -1

Choice = Callable[[NDArray[np.int64]], NDArray[np.bool_]]


class _Sampler(Protocol):
    """Draws neighbors of the seeds of a batch: their vertices, or the vertices of each type."""

    def sample_of(self, seeds: Any, epoch: int, batch: int) -> Any: ...


def hot_vertices(
    sampler: _Sampler, seeds: VertexSeeds, row_bytes: Mapping[str, int], memory: int
) -> dict[str, NDArray[np.int64]]:
    """The vertices that most of the counted batches contain; of equally frequent ones, the lowest of the first type.

    Args:
        row_bytes: bytes of the features of a vertex, of each type that has features; ``ONLY_TYPE`` in a graph without
            types.
        memory: bytes of the features of all vertices that are returned, at most.

    Returns:
        (num_hot,) int64 by type, ascending. No array with an entry for every vertex is made.
    """
    if not memory:
        return {name: np.empty(0, np.int64) for name in row_bytes}
    drawn = _counted(sampler, seeds)
    found = {name: np.unique(np.concatenate(drawn[name]), return_counts=True) for name in row_bytes}
    counts = np.concatenate([count for _, count in found.values()])
    width = np.concatenate([np.full(len(count), max(1, row_bytes[name])) for name, (_, count) in found.items()])
    # Stable, so that equally frequent vertices stay in their order.
    order = np.argsort(-counts, kind="stable")
    taken = np.zeros(len(counts), np.bool_)
    taken[order[: np.searchsorted(np.cumsum(width[order]), memory, side="right")]] = True
    ends = np.cumsum([len(count) for _, count in found.values()])
    parts = np.split(taken, ends[:-1])
    return {name: vertices[part] for (name, (vertices, _)), part in zip(found.items(), parts, strict=True)}


def _counted(sampler: _Sampler, seeds: VertexSeeds, first: int = 0) -> dict[str, list[NDArray[np.int64]]]:
    """The vertices of each of some counted batches, by type; none for a type that the sampler does not know.

    Args:
        first: number of the first batch.
    """
    found = defaultdict[str, list[NDArray[np.int64]]](lambda: [np.empty(0, np.int64)])
    begun = seeds.begin(_COUNTED_EPOCH)
    for number in range(first, min(first + COUNTED_BATCHES, seeds.num_batches)):
        drawn = sampler.sample_of(begun(number).vertices, _COUNTED_EPOCH, number).vertices
        for name, vertices in (drawn if isinstance(drawn, Mapping) else {ONLY_TYPE: drawn}).items():
            found[name].append(vertices)
    return found


def by_frequency(
    sampler: NeighborSampler, seeds: VertexSeeds, chosen: Choice | None = None, most: int = 0
) -> NDArray[np.int64]:
    """(num_vertices,) int64 vertices of the counted batches, the most frequent first; of equal ones, the lowest first.

    Args:
        chosen: which of some (num_vertices,) int64 vertices may be returned; by default, all.
        most: number of vertices that are of use; further batches are counted until this number is found.
    """
    found, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    for first in range(0, min(_MOST_COUNTED, max(1, seeds.num_batches)), COUNTED_BATCHES):
        more, more_counts = np.unique(np.concatenate(_counted(sampler, seeds, first)[ONLY_TYPE]), return_counts=True)
        if chosen is not None:
            mask = chosen(more)
            more, more_counts = more[mask], more_counts[mask]
        found, counts = _added(found, counts, more, more_counts)
        if len(found) >= most:
            break
    # Stable, so that equally frequent vertices stay in ascending order.
    ordered: NDArray[np.int64] = found[np.argsort(-counts, kind="stable")]
    return ordered


def _added(
    vertices: NDArray[np.int64], counts: NDArray[np.int64], more: NDArray[np.int64], more_counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct vertices of two ascending lists, ascending, and the sums of their counts."""
    found = np.union1d(vertices, more)
    total = np.zeros(len(found), np.int64)
    for each, count in ((vertices, counts), (more, more_counts)):
        total[np.searchsorted(found, each)] += count
    return found, total
