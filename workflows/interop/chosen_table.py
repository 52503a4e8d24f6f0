"""The table that a user asks for, among the tables of graphs with types and without, of links and of runs."""

from __future__ import annotations

from collections.abc import Callable

from gnnloom.storage import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.runs.run import Run
from gnnloom.workflows.interop.export import PAIRS, table_of
from gnnloom.workflows.interop.graph_libraries import typed_graph
from gnnloom.workflows.interop.pair_export import pair_table
from gnnloom.workflows.interop.relation_export import relation_table
from gnnloom.workflows.interop.tables import Table


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
    if what == PAIRS and parts is None and method is None:
        return pair_table(dataset, key)
    return table_of(dataset, what, run, parts, method, key)
