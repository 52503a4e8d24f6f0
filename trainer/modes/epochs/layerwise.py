"""Exact scores of all vertices without the graph or its features in memory: layer by layer, some rows at a time.

The graph and the features are mapped, and all neighbors of a vertex are gathered; see
:mod:`gnnloom.trainer.modes.epochs.passes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
from gnnloom.trainer.models.networks.model import Inputs, Model
from gnnloom.trainer.modes.epochs.mode import ModeContext, multiplying_by
from gnnloom.trainer.modes.epochs.passes import outputs
from gnnloom.trainer.operators.layered import Layered


def map_graph(context: ModeContext) -> tuple[WholeGraph, NDArray[np.int32] | None]:
    """The graph of a run's shards, and the rank of every vertex if there are several ranks.

    All processes of a node share one copy. Communicates nothing.
    """
    return map_graph_of(context.dataset, context.shards.artifact.inputs, context.comm.size)


def map_graph_of(
    dataset: Dataset, inputs: Mapping[str, str], num_ranks: int
) -> tuple[WholeGraph, NDArray[np.int32] | None]:
    """The graph that row shards were made from, and the rank of every vertex if there are several ranks.

    Args:
        inputs: kind to key of what the shards were made from.
    """
    graph = map_whole_graph(dataset.graph(inputs["graph"]))
    if num_ranks == 1:
        return graph, None
    return graph, map_part_members(dataset.partition(key=inputs["partition"])).part


#: Numbers that one step gathers, at most, unless one vertex has more.
GATHERED: Final = 1 << 24


def layerwise_scores(context: ModeContext) -> Tensor:
    """Scores of a rank's vertices, with the model as it is. Collective.

    Returns:
        (num_own, num_outputs) in the order of the rank's vertices; the memory of a temporary file, which the next check
        of the place's files compares with what was written.

    Raises:
        CollectiveError: the graph, its vertex data or the partition is gone.
    """
    if context.model.takes_edges:
        # It has its own passes, from disk as well.
        return context.model.whole_scores(context.inputs)
    graph, features, owner = together(context.comm, lambda: _map(context))
    model, own = context.model, LocalNumbers.of(context.operator.layout(0).vertex)
    operator = Layered(context.comm, model.num_layers, context.normalization, context.place)
    passes = (_LayerPass(model, graph, own.ascending, operator, layer) for layer in range(model.num_layers))
    return outputs(passes, features, own, owner, context.operator.grid, context.dataset.path)


def _map(context: ModeContext) -> tuple[WholeGraph, FeatureView, NDArray[np.int32] | None]:
    vertices = context.dataset.vertices(context.shards.artifact.inputs["vertices"])
    graph, owner = map_graph(context)
    return graph, MappedFeatures.of(vertices, context.feature_norm, context.place), owner


class _LayerPass:
    """See :class:`gnnloom.trainer.modes.epochs.passes.Pass`."""

    def __init__(
        self, model: Model, graph: WholeGraph, vertices: NDArray[np.int64], operator: Layered, layer: int
    ) -> None:
        """Cut the rank's vertices into ranges.

        Args:
            vertices: (num_own,) int64, ascending.
            operator: multiplies with the rows of a range, once they are loaded.
        """
        self._model, self._graph, self._vertices = model, graph, vertices
        self._operator, self._layer = operator, layer
        self.what, self.width = f"outputs of layer {layer + 1}", model.options.dims[layer + 1]
        self._bounds = self._cut(model.options.dims[layer])

    def _cut(self, dim: int) -> list[int]:
        """Bounds of the ranges of vertices that are treated together."""
        indptr, vertices = self._graph.matrix.indptr, self._vertices
        before = np.concatenate([[0], np.cumsum(indptr[vertices + 1] - indptr[vertices] + 1)])
        most, bounds = max(1, GATHERED // max(1, dim)), [0]
        while bounds[-1] < len(vertices):
            stop = int(np.searchsorted(before, before[bounds[-1]] + most, side="right")) - 1
            bounds.append(max(stop, bounds[-1] + 1))
        return bounds

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
        # The layers after this one have its output's rows, and are not asked for.
        later = CSR(0, np.zeros(count + 1, np.int64), np.empty(0, np.int32), None, count)
        blocks = (block,) * (layer + 1) + (later,) * (num_layers - layer - 1)
        return LayeredBatch(found.vertices, blocks, found.row_nnz, found.degree)

    def output(self, rows: Tensor, given: LayeredBatch) -> Tensor:
        self._operator.load(given)
        with multiplying_by(self._operator, self._model):
            return _output(self._model, rows, self._layer)


def _output(model: Model, rows: Tensor, layer: int) -> Tensor:
    """The input of the next layer, or the scores."""
    inputs = Inputs(model.as_features(rows))
    if layer == model.num_layers - 1:
        return model.classify(inputs)
    hidden = model.hidden_layer(inputs, layer)
    return (model.as_embedding(hidden) if layer == model.num_layers - 2 else hidden).value
