"""Whole graphs in memory for the samplers, and one sampler of each kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage import CSR
from gnnloom.storage.artifacts.part_members import part_members
from gnnloom.storage.artifacts.whole_graph import WholeGraph, whole_graph
from gnnloom.storage.neighbor_samplers.registry import NEIGHBOR_SAMPLERS
from gnnloom.storage.sampling.cluster import ClusterSampler
from gnnloom.storage.sampling.edge import EdgeSampler
from gnnloom.storage.sampling.frontier import FrontierSampler
from gnnloom.storage.sampling.layers.seeds import VertexSeeds
from gnnloom.storage.sampling.neighbor import NeighborSampler
from gnnloom.storage.sampling.sampler import Sample, SubgraphSampler
from gnnloom.storage.sampling.vertex import VertexSampler
from gnnloom.storage.sampling.walk import WalkSampler


def in_memory(adjacency: Any, *, weighted: bool = False) -> WholeGraph:
    """A SciPy matrix as a graph for samplers; A[i, j] is the edge j -> i."""
    matrix = adjacency.tocsr()
    matrix.sort_indices()
    indptr, indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
    data = matrix.data.astype(np.float32) if weighted else None
    return whole_graph(CSR(0, indptr, indices, data, matrix.shape[1]))


@dataclass(frozen=True)
class Seeded:
    """A layered sampler with the seeds of all batches: draws batches by their numbers, as other samplers do."""

    sampler: NeighborSampler
    seeds: VertexSeeds

    @property
    def num_batches(self) -> int:
        return self.seeds.num_batches

    @property
    def graph(self) -> WholeGraph:
        return self.sampler.graph

    def draw(self, epoch: int, batch: int) -> NDArray[np.int64]:
        return self.seeds.of(epoch, batch)

    def sample(self, epoch: int, batch: int) -> Sample:
        return self.sampler.sample_of(self.draw(epoch, batch), epoch, batch)


def seeded(
    graph: WholeGraph, seed: int, vertices: NDArray[np.int64], fanouts: Sequence[int], size: int, **how: Any
) -> Seeded:
    """Batches of ``size`` of these vertices, with sampled neighbors."""
    return Seeded(NeighborSampler(graph, seed, fanouts, **how), VertexSeeds(vertices, size, seed))


def sampler_of(kind: str, graph: WholeGraph, size: int, seed: int = 0) -> SubgraphSampler | Seeded:
    """A sampler whose batches have about ``size`` vertices, or seeds."""
    n = graph.num_vertices
    if kind == "cluster":
        parts = max(2, 8 * n // size)
        part = np.random.default_rng(0).permutation(n) % parts
        return ClusterSampler(graph, seed, part_members(part.astype(np.int32), parts), 8)
    if kind in NEIGHBOR_SAMPLERS:
        return seeded(graph, seed, np.arange(n), [3, 2], size, neighbor_sampler=kind)
    if kind == "frontier":
        return FrontierSampler(graph, seed, size)
    kinds = {"vertex": VertexSampler, "edge": EdgeSampler, "walk": WalkSampler}
    return kinds[kind](graph, seed, size)


def content_of(sample: Sample) -> bytes:
    """Everything in a sample, to compare samples with."""
    arrays = [sample.vertices]
    for block in sample.blocks:
        arrays += [block.matrix.indptr, block.matrix.indices, block.entry, block.row_nnz]
        arrays += [] if block.matrix.data is None else [block.matrix.data]
    return b"".join(array.tobytes() for array in arrays)
