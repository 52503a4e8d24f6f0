"""Exact scores of all vertices without the graph or its features in memory: layer by layer, some rows at a time.

The graph and the features are mapped. The output of a layer is in a temporary file, of which every rank has the rows of
its own vertices; rows of others come from their owners. Every neighbor of every vertex is gathered, as in full-graph
evaluation (Hamilton, Ying, Leskovec, NeurIPS 2017, algorithm 1).
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.mapped_vertices import map_vertices
from gnnloom.storage.artifacts.part_members import map_part_members
from gnnloom.storage.artifacts.whole_graph import WholeGraph, map_whole_graph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.disk.mapped_rows import take_rows
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.layered import LayeredBatch, empty_batch
from gnnloom.storage.matrix.local_numbers import LocalNumbers
from gnnloom.storage.samplers.kind import ALL
from gnnloom.storage.sampling.layered import layered_batch
from gnnloom.storage.sampling.neighbor import NeighborSampler
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.data.row_exchange import RowExchange
from gnnloom.trainer.data.vertex_data import normalize_feature
from gnnloom.trainer.models.networks.model import Inputs, Model
from gnnloom.trainer.modes.epochs.mode import ModeContext, multiplying_by
from gnnloom.trainer.operators.layered import Layered
from gnnloom.trainer.place.arrays import array_dtype
from gnnloom.trainer.place.place import Place


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


def temporary_rows(folder: Path, shape: tuple[int, int], dtype: torch.dtype, place: Place) -> Tensor:
    """(num_rows, dim) rows in a temporary file, which is gone once nothing refers to them."""
    if not math.prod(shape):
        return place.lasting(shape, dtype)
    with tempfile.TemporaryFile(dir=folder) as file:
        return place.from_numpy(np.memmap(file, array_dtype(dtype), "w+", shape=shape))


#: Numbers that one step gathers, at most, unless one vertex has more.
GATHERED: Final = 1 << 24


def layerwise_scores(context: ModeContext) -> Tensor:
    """Scores of a rank's vertices, with the model as it is. Collective.

    Returns:
        (num_own, num_outputs) in the order of the rank's vertices; the memory of a temporary file.

    Raises:
        CollectiveError: the graph, its vertex data or the partition is gone.
    """
    if context.model.takes_edges:
        # It has its own passes, from disk as well.
        return context.model.whole_scores(context.inputs)
    passes = _Passes(context)
    rows: Tensor | None = None
    for layer in range(context.model.num_layers):
        rows = passes.run(layer, rows)
    return context.place.lasting((0,), context.place.sum_dtype) if rows is None else rows


class _Passes:
    """One pass over a rank's vertices for each layer."""

    def __init__(self, context: ModeContext) -> None:
        """Map what is read. Collective."""
        self._context, self._model = context, context.model
        self._own = LocalNumbers.of(context.operator.layout(0).vertex)
        self._graph, self._feature, self._owner = together(context.comm, self._map)
        self._operator = Layered(context.comm, self._model.num_layers, context.normalization, context.place)

    def _map(self) -> tuple[WholeGraph, NDArray[Any], NDArray[np.int32] | None]:
        context = self._context
        vertices = context.dataset.vertices(context.shards.artifact.inputs["vertices"])
        graph, owner = map_graph(context)
        return graph, map_vertices(vertices)["feature"], owner

    def run(self, layer: int, rows: Tensor | None) -> Tensor:
        """The output of a layer from its input, of which this rank has ``rows``; None for the features. Collective."""
        comm, model = self._context.comm, self._model
        exchange = None if rows is None else RowExchange(comm, self._own, rows, self._owner, self._context.place)
        shape = len(self._own.ascending), model.options.dims[layer + 1]
        out = temporary_rows(self._context.dataset.path, shape, model.dtype, self._context.place)
        bounds = self._bounds(model.options.dims[layer])
        # Ranks fetch rows from each other in every step, also those that have no vertices left.
        num_steps = int(comm.gather_numbers([len(bounds) - 1]).max())
        with multiplying_by(self._operator, model):
            for step in range(num_steps):
                start, stop = (bounds[step], bounds[step + 1]) if step + 1 < len(bounds) else (0, 0)
                vertices = self._own.ascending[start:stop]
                batch = self._batch(layer, vertices)
                inputs = self._features(batch) if exchange is None else exchange.fetch(batch.vertices)
                self._operator.load(batch)
                out[self._context.place.from_numpy(self._own(vertices))] = _output(model, inputs, layer).to(out.dtype)
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

    def _features(self, batch: LayeredBatch) -> Tensor:
        rows = take_rows(self._feature, batch.vertices).astype(array_dtype(self._model.dtype), copy=False)
        return normalize_feature(self._context.place.from_numpy(rows), self._context.feature_norm)


def _output(model: Model, rows: Tensor, layer: int) -> Tensor:
    """The input of the next layer, or the scores."""
    inputs = Inputs(model.as_features(rows))
    if layer == model.num_layers - 1:
        return model.classify(inputs)
    hidden = model.hidden_layer(inputs, layer)
    return (model.as_embedding(hidden) if layer == model.num_layers - 2 else hidden).value
