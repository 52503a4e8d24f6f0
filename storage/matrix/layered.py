"""A layered batch: what a model needs of a sample of neighbors, whatever the model and wherever it comes from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.matrix.csr import CSR


@dataclass(frozen=True)
class LayeredBatch:
    """Rows to multiply with in each layer.

    Attributes:
        vertices: (num_vertices,) int64 vertices of the graph: first the seeds, then the vertices that each layer adds,
            from the last layer to the first.
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
        """Rows of the input of every layer, the first layer first; then the rows of the last layer's output."""
        return [*(block.num_columns for block in self.blocks), self.num_seeds]


def empty_batch(num_layers: int) -> LayeredBatch:
    """A batch of no vertices, for a rank that has fewer batches than others."""
    block = CSR(0, np.zeros(1, np.int64), np.empty(0, np.int32), None, 0)
    return LayeredBatch(np.empty(0, np.int64), (block,) * num_layers, np.empty(0, np.int64), np.empty(0, np.float64))
