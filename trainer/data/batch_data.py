"""The rows and columns of a batch, with the factors of its normalization."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.transpose import transposed
from gnnloom.storage.sampling.layered import whole_degree
from gnnloom.storage.sampling.sampler import Sample
from gnnloom.storage.shards.shard_matrix import ShardMatrix
from gnnloom.trainer.data.adjacency_scaling import Scaling, degrees, scaling
from gnnloom.trainer.place.arrays import array_dtype
from gnnloom.trainer.place.place import Place


@dataclass(frozen=True)
class BatchRows:
    """A rank's rows of the adjacency, restricted to a batch.

    Attributes:
        vertex: (num_rows,) int64 global ids.
        matrix: columns of the rank's own vertices and of its halo, with the rows to exchange.
        transpose: the same for the transpose; ``matrix`` itself if both are equal.
        sides: factors of the normalization.
    """

    vertex: NDArray[np.int64]
    matrix: ShardMatrix[CSR]
    transpose: ShardMatrix[CSR]
    sides: Scaling


def subgraph_rows(
    sample: Sample,
    graph: WholeGraph,
    normalization: str,
    place: Place,
    *,
    symmetric: bool,
    entry_weight: NDArray[np.float64] | None = None,
) -> BatchRows:
    """The rows of an induced subgraph, normalized as a separate graph.

    With weights of nonzeros, the degrees are the whole graph's degrees: the average of a product over the samples is
    then the product with the whole row (Zeng et al., GraphSAINT, ICLR 2020, section 3.2).

    Args:
        normalization: see :func:`gnnloom.trainer.data.adjacency_scaling.scaling`.
        symmetric: the graph's matrix equals its transpose.
        entry_weight: (nnz,) see :class:`gnnloom.storage.sampling.sampler.Weights`.

    Raises:
        InputError: a degree is negative or not finite.
    """
    block = sample.blocks[0]
    matrix = block.matrix
    if entry_weight is None:
        degree = degrees(matrix)
    else:
        data = entry_weight if matrix.data is None else entry_weight * matrix.data
        matrix = replace(matrix, data=data.astype(array_dtype(place.sum_dtype)))
        degree = whole_degree(graph, sample.vertices)
    rows = without_halo(matrix)
    same = symmetric and entry_weight is None
    sides = scaling("the subgraph of a batch", normalization, degree, place)
    return BatchRows(sample.vertices, rows, rows if same else without_halo(transposed(matrix)), sides)


def without_halo(matrix: CSR) -> ShardMatrix[CSR]:
    """Rows whose columns are all on one rank."""
    none, offset = np.empty(0, np.int64), np.zeros(2, np.int64)
    empty = CSR(0, np.zeros(matrix.num_rows + 1, np.int64), np.empty(0, np.int32), None, 0)
    return ShardMatrix(matrix, empty, none, offset, none, offset)
