"""Finds the table that a user requests, among tables of graphs with and without types, of links and of runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gnnloom.storage import Dataset, TypedGraph
from gnnloom.storage.errors import InputError
from gnnloom.storage.runs.run import Run
from gnnloom.workflows.interop.export import (
    DATASET_TABLES,
    PAIRS,
    RUN_TABLES,
    edge_table,
    run_table,
    vertex_table,
    vertices_table,
)
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
    """A table as a data frame, or the path of the written file.

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
        what: one of ``RUN_TABLES`` or ``DATASET_TABLES``.
        run: opens the run, for tables of runs.
        parts, method: number of parts and method of the partition.
        key: key of the graph, vertex data, partition or links.
        relation: name of the relation of a graph with types, for ``edges``.

    Raises:
        InputError: there is no such table; ``parts``, ``method``, ``key`` or ``relation`` do not apply to it; or the
            relation is missing.
        NotFoundError: the artifact or run behind the table does not exist.
    """
    if relation is not None:
        if what != "edges":
            raise InputError(f"relation: does not apply to {what}; only edges belong to a relation")
        return relation_table(dataset.typed_graph(key), relation)
    if what == "edges" and (typed := typed_graph(dataset, key)) is not None:
        names = ", ".join(each.name for each in typed.relations)
        raise InputError(f"edges: the graph has types; choose a relation with `--relation NAME`: {names}")
    if what == PAIRS and parts is None and method is None:
        return pair_table(dataset, key)
    if what not in RUN_TABLES + DATASET_TABLES:
        raise InputError(f"{what}: no such table; choose one of {', '.join(RUN_TABLES + DATASET_TABLES)}")
    if what in RUN_TABLES and key is not None:
        raise InputError(f"key: does not apply to {what}, because a run knows its graph, vertex data and partition")
    if what != "partition" and (parts is not None or method is not None):
        raise InputError("parts and method: only apply to a partition")
    if what in RUN_TABLES:
        return run_table(dataset, run(), what)
    if what == "edges":
        return edge_table(dataset.graph(key))
    if what == "partition":
        partition = dataset.partition(parts, key, method=method)
        graph = dataset.any_graph(partition.artifact.inputs["graph"])
        ids = [graph.ids(each.name) for each in graph.types] if isinstance(graph, TypedGraph) else [graph]
        return vertex_table(ids, {"part": partition.stored_part()})
    return vertices_table(dataset, what, key)
