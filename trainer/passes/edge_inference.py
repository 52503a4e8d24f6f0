"""Exact scores of all vertices by a module of torch that takes edges: layer by layer where it offers its layers.

PyG's models do (``inference_per_layer``), and are then evaluated as by their own ``inference``: one pass over a rank's
vertices per layer, with all neighbors of some vertices at a time. Other modules are called with all neighbors of some
vertices, hop by hop. What a batch must contain for the scores to be exact is tried beforehand; see
:mod:`gnnloom.trainer.models.networks.reach`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.matrix.local_numbers import LocalNumbers
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.data.row_exchange import RowExchange
from gnnloom.trainer.feed.feature_view import FeatureView, MappedFeatures, OwnFeatures
from gnnloom.trainer.models.networks.edge_model import BatchEdges, EdgeModel
from gnnloom.trainer.models.networks.model import Inputs
from gnnloom.trainer.models.networks.reach import GraphTraits, Reach, find_reach, layer_output, whole_batch
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.passes.layerwise import map_graph_of
from gnnloom.trainer.passes.passes import run_passes
from gnnloom.trainer.passes.ranges import SeedsThatFit

logger = logging.getLogger(__name__)


class WholeInference:
    """See :class:`gnnloom.trainer.models.networks.edge_model.Inference`."""

    def __init__(
        self,
        *,
        dataset: Dataset,
        inputs: Mapping[str, str],
        operator: Operator,
        model: EdgeModel,
        normalization: str,
        feature_norm: Callable[[], str],
        reads_features: bool,
    ) -> None:
        """Communicates nothing.

        Args:
            inputs: kind to key of what the run's shards were made from.
            operator: says which vertices the rank has.
            feature_norm: how the features are scaled, once it is known.
            reads_features: features are mapped from the dataset, instead of taken from the memory of the ranks.
        """
        self._dataset, self._inputs, self._operator, self._model = dataset, inputs, operator, model
        self._normalization, self._feature_norm = normalization, feature_norm
        self._reads_features = reads_features
        self._reach: Reach | None = None
        self.facts: Mapping[str, Any] = {}

    def __call__(self, inputs: Inputs) -> Tensor:
        """(num_own, num_outputs) scores of the rank's vertices, in their order. Collective.

        Raises:
            CollectiveError: the graph, its vertex data or the partition is gone.
        """
        comm = self._operator.grid.comm
        graph, owner, features = together(comm, self._map)
        if self._reach is None:
            self._reach = self._agreed(together(comm, lambda: self._find_reach(graph)))
            self._report(self._reach)
        own, grid = LocalNumbers.of(self._operator.layout(0).vertex), self._operator.grid
        if features is None:
            features = OwnFeatures(RowExchange(comm, own, inputs.value.detach(), owner, grid.place))
        numbers = range(len(self._reach.widths) - 1) if self._reach.by_layer else (None,)
        given = graph, own.ascending, self._normalization, self._reach, SeedsThatFit()
        layers = (_EdgeLayer(self._model, number, *given) for number in numbers)
        return run_passes(layers, features, own, owner, grid, self._dataset.path)

    def _map(self) -> tuple[WholeGraph, NDArray[np.int32] | None, FeatureView | None]:
        graph, owner = map_graph_of(self._dataset, self._inputs, self._operator.grid.comm.size)
        if not self._reads_features:
            return graph, owner, None
        vertices = self._dataset.vertices(self._inputs["vertices"])
        return graph, owner, MappedFeatures.of(vertices, self._feature_norm(), self._model.place)

    def _find_reach(self, graph: WholeGraph) -> Reach:
        indptr = graph.matrix.indptr
        traits = GraphTraits(
            self._normalization,
            is_weighted=graph.matrix.data is not None,
            is_symmetric=self._dataset.graph(self._inputs["graph"]).symmetric,
            has_loops=bool(graph.loop.all()),
            has_empty_rows=bool((indptr[1:] == indptr[:-1]).any()),
        )
        return find_reach(self._model, traits)

    def _agreed(self, reach: Reach) -> Reach:
        """Share the first rank's finding with all ranks, because other processors might round otherwise. Collective."""
        mine = [reach.by_layer, reach.hops, reach.reads_degrees, reach.is_exact, *reach.widths]
        # The same number of values on every rank: features, and the outputs of each layer.
        missing = self._model.num_layers + 1 - len(reach.widths)
        by_layer, hops, reads_degrees, is_exact, *widths = (
            self._operator.grid.comm.gather_numbers([*mine, *[0] * missing])[0].astype(int).tolist()
        )
        given = tuple(width for width in widths if width)
        return Reach(bool(by_layer), hops, bool(reads_degrees), bool(is_exact), given)

    def _report(self, reach: Reach) -> None:
        how = "layer by layer" if reach.by_layer else "all neighbors, hop by hop"
        self.facts = {"inference": how, "inference_hops": reach.hops, "inference_exact": reach.is_exact}
        if not reach.is_exact and self._operator.grid.comm.rank == 0:
            logger.warning(
                "model %s: no number of hops was found at which in-edges alone give its outputs, for example because it"
                " reads out-edges or all vertices; it is evaluated on batches of %d hops, and scores differ from"
                " the scores on the whole graph",
                self._model.call.name,
                reach.hops,
            )


class _EdgeLayer:
    """See :class:`gnnloom.trainer.passes.passes.Layer`: a layer, or the whole module."""

    def __init__(
        self,
        model: EdgeModel,
        layer: int | None,
        graph: WholeGraph,
        vertices: NDArray[np.int64],
        normalization: str,
        reach: Reach,
        fit: SeedsThatFit,
    ) -> None:
        """Compute nothing yet.

        Args:
            layer: None for the whole module.
            vertices: (num_own,) int64, ascending.
            fit: chooses the vertices of a batch.
        """
        self._model, self._layer, self._graph, self._vertices = model, layer, graph, vertices
        self._normalization, self._reach, self._fit = normalization, reach, fit
        self.what = "outputs of the model" if layer is None else f"outputs of layer {layer + 1}"
        self.width = reach.widths[-1 if layer is None else layer + 1]

    def next(self, start: int) -> tuple[int, NDArray[np.int64], BatchEdges | None]:
        if start >= len(self._vertices):
            return start, np.empty(0, np.int64), None
        model, layer, widths = self._model, self._layer, self._reach.widths
        width = max(*widths, *model.options.dims) if layer is None else max(widths[layer : layer + 2])
        given = self._normalization, model.place
        stop, (vertices, edges) = self._fit.batch(
            self._vertices,
            start,
            lambda seeds: whole_batch(self._graph, seeds, self._reach, *given, weighs=model.call.weighs),
            lambda batch: (len(batch[0]) + batch[1].index.shape[1]) * width,
        )
        return stop, vertices, edges

    def output(self, rows: Tensor, given: BatchEdges) -> Tensor:
        model = self._model
        # Features may be of another dtype than parameters.
        rows = model.as_sums(rows)
        if self._layer is not None:
            return layer_output(model, self._layer, rows, given)
        # Layers that compute less and less would not see the rows of the sources.
        return model.call(model.module, rows, replace(given, hops=None), model.place)
