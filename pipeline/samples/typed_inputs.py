"""Opens the inputs of samples of a graph with types: the graph, the vertex data of its types, perhaps its reverses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.matrix_sort.reverses import reverse_relations, reverses_key
from gnnloom.pipeline.samples.inputs import DrawnRelation, Packed, PackedBatch, SampleInputs, Sampling, ranges
from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.artifacts.mapped_vertices import map_vertices, split_vertices, vertices_contents
from gnnloom.storage.artifacts.typed.mapped_graph import (
    MappedRelation,
    map_relations,
    map_reverses,
    relation_contents,
    reverse_contents,
)
from gnnloom.storage.artifacts.typed.reverses import Reverses
from gnnloom.storage.artifacts.typed.typed_graph import Relation, ReverseRelation, TypedGraph
from gnnloom.storage.artifacts.typed.typed_samples import TypedSamples, pack_hetero
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.mapped_copy import ArrayContent
from gnnloom.storage.format.schema import TYPED_VERSION
from gnnloom.storage.format.vertex_arrays import SPLIT, missing_for_training
from gnnloom.storage.sampling.layered import hetero_batch
from gnnloom.storage.sampling.layers.options import joint_relations, relation_fanouts
from gnnloom.storage.sampling.layers.seeds import VertexSeeds
from gnnloom.storage.sampling.layers.typed import TypedNeighborSampler, relation_views
from gnnloom.storage.sampling.layers.typed_size import SampledRelation, TypedSize
from gnnloom.storage.wording import shell_command


@dataclass(frozen=True)
class TypedSampling(Sampling):
    """Mapped inputs of a graph with types."""

    of_type: str
    relations: Mapping[str, MappedRelation]
    sampler: TypedNeighborSampler
    features: Mapping[str, NDArray[Any]]

    def draw(self, seeds: VertexSeeds, epoch: int, number: int) -> PackedBatch:
        sample = self.sampler.sample_of({self.of_type: seeds.of(epoch, number)}, epoch, number)
        batch = hetero_batch(sample, self.relations)
        return PackedBatch(batch, batch.vertices, batch.vertices[self.of_type][: batch.num_vertices[self.of_type][0]])

    def pack(self, batches: Sequence[PackedBatch]) -> Packed:
        return pack_hetero([each.structure for each in batches])


@dataclass(frozen=True)
class TypedInputs(SampleInputs):
    """Inputs of a graph with types: the seeds are vertices of one type, and every rank takes some of their batches.

    Attributes:
        data: vertex data of each type that has some.
        reverses: the reverses of the relations, to draw along as well; None if there are none, or none stored yet.
    """

    graph: TypedGraph
    data: Mapping[str, Vertices]
    reverses: Reverses | None = None

    version: ClassVar[int] = TYPED_VERSION
    width: ClassVar[str] = "width"

    @property
    def keys(self) -> dict[str, str]:
        keys = {"graph": self.graph.artifact.key}
        for name, each in self.data.items():
            keys["vertices" if name == self.options.of_type else f"vertices/{name}"] = each.artifact.key
        if not self.options.reverse:
            return keys
        origin = None if self.graph.origin is None else self.graph.origin.artifact.key
        return keys | {"transpose": reverses_key(self.graph.artifact.key, origin)}

    def prepared(self, dataset: Dataset, cluster: Cluster) -> TypedInputs:
        """See :meth:`SampleInputs.prepared`: stores the reverses of the relations."""
        return replace(self, reverses=reverse_relations(dataset, self.graph, cluster)) if self.options.reverse else self

    @property
    def types(self) -> Mapping[str, int]:
        return {each.name: each.count for each in self.graph.types}

    @property
    def stored(self) -> Mapping[str, Vertices]:
        return {name: each for name, each in self.data.items() if each.has_feature}

    @cached_property
    def relations(self) -> Mapping[str, DrawnRelation]:
        options, found = self.options, list[Relation | ReverseRelation](self.graph.relations)
        if options.reverse:
            found += [self.graph.reverse(each.name) for each in self.graph.relations]
        names = [each.name for each in found]
        fanouts = relation_fanouts(options.relation_fanout, options.fanout, names)
        joint = joint_relations(options.relation_fanout, names, total=options.fanout_total)
        return {
            each.name: DrawnRelation(
                each.source.name,
                each.target.name,
                each.nnz,
                fanouts[each.name],
                8 + sum(_column_bytes(each if isinstance(each, Relation) else each.relation).values()),
                each.name in joint,
            )
            for each in found
        }

    @property
    def groups(self) -> Sequence[str]:
        return [""]

    @property
    def group_names(self) -> Sequence[str]:
        return ["seeds"]

    def at(self, rank: int) -> tuple[int, int, int]:
        return 0, rank, self.options.ranks

    @property
    def expected(self) -> TypedSize:
        """The expected size of a whole batch."""
        with_replacement = self.options.replace
        drawn = {
            name: SampledRelation(
                each.source, each.target, each.nnz, each.fanouts, replace=with_replacement, joint=each.joint
            )
            for name, each in self.relations.items()
        }
        of_type = str(self.options.of_type)
        seeds = min(self.options.batch_size, self.types[of_type])
        return TypedSize.of({of_type: seeds}, self.types, drawn)

    def contents(self) -> Mapping[Artifact, Mapping[str, ArrayContent]]:
        found = {self.graph.artifact: relation_contents(self.graph)}
        if self.graph.origin is not None:
            found[self.graph.origin.artifact] = relation_contents(self.graph.origin)
        reverses = self.reverses
        while reverses is not None:
            found[reverses.artifact] = reverse_contents(reverses)
            reverses = reverses.origin
        return found | {each.artifact: vertices_contents(each) for each in self.data.values()}

    def open(self) -> TypedSampling:
        options, relations = self.options, map_relations(self.graph)
        if self.reverses is not None:
            relations |= map_reverses(self.reverses, relations)
        fanouts = {name: each.fanouts for name, each in self.relations.items()}
        views = relation_views(relations, options.neighbor_sampler)
        joint = {name for name, each in self.relations.items() if each.joint}
        types = list(self.types)
        sampler = TypedNeighborSampler(types, views, options.seed, fanouts, replace=options.replace, joint=joint)
        features = {name: map_vertices(each)["feature"] for name, each in self.stored.items()}
        return TypedSampling(str(options.of_type), relations, sampler, features)

    def seeds(self, group: int) -> NDArray[np.int64]:  # noqa: ARG002 - there is one
        return split_vertices(map_vertices(self.labeled), "train", labeled=True)

    def facts_of(self, group: int) -> dict[str, Any]:  # noqa: ARG002 - see above
        return {"columns": {name: list(each.columns) for name, each in self.open().relations.items()}}

    def found(self, facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        widths = {name: each.num_features for name, each in self.stored.items()}
        wholes = {each.name: each for each in self.graph.relations}
        wholes |= {self.graph.reverse(name).name: each for name, each in wholes.items()}
        return {
            "num_classes": self.labeled.num_classes,
            "num_targets": self.labeled.num_targets,
            "types": [{"name": name, "count": count, "width": widths.get(name)} for name, count in self.types.items()],
            "relations": [
                {
                    "name": name,
                    "source": each.source,
                    "target": each.target,
                    "num_edges": wholes[name].whole.nnz,
                    "columns": facts[0]["columns"][name],
                    "fanout": list(each.fanouts),
                }
                for name, each in self.relations.items()
            ],
        }

    def open_samples(self, artifact: Artifact) -> TypedSamples:
        return TypedSamples(artifact)

    def possible_seeds(self) -> list[int]:
        counts = (
            np.count_nonzero(self.labeled.split(*each) == SPLIT["train"]) for each in ranges(self.labeled.num_vertices)
        )
        return [sum(map(int, counts))]


def _column_bytes(relation: Relation) -> dict[str, int]:
    """Bytes of the columns of an edge, by name."""
    whole = relation.whole
    if whole.edge_columns:
        records = {name: whole.artifact.record(f"{whole.prefix}{name}") for name in whole.edge_columns}
        return {
            name: int(np.prod(each.shape[1:], dtype=np.int64)) * np.dtype(each.dtype).itemsize
            for name, each in records.items()
        }
    # A single number of each edge is stored in the blocks.
    return {name: 8 for name, has in (("weight", whole.weighted), ("time", whole.has_times)) if has}


def typed_inputs(dataset: Dataset, graph: TypedGraph, options: SampleOptions, chosen: Mapping[str, str]) -> TypedInputs:
    """Find the inputs to sample from a graph with types.

    Args:
        chosen: keys of vertex data by type, to choose between several.

    Raises:
        InputError: no type is named, its vertices have no labels or no split, or a type has several vertex data.
        NotFoundError: the type or the vertex data do not exist.
    """
    if options.of_type is None:
        names = ", ".join(each.name for each in graph.types)
        raise InputError(f"{graph.artifact.path}: the graph has types; choose the type of the seeds (of_type): {names}")
    of_type, data = graph.type(options.of_type).name, dataset.vertices_of_types(graph.artifact.key, chosen)
    labeled = data.get(of_type)
    missing = [name for name in missing_for_training(() if labeled is None else labeled.names) if name != "feature"]
    if labeled is None or missing:
        raise InputError(
            f"{graph.artifact.path}: the vertices of type {of_type} have no {' and no '.join(missing)}; add them with"
            f" `{shell_command('gnnloom', 'features', dataset.name, '--of-type', of_type)} ...`"
        )
    return TypedInputs(options, labeled, graph, data)
