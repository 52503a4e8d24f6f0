"""Graphs with types: the options of `gnnloom ingest` for their tables, storing them, and printing what is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.pipeline.ingest.notes import vertex_notes
from gnnloom.pipeline.ingest.projection import IngestProjection
from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.ingest.typed.notes import typed_notes
from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.typed.stage import project_typed_ingest
from gnnloom.pipeline.ingest.typed.tables import TypedTables
from gnnloom.pipeline.ingest.vertex_options import VertexOptions
from gnnloom.storage import Dataset, Graph, TypedGraph, Vertices
from gnnloom.storage.artifacts.typed.typed_graph import Relation
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.schema import LINK_SPLITS
from gnnloom.storage.option import Group, Option
from gnnloom.storage.wording import counted
from gnnloom.workflows.api.ingest import store_typed
from gnnloom.workflows.cli.terminal.options import current_catalog
from gnnloom.workflows.cli.terminal.output import show, show_json, show_rows
from gnnloom.workflows.cli.terminal.progress import shown_progress
from gnnloom.workflows.cli.terminal.screen import say

RELATION: Final = Option(
    "relation",
    str,
    "Table of the edges of a relation, instead of SOURCE; further columns are followed by ' as weight', ' as time',"
    " ' as feature', ' as float16 feature', ' as label' or, with the name *, ' as relation'; and by ' else VALUE' if"
    " cells may be empty. May be given several times.",
    group=Group.INPUT,
    metavar="TYPE,NAME,TYPE=FILE[:COLUMN,COLUMN[,COLUMN]]",
)
VERTICES: Final = Option(
    "vertices",
    str,
    "Table of the vertices of a type: checks the ids of edges, and adds vertices without edges. Further columns are"
    " followed by ' as feature', ' as label', ' as target', ' as split' or, with the type *, ' as type'. May be given"
    " several times.",
    group=Group.INPUT,
    metavar="TYPE=FILE[:COLUMN[,COLUMN]]",
)
#: Figures of a graph that `ingest` prints, of its facts and of its measurements.
COUNTED: Final = ("edges_in", "nnz", "self_loops", "duplicates")
MEASURED: Final = ("seconds", "peak_memory", "spill_bytes", "bytes_written")


def projected_tables(tables: TypedTables, options: IngestOptions, cluster: ClusterOptions) -> IngestProjection:
    """Projected needs of an ingest.

    Raises:
        BudgetError: it does not fit.
    """
    root = current_catalog().root.absolute()
    existing = next(path for path in (root, *root.parents) if path.is_dir())
    return project_typed_ingest(tables, options, existing, cluster.tasks_at_once, cluster.memory)


def store_typed_tables(
    name: str,
    tables: TypedTables,
    options: IngestOptions,
    cluster: ClusterOptions,
    typed: TypedOptions,
    storing: VertexOptions,
    *,
    add: bool,
) -> None:
    """Store tables as a dataset and print a summary."""
    with shown_progress():
        how = options, typed, cluster
        graph, data = store_typed(current_catalog(), name, tables, *how, storing=storing, add=add)
    notes = [*typed_notes(graph), *(note for each in data for note in vertex_notes(each))]
    say_notes(notes)
    of_types = {each.artifact.parameters["type"]: [each] for each in data}
    result = ingest_result(name, graph, types_json(graph, of_types))
    if not show_json(result | ({"notes": notes} if notes else {})):
        show_types(graph, of_types)
        show({name: result[name] for name in ("vertices", *COUNTED, *MEASURED)}, title=f"graph of {name}")


def ingest_result(name: str, graph: Graph | TypedGraph, described: Mapping[str, Any]) -> dict[str, Any]:
    """The object that `ingest --json` prints about a graph.

    Args:
        described: entries that graphs with types or graphs without types have.
    """
    artifact = graph.artifact
    return {
        "dataset": name,
        "key": artifact.key,
        "digest": artifact.digest,
        "vertices": graph.num_vertices,
        **described,
        **{name: artifact.facts[name] for name in COUNTED},
        **{name: artifact.measured[name] for name in MEASURED},
        "plan": artifact.measured.get("plan", {}),
    }


def say_notes(notes: Sequence[str]) -> None:
    """Print notes about what was stored on standard error, one line each."""
    for note in notes:
        say(f"note: {note}", on_stderr=True)


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
    """The types and relations of a graph, without what only readers of its blocks need.

    Args:
        data: vertex data by type.
    """
    types = [
        {**facts, "names": graph.ids(each.name).has_names, **_data_json(data.get(each.name, ()))}
        for each, facts in zip(graph.types, graph.artifact.facts["types"], strict=True)
    ]
    relations = [
        {name: value for name, value in each.facts.items() if name not in {"block_rows", "block_nnz"}}
        for each in graph.relations
    ]
    return {"types": types, "relations": relations}


def show_types(graph: TypedGraph, data: Mapping[str, Sequence[Vertices]]) -> None:
    """Print the types and relations of a graph, with its vertex data by type."""
    kinds = {each.name: "names" if graph.ids(each.name).has_names else "numbers" for each in graph.types}
    show_rows(
        ("type", "vertices", "ids", "data"),
        [(each.name, f"{each.count:,}", kinds[each.name], _data(data.get(each.name, ()))) for each in graph.types],
    )
    show_rows(
        ("relation", "from", "to", "edges", "values"),
        [(each.name, each.source.name, each.target.name, f"{each.nnz:,}", _values(each)) for each in graph.relations],
    )


#: Titles of the columns of :func:`relation_links`.
LINK_TITLES: Final = ("links", "relation", "from", "to", *LINK_SPLITS, "message graph")


def relation_links(dataset: Dataset) -> list[tuple[str, ...]]:
    """The links of relations of a dataset: key, relation, number of pairs in each split, and graph for messages."""
    found = []
    for info in dataset.artifacts("links"):
        try:
            links = dataset.links(info.key) if info.state == "complete" else None
        except GnnloomError:
            # Its own row says that it is damaged.
            continue
        if links is not None and links.relation is not None:
            source, name, target = links.relation.edge_type
            counts = (f"{links.num_pairs[split]:,}" for split in LINK_SPLITS)
            found.append((info.key, name, source, target, *counts, links.message_graph))
    return found


def _values(relation: Relation) -> str:
    """What the edges of a relation have, for people."""
    if relation.edge_columns:
        return ", ".join(f"{name} ({', '.join(columns)})" for name, columns in relation.edge_columns.items())
    return "weights" if relation.weighted else f"times {relation.time_unit}".strip() if relation.has_times else ""


def _data_json(data: Sequence[Vertices]) -> dict[str, Any]:
    """The vertex data of a type; empty if it has none."""
    found = [{"key": each.artifact.key, **_widths(each), "arrays": list(each.names)} for each in data]
    return {"data": found} if found else {}


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
