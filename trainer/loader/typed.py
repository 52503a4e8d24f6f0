"""Batches of a graph with types: seeds of one type, and neighbors along each relation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.typed.mapped_graph import MappedRelation, map_relations, map_reverses
from gnnloom.storage.artifacts.typed.reverses import Reverses
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.sampling.layers.expansion import drawn_view
from gnnloom.storage.sampling.layers.seeds import VertexSeeds
from gnnloom.storage.sampling.layers.typed import RelationView, TypedNeighborSampler, TypedSample
from gnnloom.trainer.data.vertex_data import as_features
from gnnloom.trainer.feed.batches import Drawn, NeighborBatches
from gnnloom.trainer.loader.choices import EDGE_NAMES
from gnnloom.trainer.loader.hops import edge_index
from gnnloom.trainer.loader.streams import Fields, Source, Stream
from gnnloom.trainer.loader.vertices import FEATURE_DTYPES, VertexChoice, VertexFields
from gnnloom.trainer.place.place import Place


@dataclass(frozen=True, kw_only=True, eq=False)
class TypedSource(Source):
    """Batches of vertices of one type, with sampled neighbors along each relation.

    Attributes:
        of_type: type of the seeds.
        split: a split, or all vertices of the type.
        chosen: (num_seeds,) int64 vertices of the type, ascending, instead of the vertices of a split; None for the
            split.
        vertices: the data to read of the vertices of each type that has some.
        features: one of :data:`gnnloom.trainer.loader.choices.FEATURES`, for features of edges.
        reverses: key of the reverses of the relations, to gather along as well; None without.
        fanouts: of each relation; see :class:`~gnnloom.storage.sampling.layers.typed.TypedNeighborSampler`.
        replace, neighbor_sampler: see :class:`gnnloom.storage.sampling.neighbor.NeighborSampler`.
        shuffle: in a random order that differs between epochs, instead of ascending.
        has_types: without, the only type and the only relation have their fields in one ``Data``.
    """

    of_type: str
    split: str = "train"
    chosen: NDArray[np.int64] | None = None
    vertices: Mapping[str, VertexChoice]
    features: str = "float32"
    reverses: str | None = None
    fanouts: Mapping[str, tuple[int, ...]]
    batch_size: int
    replace: bool = False
    neighbor_sampler: str = "uniform"
    shuffle: bool = True

    def open(self) -> Stream:
        dataset = Dataset(self.dataset)
        graph, fields = dataset.typed_graph(self.graph), self._vertex_fields()
        relations = map_relations(graph)
        if self.reverses is not None:
            relations |= map_reverses(Reverses(dataset.find("transpose", self.reverses), graph), relations)
        count, chosen = graph.type(self.of_type).count, self.chosen
        chosen = fields[self.of_type].seeds(self.split, count) if chosen is None else chosen
        seeds = VertexSeeds(chosen, self.batch_size, self.seed, self.shuffle, self.of_type)
        sampler = TypedNeighborSampler(
            [each.name for each in graph.types],
            [
                RelationView(name, each.source, each.target, drawn_view(each.matrix, self.neighbor_sampler))
                for name, each in relations.items()
            ],
            self.seed,
            self.fanouts,
            replace=self.replace,
        )
        return NeighborBatches(sampler, seeds, partial(self._fields, seeds, relations, fields))

    def _vertex_fields(self) -> dict[str, VertexFields]:
        """Functions that give the tensors of the vertices of each type that has data, and of the seeds' type."""
        dataset = Dataset(self.dataset)
        return {
            name: VertexFields(
                None if choice.key is None else dataset.vertices(choice.key), choice, self.kept, self.dataset
            )
            for name, choice in self.vertices.items()
        }

    def _fields(
        self,
        seeds: VertexSeeds,
        relations: Mapping[str, MappedRelation],
        fields: Mapping[str, VertexFields],
        drawn: Drawn[TypedSample],
    ) -> Fields:
        sample, found = drawn.sample, dict[Any, Fields]()
        for name, vertices in sample.vertices.items():
            data = fields[name].of(vertices) if name in fields else {}
            own = {"n_id": torch.from_numpy(vertices), "num_nodes": len(vertices)}
            found[name] = {**data, **own, "num_sampled_nodes": sample.num_vertices[name]}
        count = sample.num_vertices[self.of_type][0]
        number = torch.from_numpy(np.searchsorted(seeds.vertices, sample.vertices[self.of_type][:count]))
        found[self.of_type] |= {"batch_size": count, "input_id": number}
        for name, relation in relations.items():
            block = sample.blocks[name]
            found[relation.edge_type] = {
                "edge_index": edge_index(block.matrix),
                **self._edge_values(relation, block.entry),
                "e_id": torch.from_numpy(relation.edges(block.entry)),
                "num_sampled_edges": sample.num_entries[name],
            }
        if self.has_types:
            return found
        of_type, of_relation = found.values()
        return {**of_type, **of_relation}

    def _edge_values(self, relation: MappedRelation, entry: NDArray[np.int64]) -> dict[str, Tensor]:
        """Values of the drawn edges, under the names of PyG."""
        place, found = Place(FEATURE_DTYPES.get(self.features, torch.float32)), dict[str, Tensor]()
        for name, pyg_name in EDGE_NAMES.items():
            if name not in relation.columns or (name == "feature" and self.features not in FEATURE_DTYPES):
                continue
            values = relation.values(name, entry)
            tensor = as_features(values, "none", place) if name == "feature" else torch.from_numpy(values)
            found[pyg_name] = tensor.to(place.sum_dtype) if name == "weight" else tensor
        return found
