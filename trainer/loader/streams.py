"""Sources of batches: a source opens a stream of batches in any process, and defines the fields of a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.mapped_vertices import SplitVertices
from gnnloom.storage.artifacts.whole_graph import WholeGraph, map_whole_graph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.layered import LayeredBatch
from gnnloom.storage.sampling.layered import layered_batch
from gnnloom.storage.sampling.layers.options import NEIGHBOR_OPTIONS, SAMPLER_OPTIONS
from gnnloom.storage.sampling.layers.seeds import VertexSeeds
from gnnloom.storage.sampling.layers.typed_size import TypedSize
from gnnloom.storage.sampling.neighbor import NeighborSampler
from gnnloom.storage.sampling.sampler import Sample
from gnnloom.trainer.feed.batches import Batches, Drawn, NeighborBatches
from gnnloom.trainer.loader.choices import STORED
from gnnloom.trainer.loader.hops import Hops, edge_index, edge_weight, hops_of
from gnnloom.trainer.loader.vertices import VertexChoice, VertexFields
from gnnloom.trainer.place.place import Place

#: Fields of a batch by PyG's names; in a graph with types, such fields by type and by relation.
Fields: TypeAlias = dict[Any, Any]


#: The batches of all epochs.
Stream: TypeAlias = Batches[Fields]


@dataclass(frozen=True)
class BatchSize:
    """Expected size of a batch of a graph with types.

    Attributes:
        vertices: number of vertices by type.
        edges: number of edges by relation.
        num_bytes: bytes of the numbers of vertices and edges, and of the vertices' features.
    """

    vertices: Mapping[str, float]
    edges: Mapping[str, float]
    num_bytes: float

    def __str__(self) -> str:
        """The size in words."""
        return f"{TypedSize(self.vertices, self.edges)}; {self.num_bytes / 1e6:,.1f} MB"


@dataclass(frozen=True, kw_only=True, eq=False)
class Source(ABC):
    """Source of a stream, without open files: it can be copied to other processes.

    Attributes:
        dataset: its folder.
        graph: key of the graph.
        seed: seed of the random streams.
        kept: unused arrays of features to keep.
        has_types: fields of batches are fields by type and by relation.
    """

    dataset: Path
    graph: str
    seed: int = 0
    kept: int = 2
    has_types: bool = False

    def expected(self) -> BatchSize | None:
        """The expected size of a batch; None if only batches of graphs with types have one."""
        return None

    @abstractmethod
    def open(self) -> Stream:
        """Map the data from which batches are made.

        Raises:
            InputError: data are missing, or an option is out of range.
        """


@dataclass(frozen=True, kw_only=True, eq=False)
class GraphSource(Source):
    """Source of batches of a graph without types.

    Attributes:
        vertices: the data to read of the vertices.
        normalization: normalization of the weights of edges, as in :func:`gnnloom.trainer.loader.hops.edge_weight`; or
            ``STORED``.
        adj_t: the graph of a batch is a sparse matrix instead of pairs.
    """

    vertices: VertexChoice
    normalization: str = STORED
    adj_t: bool = False

    @property
    def place(self) -> Place:
        """Place of the tensors."""
        return self.vertices.place

    def map_graph(self) -> WholeGraph:
        """The graph; all processes of a machine share one copy."""
        return map_whole_graph(Dataset(self.dataset).graph(self.graph))

    def vertex_fields(self, graph: WholeGraph) -> VertexFields:
        """Function that gives the tensors of vertices of batches that are drawn from a graph."""
        key = self.vertices.key
        found = None if key is None else Dataset(self.dataset).vertices(key)
        return VertexFields(found, self.vertices, self.kept, self.dataset, graph.arrays)

    def edges(self, matrix: CSR, weight: Tensor | None, pairs: Tensor | None = None) -> Fields:
        """The fields of the edges of a batch.

        Args:
            matrix: rows of its leading vertices; a column for every vertex.
            weight: (nnz,) weights of the edges; None without weights.
            pairs: (2, nnz) sources and targets, if they are known.
        """
        if self.adj_t:
            return {"adj_t": _square(matrix, weight, self.place)}
        fields = {"edge_index": edge_index(matrix, self.place) if pairs is None else pairs}
        return fields if weight is None else fields | {"edge_weight": weight}

    def stored_weight(self, matrix: CSR) -> Tensor | None:
        """(nnz,) the graph's weights of the edges of a batch; None if it has none."""
        place = self.place
        return None if matrix.data is None else place.from_numpy(matrix.data).to(place.sum_dtype)

    def layered_fields(self, graph: WholeGraph, vertices: VertexFields, drawn: Drawn[Sample]) -> Fields:
        """The fields of a layered batch."""
        sample = drawn.sample
        edges = self.hop_fields(
            hops_of(sample, self.place),
            sample.blocks[0].matrix,
            lambda: layered_batch(graph, sample, drawn.excluded),
        )
        found = {**vertices.of(sample.vertices, drawn.feature), **edges, "batch_size": sample.num_seeds}
        return as_tensors(found, self.place)

    def hop_fields(self, hops: Hops, matrix: CSR, batch: Callable[[], LayeredBatch]) -> Fields:
        """The fields of the edges of a layered batch, and the names and numbers of its vertices and edges.

        Args:
            batch: makes the batch, if weights depend on it.
        """
        if self.normalization == STORED:
            weight = self.stored_weight(matrix)
        else:
            weight = edge_weight(batch(), self.normalization, self.place)
        return {**self.edges(matrix, weight, hops.edge_index), **_numbers(hops)}


def as_tensors(fields: Fields, place: Place) -> Fields:
    """Fields with tensors in place of arrays, whose memory they share, also of fields by type."""
    return {
        name: as_tensors(value, place)
        if isinstance(value, dict)
        else place.from_numpy(value)
        if isinstance(value, np.ndarray)
        else value
        for name, value in fields.items()
    }


def _numbers(hops: Hops) -> Fields:
    found: Fields = {
        "n_id": hops.vertices,
        "num_sampled_nodes": hops.num_sampled_nodes,
        "num_sampled_edges": hops.num_sampled_edges,
        "num_nodes": len(hops.vertices),
    }
    return found if hops.entry is None else found | {"e_id": hops.entry}


def _square(matrix: CSR, weight: Tensor | None, place: Place) -> Tensor:
    """(num_columns, num_columns) the rows of a batch as a sparse matrix of torch; all other rows are empty."""
    rest = np.full(matrix.num_columns - matrix.num_rows, matrix.nnz)
    parts = place.from_numpy(np.concatenate([matrix.indptr, rest])), place.from_numpy(matrix.indices.astype(np.int64))
    values = place.lasting((matrix.nnz,), place.sum_dtype).fill_(1) if weight is None else weight
    # Checks would take longer than the batch, and the sampler always makes sorted rows.
    size = (matrix.num_columns, matrix.num_columns)
    return torch.sparse_csr_tensor(*parts, values, size=size, check_invariants=False)


@dataclass(frozen=True, kw_only=True, eq=False)
class SeededSource(Source):
    """Source of batches of examples with sampled neighbors.

    Attributes:
        split: a split, or all vertices.
        chosen: (num_seeds,) int64 vertices, ascending, instead of the vertices of a split; None for the split.
        replace, neighbor_sampler: see :class:`gnnloom.storage.sampling.neighbor.NeighborSampler`.
        cache_memory: bytes for features of batches that are read together, if the features are not in memory.
        shuffle: in a random order that differs between epochs, instead of ascending.
    """

    split: str = "train"
    chosen: NDArray[np.int64] | SplitVertices | None = None
    batch_size: int
    replace: bool = False
    neighbor_sampler: str = "uniform"
    cache_memory: int = NEIGHBOR_OPTIONS["cache_memory"].default
    shuffle: bool = True

    def seeds(self, vertices: VertexFields, num_vertices: int, of_type: str | None = None) -> VertexSeeds:
        """The batches of the vertices.

        Args:
            num_vertices: of the graph, or of the type.
            of_type: type of the vertices in a graph with types.
        """
        chosen = vertices.seeds(self.split, num_vertices) if self.chosen is None else self.chosen
        return VertexSeeds(chosen, self.batch_size, self.seed, self.shuffle, of_type)


@dataclass(frozen=True, kw_only=True, eq=False)
class NeighborSource(SeededSource, GraphSource):
    """Batches of vertices of a graph without types.

    Attributes:
        fanouts: see :class:`gnnloom.storage.sampling.neighbor.NeighborSampler`.
    """

    fanouts: tuple[int, ...]

    #: Batches are the batches of ``train --mode neighbor --draw-once``.
    draw_once: ClassVar[bool] = True

    def open(self) -> Stream:
        graph = self.map_graph()
        vertices = self.vertex_fields(graph)
        seeds = self.seeds(vertices, graph.num_vertices)
        make = partial(self.layered_fields, graph, vertices)
        return NeighborBatches(self.sampler(graph), seeds, make, vertices.views, self.cache_memory)

    def sampler(self, graph: WholeGraph) -> NeighborSampler:
        """The sampler of a batch's neighbors."""
        drawn = {name: getattr(self, name) for name in SAMPLER_OPTIONS}
        return NeighborSampler(graph, self.seed, self.fanouts, **drawn)
