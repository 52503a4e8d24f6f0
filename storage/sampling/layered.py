"""Layered batches from samples of neighbors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.matrix.layered import LayeredBatch
from gnnloom.storage.sampling.sampler import Sample


def layered_batch(graph: WholeGraph, sample: Sample) -> LayeredBatch:
    """The batch of a layered sample of this graph."""
    matrix, vertices = graph.matrix, sample.vertices
    row_nnz = matrix.indptr[vertices + 1] - matrix.indptr[vertices]
    degree = whole_degree(graph, vertices)
    return LayeredBatch(vertices, tuple(block.matrix for block in sample.blocks), row_nnz, degree)


def whole_degree(graph: WholeGraph, vertices: NDArray[np.int64]) -> NDArray[np.float64]:
    """(num_vertices,) float64 sums of the graph's rows of some vertices."""
    matrix = graph.matrix
    if matrix.data is None:
        return (matrix.indptr[vertices + 1] - matrix.indptr[vertices]).astype(np.float64)
    return _row_sums(matrix.indptr, matrix.data, vertices)


@njit(cache=True, nogil=True)
def _row_sums(indptr: NDArray[np.int64], data: NDArray[Any], vertices: NDArray[np.int64]) -> NDArray[np.float64]:
    sums = np.zeros(len(vertices), np.float64)
    for number in range(len(vertices)):
        for position in range(indptr[vertices[number]], indptr[vertices[number] + 1]):
            sums[number] += data[position]
    return sums
