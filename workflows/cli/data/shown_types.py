"""The types and relations of a stored graph, for people and as JSON."""

from __future__ import annotations

from typing import Any

from gnnloom.storage import TypedGraph
from gnnloom.storage.artifacts.typed.typed_graph import Relation
from gnnloom.workflows.cli.terminal.output import show_rows


def types_json(graph: TypedGraph) -> dict[str, Any]:
    """The types and relations of a graph, without what only readers of its blocks need."""
    types = [
        {**facts, "names": graph.ids(each.name).has_names}
        for each, facts in zip(graph.types, graph.artifact.facts["types"], strict=True)
    ]
    relations = [
        {name: value for name, value in each.facts.items() if name not in {"block_rows", "block_nnz"}}
        for each in graph.relations
    ]
    return {"types": types, "relations": relations}


def show_types(graph: TypedGraph) -> None:
    """Print the types and relations of a graph."""
    kinds = {each.name: "names" if graph.ids(each.name).has_names else "numbers" for each in graph.types}
    show_rows(("type", "vertices", "ids"), [(each.name, f"{each.count:,}", kinds[each.name]) for each in graph.types])
    show_rows(
        ("relation", "from", "to", "edges", "values"),
        [
            (each.name, each.source.name, each.target.name, f"{each.nnz:,}", values)
            for each in graph.relations
            for values in [_values(each)]
        ],
    )


def _values(relation: Relation) -> str:
    """What the edges of a relation have, for people."""
    if relation.edge_columns:
        return ", ".join(f"{name} ({', '.join(columns)})" for name, columns in relation.edge_columns.items())
    return "weights" if relation.weighted else f"times {relation.time_unit}".strip() if relation.has_times else ""
