"""The edges of one relation as a table for other programs, with the ids of the source and all columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage import TypedGraph
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.artifacts.typed.typed_graph import Relation
from gnnloom.storage.format.arrays import ArrayReader
from gnnloom.workflows.interop.export import block_entries, end_columns, entries_at_once, mapped_ends
from gnnloom.workflows.interop.tables import ExportedColumn, Table

_INT64 = np.dtype(np.int64)


def relation_table(graph: TypedGraph, name: str) -> Table:
    """Return the edges of a relation, ordered by target and then source: ends, values, and rows of the table.

    Ends are the ids or names of the source, within their types. NumPy's files hold vertex numbers instead of names.

    Raises:
        NotFoundError: the graph has no such relation.
    """
    relation = graph.relation(name)
    ends = graph.ids(relation.source.name), graph.ids(relation.target.name)
    columns = [*end_columns(*ends), *value_columns(relation)]
    return Table(tuple(columns), relation.nnz, lambda: _edges(ends, relation), ("source", "target"))


def value_columns(relation: Relation) -> list[ExportedColumn]:
    """The columns after the ends of edges."""
    found, whole = [], relation.whole
    for array in relation.edge_columns:
        record = whole.artifact.record(f"{relation.prefix}{array}")
        width = record.shape[1] if len(record.shape) > 1 else None
        found.append(ExportedColumn(array, np.dtype(record.dtype), width))
    if relation.classes:
        found.append(ExportedColumn("label_name", None))
    if relation.edge_columns:
        return [*found, ExportedColumn("row", _INT64)]
    if relation.num_blocks and (stored := _in_blocks(relation, 0)) is not None:
        found.append(ExportedColumn("time" if relation.has_times else "weight", np.dtype(stored.dtype)))
    return found


def _in_blocks(relation: Relation, number: int) -> ArrayReader | None:
    """The times or weights of a block."""
    times = relation.times(number)
    return relation.weights(number) if times is None else times


def _edges(ends: tuple[SourceIds, SourceIds], relation: Relation) -> Iterator[tuple[Any, ...]]:
    step = entries_at_once(has_names=any(each.has_names for each in ends))
    with mapped_ends(*ends) as columns:
        for number in range(relation.num_blocks):
            stored = None if relation.edge_columns else _in_blocks(relation, number)
            first = relation.first_edge(number)
            for start, stop, row, column in block_entries(relation, number, step):
                values = [] if stored is None else [stored.read(start, stop)]
                yield (*columns(column, row), *values, *_values(relation, number, first, start, stop))


def values_of_block(relation: Relation, number: int, edges: NDArray[np.int64]) -> list[Any]:
    """The columns of :func:`value_columns` for some edges of a block.

    Args:
        edges: (num_edges,) int64 positions among all edges of the relation, which ascend.
    """
    first = relation.first_edge(number)
    start, stop = int(edges[0]) - first, int(edges[-1]) + 1 - first
    stored = None if relation.edge_columns else _in_blocks(relation, number)
    values = [*([] if stored is None else [stored.read(start, stop)]), *_values(relation, number, first, start, stop)]
    place = edges - edges[0]
    return [each[place] if isinstance(each, np.ndarray) else [each[at] for at in place.tolist()] for each in values]


def _values(relation: Relation, number: int, first: int, start: int, stop: int) -> Iterator[Any]:
    """The values that are stored next to some edges of a block.

    Args:
        first: position of the block's first edge among all edges of the relation.
        start, stop: the edges, within the block.
    """
    label: NDArray[Any] | None = None
    for array in relation.edge_columns:
        values = relation.column(array, first + start, first + stop)
        label = values if array == "label" else label
        yield values
    if relation.classes and label is not None:
        classes = relation.classes
        yield [classes[each] for each in label.tolist()]
    if relation.edge_columns:
        yield relation.rows(number, start, stop)
