"""Tables of the types and relations of a stored graph, for terminals and notebooks, and the same facts as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gnnloom.storage import Dataset, TypedGraph, Vertices
from gnnloom.storage.artifacts.typed.typed_graph import Relation
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.schema import LINK_SPLITS
from gnnloom.storage.matrix.ticks import WHOLE
from gnnloom.storage.wording import counted


def data_of_types(dataset: Dataset, graph: str) -> dict[str, list[Vertices]]:
    """All vertex data of a graph with types, by type.

    Args:
        graph: key of the graph.
    """
    found: dict[str, list[Vertices]] = {}
    for info in dataset.artifacts("vertices"):
        if info.state == "complete" and info.inputs.get("graph") == graph:
            found.setdefault(info.parameters.get("type", ""), []).append(Vertices(Artifact(info.path)))
    return found


def types_json(graph: TypedGraph, data: Mapping[str, Sequence[Vertices]]) -> dict[str, Any]:
    """The types and relations of a graph, without facts that only readers of its blocks need.

    Args:
        data: vertex data by type.
    """
    types = [
        {**facts, "names": graph.ids(each.name).has_names}
        for each, facts in zip(graph.types, graph.artifact.facts["types"], strict=True)
    ]
    for facts in types:
        if found := data.get(facts["name"]):
            facts["data"] = [{"key": each.artifact.key, **_widths(each), "arrays": [*each.names]} for each in found]
    relations = [
        {name: value for name, value in each.facts.items() if name not in {"block_rows", "block_nnz"}}
        for each in graph.relations
    ]
    return {"types": types, "relations": relations}


#: Titles of the columns of :func:`type_rows`, and of :func:`relation_rows`.
TYPE_TITLES: Final = ("type", "vertices", "ids", "data")
RELATION_TITLES: Final = ("relation", "from", "to", "edges", "values")


def type_rows(graph: TypedGraph, data: Mapping[str, Sequence[Vertices]]) -> list[tuple[str, ...]]:
    """A row for each type: name, number of vertices, kind of ids, and vertex data.

    Args:
        data: vertex data by type.
    """
    kinds = {each.name: "names" if graph.ids(each.name).has_names else "numbers" for each in graph.types}
    return [(each.name, f"{each.count:,}", kinds[each.name], _data(data.get(each.name, ()))) for each in graph.types]


def relation_rows(graph: TypedGraph) -> list[tuple[str, ...]]:
    """A row for each relation: name, both types, number of edges, and columns of the edges."""
    return [(each.name, each.source.name, each.target.name, f"{each.nnz:,}", _values(each)) for each in graph.relations]


#: Titles of the columns of :func:`relation_links`.
LINK_TITLES: Final = ("links", "relation", "from", "to", *LINK_SPLITS, "message graph")


def relation_links(dataset: Dataset) -> list[tuple[str, ...]]:
    """The links of relations of a dataset: key, relation, number of pairs in each split, and graph for messages."""
    found = []
    for info in dataset.artifacts("links"):
        try:
            links = dataset.links(info.key) if info.state == "complete" else None
        except GnnloomError:
            # Its own row reports the damage.
            continue
        if links is not None and links.relation is not None:
            source, name, target = links.relation.edge_type
            counts = (f"{links.num_pairs[split]:,}" for split in LINK_SPLITS)
            found.append((info.key, name, source, target, *counts, links.message_graph))
    return found


def _values(relation: Relation) -> str:
    """Columns of the edges of a relation, for people."""
    if relation.edge_columns:
        return ", ".join(f"{name} ({', '.join(columns)})" for name, columns in relation.edge_columns.items())
    if relation.has_times and not relation.weighted:
        return "times (whole numbers)" if relation.time_unit == WHOLE else f"times {relation.time_unit}".strip()
    return "weights" if relation.weighted else ""


def _data(data: Sequence[Vertices]) -> str:
    """The vertex data of a type, for people."""
    return "; ".join(
        ", ".join(
            [*(counted(width, name) for name, width in _widths(each).items()), *(["split"] if each.has_split else [])]
        )
        for each in data
    )


def _widths(vertices: Vertices) -> dict[str, int]:
    """The widths of the arrays that vertex data have."""
    widths = {"feature": vertices.num_features, "class": vertices.num_classes, "target": vertices.num_targets}
    return {name: width for name, width in widths.items() if width}
