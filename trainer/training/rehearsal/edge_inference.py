"""Rehearses the evaluation of a torch module that takes edges, on batches of realistic sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from gnnloom.trainer.kernels.dispatch import performed, with_values
from gnnloom.trainer.loader.hops import edge_index
from gnnloom.trainer.models.networks.edge_model import BatchEdges, EdgeModel
from gnnloom.trainer.models.networks.model import Inputs
from gnnloom.trainer.models.networks.reach import GraphTraits, find_reach, layer_output
from gnnloom.trainer.modes.kind import RankRows
from gnnloom.trainer.passes.ranges import most_seeds
from gnnloom.trainer.training.rehearsal.batches import edges_alike


class RehearsedInference:
    """See :class:`gnnloom.trainer.models.networks.edge_model.Inference`; computes one batch of every layer."""

    def __init__(self, model: EdgeModel, rows: RankRows, *, is_weighted: bool, is_symmetric: bool) -> None:
        """Communicates nothing."""
        self._model, self._rows, self._is_weighted = model, rows, is_weighted
        self._traits = GraphTraits("none", is_weighted, is_symmetric, rows.has_loops, not rows.has_loops)
        self.facts: Mapping[str, Any] = {}

    def __call__(self, inputs: Inputs) -> Tensor:  # noqa: ARG002 - only its width counts
        """(num_own, num_outputs) scores without values."""
        model, place = self._model, self._model.place
        # It tries the module on a small graph, with values.
        with performed():
            reach = find_reach(model, self._traits)
        layers = range(len(reach.widths) - 1) if reach.by_layer else [None]
        for layer in layers:
            self._batch(layer, reach.widths, 1 if reach.by_layer else reach.hops)
        return place.lasting((self._rows.own, reach.widths[-1]), model.dtype)

    def _batch(self, layer: int | None, widths: tuple[int, ...], hops: int) -> None:
        """Take the memory of the largest batch of a layer, or of the whole module, for the moment."""
        model, rows, place = self._model, self._rows, self._model.place
        width = max(*widths, *model.options.dims) if layer is None else max(widths[layer : layer + 2])
        # The mean number of neighbors for each vertex, up to the whole graph.
        edges_of, vertices_of = rows.mean_degree**hops, 1 + rows.mean_degree**hops
        seeds = most_seeds(edges_of + vertices_of, width, rows.own)
        num_edges = min(round(seeds * edges_of), rows.nnz)
        num_vertices = min(round(seeds * vertices_of), rows.num_vertices)
        feature = place.empty((num_vertices, widths[0 if layer is None else layer]), model.dtype)
        # Vertices of the last hop are only inputs: their rows are empty.
        num_rows = min(num_vertices, max(seeds, round(num_edges / max(1.0, rows.mean_degree))))
        graph = edges_alike([num_vertices, num_rows], [num_edges], num_rows if rows.has_loops else 0)
        index = with_values(edge_index(graph, place))
        weight = place.lasting((num_edges,), model.dtype) if model.call.weighs and self._is_weighted else None
        edges = BatchEdges(index, weight, seeds)
        if layer is None:
            model.call(model.module, feature, edges, place)
        else:
            layer_output(model, layer, feature, edges)
