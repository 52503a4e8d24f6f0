"""The edges of one relation as a table for other programs, with the ids of the source and all columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage import Dataset, TypedGraph
from gnnloom.storage.artifacts.typed.typed_graph import Relation, type_folder
from gnnloom.storage.disk.own_folder import own_folder
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.arrays import ArrayReader
from gnnloom.storage.runs.run import Run
from gnnloom.workflows.interop.export import VertexIds, entries_at_once, table_of
from gnnloom.workflows.interop.graph_libraries import typed_graph
from gnnloom.workflows.interop.tables import ExportedColumn, Table

_INT64 = np.dtype(np.int64)


def chosen_table(
    dataset: Dataset,
    what: str,
    run: Callable[[], Run],
    parts: int | None,
    method: str | None,
    key: str | None,
    relation: str | None,
) -> Table:
    """Return a table of a dataset or of one of its runs, or the edges of a relation.

    Args:
        relation: name of the relation of a graph with types, for ``edges``.

    Raises:
        InputError: as :func:`~gnnloom.workflows.interop.export.table_of`; or a relation does not go with the table, or
            is missing.
        NotFoundError: what it is made of does not exist.
    """
    if relation is not None:
        if what != "edges":
            raise InputError(f"relation: does not go with {what}; only edges belong to a relation")
        return relation_table(dataset.typed_graph(key), relation)
    if what == "edges" and (typed := typed_graph(dataset, key)) is not None:
        names = ", ".join(each.name for each in typed.relations)
        raise InputError(f"edges: the graph has types; choose a relation with `--relation NAME`: {names}")
    return table_of(dataset, what, run, parts, method, key)


def relation_table(graph: TypedGraph, name: str) -> Table:
    """Return the edges of a relation, ordered by target and then source: ends, values, and rows of the table.

    Ends are the ids or names of the source, within their types. NumPy's files hold vertex numbers instead of names.

    Raises:
        NotFoundError: the graph has no such relation.
    """
    relation = graph.relation(name)
    ends = {"source": relation.source.name, "target": relation.target.name}
    are_names = {end: graph.ids(each).has_names for end, each in ends.items()}
    columns = [ExportedColumn(end, _INT64, stands_for_text=has_names) for end, has_names in are_names.items()]
    columns += [ExportedColumn(end, None) for end, has_names in are_names.items() if has_names]
    columns += _value_columns(relation)
    return Table(tuple(columns), relation.nnz, lambda: _edges(graph, relation), ("source", "target"))


def _value_columns(relation: Relation) -> list[ExportedColumn]:
    """The columns after the ends of edges."""
    found = []
    for array in relation.edge_columns:
        record = relation.artifact.record(f"{relation.prefix}{array}")
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
    """The times or weights that a block has."""
    times = relation.times(number)
    return relation.weights(number) if times is None else times


def _edges(graph: TypedGraph, relation: Relation) -> Iterator[tuple[Any, ...]]:
    with own_folder() as source_folder, own_folder() as target_folder:
        found = [
            VertexIds.of(graph.artifact, folder, type_folder(each.name))
            for folder, each in ((source_folder, relation.source), (target_folder, relation.target))
        ]
        first = 0
        for number in range(relation.num_blocks):
            indptr = relation.pointers(number)
            stored = None if relation.edge_columns else _in_blocks(relation, number)
            arrays = [relation.columns(number), *([] if stored is None else [stored])]
            count, step = int(indptr[-1]), entries_at_once(has_names=any(each.offset is not None for each in found))
            for start in range(0, count, step):
                stop = min(start + step, count)
                # A piece may begin and end inside a row. side="right" skips empty rows, whose pointers are equal.
                at = np.searchsorted(indptr, np.arange(start, stop), side="right") - 1 + relation.block_rows[number]
                source, *values = (array.read(start, stop) for array in arrays)
                columns = [each.columns(end) for each, end in zip(found, (source, at), strict=True)]
                numbers, names = [each[0] for each in columns], [each[1] for each in columns if len(each) > 1]
                yield (*numbers, *names, *values, *_values(relation, number, first, start, stop))
            first += count
        for each in found:
            each.check()


def _values(relation: Relation, number: int, first: int, start: int, stop: int) -> Iterator[Any]:
    """The values that are stored next to some edges of a block.

    Args:
        first: place of the first edge of the block among all of the relation.
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
