"""Finds the inputs of shards: the artifacts, and their sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnnloom.pipeline.matrix_sort.blocks import TASK_VERTICES
from gnnloom.pipeline.matrix_sort.transpose import RANGE_CHUNKS
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.tasks.sizes import GraphSizes, TypedSizes, VertexSizes
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.typed.typed_graph import VertexType
from gnnloom.storage.artifacts.typed.typed_names import reverse_name
from gnnloom.storage.artifacts.typed.union import BACKWARD, FORWARD, UnionSpec
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.disk.work_folder import BESIDE
from gnnloom.storage.errors import NotFoundError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.csr import index_dtype


@dataclass(frozen=True)
class RelationSource:
    """The sizes of a relation or reverse.

    Attributes:
        name: name of the relation or reverse.
        row_type, source_type: numbers of the types of its rows and columns.
        sizes: sizes of the matrix.
        edge_columns: columns of its edges.
    """

    name: str
    row_type: int
    source_type: int
    sizes: GraphSizes
    edge_columns: tuple[Column, ...] = ()


@dataclass(frozen=True)
class TypeSource:
    """The sizes of the vertices of a type.

    Attributes:
        name: name of the type.
        first: number of its first vertex.
        count: number of its vertices.
        vertices: sizes of their data; None without data.
    """

    name: str
    first: int
    count: int
    vertices: VertexSizes | None = None


@dataclass(frozen=True)
class ShardSource:
    """The sizes of the inputs of shards.

    Attributes:
        graph: of the adjacency, or of the union of the relations of a graph with types.
        vertices: of the vertex data of a graph without types.
        transpose: of a directed graph, if that exists already.
        relations: the relations, and reverses, of a graph with types.
        types: its types.
        replicated: numbers of the types whose rows every rank holds.
    """

    graph: GraphSizes
    vertices: VertexSizes | None
    transpose: GraphSizes | None = None
    relations: tuple[RelationSource, ...] = ()
    types: tuple[TypeSource, ...] = ()
    replicated: tuple[int, ...] = ()

    @classmethod
    def of(cls, graph: Graph, vertices: Vertices | None, transpose: Graph | None) -> ShardSource:
        """The sizes of stored artifacts.

        Args:
            transpose: of a directed graph; None if it does not exist.
        """
        sizes = VertexSizes.of(vertices) if vertices else None
        return cls(GraphSizes.of(graph), sizes, GraphSizes.of(transpose) if transpose else None)

    @classmethod
    def of_types(
        cls,
        sizes: TypedSizes,
        spec: UnionSpec,
        union: GraphSizes,
        columns: Mapping[str, tuple[Column, ...]],
        vertices: Mapping[str, VertexSizes],
    ) -> ShardSource:
        """The sizes of a graph with types: of its relations, then of their reverses, as far as the direction has them.

        Args:
            spec: direction of the matrices, and the replicated types, whose columns the union lacks.
            union: sizes of the union.
            columns: columns of the edges of each relation.
            vertices: vertex data by type.
        """
        number, relations = {name: index for index, name in enumerate(sizes.types)}, list[RelationSource]()
        if spec.direction != BACKWARD:
            relations += [
                RelationSource(name, number[target], number[source], each, columns.get(name, ()))
                for name, (source, target, each) in sizes.relations.items()
            ]
        if spec.direction != FORWARD:
            for name, each in sizes.reverses.items():
                target, source = (number[end] for end in sizes.relations[name][:2])
                relations.append(RelationSource(reverse_name(name), target, source, each, columns.get(name, ())))
        types = (TypeSource(name, sizes.first[name], count, vertices.get(name)) for name, count in sizes.types.items())
        replicated = tuple(number[name] for name in spec.without_sources)
        return cls(union, None, relations=tuple(relations), types=tuple(types), replicated=replicated)

    @property
    def matrices(self) -> int:
        """1 for an undirected graph, 2 with the transpose of a directed one."""
        return 1 if self.graph.symmetric or self.types else 2

    @property
    def backward(self) -> GraphSizes | None:
        """The transpose of a directed graph; estimated if it does not exist yet."""
        graph = self.graph
        if graph.symmetric or self.transpose is not None or self.types:
            return self.transpose
        return GraphSizes.even(
            graph.num_vertices,
            graph.nnz,
            symmetric=False,
            weighted=graph.weighted,
            num_blocks=self._transpose_blocks,
            stored_bytes=graph.stored_bytes,
        )

    @property
    def transpose_tasks(self) -> int:
        """Tasks that make the transpose of a directed graph."""
        if self.graph.symmetric or self.transpose is not None or self.types:
            return 0
        step = RANGE_CHUNKS * BESIDE.read_edges
        scatter = sum(-(-nonzeros // step) for nonzeros in self.graph.block_nnz)
        return scatter + self._transpose_blocks + -(-self.graph.num_vertices // TASK_VERTICES)

    @property
    def _transpose_blocks(self) -> int:
        """An estimate of the row blocks that the transpose gets."""
        return max(-(-self.graph.nnz // BESIDE.block_entries), -(-self.graph.num_vertices // BESIDE.block_rows))

    @property
    def vertex_bytes(self) -> int:
        """Bytes of all vertex data in memory."""
        return sum(each.raw_bytes for each in self._all_vertices)

    @property
    def vertex_row_bytes(self) -> int:
        """Bytes of the data of a vertex, at most."""
        return max((each.row_bytes for each in self._all_vertices), default=0)

    @property
    def nonzero_bytes(self) -> int:
        """Bytes of a nonzero as it is routed, at most."""
        if not self.types:
            return self.graph.entry_bytes
        column = int(index_dtype(self.graph.num_vertices).itemsize)
        return column + max(
            (sum(each.num_bytes for each in relation.edge_columns) for relation in self.relations), default=0
        )

    @property
    def entries(self) -> int:
        """Entries that are routed: of the adjacency, or of all relations."""
        return sum(each.sizes.nnz for each in self.relations) if self.types else self.graph.nnz

    @property
    def row_records(self) -> int:
        """Matrices in which a vertex has a row, at most."""
        if not self.types:
            return 1
        targets = [relation.row_type for relation in self.relations]
        return max(1, *map(targets.count, range(len(self.types))))

    def routed_rows(self, vertices: int, nonzeros: int) -> int:
        """Rows that are routed for some vertices, at most: of a relation, only rows with edges are routed.

        Args:
            nonzeros: of their rows in all relations.
        """
        return min(vertices * self.row_records, nonzeros) if self.types else vertices

    @property
    def _all_vertices(self) -> list[VertexSizes]:
        return [each for each in (self.vertices, *(one.vertices for one in self.types)) if each is not None]

    def compressed(self, matrix_bytes: float, vertex_bytes: float) -> int:
        """Bytes on disk of arrays that compress like the arrays of the graph and of the vertex data."""
        size = matrix_bytes * min(1.0, self.graph.stored_bytes / max(1, self.graph.raw_bytes))
        stored = sum(each.stored_bytes for each in self._all_vertices)
        return int(size + vertex_bytes * min(1.0, stored / max(1, self.vertex_bytes)))


def type_dims(vertices: Vertices) -> dict[str, tuple[str, ...]]:
    """Names of all dimensions of each array with the data of a type: types have widths of their own."""
    dims = {name: vertices.artifact.record(name).dims[1:] for name in vertices.names}
    return {name: ("member", *(f"type_{dim}" for dim in each)) for name, each in dims.items()}


def type_facts(each: VertexType, vertices: Vertices | None) -> dict[str, Any]:
    """Facts about a type and its data, which readers of its arrays need."""
    found: dict[str, Any] = {"name": each.name, "first": each.first, "count": each.count}
    if vertices is None:
        return found
    counts = {"num_classes": vertices.num_classes, "num_targets": vertices.num_targets}
    return found | {name: count for name, count in counts.items() if count}


def find_vertices(dataset: Dataset, graph: str) -> Vertices | None:
    """The vertex data of the graph with this key; if it has none, the vertex data of another graph of the dataset.

    A graph without held-out links shares the vertex data of the graph that the links were drawn from. Another graph may
    have the same vertices; the caller checks their number.

    Raises:
        InputError: there are several to choose from.
    """
    try:
        return dataset.vertices(graph=graph)
    except NotFoundError:
        others = any(info.state == "complete" for info in dataset.untyped_vertices())
        return dataset.vertices() if others else None


def find_transpose(dataset: Dataset, graph: Graph) -> Graph | None:
    """The transpose of a stored graph, if it exists already."""
    made = [Artifact(info.path) for info in dataset.artifacts("transpose") if info.state == "complete"]
    # One with parameters has the edges of the graph as well.
    of_graph = (each for each in made if each.inputs.get("graph") == graph.artifact.key and not each.parameters)
    return next(map(Graph, of_graph), None)
