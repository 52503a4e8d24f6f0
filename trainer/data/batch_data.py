"""The data of batches: the rows and columns of a sample, and the features and labels of its vertices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.disk.mapped_rows import take_rows
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.transpose import transposed
from gnnloom.storage.sampling.layered import whole_degree
from gnnloom.storage.sampling.sampler import Sample
from gnnloom.storage.shards.row_shards import ShardMatrix
from gnnloom.trainer.data.adjacency_scaling import Scaling, degrees, scaling
from gnnloom.trainer.data.vertex_data import Labels, check_finite, normalize_feature
from gnnloom.trainer.place.arrays import array_dtype
from gnnloom.trainer.place.place import Place


@dataclass(frozen=True)
class BatchRows:
    """A rank's rows of the adjacency, restricted to a batch.

    Attributes:
        vertex: (num_rows,) int64 global ids.
        matrix: columns of the rank's own vertices and of its halo, with the rows to exchange.
        transpose: the same of the transpose; ``matrix`` itself if both are equal.
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
    """The rows of an induced subgraph, normalized as a graph of its own.

    With weights of nonzeros, the degrees are those of the whole graph: a product is then, on average over the samples,
    that with the whole row (Zeng et al., GraphSAINT, ICLR 2020, section 3.2).

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
    """Rows whose columns one rank has alone."""
    none, offset = np.empty(0, np.int64), np.zeros(2, np.int64)
    empty = CSR(0, np.zeros(matrix.num_rows + 1, np.int64), np.empty(0, np.int32), None, 0)
    return ShardMatrix(matrix, empty, none, offset, none, offset)


@dataclass(frozen=True, eq=False)
class FeatureRows:
    """The features of all vertices, of which batches take some; any thread may call it.

    Attributes:
        stored: (num_vertices, num_features) in memory or mapped, of any dtype in which features are stored.
        where: the array, for messages.
        norm: ``row`` or ``none``; see :func:`gnnloom.trainer.data.vertex_data.normalize_feature`.
        frequent: (num_frequent + 1,) int64 vertices whose rows are in memory, ascending, and -1, which no vertex has.
        frequent_rows: (num_frequent, num_features) their rows, as they are stored.
    """

    stored: NDArray[Any]
    where: str
    norm: str
    place: Place
    frequent: NDArray[np.int64] = field(default_factory=lambda: np.array([-1]))
    frequent_rows: NDArray[Any] = field(default_factory=lambda: np.empty(0))

    def keeping(self, vertices: NDArray[np.int64]) -> FeatureRows:
        """The same with the rows of some vertices in memory.

        A page of a mapped file has the rows of many vertices, of which few are frequent, so rows that are packed take a
        fraction of the memory that their pages would.

        Args:
            vertices: (num_frequent,) int64, ascending.
        """
        return replace(self, frequent=np.append(vertices, -1), frequent_rows=take_rows(self.stored, vertices))

    def __call__(self, vertices: NDArray[np.int64]) -> Tensor:
        """(num_taken, num_features) scaled features of some vertices, in the dtype of sums.

        Raises:
            InputError: a feature is not a finite number.
        """
        # Taken before they are converted, so that only these rows are.
        rows = self._taken(vertices).astype(array_dtype(self.place.sum_dtype), copy=False)
        feature = self.place.from_numpy(rows)
        check_finite(feature, self.where, lambda: vertices, self.place)
        return normalize_feature(feature, self.norm, self.place)

    def _taken(self, vertices: NDArray[np.int64]) -> NDArray[Any]:
        """(num_taken, num_features) rows as they are stored."""
        if len(self.frequent) == 1:
            return take_rows(self.stored, vertices)
        place = np.searchsorted(self.frequent[:-1], vertices)
        known = self.frequent[place] == vertices
        rows = np.empty((len(vertices), *self.stored.shape[1:]), self.stored.dtype)
        rows[known] = self.frequent_rows[place[known]]
        rows[~known] = take_rows(self.stored, vertices[~known])
        return rows


class VertexTable:
    """Features and labels of all vertices, for random access to those of a batch; any thread may read them."""

    def __init__(
        self, arrays: Mapping[str, NDArray[Any]], feature_norm: str, place: Place, label: tuple[str, torch.dtype]
    ) -> None:
        """Wrap arrays that are in memory or mapped.

        Args:
            arrays: (num_vertices, ...) ``feature``, ``split`` and labels.
            feature_norm: ``row`` or ``none``; see :func:`gnnloom.trainer.data.vertex_data.normalize_feature`.
            label: name of the array of labels, and the dtype in which they are wanted.
        """
        self._arrays, self._feature_norm, self._place, self._label = arrays, feature_norm, place, label

    def feature(self, vertices: NDArray[np.int64]) -> Tensor:
        """(num_vertices, num_features) scaled features of some vertices."""
        return FeatureRows(self._arrays["feature"], "feature", self._feature_norm, self._place)(vertices)

    def labels(self, vertices: NDArray[np.int64]) -> Labels:
        """Labels and split of some vertices."""
        name, dtype = self._label
        label, split = (
            self._place.from_numpy(np.take(self._arrays[each], vertices, axis=0)) for each in (name, "split")
        )
        return Labels(label.to(dtype), split)
