"""Routes the rows of the relations of a graph with types, with the columns of their edges.

A row of a relation goes to the range of the rank that owns it, as a row of a graph without types does. Columns of rows
are numbers of vertices among all types. Relations whose edges have columns also give the number of each edge, by which
both directions of an edge are known to be one edge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnloom.pipeline.external_sort.lanes import Lane
from gnnloom.pipeline.shards.relation_entries import EntryColumns
from gnnloom.pipeline.shards.rows.row_entries import row_spans
from gnnloom.pipeline.shards.rows.row_numbers import VertexNumbers
from gnnloom.pipeline.shards.rows.row_routed import route_rows
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.phase import Task
from gnnloom.storage.artifacts.typed.union import TypedMatrices


@dataclass(frozen=True)
class RouteRelationTask(Task):
    """Routes one row block of a relation or reverse by the range of each row.

    Attributes:
        matrices: the relations.
        matrix: number of the relation or reverse among them.
        numbers: of all vertices.
        lane: where the runs go, relative to the work folder.
        step_bytes: bytes of entries per step, unless a single row has more.
    """

    matrices: TypedMatrices
    matrix: int
    numbers: VertexNumbers
    shuffle: Shuffle
    block: int
    lane: Lane
    step_bytes: int


def route_relation(task: RouteRelationTask) -> int:
    """Route the rows of a block, in pieces that fit in memory; returns its number of nonzeros."""
    placed = task.matrices.opened()[task.matrix]
    pointers = placed.matrix.pointers(task.block)
    entry = sum(column.num_bytes for column in task.shuffle.columns if column.lengths is not None)
    first = placed.first_row + placed.matrix.block_rows[task.block]
    with task.writer.task(task.name) as output, task.shuffle.routed(output, task.lane) as out:
        for start, stop in row_spans(np.diff(pointers), max(1, task.step_bytes // entry)):
            own, span = pointers[start : stop + 1], (int(pointers[start]), int(pointers[stop]))
            read = EntryColumns(task.matrices.graph, placed, task.block, span, task.numbers.dtype)
            # Most of many relations have no edge at a given vertex.
            route_rows(out, task.numbers, first + start, own - own[0], read.column, with_empty=False)
    return int(pointers[-1])
