"""Whole graphs in memory for the samplers, and one sampler of each kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnloom.storage import CSR
from gnnloom.storage.artifacts.part_members import part_members
from gnnloom.storage.artifacts.whole_graph import WholeGraph, whole_graph
from gnnloom.storage.neighbor_samplers.registry import NEIGHBOR_SAMPLERS
from gnnloom.storage.sampling.cluster import ClusterSampler
from gnnloom.storage.sampling.edge import EdgeSampler
from gnnloom.storage.sampling.frontier import FrontierSampler
from gnnloom.storage.sampling.neighbor import NeighborSampler
from gnnloom.storage.sampling.sampler import Sample, Sampler
from gnnloom.storage.sampling.vertex import VertexSampler
from gnnloom.storage.sampling.walk import WalkSampler


def in_memory(adjacency: Any, *, weighted: bool = False) -> WholeGraph:
    """A SciPy matrix as a graph for samplers; A[i, j] is the edge j -> i."""
    matrix = adjacency.tocsr()
    matrix.sort_indices()
    indptr, indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
    data = matrix.data.astype(np.float32) if weighted else None
    return whole_graph(CSR(0, indptr, indices, data, matrix.shape[1]))


def sampler_of(kind: str, graph: WholeGraph, size: int, seed: int = 0) -> Sampler:
    """A sampler whose batches have about ``size`` vertices, or seeds."""
    n = graph.num_vertices
    if kind == "cluster":
        parts = max(2, 8 * n // size)
        part = np.random.default_rng(0).permutation(n) % parts
        return ClusterSampler(graph, seed, part_members(part.astype(np.int32), parts), 8)
    if kind in NEIGHBOR_SAMPLERS:
        return NeighborSampler(graph, seed, np.arange(n), [3, 2], size, neighbor_sampler=kind)
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
