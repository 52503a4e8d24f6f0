"""Batches that are subgraphs, as in mode ``subgraph``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.sampling.sampler import Sample, Weights
from gnnloom.storage.sampling.subgraphs import normalization_of, subgraph_sampler
from gnnloom.trainer.data.batch_data import subgraph_rows
from gnnloom.trainer.feed.batches import Drawn, SubgraphBatches
from gnnloom.trainer.loader.choices import STORED
from gnnloom.trainer.loader.hops import scaled_entries
from gnnloom.trainer.loader.streams import Fields, GraphSource, Stream, as_tensors
from gnnloom.trainer.loader.vertices import VertexFields
from gnnloom.trainer.place.arrays import array_dtype


@dataclass(frozen=True, kw_only=True, eq=False)
class SubgraphSource(GraphSource):
    """Subgraphs that sampled vertices induce.

    Attributes:
        options: see :func:`gnnloom.storage.sampling.subgraphs.subgraph_sampler`.
        arguments: as there.
        num_batches: batches per epoch; 0 for the sampler's number.
        presamples: batches to count for GraphSAINT's weights; 0 for no weights, None for a sufficient number.
    """

    options: Mapping[str, Any]
    arguments: Mapping[str, Any]
    num_batches: int = 0
    presamples: int | None = 0

    def open(self) -> Stream:
        dataset, graph = Dataset(self.dataset), self.map_graph()
        symmetric = dataset.graph(self.graph).symmetric
        sampler = subgraph_sampler(dataset, graph, self.seed, self.options, self.arguments)
        weights, vertices = None, self.vertex_fields(graph)
        if self.presamples != 0:
            weights = normalization_of(sampler, self.presamples, symmetric=symmetric)
        return SubgraphBatches(sampler, self.num_batches, weights, lambda drawn: self._fields(graph, vertices, drawn))

    def _fields(self, graph: WholeGraph, vertices: VertexFields, drawn: Drawn[Sample]) -> Fields:
        sample = drawn.sample
        found = {
            **vertices.of(sample.vertices),
            **vertices.masks(sample.vertices),
            **self._edges(graph, sample, drawn.weights),
            "n_id": sample.vertices,
            "e_id": sample.blocks[0].entry,
            "num_nodes": len(sample.vertices),
            "batch_size": len(sample.vertices),
        }
        return as_tensors(found, self.place)

    def _edges(self, graph: WholeGraph, sample: Sample, weights: Weights | None) -> Fields:
        matrix, place = sample.blocks[0].matrix, self.place
        entry = None if weights is None else weights.entry
        norms: Fields = {}
        if weights is not None:
            norms["node_norm"] = weights.loss.astype(array_dtype(place.sum_dtype), copy=False)
        if self.normalization == STORED:
            if weights is not None:
                norms["edge_norm"] = weights.entry.astype(array_dtype(place.sum_dtype), copy=False)
            return self.edges(matrix, self.stored_weight(matrix)) | norms
        # The transpose is not asked for.
        rows = subgraph_rows(sample, graph, self.normalization, place, symmetric=True, entry_weight=entry)
        return self.edges(matrix, scaled_entries(rows.matrix.own, rows.sides, place)) | norms
