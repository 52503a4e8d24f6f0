"""Finds the inputs of shards: the artifacts, and their sizes."""

from __future__ import annotations

from dataclasses import dataclass

from gnnloom.pipeline.matrix_sort.blocks import TASK_VERTICES
from gnnloom.pipeline.matrix_sort.sort_plan import BLOCK_ENTRIES, BLOCK_ROWS
from gnnloom.pipeline.matrix_sort.transpose import RANGE_EDGES
from gnnloom.pipeline.tasks.sizes import GraphSizes, VertexSizes
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import NotFoundError
from gnnloom.storage.format.artifact import Artifact


@dataclass(frozen=True)
class ShardSource:
    """The sizes of what shards are made from.

    Attributes:
        transpose: of a directed graph, if that exists already.
    """

    graph: GraphSizes
    vertices: VertexSizes | None
    transpose: GraphSizes | None = None

    @classmethod
    def of(cls, graph: Graph, vertices: Vertices | None, transpose: Graph | None) -> ShardSource:
        """The sizes of stored artifacts.

        Args:
            transpose: of a directed graph; None if it does not exist.
        """
        sizes = VertexSizes.of(vertices) if vertices else None
        return cls(GraphSizes.of(graph), sizes, GraphSizes.of(transpose) if transpose else None)

    @property
    def matrices(self) -> int:
        """1 for an undirected graph, 2 with the transpose of a directed one."""
        return 1 if self.graph.symmetric else 2

    @property
    def backward(self) -> GraphSizes | None:
        """The transpose of a directed graph; estimated if it does not exist yet."""
        graph = self.graph
        if graph.symmetric or self.transpose is not None:
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
        if self.graph.symmetric or self.transpose is not None:
            return 0
        scatter = sum(-(-nonzeros // RANGE_EDGES) for nonzeros in self.graph.block_nnz)
        return scatter + self._transpose_blocks + -(-self.graph.num_vertices // TASK_VERTICES)

    @property
    def _transpose_blocks(self) -> int:
        """An estimate of the row blocks that the transpose gets."""
        return max(-(-self.graph.nnz // BLOCK_ENTRIES), -(-self.graph.num_vertices // BLOCK_ROWS))

    @property
    def vertex_bytes(self) -> int:
        """Bytes of all vertex data in memory."""
        return self.vertices.raw_bytes if self.vertices else 0

    def compressed(self, matrix_bytes: float, vertex_bytes: float) -> int:
        """Bytes on disk of arrays that compress like the arrays of the graph and of the vertex data."""
        size = matrix_bytes * min(1.0, self.graph.stored_bytes / max(1, self.graph.raw_bytes))
        stored = self.vertices.stored_bytes if self.vertices else 0
        return int(size + vertex_bytes * min(1.0, stored / max(1, self.vertex_bytes)))


def find_vertices(dataset: Dataset, graph: str) -> Vertices | None:
    """The vertex data of the graph with this key; if there are none, those of another graph of the dataset.

    A graph without held-out links has those of the graph that these were drawn from. Another graph may have the same
    vertices; the caller checks their number.

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
