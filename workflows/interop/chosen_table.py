"""The table that a user asks for, among the tables of graphs with types and without, of links and of runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gnnloom.storage import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.runs.run import Run
from gnnloom.workflows.interop.export import PAIRS, table_of
from gnnloom.workflows.interop.graph_libraries import typed_graph
from gnnloom.workflows.interop.pair_export import pair_table
from gnnloom.workflows.interop.relation_export import relation_table
from gnnloom.workflows.interop.tables import Table, check_file, frame_of, write_table

if TYPE_CHECKING:
    import pandas as pd


class NamedRun(Protocol):
    """A run that its dataset knows by name."""

    name: str


def exported(
    dataset: Dataset,
    what: str,
    out: Path | str | None,
    run: Callable[[], NamedRun],
    parts: int | None = None,
    method: str | None = None,
    key: str | None = None,
    relation: str | None = None,
    *,
    safe_csv: bool = False,
) -> pd.DataFrame | Path:
    """A table as a data frame, or the path of the file that it was written to.

    Args:
        out: the file; None for a data frame.
        run: finds the run, for tables of runs.
        parts, method, key, relation: as for :func:`chosen_table`.
        safe_csv: see :func:`~gnnloom.workflows.interop.tables.write_table`.

    Raises:
        InputError, NotFoundError: as :func:`chosen_table`, or the suffix of ``out`` is unknown.
        MissingPackageError: there is no ``out``, and pandas is not installed.
    """
    file = None if out is None else Path(out)
    check_file(file, safe_csv=safe_csv)
    table = chosen_table(dataset, what, lambda: Run.open(dataset, run().name), parts, method, key, relation)
    if file is None:
        return frame_of(table)
    write_table(table, file, safe_csv=safe_csv)
    return file


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
