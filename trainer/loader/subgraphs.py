"""Batches that are subgraphs, as in mode ``subgraph``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.sampling.sampler import Normalization, Sample, SubgraphSampler, Weights
from gnnloom.storage.sampling.subgraphs import normalization_of, subgraph_sampler
from gnnloom.trainer.data.batch_data import subgraph_rows
from gnnloom.trainer.loader.choices import STORED
from gnnloom.trainer.loader.hops import scaled_entries
from gnnloom.trainer.loader.streams import Fields, Source, Stream
from gnnloom.trainer.loader.vertices import VertexFields


@dataclass(frozen=True, kw_only=True, eq=False)
class SubgraphSource(Source):
    """Subgraphs that sampled vertices induce.

    Attributes:
        options: see :func:`gnnloom.storage.sampling.subgraphs.subgraph_sampler`.
        arguments: as there.
        num_batches: per epoch; 0 for as many as the sampler has.
        presamples: batches to count for GraphSAINT's weights; 0 for no weights, None for as many as are sufficient.
    """

    options: Mapping[str, Any]
    arguments: Mapping[str, Any]
    num_batches: int = 0
    presamples: int | None = 0

    def open(self) -> Stream:
        dataset, graph = Dataset(self.dataset), self.map_graph()
        symmetric = dataset.graph(self.graph).symmetric
        sampler = subgraph_sampler(dataset, graph, self.seed, self.options, self.arguments)
        weights = None
        if self.presamples != 0:
            weights = normalization_of(sampler, self.presamples, symmetric=symmetric)
        return _SubgraphStream(self, sampler, weights, self.vertex_fields())


class _SubgraphStream(Stream):
    def __init__(
        self, source: SubgraphSource, sampler: SubgraphSampler, weights: Normalization | None, vertices: VertexFields
    ) -> None:
        self._source, self._sampler, self._weights, self._vertices = source, sampler, weights, vertices
        self.num_batches = source.num_batches or sampler.num_batches
        self.batch_size = source.options["batch_size"]

    def prepare(self, epoch: int, number: int) -> Fields:
        sampler = self._sampler
        # The sampler's own epochs: one that covers the vertices has a fixed number of batches in each.
        sample = sampler.sample(*divmod(epoch * self.num_batches + number, sampler.num_batches))
        weights = None if self._weights is None else self._weights.weights(sample)
        vertices = sample.vertices
        return {
            **self._vertices.of(vertices),
            **self._vertices.masks(vertices),
            **self._edges(sampler.graph, sample, weights),
            "n_id": torch.from_numpy(vertices),
            "e_id": torch.from_numpy(sample.blocks[0].entry),
            "num_nodes": len(vertices),
            "batch_size": len(vertices),
        }

    def _edges(self, graph: WholeGraph, sample: Sample, weights: Weights | None) -> Fields:
        source, matrix = self._source, sample.blocks[0].matrix
        place = source.place
        entry = None if weights is None else weights.entry
        norms: Fields = {}
        if weights is not None:
            norms["node_norm"] = place.from_numpy(weights.loss).to(place.sum_dtype)
        if source.normalization == STORED:
            if weights is not None:
                norms["edge_norm"] = place.from_numpy(weights.entry).to(place.sum_dtype)
            return source.edges(matrix, source.stored_weight(matrix)) | norms
        # The transpose is not asked for.
        rows = subgraph_rows(sample, graph, source.normalization, place, symmetric=True, entry_weight=entry)
        return source.edges(matrix, scaled_entries(rows.matrix.own, rows.sides, place)) | norms
