"""A layered batch: what a model needs of a sample of neighbors, whatever the model and wherever it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.sampling.sampler import Sample


@dataclass(frozen=True)
class LayeredBatch:
    """Rows to multiply with in each layer.

    Attributes:
        vertices: (num_vertices,) int64 vertices of the graph: first the seeds, then those that each layer adds, from
            the last layer to the first.
        blocks: rows of each layer, the first layer first. Block k gathers ``vertices[:num_columns]`` into
            ``vertices[:num_rows]``, which are the columns of block k + 1; the rows of the last block are the seeds.
        row_nnz: (num_vertices,) int64 nonzeros of each vertex's row in the graph.
        degree: (num_vertices,) float64 sum of each vertex's row in the graph.
    """

    vertices: NDArray[np.int64]
    blocks: tuple[CSR, ...]
    row_nnz: NDArray[np.int64]
    degree: NDArray[np.float64]

    @property
    def num_seeds(self) -> int:
        return self.blocks[-1].num_rows

    @property
    def seeds(self) -> NDArray[np.int64]:
        return self.vertices[: self.num_seeds]

    @property
    def layer_sizes(self) -> list[int]:
        """Rows of the input of every layer, the first layer first; then those of the last layer's output."""
        return [*(block.num_columns for block in self.blocks), self.num_seeds]


def layered_batch(graph: WholeGraph, sample: Sample) -> LayeredBatch:
    """The batch of a layered sample of this graph."""
    matrix, vertices = graph.matrix, sample.vertices
    row_nnz = matrix.indptr[vertices + 1] - matrix.indptr[vertices]
    degree = row_nnz.astype(np.float64) if matrix.data is None else _row_sums(matrix.indptr, matrix.data, vertices)
    return LayeredBatch(vertices, tuple(block.matrix for block in sample.blocks), row_nnz, degree)


def empty_batch(num_layers: int) -> LayeredBatch:
    """A batch of no vertices, for a rank that has fewer batches than others."""
    block = CSR(0, np.zeros(1, np.int64), np.empty(0, np.int32), None, 0)
    return LayeredBatch(np.empty(0, np.int64), (block,) * num_layers, np.empty(0, np.int64), np.empty(0, np.float64))


@njit(cache=True, nogil=True)
def _row_sums(indptr: NDArray[np.int64], data: NDArray[Any], vertices: NDArray[np.int64]) -> NDArray[np.float64]:
    sums = np.zeros(len(vertices), np.float64)
    for number in range(len(vertices)):
        for position in range(indptr[vertices[number]], indptr[vertices[number] + 1]):
            sums[number] += data[position]
    return sums
