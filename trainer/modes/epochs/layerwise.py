"""Exact scores of all vertices without the graph or its features in memory: layer by layer, some rows at a time.

The graph and the features are mapped. The output of a layer is in a temporary file, of which every rank has the rows of
its own vertices; rows of others come from their owners. Every neighbor of every vertex is gathered, as in full-graph
evaluation (Hamilton, Ying, Leskovec, NeurIPS 2017, algorithm 1).
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
from gnnloom.storage.samplers.kind import ALL
from gnnloom.storage.sampling.layered import layered_batch
from gnnloom.storage.sampling.neighbor import NeighborSampler
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.data.feature_view import FeatureView, MappedFeatures, OwnFeatures
from gnnloom.trainer.data.row_exchange import RowExchange
from gnnloom.trainer.models.networks.model import Inputs, Model
from gnnloom.trainer.modes.epochs.mode import ModeContext, multiplying_by
from gnnloom.trainer.operators.layered import Layered
from gnnloom.trainer.place.mapped_rows import MappedRows, UnbackedRows


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
    passes = _Passes(context)
    rows = passes.run(0, None)
    for layer in range(1, context.model.num_layers):
        rows = passes.run(layer, rows)
    context.place.files.once(rows.check)
    return rows.tensor


class _Passes:
    """One pass over a rank's vertices for each layer."""

    def __init__(self, context: ModeContext) -> None:
        """Map what is read. Collective."""
        self._context, self._model = context, context.model
        self._own = LocalNumbers.of(context.operator.layout(0).vertex)
        self._graph, self._features, self._owner = together(context.comm, self._map)
        self._operator = Layered(context.comm, self._model.num_layers, context.normalization, context.place)

    def _map(self) -> tuple[WholeGraph, FeatureView, NDArray[np.int32] | None]:
        context = self._context
        vertices = context.dataset.vertices(context.shards.artifact.inputs["vertices"])
        graph, owner = map_graph(context)
        return graph, MappedFeatures.of(vertices, context.feature_norm, context.place), owner

    def run(self, layer: int, rows: MappedRows | UnbackedRows | None) -> MappedRows | UnbackedRows:
        """The output of a layer from its input, of which this rank has ``rows``; None for the features. Collective."""
        comm, model = self._context.comm, self._model
        place, own = self._context.place, self._own
        given = self._features
        if rows is not None:
            given = OwnFeatures(RowExchange(comm, own, rows.tensor, self._owner, place))
        shape, what = (len(own.ascending), model.options.dims[layer + 1]), f"outputs of layer {layer + 1}"
        out = together(comm, lambda: place.mapped(self._context.dataset.path, what, shape, model.dtype))
        bounds = self._bounds(model.options.dims[layer])
        # Ranks fetch rows from each other in every step, also those that have no vertices left.
        num_steps = int(comm.gather_numbers([len(bounds) - 1]).max())
        with multiplying_by(self._operator, model):
            for step in range(num_steps):
                start, stop = (bounds[step], bounds[step + 1]) if step + 1 < len(bounds) else (0, 0)
                vertices = self._own.ascending[start:stop]
                batch = self._batch(layer, vertices)
                inputs = given.rows(batch.vertices)
                self._operator.load(batch)
                out.write(own(vertices), _output(model, inputs, layer).to(model.dtype))
        if rows is not None:
            together(comm, rows.check)
        return out

    def _bounds(self, dim: int) -> list[int]:
        """Bounds of the ranges of this rank's vertices that are treated together."""
        indptr, vertices = self._graph.matrix.indptr, self._own.ascending
        before = np.concatenate([[0], np.cumsum(indptr[vertices + 1] - indptr[vertices] + 1)])
        most, bounds = max(1, GATHERED // max(1, dim)), [0]
        while bounds[-1] < len(vertices):
            stop = int(np.searchsorted(before, before[bounds[-1]] + most, side="right")) - 1
            bounds.append(max(stop, bounds[-1] + 1))
        return bounds

    def _batch(self, layer: int, vertices: NDArray[np.int64]) -> LayeredBatch:
        """The whole rows of some vertices as the block of one layer."""
        num_layers = self._model.num_layers
        if not len(vertices):
            return empty_batch(num_layers)
        sampler = NeighborSampler(self._graph, 0, vertices, [ALL], len(vertices))
        found = layered_batch(self._graph, sampler.sample(0, 0))
        block, count = found.blocks[0], len(vertices)
        # The layers after this one have its output's rows, and are not asked for.
        later = CSR(0, np.zeros(count + 1, np.int64), np.empty(0, np.int32), None, count)
        blocks = (block,) * (layer + 1) + (later,) * (num_layers - layer - 1)
        return LayeredBatch(found.vertices, blocks, found.row_nnz, found.degree)


def _output(model: Model, rows: Tensor, layer: int) -> Tensor:
    """The input of the next layer, or the scores."""
    inputs = Inputs(model.as_features(rows))
    if layer == model.num_layers - 1:
        return model.classify(inputs)
    hidden = model.hidden_layer(inputs, layer)
    return (model.as_embedding(hidden) if layer == model.num_layers - 2 else hidden).value
