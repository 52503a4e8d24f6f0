"""`gnnloom ingest`: from files to a stored graph with vertex data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import click

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.typed.table import parse_relations, parse_vertices
from gnnloom.pipeline.ingest.typed.tables import TypedTables
from gnnloom.pipeline.ingest.typed.triples import TRIPLES
from gnnloom.pipeline.ingest.vertex_options import VertexOptions
from gnnloom.pipeline.sources.format import formats
from gnnloom.storage import Vertices
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph
from gnnloom.storage.option import Group, Option
from gnnloom.workflows.api.ingest import GivenSource, OpenedSource, Storing
from gnnloom.workflows.cli.data.source_options import given_values, options_by_flag
from gnnloom.workflows.cli.terminal.help import GroupedCommand
from gnnloom.workflows.cli.terminal.options import (
    add_options,
    click_option,
    current_catalog,
    flag_option,
    object_option,
)
from gnnloom.workflows.cli.terminal.output import is_verbose, say_understood, show, show_json, show_rows, wants_json
from gnnloom.workflows.cli.terminal.progress import shown_progress
from gnnloom.workflows.cli.terminal.screen import say
from gnnloom.workflows.cli.terminal.stage import stage_options
from gnnloom.workflows.formatting import readable, readable_estimate, readable_range
from gnnloom.workflows.report.type_tables import RELATION_TITLES, TYPE_TITLES, relation_rows, type_rows, types_json

#: Help of `--add` and `--plan`, for all commands that store a graph.
ADD = "Store another graph in a dataset that has one; other commands then choose with --graph KEY."
PLAN = "Only print the requirements: tasks, memory, disk space and time."

FORMAT = Option(
    "format", str, "Format of the files.", group=Group.INPUT, choices=(*formats(), TRIPLES), default_text="by the files"
)
#: The options of all formats, by flag.
FORMAT_OPTIONS = options_by_flag(formats(), "format_name", Group.INPUT)

_RELATION: Final = Option(
    "relation",
    str,
    "Table with the edges of a relation, instead of SOURCE. Further columns need a role: ' as weight', ' as time',"
    " ' as feature', ' as float16 feature', ' as label' or, with * for a name, ' as relation', ' as source type' or"
    " ' as target type'; ' else VALUE' fills empty cells. Repeatable.",
    group=Group.INPUT,
    metavar="TYPE,NAME,TYPE=FILE[:COLUMN,COLUMN[,COLUMN]]",
)
_VERTICES: Final = Option(
    "vertices",
    str,
    "Table with the vertices of a type: adds vertices without edges, and checks the ids of edges (see --unknown)."
    " Further columns need a role: ' as feature', ' as feature else 0', ' as label', ' as target', ' as split' or, with"
    " the type *, ' as type'. Repeatable.",
    group=Group.INPUT,
    metavar="TYPE=FILE[:COLUMN[,COLUMN]]",
)
#: Figures of a graph that `ingest` prints, from its facts and its measurements.
_COUNTED: Final = ("edges_in", "nnz", "self_loops", "duplicates")
_MEASURED: Final = ("seconds", "peak_memory", "spill_bytes", "bytes_written")

_INGEST_HELP = """Store the edges of SOURCE as the graph of dataset NAME.

SOURCE is one or more files, URLs or globs. Their names determine the format unless --format is given:

\b
{files}

or one folder:

\b
{folders}

An edge "u v" goes from u to v. Features, labels and splits in the source are stored too.
Ids in text, NumPy and Parquet may be names: --ids compact or names numbers them and keeps the names for exports.

\b
Example:
  gnnloom ingest web edges.txt.gz --undirected --ids compact
  gnnloom ingest arxiv dataset/ogbn_arxiv --format ogb --undirected
  gnnloom ingest calls calls-*.parquet --columns caller,callee --ids compact
  gnnloom ingest web edges-*.txt --undirected --plan

For a graph with vertex types, give a table per relation, and optionally tables of vertices, instead of SOURCE:

\b
  gnnloom ingest shop --relation user,buys,item=clicks.csv:user_id,item_id --vertices user=users.csv:id

or files whose headers describe their columns, as for the imports of Neo4j and Neptune:

\b
  gnnloom ingest movies 'export/*.csv'
"""


def _ingest_help() -> str:
    width = max(map(len, formats())) + 2
    return _INGEST_HELP.format(files=_table(width, one_location=False), folders=_table(width, one_location=True))


def _table(width: int, *, one_location: bool) -> str:
    shown = {known.name: known.summary for known in formats().values() if known.one_location == one_location}
    if not one_location:
        shown[TRIPLES] = "head, relation and tail, for a graph with types (give --format)"
    return "\n".join(f"  {name:<{width}}{summary}" for name, summary in shown.items())


#: The main figures of a graph and its vertex data, shown unless all figures are requested.
_BRIEF = (
    "vertices", "nnz", "edges_in", "self_loops", "duplicates", "recognized_headers", "features", "classes", "targets",
    "train", "valid", "test", "unlabeled", "seconds", "command_seconds", "peak_memory", "bytes_written",
)  # fmt: skip


@click.command("ingest", cls=GroupedCommand, help=_ingest_help())
@click.argument("name")
@click.argument("source", nargs=-1)
@click_option(replace(FORMAT, is_common=True, default_text="by the file name"), "format_name")
@click_option(_RELATION, "relations", multiple=True)
@click_option(_VERTICES, "vertices", multiple=True)
@object_option("typed", TypedOptions)
@object_option("options", IngestOptions)
@object_option("storing", VertexOptions)
@add_options(FORMAT_OPTIONS.values())
@flag_option("add", ADD)
@stage_options(PLAN, quiet=True)
def ingest_command(
    name: str,
    source: tuple[str, ...],
    format_name: str | None,
    relations: tuple[str, ...],
    vertices: tuple[str, ...],
    typed: TypedOptions,
    options: IngestOptions,
    storing: VertexOptions,
    add: bool,
    plan: bool,
    quiet: bool,
    cluster: ClusterOptions,
    **_: Any,
) -> None:
    """Store the edges of a source as the graph of a dataset."""
    values = given_values(FORMAT_OPTIONS)
    to = Storing(current_catalog(), name, cluster, options, typed, storing, add)
    if not source and not relations and not vertices:
        raise click.MissingParameter(param_hint="'SOURCE...'", param_type="argument")
    tables = parse_relations(relations), parse_vertices(vertices)
    opened = to.open(GivenSource(source, format_name, values, *tables), None if quiet else say_understood)
    if plan:
        show_plan(to, opened)
    else:
        store_graph(to, opened)


def _ingest_result(name: str, graph: Graph | TypedGraph, described: Mapping[str, Any]) -> dict[str, Any]:
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
        **{name: artifact.facts[name] for name in _COUNTED},
        **{name: artifact.measured[name] for name in _MEASURED},
        "plan": artifact.measured.get("plan", {}),
    }


def say_notes(notes: Sequence[str]) -> None:
    """Print notes about the stored artifacts on standard error, one line each."""
    for note in notes:
        say(f"note: {note}", on_stderr=True)


def store_graph(to: Storing, source: OpenedSource | TypedTables) -> None:
    """Store a graph and its vertex data as a dataset and print a summary."""
    with shown_progress():
        graph, data, notes = to.store(source)
    say_notes(notes)
    noted = {"notes": notes} if notes else {}
    if isinstance(graph, TypedGraph):
        of_types = {each.artifact.parameters["type"]: [each] for each in data}
        result = _ingest_result(to.name, graph, types_json(graph, of_types))
        if not show_json(result | noted):
            show_rows(TYPE_TITLES, type_rows(graph, of_types))
            show_rows(RELATION_TITLES, relation_rows(graph))
            show({name: result[name] for name in ("vertices", *_COUNTED, *_MEASURED)}, title=f"graph of {to.name}")
        return
    described = {
        "symmetric": graph.symmetric,
        "weighted": graph.weighted,
        **({"has_times": True} if graph.has_times else {}),
        **({"time_unit": graph.time_unit} if graph.time_unit else {}),
        "names": graph.has_names,
    }
    result = _ingest_result(to.name, graph, described) | (vertices_result(data[0]) if data else {})
    result |= noted if wants_json() else {}
    if isinstance(source, OpenedSource) and (headers := getattr(source.edges, "recognized_headers", ())):
        result["recognized_headers"] = list(headers)
    show(result, title=f"graph of {to.name}", brief=_BRIEF)
    if not wants_json() and result["plan"] and is_verbose():
        rows = [
            [name.replace("_", " "), *(readable(name, both[which]) for which in ("planned", "measured"))]
            for name, both in result["plan"].items()
        ]
        show_rows(("", "planned", "measured"), rows)


def vertices_result(vertices: Vertices) -> dict[str, Any]:
    """Return the object that `features --json` prints about the vertex data."""
    facts = vertices.artifact.facts
    return {
        "features": vertices.num_features,
        "classes": vertices.num_classes,
        **({"targets": vertices.num_targets} if vertices.has_target else {}),
        **{name: facts[name] for name in ("train", "valid", "test", "unlabeled", "left_out") if name in facts},
        "vertices_key": vertices.artifact.key,
        "vertices_digest": vertices.artifact.digest,
    }


def show_plan(to: Storing, source: OpenedSource | TypedTables) -> None:
    """Print the projected needs of an ingest; for people, as ranges rather than with unknown digits.

    Raises:
        BudgetError: the ingest does not fit.
    """
    # Imported here because it loads the planning code of every stage.
    from gnnloom.workflows.recipe.plan.stage_inputs import projected_ingest, projected_tables

    where = to.catalog.root
    files: list[dict[str, Any]] = []
    compact = True
    if isinstance(source, TypedTables):
        projection = projected_tables(source, to.graph, where, to.cluster)
    else:
        vertex_bytes = 0 if source.vertices is None else to.vertices.num_bytes(source.vertices)
        projection = replace(projected_ingest(source.edges, to.graph, where, to.cluster), vertex_bytes=vertex_bytes)
        projection.check()
        files = [each.to_json() for each in source.understood]
        compact = to.graph.ids != "keep"
    content = projection.to_json()
    if show_json({**content, **({"files": files} if files else {})}):
        return
    for name in ("compressed_bytes", "name_bytes", "vertex_bytes"):
        if not content[name]:
            del content[name]
    low, high = content.pop("edges_low"), content.pop("edges_high")
    content["edges"] = readable_range(low, high)
    shares = (low / max(1, projection.edges), high / max(1, projection.edges))
    if low != high:
        content["entries"] = readable_range(*(projection.entries * share for share in shares))
    if low != high or compact:
        content["vertices"] = readable_estimate(projection.vertices)
    show(content, title="plan")
