"""Makes one graph for all layers of a batch, in the form of message passing: pairs of numbers, in the order of hops.

Neighbors have to be drawn once for every vertex (``draw_once`` of
:class:`~gnnloom.storage.sampling.neighbor.NeighborSampler`). The rows of each layer then begin with the rows of the
next layer, so the rows of the first layer are the graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.layered import LayeredBatch
from gnnloom.storage.sampling.sampler import Sample
from gnnloom.trainer.data.adjacency_scaling import Scaling, scaling
from gnnloom.trainer.place.arrays import array_dtype
from gnnloom.trainer.place.place import Place


@dataclass(frozen=True)
class Hops:
    """The graph of a batch. Its vertices are numbered by their positions, the seeds first, then hop by hop.

    Attributes:
        vertices: (num_vertices,) int64 vertices of the whole graph.
        edge_index: (2, num_edges) int64 sources and targets of the edges, in the order of the targets.
        num_sampled_nodes: number of seeds, and of the vertices that each hop adds; the last hop may add none.
        num_sampled_edges: number of edges to the seeds, and to the vertices that each hop except the last adds.
        entry: (num_edges,) int64 position of each edge in the matrix of the whole graph; None if unknown.
    """

    vertices: Tensor
    edge_index: Tensor
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int]
    entry: Tensor | None = None


def hops_of(drawn: LayeredBatch | Sample, place: Place) -> Hops:
    """The graph of a layered batch; of a sample, with the positions of its edges.

    Raises:
        ValueError: the layers draw neighbors of the same vertex anew.
    """
    blocks = [block if isinstance(block, CSR) else block.matrix for block in drawn.blocks]
    whole, first = blocks[0], drawn.blocks[0]
    for block in blocks[1:]:
        if not np.array_equal(block.indptr, whole.indptr[: block.num_rows + 1]):
            raise ValueError("one graph serves all layers only if draw_once draws every vertex's neighbors once")
    rows = [0, *(block.num_rows for block in reversed(blocks))]
    return Hops(
        place.from_numpy(drawn.vertices),
        edge_index(whole, place),
        np.diff([*rows, whole.num_columns]).tolist(),
        [int(whole.indptr[stop] - whole.indptr[start]) for start, stop in pairwise(rows)],
        None if isinstance(first, CSR) else place.from_numpy(first.entry),
    )


def edge_index(matrix: CSR, place: Place) -> Tensor:
    """(2, nnz) int64 sources (columns) and targets (rows) of the nonzeros, in the order of the rows."""
    pairs = np.empty((2, matrix.nnz), np.int64)
    _fill_pairs(matrix.indptr, matrix.indices, pairs)
    return place.from_numpy(pairs)


def edge_weight(batch: LayeredBatch, normalization: str, place: Place) -> Tensor:
    """(num_edges,) factors of the edges of :func:`hops_of`, which are the whole graph's factors.

    A weighted sum over the sampled neighbors of a vertex has the expectation of the sum over all its neighbors, and
    equals it if all are drawn: the weight of a sampled edge is multiplied by the number of neighbors per drawn
    neighbor.

    Args:
        normalization: see :func:`gnnloom.trainer.data.adjacency_scaling.scaling`.
        place: the factors have its dtype of sums.

    Raises:
        InputError: a degree is negative or not finite.
    """
    block = batch.blocks[0]
    # A row without nonzeros has no entry to draw; its factor does not matter.
    share = batch.row_nnz[: block.num_rows] / np.maximum(np.diff(block.indptr), 1)
    return scaled_entries(block, scaling("the vertices of a batch", normalization, batch.degree, place), place, share)


def scaled_entries(matrix: CSR, sides: Scaling, place: Place, share: NDArray[np.float64] | None = None) -> Tensor:
    """(nnz,) entries of diag(share) diag(left) A diag(right), of the dtype of sums.

    Args:
        sides: factors of the rows and columns of the matrix.
        share: (num_rows,) further factors of the rows; None if all are 1.
    """
    left, right = place.to_numpy(sides.left), place.to_numpy(sides.right)
    rows = np.ones(matrix.num_rows) if share is None else share
    if len(left):
        rows = rows * left[: matrix.num_rows]
    entries = np.empty(matrix.nnz, array_dtype(place.sum_dtype))
    _fill_entries(matrix.indptr, matrix.indices, matrix.data, rows, right, entries)
    return place.from_numpy(entries)


@kernel
def _fill_pairs(indptr: NDArray[np.int64], indices: NDArray[Any], pairs: NDArray[np.int64]) -> None:
    for row in range(len(indptr) - 1):
        for k in range(indptr[row], indptr[row + 1]):
            pairs[0, k] = indices[k]
            pairs[1, k] = row


@kernel
def _fill_entries(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    data: NDArray[Any] | None,
    left: NDArray[np.float64],
    right: NDArray[Any],
    entries: NDArray[Any],
) -> None:
    for row in range(len(indptr) - 1):
        for k in range(indptr[row], indptr[row + 1]):
            entry = left[row]
            if data is not None:
                entry *= data[k]
            if len(right):
                entry *= right[indices[k]]
            entries[k] = entry
