"""Opens the inputs of samples: the vertex data, the graph with or without types, and for some graphs a partition.

A *group* of ranks has its seeds and its frequent vertices in common: each rank of a graph without types is a group of
its own, and all ranks of a graph with types are one group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.shards.shard_source import find_vertices
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.mapped_vertices import map_vertices, split_vertices, vertices_contents
from gnnloom.storage.artifacts.part_members import map_part_members, partition_contents
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.samples import ONLY_TYPE, Samples, StoredSamples, pack_structure, rank_path
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.artifacts.whole_graph import WholeGraph, graph_contents, map_whole_graph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.disk.mapped_rows import take_rows
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.arrays import CHUNK_BYTES
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.mapped_copy import ArrayContent
from gnnloom.storage.format.schema import FORMAT_VERSION
from gnnloom.storage.format.vertex_arrays import SPLIT, label_name, missing_for_training
from gnnloom.storage.sampling.layered import layered_batch
from gnnloom.storage.sampling.layers.options import SAMPLER_OPTIONS
from gnnloom.storage.sampling.layers.seeds import VertexSeeds
from gnnloom.storage.sampling.layers.typed_size import TypedSize
from gnnloom.storage.sampling.neighbor import NeighborSampler

#: Vertices whose splits are read together.
_CHUNK: Final = 1 << 20
#: Arrays by path, with their dimensions.
Packed = dict[str, tuple[NDArray[Any], tuple[str, ...]]]


@dataclass(frozen=True)
class DrawnRelation:
    """A relation along which batches draw, for bounds on a batch.

    Attributes:
        source, target: names of its types.
        fanouts: entries to draw from each row, for each hop.
        edge_bytes: bytes of an edge on disk, besides its column.
        joint: the fan-outs are for the rows of all joint relations to the target type together.
    """

    source: str
    target: str
    nnz: int
    fanouts: Sequence[int]
    edge_bytes: int = 0
    joint: bool = False


@dataclass(frozen=True)
class PackedBatch:
    """A batch as it is packed.

    Attributes:
        structure: the vertices and edges, for :meth:`Sampling.pack`.
        vertices: (num_vertices,) int64 by type.
        seeds: (num_seeds,) int64.
    """

    structure: Any
    vertices: Mapping[str, NDArray[np.int64]]
    seeds: NDArray[np.int64]


class Sampling(ABC):
    """Mapped inputs, from which batches are drawn.

    Attributes:
        sampler: the sampler that training would use.
        features: (num_vertices, num_features) of each type that has features.
    """

    sampler: Any
    features: Mapping[str, NDArray[Any]]

    @abstractmethod
    def draw(self, seeds: VertexSeeds, epoch: int, number: int) -> PackedBatch:
        """Draw a batch that training would have."""

    @abstractmethod
    def pack(self, batches: Sequence[PackedBatch]) -> Packed:
        """The arrays of a segment without labels and features."""


@dataclass(frozen=True)
class SampleInputs(ABC):
    """The artifacts that samples are made from; small and picklable. Tasks map their arrays.

    Attributes:
        labeled: the data of the type of the seeds.
    """

    options: SampleOptions
    labeled: Vertices

    #: Version of the format of the artifact.
    version: ClassVar[int] = FORMAT_VERSION
    #: Name of the dimension of features.
    width: ClassVar[str] = "feature"

    @property
    @abstractmethod
    def keys(self) -> dict[str, str]:
        """Kind to key."""

    @property
    @abstractmethod
    def types(self) -> Mapping[str, int]:
        """Number of vertices by type."""

    @property
    @abstractmethod
    def stored(self) -> Mapping[str, Vertices]:
        """Vertex data with features, by type."""

    @property
    @abstractmethod
    def relations(self) -> Mapping[str, DrawnRelation]:
        """The relations by name."""

    @property
    @abstractmethod
    def groups(self) -> Sequence[str]:
        """Folder of the seeds and frequent vertices of each group of ranks; empty or with a slash at its end."""

    @property
    @abstractmethod
    def group_names(self) -> Sequence[str]:
        """Name of the task of each group."""

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the global dimensions of the artifact."""
        return {"vertex": sum(self.types.values())} | self.labeled.widths

    def prepared(self, dataset: Dataset, cluster: Cluster) -> SampleInputs:  # noqa: ARG002 - for other kinds
        """The inputs once everything that tasks map is stored."""
        return self

    @abstractmethod
    def seeds(self, group: int) -> NDArray[np.int64]:
        """(num_seeds,) int64 vertices of a group that are in the training split and have a label, ascending."""

    @abstractmethod
    def at(self, rank: int) -> tuple[int, int, int]:
        """A rank's group; the rank's first batch among the batches of the group, and the distance to the next one."""

    @property
    def expected(self) -> TypedSize | None:
        """The expected size of a whole batch of a graph with types; None for other graphs."""
        return None

    @abstractmethod
    def contents(self) -> Mapping[Artifact, Mapping[str, ArrayContent]]:
        """The arrays that tasks map, by artifact."""

    @abstractmethod
    def open(self) -> Sampling:
        """Map the inputs. The first use of uncompressed copies makes them; they stay as long as the result does."""

    @abstractmethod
    def facts_of(self, group: int) -> dict[str, Any]:
        """Facts about a group, for its record."""

    @abstractmethod
    def found(self, facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Facts of the manifest about the inputs, from :meth:`facts_of` of all groups."""

    @abstractmethod
    def open_samples(self, artifact: Artifact) -> StoredSamples[Any]:
        """Open finished samples."""

    @abstractmethod
    def possible_seeds(self) -> list[int]:
        """Number of vertices in the training split of every group, with and without a label."""

    @property
    def row_bytes(self) -> dict[str, int]:
        """Bytes of the features of a vertex, of each type that has features."""
        arrays = {name: each.artifact.array("feature") for name, each in self.stored.items()}
        return {name: each.shape[1] * each.dtype.itemsize for name, each in arrays.items()}

    def batches(self, rank: int, num_seeds: int) -> range:
        """The batches of a rank, from the number of seeds of its group."""
        _, first, step = self.at(rank)
        return range(first, -(-num_seeds // self.options.batch_size), step)

    @property
    def label_name(self) -> str:
        """Name of the array of labels."""
        return label_name(self.labeled.names)


@dataclass(frozen=True)
class GraphSampling(Sampling):
    """Mapped inputs of a graph without types."""

    graph: WholeGraph
    sampler: NeighborSampler
    features: Mapping[str, NDArray[Any]]
    weighted: bool

    def draw(self, seeds: VertexSeeds, epoch: int, number: int) -> PackedBatch:
        batch = layered_batch(self.graph, self.sampler.sample_of(seeds.of(epoch, number), epoch, number))
        return PackedBatch(batch, {ONLY_TYPE: batch.vertices}, batch.seeds)

    def pack(self, batches: Sequence[PackedBatch]) -> Packed:
        sizes = np.array([each.structure.layer_sizes for each in batches], np.int64)
        arrays = pack_structure([each.structure for each in batches], weighted=self.weighted)
        return {"layer_size": (sizes, ("batch", "layer+1"))} | {
            name: (array, (dim,)) for name, (array, dim) in arrays.items()
        }


@dataclass(frozen=True)
class GraphInputs(SampleInputs):
    """Inputs of a graph without types: a rank has the vertices of its part.

    Attributes:
        partition: None for one rank.
    """

    graph: Graph
    partition: Partition | None

    @property
    def keys(self) -> dict[str, str]:
        keys = {"graph": self.graph.artifact.key, "vertices": self.labeled.artifact.key}
        return keys | ({"partition": self.partition.artifact.key} if self.partition else {})

    @property
    def types(self) -> Mapping[str, int]:
        return {ONLY_TYPE: self.graph.num_vertices}

    @property
    def stored(self) -> Mapping[str, Vertices]:
        return {ONLY_TYPE: self.labeled}

    @property
    def relations(self) -> Mapping[str, DrawnRelation]:
        return {ONLY_TYPE: DrawnRelation(ONLY_TYPE, ONLY_TYPE, self.graph.nnz, self.options.fanout)}

    @property
    def groups(self) -> Sequence[str]:
        return [f"{rank_path(rank)}/" for rank in range(self.options.ranks)]

    @property
    def group_names(self) -> Sequence[str]:
        return [f"rank/{rank}" for rank in range(self.options.ranks)]

    def at(self, rank: int) -> tuple[int, int, int]:
        return rank, 0, 1

    def contents(self) -> Mapping[Artifact, Mapping[str, ArrayContent]]:
        found = {
            self.graph.artifact: graph_contents(self.graph),
            self.labeled.artifact: vertices_contents(self.labeled),
        }
        return found | ({self.partition.artifact: partition_contents(self.partition)} if self.partition else {})

    def open(self) -> GraphSampling:
        options, graph = self.options, map_whole_graph(self.graph)
        drawn = {name: getattr(options, name) for name in SAMPLER_OPTIONS}
        sampler = NeighborSampler(graph, options.seed, options.fanout, **drawn)
        return GraphSampling(graph, sampler, {ONLY_TYPE: map_vertices(self.labeled)["feature"]}, self.graph.weighted)

    def seeds(self, group: int) -> NDArray[np.int64]:
        return split_vertices(map_vertices(self.labeled), "train", labeled=True, among=self._own(group))

    def facts_of(self, group: int) -> dict[str, Any]:
        return {"has_negative_feature": self._has_negative_feature(group)}

    def found(self, facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {
            "weighted": self.graph.weighted,
            "num_classes": self.labeled.num_classes,
            "num_targets": self.labeled.num_targets,
            "has_negative_feature": any(each["has_negative_feature"] for each in facts),
        }

    def open_samples(self, artifact: Artifact) -> Samples:
        return Samples(artifact)

    def possible_seeds(self) -> list[int]:
        training = np.zeros(self.options.ranks, np.int64)
        for start, stop in ranges(self.graph.num_vertices):
            in_split = self.labeled.split(start, stop) == SPLIT["train"]
            part = np.zeros(stop - start, np.int32) if self.partition is None else self.partition.part(start, stop)
            training += np.bincount(part[in_split], minlength=self.options.ranks)
        return [int(count) for count in training]

    def _has_negative_feature(self, rank: int) -> bool:
        """Whether a feature of a rank's vertices is negative."""
        feature, own = map_vertices(self.labeled)["feature"], self._own(rank)
        step = chunk_rows(self.row_bytes[ONLY_TYPE])
        for start in range(0, len(feature if own is None else own), step):
            stop = min(start + step, len(feature))
            some = np.arange(start, stop) if own is None else own[start : start + step].astype(np.int64)
            if (take_rows(feature, some) < 0).any():
                return True
        return False

    def _own(self, rank: int) -> NDArray[Any] | None:
        """(num_own,) integers, a rank's vertices, ascending; None for all vertices."""
        return None if self.partition is None else map_part_members(self.partition).of(rank)


def chunk_rows(row_bytes: int) -> int:
    """Vertices whose features are in memory together."""
    return max(1, CHUNK_BYTES // max(1, row_bytes))


def ranges(num_vertices: int) -> Iterator[tuple[int, int]]:
    """Ranges of vertices whose splits are read together."""
    for start in range(0, num_vertices, _CHUNK):
        yield start, min(start + _CHUNK, num_vertices)


def graph_inputs(dataset: Dataset, graph: Graph, partition: Partition | None, options: SampleOptions) -> GraphInputs:
    """Find the inputs to sample from a graph without types.

    Raises:
        InputError: the graph has no features, labels or split, or the partition is missing or of another graph; or an
            option is an option of graphs with types.
    """
    if typed := options.of_types:
        raise InputError(f"{typed[0]}: the graph {graph.artifact.key} has no types; leave the option out")
    if partition is None and options.ranks > 1:
        raise InputError(f"samples for {options.ranks} ranks need a partition into {options.ranks} parts")
    if partition is not None and partition.num_parts != options.ranks:
        raise InputError(f"{partition.artifact.path}: {partition.num_parts} parts, but {options.ranks} ranks")
    vertices = find_vertices(dataset, graph.artifact.key)
    if vertices is None or vertices.num_vertices != graph.num_vertices:
        raise InputError(f"{dataset.path}: the graph has no vertex data; add some with `gnnloom features`")
    if missing := missing_for_training(vertices.names):
        raise InputError(f"{vertices.artifact.path}: no {', '.join(missing)}; training needs features, labels, a split")
    partition = partition if options.ranks > 1 else None
    if partition is not None and partition.artifact.inputs["graph"] != graph.artifact.key:
        raise InputError(f"{partition.artifact.path}: a partition of another graph than {graph.artifact.key}")
    return GraphInputs(options, vertices, graph, partition)
