"""The reverses of relations: the matrices of a graph with types, transposed by the sort that made them.

Each entry keeps the number of its edge in the relation, so that both directions share the columns of the edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from gnnloom.pipeline.matrix_sort.bucket_sort import SortedMatrix, sort_edges
from gnnloom.pipeline.matrix_sort.sort_plan import SortOptions
from gnnloom.pipeline.matrix_sort.transpose import entry_rows, nonzero_ranges
from gnnloom.pipeline.sources.source import EdgeChunk, SourceRange
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import repairing
from gnnloom.storage.artifacts.typed.reverses import Reverses
from gnnloom.storage.artifacts.typed.typed_graph import POSITION, KeptEdges, Relation, TypedGraph, relation_folder
from gnnloom.storage.artifacts.typed.typed_names import reverse_name
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, artifact_key
from gnnloom.storage.format.schema import TYPED_VERSION
from gnnloom.storage.matrix.ticks import floats_of_ticks

#: Facts of a matrix that its reverse has as well.
_FACTS = ("nnz", "block_rows", "block_nnz", "parallel")


@dataclass(frozen=True)
class ReversedEdges:
    """The edges of a stored relation, reversed, with their numbers; an ``EdgeSource``.

    Attributes:
        path: folder of the graph artifact.
        name: name of the relation.
        chunk_edges: edges that are read at a time.
    """

    path: Path
    name: str
    chunk_edges: int

    def identity(self) -> dict[str, Any]:
        return {"reverse": self.name}

    def num_vertices(self) -> int | None:
        return None

    def ranges(self) -> Sequence[SourceRange]:
        """Ranges of the nonzeros of each block."""
        return nonzero_ranges(self._relation(), self.chunk_edges)

    def read(self, source_range: SourceRange) -> Iterator[EdgeChunk]:
        """Read one range."""
        relation, block = self._relation(), source_range.file
        first = list(accumulate(relation.block_nnz, initial=0))[block]
        indptr, indices = relation.pointers(block), relation.columns(block)
        for start in range(source_range.start, source_range.stop, self.chunk_edges):
            stop = min(start + self.chunk_edges, source_range.stop)
            rows = entry_rows(indptr, start, stop) + relation.block_rows[block]
            number = np.arange(first + start, first + stop, dtype=np.int64)
            if isinstance(relation, KeptEdges):
                number = relation.edge_positions(first + start, first + stop)
            yield EdgeChunk(rows, indices.read(start, stop).astype(np.int64), None, floats_of_ticks(number))

    def _relation(self) -> Relation:
        return TypedGraph(Artifact(self.path)).relation(self.name)


@repairing
def reverse_relations(dataset: Dataset, graph: TypedGraph, cluster: Cluster) -> Reverses:
    """Make, finish or find the reverses of all relations of a graph.

    The reverse of a relation without held-out edges has the positions of its edges in the whole relation.

    Raises:
        BudgetError: the cluster's memory per worker is too small.
    """
    inputs = {"graph": graph.artifact.key}
    if graph.origin is not None:
        # All other relations have their reverses there.
        inputs["transpose"] = reverse_relations(dataset, graph.origin, cluster).artifact.key
    with ArtifactWriter.begin(dataset.path, "transpose", {}, inputs, cluster.scratch, TYPED_VERSION) as writer:
        if writer.is_complete:
            return Reverses(Artifact(writer.path), graph)
        matrices = [_sort(writer, graph, each, cluster) for each in graph.stored_relations]
        relations = []
        for each, matrix in zip(graph.stored_relations, matrices, strict=True):
            facts = matrix.facts(symmetric=False)
            own = {"name": reverse_name(each.name), "of": each.name, "weighted": False}
            relations.append(own | {name: facts[name] for name in _FACTS if name in facts})
        names = [name for matrix in matrices for name in matrix.tasks]
        facts = {"relations": relations, "nnz": sum(each.nnz for each in graph.stored_relations)}
        return Reverses(writer.commit(names, {"vertex": graph.num_vertices}, facts), graph)


def reverses_key(graph: str, origin: str | None = None) -> str:
    """The key of the artifact that :func:`reverse_relations` makes or finds for the graph with this key.

    Args:
        origin: key of the graph that links hold edges out of, if ``graph`` is the graph without these.
    """
    inputs = {"graph": graph} if origin is None else {"graph": graph, "transpose": reverses_key(origin)}
    return artifact_key("transpose", {}, inputs, TYPED_VERSION)


def _sort(writer: ArtifactWriter, graph: TypedGraph, relation: Relation, cluster: Cluster) -> SortedMatrix:
    # Numbers of edges travel as times do.
    options = SortOptions(self_loops="keep", merge="keep", has_ticks=True, values=POSITION)
    edges = ReversedEdges(graph.artifact.path, relation.name, writer.scratch.read_edges)
    shape = relation.num_columns, relation.num_rows
    return sort_edges(writer, edges, options, cluster, shape, relation_folder(reverse_name(relation.name)))
