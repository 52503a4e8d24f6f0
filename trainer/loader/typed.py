"""Batches of a graph with types: vertices of one type or pairs of one relation, and neighbors along each relation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.links import LinkedRelation, Links
from gnnloom.storage.artifacts.mapped_links import MappedPairs, map_links
from gnnloom.storage.artifacts.samples import StoredBatch
from gnnloom.storage.artifacts.typed.mapped_graph import MappedRelation, map_relations, map_reverses
from gnnloom.storage.artifacts.typed.reverses import Reverses
from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph
from gnnloom.storage.artifacts.typed.typed_names import reverse_name
from gnnloom.storage.artifacts.typed.typed_samples import HeteroBatch, TypedSamples
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.sampling.layered import hetero_batch
from gnnloom.storage.sampling.layers.expansion import drawn_view
from gnnloom.storage.sampling.layers.graph_view import GraphView, MatrixView
from gnnloom.storage.sampling.layers.seeds import Seeds, VertexSeeds
from gnnloom.storage.sampling.layers.typed import RelationView, TypedNeighborSampler, TypedSample
from gnnloom.storage.sampling.layers.typed_size import SampledRelation, TypedSize
from gnnloom.trainer.data.vertex_data import as_features, check_finite, normalize_feature
from gnnloom.trainer.feed.batches import Batches, Drawn, Made, NeighborBatches, StoredBatches
from gnnloom.trainer.feed.feature_view import FeatureView
from gnnloom.trainer.loader.choices import EDGE_NAMES
from gnnloom.trainer.loader.hops import edge_index
from gnnloom.trainer.loader.pairs import PairsSource, SplitPairs, pair_fields
from gnnloom.trainer.loader.streams import BatchSize, Fields, SeededSource, Source, Stream, as_tensors
from gnnloom.trainer.loader.vertices import FEATURE_DTYPES, VertexChoice, VertexFields
from gnnloom.trainer.place.arrays import array_dtype
from gnnloom.trainer.place.place import Place


class TypedViews:
    """Opens the mapped files from which batches of a graph with types are made; the forecast opens stated sizes."""

    def reverses(self, dataset: Dataset, key: str, graph: TypedGraph) -> Reverses:
        """The stored reverses of the relations of a graph."""
        return Reverses(dataset.find("transpose", key), graph)

    def relations(self, graph: TypedGraph, reverses: Reverses | None) -> dict[str, MappedRelation]:
        """The relations to gather along, by name, with their reverses if these are given."""
        relations = map_relations(graph)
        return relations if reverses is None else relations | map_reverses(reverses, relations)

    def rows(self, relation: MappedRelation, neighbor_sampler: str) -> GraphView:
        """The rows of a relation, from which a neighbor sampler draws."""
        return drawn_view(relation.matrix, neighbor_sampler)

    def whole_rows(self, relation: MappedRelation) -> GraphView:
        """The rows of a relation, all of whose entries an evaluation reads."""
        return MatrixView(relation.matrix)

    def fields(
        self, vertices: Vertices | None, choice: VertexChoice, kept: int, dataset: Path, beside: Sequence[NDArray[Any]]
    ) -> VertexFields:
        """The tensors of the vertices of a type; for arguments see :class:`VertexFields`."""
        return VertexFields(vertices, choice, kept, dataset, beside)

    def pairs(self, links: Links) -> Mapping[str, MappedPairs]:
        """The pairs of every split of some links."""
        return map_links(links)

    def read(self, found: dict[Any, Fields]) -> dict[Any, Fields]:
        """The fields of a batch by type and by relation, as modules read them."""
        return found

    def drawn(self, found: dict[Any, Fields]) -> dict[Any, Fields]:
        """The fields of a batch that was just drawn."""
        return self.read(found)

    def stored(
        self,
        samples: TypedSamples,
        rank: int,
        make: Callable[[StoredBatch[HeteroBatch]], Made],
        kept: int,
        counter: ReadCounter | None,
    ) -> Batches[Made]:
        """The stored batches of a rank; for arguments see :class:`StoredBatches`."""
        return StoredBatches(samples, rank, make, kept=kept, counter=counter)

    def packed(self, rows: NDArray[Any], choice: VertexChoice, where: str, vertices: NDArray[np.int64]) -> Tensor:
        """(num_vertices, num_features) features that were packed with a batch.

        Args:
            rows: (num_vertices, num_features) stored rows; their memory may be changed.
            where: the features, for messages.
            vertices: (num_vertices,) int64.

        Raises:
            InputError: a feature is not a finite number, if this is checked.
        """
        place, found = choice.place, as_features(rows, "none", choice.place)
        if choice.finite:
            check_finite(found, where, lambda: vertices, place)
        return normalize_feature(found, choice.feature_norm, place).to(place.feature_dtype)

    def batches(self, drawn: Batches[Made]) -> Batches[Made]:
        """The batches that a run trains on."""
        return drawn


@dataclass(frozen=True, kw_only=True, eq=False)
class SourceOfTypes(Source):
    """Source of batches of a graph with types.

    Attributes:
        vertices: the data to read of the vertices of each type that has some.
        features: one of :data:`gnnloom.trainer.loader.choices.FEATURES`, for features of edges.
        has_types: if False, the only type and the only relation have their fields in one ``Data``.
        views: open the data from which batches are made.
    """

    vertices: Mapping[str, VertexChoice]
    features: str = "float32"
    views: TypedViews = field(default_factory=TypedViews)

    @property
    def place(self) -> Place:
        """Place of the tensors."""
        return Place(FEATURE_DTYPES.get(self.features, torch.float32))

    def hetero_fields(
        self, batch: HeteroBatch, edge_types: Mapping[str, tuple[str, str, str]], data: Mapping[str, Fields]
    ) -> dict[Any, Fields]:
        """The fields of a batch by type and by relation.

        Args:
            edge_types: source type, name and target type of each relation.
            data: features, labels and more of the vertices of each type that has some.
        """
        found, place = dict[Any, Fields](), self.place
        for name, vertices in batch.vertices.items():
            own = {"n_id": vertices, "num_nodes": len(vertices)}
            found[name] = {**data.get(name, {}), **own, "num_sampled_nodes": batch.num_vertices[name]}
        for name, edge_type in edge_types.items():
            edges = batch.edges[name]
            found[edge_type] = {
                "edge_index": edge_index(edges.matrix, place),
                **self._edge_values(edges.columns, place),
                "e_id": edges.edge,
                "num_sampled_edges": edges.num_entries,
            }
        return as_tensors(found, place)

    def _edge_values(self, columns: Mapping[str, NDArray[Any]], place: Place) -> Fields:
        """Values of edges, under the names of PyG; arrays are not tensors yet."""
        found = Fields()
        for name, pyg_name in EDGE_NAMES.items():
            if name not in columns or (name == "feature" and self.features not in FEATURE_DTYPES):
                continue
            values: Any = columns[name]
            if name == "weight":
                values = values.astype(array_dtype(place.sum_dtype), copy=False)
            found[pyg_name] = as_features(values, "none", place) if name == "feature" else values
        return found

    def joined(self, found: dict[Any, Fields]) -> Fields:
        """Fields by type and relation, or the fields of the only type and the only relation together."""
        found = as_tensors(found, self.place)
        if self.has_types:
            return found
        of_type, of_relation = found.values()
        return {**of_type, **of_relation}


@dataclass(frozen=True, kw_only=True, eq=False)
class TypedSource(SeededSource, SourceOfTypes):
    """Batches of a graph with types, with sampled neighbors along each relation.

    Attributes:
        reverses: key of the reverses of the relations, along which batches also gather; None for no reverses.
        fanouts, joint: see :class:`~gnnloom.storage.sampling.layers.typed.TypedNeighborSampler`.
    """

    reverses: str | None = None
    fanouts: Mapping[str, tuple[int, ...]]
    joint: frozenset[str] = frozenset()

    def map_relations(self, graph: TypedGraph) -> dict[str, MappedRelation]:
        """The relations along which batches gather, with their reverses if requested."""
        key, dataset = self.reverses, Dataset(self.dataset)
        return self.views.relations(graph, None if key is None else self.views.reverses(dataset, key, graph))

    def sampler(self, graph: TypedGraph, relations: Mapping[str, MappedRelation]) -> TypedNeighborSampler:
        """The sampler of a batch's neighbors."""
        views = [
            RelationView(name, each.source, each.target, self.views.rows(each, self.neighbor_sampler))
            for name, each in relations.items()
        ]
        types = [each.name for each in graph.types]
        return TypedNeighborSampler(types, views, self.seed, self.fanouts, replace=self.replace, joint=self.joint)

    def size_of(self, seeds: Mapping[str, int]) -> BatchSize:
        """The expected size of a batch with some seeds of each type."""
        dataset = Dataset(self.dataset)
        graph = dataset.typed_graph(self.graph)
        relations = {each.name: (each.source.name, each.target.name, each.nnz) for each in graph.relations}
        if self.reverses is not None:
            relations |= {
                reverse_name(name): (target, source, nnz) for name, (source, target, nnz) in relations.items()
            }
        drawn = {
            name: SampledRelation(*each, self.fanouts[name], replace=self.replace, joint=name in self.joint)
            for name, each in relations.items()
        }
        types = {each.name: each.count for each in graph.types}
        size = TypedSize.of(seeds, types, drawn)
        # Numbers of all vertices, both ends and numbers of all edges, and the features of vertices.
        num_bytes = 8 * sum(size.vertices.values()) + 24 * sum(size.edges.values())
        for name, choice in self.vertices.items():
            if choice.key is not None and choice.features in FEATURE_DTYPES:
                width = dataset.vertices(choice.key).num_features
                num_bytes += size.vertices[name] * width * FEATURE_DTYPES[choice.features].itemsize
        return BatchSize(size.vertices, size.edges, num_bytes)

    def vertex_fields(self, relations: Mapping[str, MappedRelation]) -> dict[str, VertexFields]:
        """Functions that give the tensors of the vertices of each type that has data, and of the seeds' type.

        Args:
            relations: what batches are drawn from.
        """
        dataset, beside = Dataset(self.dataset), [array for each in relations.values() for array in each.arrays]
        return {
            name: self.views.fields(
                None if choice.key is None else dataset.vertices(choice.key), choice, self.kept, self.dataset, beside
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
        has_features = self.features in FEATURE_DTYPES
        columns = [name for name in EDGE_NAMES if name != "feature" or has_features]
        data = {
            name: fields[name].of(vertices, features.get(name))
            for name, vertices in sample.vertices.items()
            if name in fields
        }
        edge_types = {name: each.edge_type for name, each in relations.items()}
        drawn = hetero_batch(sample, relations, columns)
        return self.views.drawn(self.hetero_fields(drawn, edge_types, data))

    def batches(
        self,
        sampler: TypedNeighborSampler,
        seeds: Seeds,
        make: Callable[[Drawn[TypedSample]], Made],
        fields: Mapping[str, VertexFields],
    ) -> Batches[Made]:
        """The batches of some seeds."""
        views = {name: view for name, each in fields.items() for view in each.views.values()}
        return self.views.batches(NeighborBatches(sampler, seeds, make, views, self.cache_memory))


@dataclass(frozen=True, kw_only=True, eq=False)
class TypedVertexSource(TypedSource):
    """Batches of vertices of one type.

    Attributes:
        of_type: type of the seeds.
    """

    of_type: str

    def expected(self) -> BatchSize:
        count = Dataset(self.dataset).typed_graph(self.graph).type(self.of_type).count
        return self.size_of({self.of_type: min(self.batch_size, count if self.chosen is None else len(self.chosen))})

    def open(self) -> Stream:
        return self.stream(self._with_numbers)

    def stream(self, make: Callable[[VertexSeeds, Drawn[TypedSample], dict[Any, Fields]], Made]) -> Batches[Made]:
        """Map the data that batches are made from; see :meth:`Source.open`.

        Args:
            make: makes a batch from all seeds, the drawn sample, and its fields by type and by relation.
        """
        graph = Dataset(self.dataset).typed_graph(self.graph)
        relations = self.map_relations(graph)
        fields = self.vertex_fields(relations)
        seeds = self.seeds(fields[self.of_type], graph.type(self.of_type).count, self.of_type)

        def made(drawn: Drawn[TypedSample]) -> Made:
            return make(seeds, drawn, self.typed_fields(relations, fields, drawn.sample, drawn.features))

        return self.batches(self.sampler(graph, relations), seeds, made, fields)

    def _with_numbers(self, seeds: VertexSeeds, drawn: Drawn[TypedSample], found: dict[Any, Fields]) -> Fields:
        sample, count = drawn.sample, drawn.sample.num_vertices[self.of_type][0]
        number = seeds.places(sample.vertices[self.of_type][:count])
        found[self.of_type] |= {"batch_size": count, "input_id": number}
        return self.joined(found)


@dataclass(frozen=True, kw_only=True, eq=False)
class TypedPairSource(PairsSource, TypedSource):
    """Batches of pairs of one relation; the seeds are the vertices at their ends and at the ends of negatives."""

    def open(self) -> Stream:
        return self.stream(self._with_pairs)

    def stream(self, make: Callable[[LinkedRelation, Drawn[TypedSample], dict[Any, Fields]], Made]) -> Batches[Made]:
        """Map the data that batches are made from; see :meth:`Source.open`.

        Args:
            make: makes a batch from the relation of its pairs, the drawn sample, and fields by type and by relation.
        """
        graph, links = Dataset(self.dataset).typed_graph(self.graph), self.open_links()
        relations, relation = self.map_relations(graph), links.relation
        fields = self.vertex_fields(relations)
        if relation is None:
            raise InputError(f"{links.artifact.path}: not pairs of a relation, but graph {self.graph} has types")
        seeds = SplitPairs(self, links, relations[relation.name].matrix, self.views.pairs(links))

        def made(drawn: Drawn[TypedSample]) -> Made:
            return make(relation, drawn, self.typed_fields(relations, fields, drawn.sample, drawn.features))

        return self.batches(self.sampler(graph, relations), seeds, made, fields)

    def _with_pairs(self, relation: LinkedRelation, drawn: Drawn[TypedSample], found: dict[Any, Fields]) -> Fields:
        sample = drawn.sample
        sources, targets = (
            sample.vertices[name][: sample.num_vertices[name][0]] for name in (relation.source, relation.target)
        )
        # Labels of pairs replace labels of edges, which have the same name in PyG.
        found[relation.edge_type] |= pair_fields(drawn.pairs, sources, targets)
        return self.joined(found)
