"""``cluster``: whole parts of a partition."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.part_members import PartMembers
from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.errors import InputError
from gnnloom.storage.sampling.normalization import DealtNormalization
from gnnloom.storage.sampling.sampler import Normalization, SubgraphSampler
from gnnloom.storage.sampling.vertex import members


class ClusterSampler(SubgraphSampler):
    """Takes the next parts of a random order of all parts, which differs between epochs.

    Args:
        parts: the vertices of each part.
        parts_per_batch: parts in a batch; several parts restore edges between parts (Cluster-GCN, section 3.2).

    Raises:
        InputError: a batch has no part, or the partition is one of another graph.
    """

    kind = "cluster"

    def __init__(self, graph: WholeGraph, seed: int, parts: PartMembers, parts_per_batch: int = 1) -> None:
        if parts_per_batch < 1:
            raise InputError(f"{parts_per_batch} parts per batch: expected 1 or more")
        if len(parts.vertex) != graph.num_vertices:
            raise InputError(f"a partition of {len(parts.vertex):,} vertices, a graph of {graph.num_vertices:,}")
        super().__init__(graph, seed, max(1, graph.num_vertices * parts_per_batch // parts.num_parts))
        self.parts, self.parts_per_batch = parts, parts_per_batch

    @property
    def num_batches(self) -> int:
        return -(-self.parts.num_parts // self.parts_per_batch)

    def draw(self, epoch: int, batch: int) -> NDArray[np.int64]:
        """See :meth:`Sampler.draw`.

        Raises:
            InputError: the epoch has fewer batches.
        """
        chosen = members(self.parts.num_parts, self.parts_per_batch, self.seed, epoch, batch)
        vertices = np.concatenate([self.parts.of(part) for part in chosen.tolist()]).astype(np.int64, copy=False)
        vertices.sort()
        return vertices

    def exact_normalization(self, *, symmetric: bool) -> Normalization:  # noqa: ARG002 - the same for all graphs
        """See :meth:`SubgraphSampler.exact_normalization`."""
        return DealtNormalization(self.graph.num_vertices, self.parts.num_parts, self.parts_per_batch, self.parts.part)
