"""The transpose of a directed graph, and its edges in both directions, made by the bucket sort that made the graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.matrix_sort.bucket_sort import sort_edges
from gnnloom.pipeline.matrix_sort.sort_plan import SortOptions
from gnnloom.pipeline.sources.source import EdgeChunk, SourceRange
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import repairing
from gnnloom.storage.artifacts.block_matrix import BlockMatrix
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter

#: Parameters of a transpose that has the edges of the graph as well.
BOTH_DIRECTIONS: Final = {"directions": "both"}
#: Chunks of a range of edges: about a second of work.
RANGE_CHUNKS: Final = 8


@dataclass(frozen=True)
class TransposedGraph:
    """The edges of a stored graph, reversed; implements :class:`~gnnloom.pipeline.sources.source.EdgeSource`.

    Attributes:
        path: folder of the graph artifact.
        chunk_edges: edges that are read at a time.
        is_pattern: leave the weights out.
    """

    path: Path
    chunk_edges: int
    is_pattern: bool = False

    def identity(self) -> dict[str, Any]:
        return {"transpose": self.path.name}

    def num_vertices(self) -> int:
        return self._graph().num_vertices

    def ranges(self) -> Sequence[SourceRange]:
        """Ranges of the nonzeros of each block."""
        return nonzero_ranges(self._graph(), self.chunk_edges)

    def read(self, source_range: SourceRange) -> Iterator[EdgeChunk]:
        graph = self._graph()
        indptr, indices = graph.pointers(source_range.file), graph.columns(source_range.file)
        data = None if self.is_pattern else graph.weights(source_range.file)
        for start in range(source_range.start, source_range.stop, self.chunk_edges):
            stop = min(start + self.chunk_edges, source_range.stop)
            rows = entry_rows(indptr, start, stop) + graph.block_rows[source_range.file]
            # The entry (row, column) is the edge column -> row; the transpose has row -> column.
            columns = indices.read(start, stop).astype(np.int64)
            yield EdgeChunk(rows, columns, None if data is None else data.read(start, stop))

    def _graph(self) -> Graph:
        return Graph(Artifact(self.path))


def nonzero_ranges(matrix: BlockMatrix, chunk_edges: int) -> list[SourceRange]:
    """Ranges of the nonzeros of each block, for tasks that read ``chunk_edges`` at a time."""
    step = RANGE_CHUNKS * chunk_edges
    return [
        SourceRange(block, start, min(start + step, nnz))
        for block, nnz in enumerate(matrix.block_nnz)
        for start in range(0, nnz, step)
    ]


def entry_rows(indptr: NDArray[np.int64], start: int, stop: int) -> NDArray[np.int64]:
    """(stop - start,) row, within the block, of each of the nonzeros ``start`` to ``stop``."""
    # Rows without entries repeat the pointer of the next row: ``right`` skips them at the start, ``left`` at the end.
    first = int(np.searchsorted(indptr, start, side="right")) - 1
    last = int(np.searchsorted(indptr, stop, side="left"))
    bounds = np.clip(indptr[first : last + 1], start, stop)
    return np.repeat(np.arange(first, last, dtype=np.int64), bounds[1:] - bounds[:-1])


@repairing
def transpose_graph(dataset: Dataset, graph: Graph, cluster: Cluster) -> Graph:
    """Make, finish or find the transpose of a graph as an artifact of its own; a symmetric graph is its own transpose.

    Raises:
        BudgetError: the cluster's memory per worker is too small.
    """
    if graph.symmetric:
        return graph
    inputs = {"graph": graph.artifact.key}
    with ArtifactWriter.begin(dataset.path, "transpose", {}, inputs, cluster.scratch) as writer:
        if writer.is_complete:
            return Graph(Artifact(writer.path))
        # The graph has all loops that it needs, so the transpose adds none.
        edges = TransposedGraph(graph.artifact.path, writer.scratch.read_edges)
        sorted_edges = sort_edges(writer, edges, SortOptions(self_loops="keep"), cluster)
        return Graph(sorted_edges.commit(symmetric=False))


@repairing
def both_directions(dataset: Dataset, graph: Graph, cluster: Cluster) -> Graph:
    """Make, finish or find the pattern of a directed graph's edges and their reverses, as an artifact of its own.

    Raises:
        BudgetError: the cluster's memory per worker is too small.
    """
    inputs = {"graph": graph.artifact.key}
    with ArtifactWriter.begin(dataset.path, "transpose", BOTH_DIRECTIONS, inputs, cluster.scratch) as writer:
        if writer.is_complete:
            return Graph(Artifact(writer.path))
        edges = TransposedGraph(graph.artifact.path, writer.scratch.read_edges, is_pattern=True)
        sorted_edges = sort_edges(writer, edges, SortOptions(True, "keep"), cluster)
        return Graph(sorted_edges.commit(symmetric=True))
