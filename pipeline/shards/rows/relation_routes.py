"""Routes the rows of the relations of a graph with types, with the columns of their edges.

A row of a relation goes to the range of the rank that owns it, as a row of a graph without types does. Columns of rows
are numbers of vertices among all types. Relations whose edges have columns also give the number of each edge, by which
both directions of an edge are known to be one edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane
from gnnloom.pipeline.shards.rows.row_entries import row_spans
from gnnloom.pipeline.shards.rows.row_numbers import VertexNumbers
from gnnloom.pipeline.shards.rows.row_routed import INDICES, route_rows
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.phase import Task
from gnnloom.storage.artifacts.typed.mapped_graph import map_relations
from gnnloom.storage.artifacts.typed.reverses import Reverse
from gnnloom.storage.artifacts.typed.typed_graph import EDGE_ARRAYS, KeptEdges, Relation, TypedGraph
from gnnloom.storage.artifacts.typed.union import PlacedMatrix, TypedMatrices
from gnnloom.storage.disk.mapped_rows import take_rows
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.shards.typed_row_shards import EDGE

#: Bytes of entries that are routed at a time, unless a single row has more.
ROUTED_BYTES: Final = 32 << 20
#: The column with the number of each edge.
EDGE_NUMBER: Final = Column(EDGE, "int64", lengths="nonzeros")


@dataclass(frozen=True)
class RouteRelationTask(Task):
    """Routes one row block of a relation or reverse by the range of each row.

    Attributes:
        matrices: the relations.
        matrix: number of the relation or reverse among them.
        numbers: of all vertices.
        lane: where the runs go, relative to the work folder.
    """

    matrices: TypedMatrices
    matrix: int
    numbers: VertexNumbers
    shuffle: Shuffle
    block: int
    lane: Lane


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


def route_relation(task: RouteRelationTask) -> int:
    """Route the rows of a block, in pieces that fit in memory; returns its number of nonzeros."""
    placed = task.matrices.opened()[task.matrix]
    pointers = placed.matrix.pointers(task.block)
    entry = sum(column.num_bytes for column in task.shuffle.columns if column.lengths is not None)
    first = placed.first_row + placed.matrix.block_rows[task.block]
    with task.writer.task(task.name) as output, task.shuffle.routed(output, task.lane) as out:
        for start, stop in row_spans(np.diff(pointers), max(1, ROUTED_BYTES // entry)):
            own, read = pointers[start : stop + 1], _Entries(task, placed, int(pointers[start]), int(pointers[stop]))
            # Most of many relations have no edge at a given vertex.
            route_rows(out, task.numbers, first + start, own - own[0], read.column, with_empty=False)
    return int(pointers[-1])


class _Entries:
    """Reads consecutive entries of a block, one column at a time."""

    def __init__(self, task: RouteRelationTask, placed: PlacedMatrix, start: int, stop: int) -> None:
        self._task, self._placed, self._span = task, placed, (start, stop)

    def column(self, name: str) -> NDArray[Any]:
        """(stop - start, ...) values of a column, or ids of vertices among all types."""
        placed, block = self._placed, self._task.block
        if name == INDICES:
            found: NDArray[Any] = placed.matrix.columns(block).read(*self._span).astype(self._task.numbers.dtype)
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
        stored = reverse.positions(self._task.block)
        positions = np.empty(0, np.int64) if stored is None else stored.read(*self._span)
        if name == EDGE:
            return positions
        graph = self._task.matrices.graph
        return take_rows(_mapped_columns(graph, reverse.relation.name)[name], positions)


def _mapped_columns(graph: Path, relation: str) -> dict[str, NDArray[Any]]:
    return dict(map_relations(TypedGraph(Artifact(graph)))[relation].columns)
