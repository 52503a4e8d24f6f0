"""Finds the inputs of samples: the graph, its vertex data and, for several ranks, a partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.shards.shard_source import find_vertices
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.mapped_vertices import map_vertices, split_vertices
from gnnloom.storage.artifacts.part_members import map_part_members
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.artifacts.whole_graph import WholeGraph, map_whole_graph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.disk.mapped_rows import take_rows
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.arrays import CHUNK_BYTES
from gnnloom.storage.format.vertex_arrays import label_name, missing_for_training


@dataclass(frozen=True)
class SampleInputs:
    """The artifacts that samples are made from; small and picklable. Tasks map their arrays.

    Attributes:
        partition: None for one rank.
    """

    graph: Graph
    vertices: Vertices
    partition: Partition | None

    @property
    def keys(self) -> dict[str, str]:
        """Kind to key."""
        keys = {"graph": self.graph.artifact.key, "vertices": self.vertices.artifact.key}
        return keys | ({"partition": self.partition.artifact.key} if self.partition else {})

    @property
    def row_bytes(self) -> int:
        """Bytes of the features of a vertex."""
        return self.vertices.num_features * self.vertices.artifact.array("feature").dtype.itemsize

    @property
    def chunk_rows(self) -> int:
        """Vertices whose features are in memory at a time."""
        return max(1, CHUNK_BYTES // max(1, self.row_bytes))

    @property
    def label_name(self) -> str:
        """Name of the array of labels."""
        return label_name(self.vertices.names)

    def map_graph(self) -> WholeGraph:
        return map_whole_graph(self.graph)

    def map_all(self) -> tuple[object, ...]:
        """Map everything, so that the uncompressed copies exist; they stay as long as the result does."""
        parts = () if self.partition is None else (map_part_members(self.partition),)
        return self.map_graph(), map_vertices(self.vertices), *parts

    def seeds(self, rank: int) -> NDArray[np.int64]:
        """(num_seeds,) int64 vertices of a rank that are in the training split and have a label, ascending."""
        return split_vertices(map_vertices(self.vertices), "train", labeled=True, among=self._own(rank))

    def has_negative_feature(self, rank: int) -> bool:
        """Whether a feature of a rank's vertices is negative."""
        feature, own, step = map_vertices(self.vertices)["feature"], self._own(rank), self.chunk_rows
        for start in range(0, len(feature if own is None else own), step):
            stop = min(start + step, len(feature))
            some = np.arange(start, stop) if own is None else own[start : start + step].astype(np.int64)
            if (take_rows(feature, some) < 0).any():
                return True
        return False

    def _own(self, rank: int) -> NDArray[Any] | None:
        """(num_own,) integers, a rank's vertices, ascending; None for all vertices."""
        return None if self.partition is None else map_part_members(self.partition).of(rank)


def find_inputs(dataset: Dataset, graph: Graph, partition: Partition | None) -> SampleInputs:
    """Find the inputs to sample from.

    Raises:
        InputError: the graph has no features, labels or split, or the partition belongs to another graph.
    """
    vertices = find_vertices(dataset, graph.artifact.key)
    if vertices is None or vertices.num_vertices != graph.num_vertices:
        raise InputError(f"{dataset.path}: the graph has no vertex data; add some with `gnnloom features`")
    if missing := missing_for_training(vertices.names):
        raise InputError(f"{vertices.artifact.path}: no {', '.join(missing)}; training needs features, labels, a split")
    if partition is not None and partition.artifact.inputs["graph"] != graph.artifact.key:
        raise InputError(f"{partition.artifact.path}: a partition of another graph than {graph.artifact.key}")
    return SampleInputs(graph, vertices, partition)
