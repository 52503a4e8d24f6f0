"""Layered batches from samples of neighbors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.typed.mapped_graph import MappedRelation
from gnnloom.storage.artifacts.typed.typed_graph import EDGE_ARRAYS
from gnnloom.storage.artifacts.typed.typed_samples import HeteroBatch, SampledEdges
from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.layered import LayeredBatch
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.sampling.layers.typed import TypedSample
from gnnloom.storage.sampling.neighbor import NeighborSampler
from gnnloom.storage.sampling.sampler import Sample


def layered_batch(graph: WholeGraph, sample: Sample, excluded: NDArray[np.int64] | None = None) -> LayeredBatch:
    """The batch of a layered sample of this graph.

    Args:
        excluded: as the sample was drawn with; see :meth:`gnnloom.storage.sampling.neighbor.NeighborSampler.sample_of`.
    """
    vertices, excluded = sample.vertices, np.empty(0, np.int64) if excluded is None else excluded
    row_nnz = _row_lengths(graph, vertices, excluded)
    degree = whole_degree(graph, vertices, excluded)
    return LayeredBatch(vertices, tuple(block.matrix for block in sample.blocks), row_nnz, degree)


def hetero_batch(
    sample: TypedSample, relations: Mapping[str, MappedRelation], columns: Collection[str] = EDGE_ARRAYS
) -> HeteroBatch:
    """The batch of a sample of a graph with types, with columns of its edges.

    Args:
        relations: the relations that it was drawn along.
        columns: names of the columns to read; a relation may lack some.
    """
    edges = {}
    for name, relation in relations.items():
        block = sample.blocks[name]
        values = {each: relation.values(each, block.entry) for each in relation.columns if each in columns}
        edges[name] = SampledEdges(block.matrix, relation.edges(block.entry), values, sample.num_entries[name])
    return HeteroBatch(sample.vertices, sample.num_vertices, edges)


def whole_rows(graph: WholeGraph, vertices: NDArray[np.int64], hops: int = 1) -> LayeredBatch:
    """All neighbors of some vertices, and hop by hop all neighbors of the vertices found before.

    Args:
        vertices: (num_seeds,) int64, ascending, at least one.
    """
    return layered_batch(graph, NeighborSampler(graph, 0, [ALL] * hops, draw_once=True).sample_of(vertices, 0, 0))


def _row_lengths(graph: WholeGraph, vertices: NDArray[np.int64], excluded: NDArray[np.int64]) -> NDArray[np.int64]:
    """(num_vertices,) int64 nonzeros of the graph's rows of some vertices that are not excluded."""
    start, stop = graph.matrix.indptr[vertices], graph.matrix.indptr[vertices + 1]
    if not len(excluded):
        return stop - start
    return stop - start - (np.searchsorted(excluded, stop) - np.searchsorted(excluded, start))


def whole_degree(
    graph: WholeGraph, vertices: NDArray[np.int64], excluded: NDArray[np.int64] | None = None
) -> NDArray[np.float64]:
    """(num_vertices,) float64 sums of the graph's rows of some vertices.

    Args:
        excluded: positions of entries that do not count, ascending.
    """
    matrix, excluded = graph.matrix, np.empty(0, np.int64) if excluded is None else excluded
    if matrix.data is None:
        return _row_lengths(graph, vertices, excluded).astype(np.float64)
    return _row_sums(matrix.indptr, matrix.data, vertices, excluded)


@kernel
def _row_sums(
    indptr: NDArray[np.int64], data: NDArray[Any], vertices: NDArray[np.int64], excluded: NDArray[np.int64]
) -> NDArray[np.float64]:
    sums = np.zeros(len(vertices), np.float64)
    for number in range(len(vertices)):
        start, stop = indptr[vertices[number]], indptr[vertices[number] + 1]
        following = np.searchsorted(excluded, start)
        # Added up anew: a difference would leave noise in rows without other entries.
        for position in range(start, stop):
            if following < len(excluded) and excluded[following] == position:
                following += 1
            else:
                sums[number] += data[position]
    return sums
