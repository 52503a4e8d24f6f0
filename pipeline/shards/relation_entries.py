"""Reads the entries of relations and reverses, with the columns of their edges, for shards of graphs with types."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.storage.artifacts.typed.mapped_graph import map_relations
from gnnloom.storage.artifacts.typed.reverses import Reverse
from gnnloom.storage.artifacts.typed.typed_graph import EDGE_ARRAYS, KeptEdges, Relation, TypedGraph
from gnnloom.storage.artifacts.typed.union import PlacedMatrix
from gnnloom.storage.disk.mapped_rows import take_rows
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.ranges import Span
from gnnloom.storage.shards.typed_row_shards import EDGE

#: Name of the column with the columns of the matrix.
INDICES: Final = "indices"
#: The column with the number of each edge.
EDGE_NUMBER: Final = Column(EDGE, "int64", lengths="nonzeros")


def edge_columns(relation: Relation) -> tuple[Column, ...]:
    """The columns of the edges of a relation, and the number of each edge; empty if edges have no columns."""
    found = [
        Column(name, record.dtype, tuple(record.shape[1:]), "nonzeros")
        for name in EDGE_ARRAYS
        if name in relation.edge_columns
        for record in [relation.whole.artifact.record(f"{relation.whole.prefix}{name}")]
    ]
    if not relation.edge_columns:
        # A single number of each edge is in the blocks.
        if relation.weighted:
            found.append(Column("weight", "float32", lengths="nonzeros"))
        if relation.has_times:
            found.append(Column("time", "int64" if relation.time_unit else "float64", lengths="nonzeros"))
    return (*found, EDGE_NUMBER) if found else ()


class EntryColumns:
    """Reads consecutive entries of a block, one column at a time."""

    def __init__(self, graph: Path, placed: PlacedMatrix, block: int, span: Span, dtype: np.dtype[Any]) -> None:
        """Name the entries.

        Args:
            graph: folder of the graph with types.
            span: first and last (exclusive) entry of the block.
            dtype: dtype of the ids of vertices among all types.
        """
        self._graph, self._placed, self._block, self._span, self._dtype = graph, placed, block, span, dtype

    def column(self, name: str) -> NDArray[Any]:
        """(stop - start, ...) values of a column, or ids of vertices among all types."""
        placed, block = self._placed, self._block
        if name == INDICES:
            found: NDArray[Any] = placed.matrix.columns(block).read(*self._span).astype(self._dtype)
            found += placed.first_column
            return found
        if isinstance(placed.matrix, Reverse):
            return self._of_reverse(placed.matrix, name)
        relation = placed.matrix
        first, last = (relation.first_edge(block) + each for each in self._span)
        if name == EDGE:
            if isinstance(relation, KeptEdges):
                return relation.edge_positions(first, last)
            return np.arange(first, last, dtype=np.int64)
        if name in relation.edge_columns:
            return relation.column(name, first, last)
        stored = relation.times(block) if name == "time" else relation.weights(block)
        return np.empty(0) if stored is None else stored.read(*self._span)

    def _of_reverse(self, reverse: Reverse, name: str) -> NDArray[Any]:
        # The edges of a row are anywhere in the relation, so its columns are mapped.
        stored = reverse.positions(self._block)
        positions = np.empty(0, np.int64) if stored is None else stored.read(*self._span)
        if name == EDGE:
            return positions
        return take_rows(mapped_columns(self._graph, reverse.relation.name)[name], positions)


def mapped_columns(graph: Path, relation: str) -> dict[str, NDArray[Any]]:
    """The columns of the edges of a relation, for random access by the number of the edge.

    Args:
        graph: folder of the graph with types.
    """
    return dict(map_relations(TypedGraph(Artifact(graph)), [relation])[relation].columns)
