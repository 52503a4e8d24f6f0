"""Batches of a graph with types: vertices of one type or pairs of one relation, and neighbors along each relation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.typed.mapped_graph import MappedRelation, map_relations, map_reverses
from gnnloom.storage.artifacts.typed.reverses import Reverses
from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.sampling.layers.expansion import drawn_view
from gnnloom.storage.sampling.layers.seeds import Seeds
from gnnloom.storage.sampling.layers.typed import RelationView, TypedNeighborSampler, TypedSample
from gnnloom.trainer.data.vertex_data import as_features
from gnnloom.trainer.feed.batches import Drawn, NeighborBatches
from gnnloom.trainer.feed.feature_view import FeatureView
from gnnloom.trainer.loader.choices import EDGE_NAMES
from gnnloom.trainer.loader.hops import edge_index
from gnnloom.trainer.loader.pairs import PairsSource, SplitPairs, pair_fields
from gnnloom.trainer.loader.streams import Fields, SeededSource, Stream
from gnnloom.trainer.loader.vertices import FEATURE_DTYPES, VertexChoice, VertexFields
from gnnloom.trainer.place.place import Place


@dataclass(frozen=True, kw_only=True, eq=False)
class TypedSource(SeededSource):
    """Source of batches of a graph with types, with sampled neighbors along each relation.

    Attributes:
        vertices: the data to read of the vertices of each type that has some.
        features: one of :data:`gnnloom.trainer.loader.choices.FEATURES`, for features of edges.
        reverses: key of the reverses of the relations, to gather along as well; None without.
        fanouts: of each relation; see :class:`~gnnloom.storage.sampling.layers.typed.TypedNeighborSampler`.
        has_types: without, the only type and the only relation have their fields in one ``Data``.
    """

    vertices: Mapping[str, VertexChoice]
    features: str = "float32"
    reverses: str | None = None
    fanouts: Mapping[str, tuple[int, ...]]

    def map_relations(self, graph: TypedGraph) -> dict[str, MappedRelation]:
        """The relations to gather along, with their reverses if these are asked for."""
        relations = map_relations(graph)
        if self.reverses is not None:
            reverses = Reverses(Dataset(self.dataset).find("transpose", self.reverses), graph)
            relations |= map_reverses(reverses, relations)
        return relations

    def sampler(self, graph: TypedGraph, relations: Mapping[str, MappedRelation]) -> TypedNeighborSampler:
        """The sampler of a batch's neighbors."""
        views = [
            RelationView(name, each.source, each.target, drawn_view(each.matrix, self.neighbor_sampler))
            for name, each in relations.items()
        ]
        types = [each.name for each in graph.types]
        return TypedNeighborSampler(types, views, self.seed, self.fanouts, replace=self.replace)

    def vertex_fields(self) -> dict[str, VertexFields]:
        """Functions that give the tensors of the vertices of each type that has data, and of the seeds' type."""
        dataset = Dataset(self.dataset)
        return {
            name: VertexFields(
                None if choice.key is None else dataset.vertices(choice.key), choice, self.kept, self.dataset
            )
            for name, choice in self.vertices.items()
        }

    def typed_fields(
        self,
        relations: Mapping[str, MappedRelation],
        fields: Mapping[str, VertexFields],
        sample: TypedSample,
        features: Mapping[str, FeatureView] = MappingProxyType({}),
    ) -> dict[Any, Fields]:
        """The fields of a sample by type and by relation.

        Args:
            features: views to take features of some types from, instead of the views that ``fields`` have.
        """
        found = dict[Any, Fields]()
        for name, vertices in sample.vertices.items():
            data = fields[name].of(vertices, features.get(name)) if name in fields else {}
            own = {"n_id": torch.from_numpy(vertices), "num_nodes": len(vertices)}
            found[name] = {**data, **own, "num_sampled_nodes": sample.num_vertices[name]}
        for name, relation in relations.items():
            block = sample.blocks[name]
            found[relation.edge_type] = {
                "edge_index": edge_index(block.matrix),
                **self._edge_values(relation, block.entry),
                "e_id": torch.from_numpy(relation.edges(block.entry)),
                "num_sampled_edges": sample.num_entries[name],
            }
        return found

    def batches(
        self,
        sampler: TypedNeighborSampler,
        seeds: Seeds,
        make: Callable[[Drawn[TypedSample]], Fields],
        fields: Mapping[str, VertexFields],
    ) -> Stream:
        """The batches of some seeds."""
        views = {name: view for name, each in fields.items() for view in each.views.values()}
        return NeighborBatches(sampler, seeds, make, views, self.cache_memory)

    def joined(self, found: dict[Any, Fields]) -> Fields:
        """Fields by type and relation as the source gives them."""
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


@dataclass(frozen=True, kw_only=True, eq=False)
class TypedVertexSource(TypedSource):
    """Batches of vertices of one type.

    Attributes:
        of_type: type of the seeds.
    """

    of_type: str

    def open(self) -> Stream:
        graph = Dataset(self.dataset).typed_graph(self.graph)
        fields, relations = self.vertex_fields(), self.map_relations(graph)
        seeds = self.seeds(fields[self.of_type], graph.type(self.of_type).count, self.of_type)

        def make(drawn: Drawn[TypedSample]) -> Fields:
            sample = drawn.sample
            found = self.typed_fields(relations, fields, sample, drawn.features)
            count = sample.num_vertices[self.of_type][0]
            number = np.searchsorted(seeds.vertices, sample.vertices[self.of_type][:count])
            found[self.of_type] |= {"batch_size": count, "input_id": torch.from_numpy(number)}
            return self.joined(found)

        return self.batches(self.sampler(graph, relations), seeds, make, fields)


@dataclass(frozen=True, kw_only=True, eq=False)
class TypedPairSource(PairsSource, TypedSource):
    """Batches of pairs of one relation; the seeds are the vertices at their ends and at the ends of negatives."""

    def open(self) -> Stream:
        graph, links = Dataset(self.dataset).typed_graph(self.graph), self.open_links()
        fields, relations, relation = self.vertex_fields(), self.map_relations(graph), links.relation
        if relation is None:
            raise InputError(f"{links.artifact.path}: not pairs of a relation, but graph {self.graph} has types")
        seeds = SplitPairs(self, links, relations[relation.name].matrix)

        def make(drawn: Drawn[TypedSample]) -> Fields:
            sample = drawn.sample
            found = self.typed_fields(relations, fields, sample, drawn.features)
            sources, targets = (
                sample.vertices[name][: sample.num_vertices[name][0]] for name in (relation.source, relation.target)
            )
            # Labels of pairs replace labels of edges, which have the same name in PyG.
            found[relation.edge_type] |= pair_fields(drawn.pairs, sources, targets)
            return self.joined(found)

        return self.batches(self.sampler(graph, relations), seeds, make, fields)
