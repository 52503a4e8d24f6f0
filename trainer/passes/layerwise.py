"""Exact scores of all vertices without the graph or its features in memory: layer by layer, some rows at a time.

The graph and the features are mapped, and all neighbors of a vertex are gathered; see
:mod:`gnnloom.trainer.passes.passes`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.part_members import map_part_members
from gnnloom.storage.artifacts.whole_graph import WholeGraph, map_whole_graph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.layered import LayeredBatch, empty_batch
from gnnloom.storage.matrix.local_numbers import LocalNumbers
from gnnloom.storage.sampling.layered import whole_rows
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.feed.feature_view import FeatureView, MappedFeatures
from gnnloom.trainer.models.networks.model import Model
from gnnloom.trainer.operators.layered import LayeredOperator
from gnnloom.trainer.passes.evaluation import Source
from gnnloom.trainer.passes.passes import run_passes
from gnnloom.trainer.passes.program import layer_output
from gnnloom.trainer.passes.ranges import gathering_bounds


def map_graph(source: Source) -> tuple[WholeGraph, NDArray[np.int32] | None]:
    """The graph of a run's shards, and the rank of every vertex if there are several ranks.

    All processes of a node share one copy. Communicates nothing.
    """
    return map_graph_of(source.dataset, source.shards.artifact.inputs, source.comm.size)


def map_graph_of(
    dataset: Dataset, inputs: Mapping[str, str], num_ranks: int
) -> tuple[WholeGraph, NDArray[np.int32] | None]:
    """The graph behind row shards, and the rank of every vertex if there are several ranks.

    Args:
        inputs: kind to key of the inputs of the shards.
    """
    graph = map_whole_graph(dataset.graph(inputs["graph"]))
    if num_ranks == 1:
        return graph, None
    return graph, map_part_members(dataset.partition(key=inputs["partition"])).part


def layerwise_scores(model: Model, source: Source) -> Tensor:
    """Scores of a rank's vertices, with the current model. Collective.

    Returns:
        (num_own, num_outputs) in the order of the rank's vertices; mapped from a temporary file; the next check of the
        place's files compares the file with its checksums.

    Raises:
        CollectiveError: the graph, its vertex data or the partition is gone.
    """
    graph, features, owner = together(source.comm, lambda: _map(model, source))
    own = LocalNumbers.of(model.operator.layout(0).vertex)
    operator = LayeredOperator(source.comm, model.num_layers, source.normalization, model.place)
    layers = (_Layer(model, graph, own.ascending, operator, layer) for layer in range(model.num_layers))
    return run_passes(layers, features, own, owner, model.operator.grid, source.dataset.path)


def _map(model: Model, source: Source) -> tuple[WholeGraph, FeatureView, NDArray[np.int32] | None]:
    vertices = source.dataset.vertices(source.shards.artifact.inputs["vertices"])
    graph, owner = map_graph(source)
    return graph, MappedFeatures.of(vertices, source.feature_norm, model.place), owner


class _Layer:
    """See :class:`gnnloom.trainer.passes.passes.Layer`."""

    def __init__(
        self, model: Model, graph: WholeGraph, vertices: NDArray[np.int64], operator: LayeredOperator, layer: int
    ) -> None:
        """Cut the rank's vertices into ranges.

        Args:
            vertices: (num_own,) int64, ascending.
            operator: multiplies by the rows of a range, once they are loaded.
        """
        self._model, self._graph, self._vertices = model, graph, vertices
        self._operator, self._layer = operator, layer
        self.what, self.width = f"outputs of layer {layer + 1}", model.options.dims[layer + 1]
        self._bounds = gathering_bounds(graph.matrix.indptr, vertices, model.options.dims[layer])

    def next(self, start: int) -> tuple[int, NDArray[np.int64], LayeredBatch]:
        stop = next((each for each in self._bounds if each > start), start)
        batch = self._batch(self._vertices[start:stop])
        return stop, batch.vertices, batch

    def _batch(self, vertices: NDArray[np.int64]) -> LayeredBatch:
        """The whole rows of some vertices as the block of one layer."""
        num_layers, layer = self._model.num_layers, self._layer
        if not len(vertices):
            return empty_batch(num_layers)
        found = whole_rows(self._graph, vertices)
        block, count = found.blocks[0], len(vertices)
        # Later layers have the rows of this layer's output, and are not computed here.
        later = CSR(0, np.zeros(count + 1, np.int64), np.empty(0, np.int32), None, count)
        blocks = (block,) * (layer + 1) + (later,) * (num_layers - layer - 1)
        return LayeredBatch(found.vertices, blocks, found.row_nnz, found.degree)

    def output(self, rows: Tensor, given: LayeredBatch) -> Tensor:
        self._operator.load(given)
        with self._model.multiplying_by(self._operator):
            return layer_output(self._model, rows, self._layer)
