"""`gnnloom ingest`: from files to a stored graph with vertex data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.pipeline.ingest.notes import graph_notes, vertex_notes
from gnnloom.pipeline.ingest.projection import IngestProjection
from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.typed.table import parse_relations, parse_vertices
from gnnloom.pipeline.ingest.typed.tables import TypedTables
from gnnloom.pipeline.ingest.typed.triples import TRIPLES
from gnnloom.pipeline.ingest.vertex_options import VertexOptions
from gnnloom.pipeline.ingest.vertex_tables import check_rows
from gnnloom.pipeline.sources.format import bundled_vertices, formats
from gnnloom.pipeline.sources.source import EdgeSource, VertexSource
from gnnloom.pipeline.sources.understood import Understood
from gnnloom.storage import Catalog, Graph, Vertices
from gnnloom.storage.option import Group, Option
from gnnloom.workflows.api.ingest import check_storing, check_typed, open_source, store_source, typed_source
from gnnloom.workflows.cli.data.source_options import given_flags, option_value, options_by_flag
from gnnloom.workflows.cli.data.typed_ingest import RELATION, VERTICES, projected_tables, store_typed_tables
from gnnloom.workflows.cli.terminal.help import GroupedCommand
from gnnloom.workflows.cli.terminal.options import (
    QUIET,
    add_options,
    click_option,
    cluster_options,
    current_catalog,
    flag_option,
    json_option,
    object_option,
)
from gnnloom.workflows.cli.terminal.output import is_verbose, readable, say_understood, show, show_rows
from gnnloom.workflows.cli.terminal.progress import shown_progress
from gnnloom.workflows.cli.terminal.screen import say
from gnnloom.workflows.formatting import readable_estimate, readable_range

#: What `--add` and `--plan` do, in all commands that store a graph.
ADD = "Store another graph in a dataset that has one; other commands then choose with --graph KEY."
PLAN = "Only print what it would need: tasks, memory, disk space and time."

#: The options of all formats, by flag.
FORMAT_OPTIONS = options_by_flag(formats(), "format_name", Group.INPUT)

_INGEST_HELP = """Store the edges of SOURCE as the graph of dataset NAME.

SOURCE is one or more files, URLs or globs. Their names determine the format unless --format is given:

\b
{files}

or one folder:

\b
{folders}

An edge "u v" goes from u to v. Features, labels and splits that come along with the edges are stored too.
Ids in text, NumPy and Parquet may be names: --ids compact or names numbers them and keeps the names for exports.

\b
Example:
  gnnloom ingest web edges.txt.gz --undirected --ids compact
  gnnloom ingest arxiv dataset/ogbn_arxiv --format ogb --undirected
  gnnloom ingest calls calls-*.parquet --columns caller,callee --ids compact
  gnnloom ingest web edges-*.txt --undirected --plan

A graph with types of vertices is made from a table per relation, and tables of vertices, instead of SOURCE:

\b
  gnnloom ingest shop --relation user,buys,item=clicks.csv:user_id,item_id --vertices user=users.csv:id

or from files whose headers say what they hold, as Neo4j's import and Neptune have them:

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


#: The main figures of a graph and its vertex data, which are shown unless all are asked for.
_BRIEF = (
    "vertices",
    "nnz",
    "edges_in",
    "self_loops",
    "duplicates",
    "recognized_headers",
    "features",
    "classes",
    "targets",
    "train",
    "valid",
    "test",
    "unlabeled",
    "seconds",
    "command_seconds",
    "peak_memory",
    "bytes_written",
)


@click.command("ingest", cls=GroupedCommand, help=_ingest_help())
@click.argument("name")
@click.argument("source", nargs=-1)
@click_option(
    Option(
        "format",
        str,
        "Format of the files.",
        group=Group.INPUT,
        is_common=True,
        choices=(*formats(), TRIPLES),
        default_text="by the file name",
    ),
    "format_name",
)
@click_option(RELATION, "relations", multiple=True)
@click_option(VERTICES, "vertices", multiple=True)
@object_option("typed", TypedOptions)
@object_option("options", IngestOptions)
@object_option("storing", VertexOptions)
@add_options(FORMAT_OPTIONS.values())
@flag_option("add", ADD)
@flag_option("plan", PLAN)
@flag_option("quiet", QUIET)
@cluster_options
@json_option
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
    as_json: bool,
    **_: Any,
) -> None:
    """Store the edges of a source as the graph of a dataset."""
    given = given_flags(FORMAT_OPTIONS)
    values = {FORMAT_OPTIONS[flag].name: option_value(FORMAT_OPTIONS[flag], given) for flag in given}
    any_name = options.ids == "names"
    declared = None if relations or not source else typed_source(source, format_name, values)
    if relations or not source or declared is not None:
        if not relations and not vertices and declared is None:
            raise click.MissingParameter(param_hint="'SOURCE...'", param_type="argument")
        if declared is None:
            check_typed(source or None, relations or None, ["vertices"])
            given_tables = parse_relations(relations), parse_vertices(vertices)
            tables = TypedTables.open(*given_tables, values, format_name, any_name=any_name)
        else:
            check_typed(None, declared, (), ["vertices"] if vertices else [])
            tables = declared.open(values, any_name=any_name, unknown=typed.unknown)
        check_storing(tables, storing)
        if not quiet:
            say_understood(tables.understood())
        how = tables, options, cluster
        if plan:
            projection = projected_tables(*how)
            content = projection.to_json() if as_json else _for_people(projection, compact=True)
            show(content, as_json=as_json, title="plan")
        else:
            store_typed_tables(name, *how, typed, storing, add=add, as_json=as_json)
        return
    check_typed(source, None, [*(["vertices"] if vertices else []), *_changed(typed)])
    edges, understood = open_source(name, source, format_name, values, undirected=options.undirected)
    if not quiet:
        say_understood(understood)
    notes = check_rows(understood, name, values)
    bundled = bundled_vertices(format_name, source, values)
    if plan:
        vertex_bytes = 0 if bundled is None else storing.num_bytes(bundled)
        catalog = current_catalog()
        show_plan(catalog, edges, options, cluster, as_json=as_json, vertex_bytes=vertex_bytes, understood=understood)
        return
    store_graph(name, edges, bundled, options, cluster, as_json, storing=storing, add=add, notes=notes)


def _changed(options: TypedOptions) -> list[str]:
    """Names of the options that differ from their defaults."""
    default = type(options)()
    return [name for name, value in vars(options).items() if value != getattr(default, name)]


def store_graph(
    name: str,
    edges: EdgeSource,
    vertices: VertexSource | None,
    options: IngestOptions,
    cluster: ClusterOptions,
    as_json: bool,
    *,
    storing: VertexOptions | None = None,
    add: bool = False,
    notes: Sequence[str] = (),
) -> None:
    """Store a source's graph and vertex data as a dataset and print a summary.

    Args:
        storing: how the vertex data are stored.
        add: allow the dataset to have other graphs.
        notes: what to say about the source when its graph is stored.
    """
    stores = storing or VertexOptions()
    with shown_progress():
        graph, stored = store_source(
            current_catalog(), name, edges, vertices, options, cluster, storing=stores, add=add
        )
    result = graph_result(name, graph) | (vertices_result(stored) if stored is not None else {})
    said = [*([] if stored is None else vertex_notes(stored)), *graph_notes(graph, edges, options), *notes]
    say_notes(said)
    if as_json and said:
        result["notes"] = said
    if headers := getattr(edges, "recognized_headers", ()):
        result["recognized_headers"] = list(headers)
    show(result, as_json=as_json, title=f"graph of {name}", brief=_BRIEF)
    if not as_json and result["plan"] and is_verbose():
        show_outcome(result["plan"])


def graph_result(name: str, graph: Graph) -> dict[str, Any]:
    """Return what `ingest --json` prints about the graph."""
    artifact = graph.artifact
    counted = ("edges_in", "nnz", "self_loops", "duplicates")
    measured = ("seconds", "peak_memory", "spill_bytes", "bytes_written")
    return {
        "dataset": name,
        "key": artifact.key,
        "digest": artifact.digest,
        "vertices": graph.num_vertices,
        "symmetric": graph.symmetric,
        "weighted": graph.weighted,
        **({"has_times": True} if graph.has_times else {}),
        **({"time_unit": graph.time_unit} if graph.time_unit else {}),
        "names": graph.has_names,
        **{name: artifact.facts[name] for name in counted},
        **{name: artifact.measured[name] for name in measured},
        "plan": artifact.measured.get("plan", {}),
    }


def vertices_result(vertices: Vertices) -> dict[str, Any]:
    """Return what `features --json` prints about the vertex data."""
    facts = vertices.artifact.facts
    return {
        "features": vertices.num_features,
        "classes": vertices.num_classes,
        **({"targets": vertices.num_targets} if vertices.has_target else {}),
        **{name: facts[name] for name in ("train", "valid", "test", "unlabeled", "left_out") if name in facts},
        "vertices_key": vertices.artifact.key,
        "vertices_digest": vertices.artifact.digest,
    }


def say_notes(notes: Sequence[str]) -> None:
    """Print notes about what was stored on standard error, one line each."""
    for note in notes:
        say(f"note: {note}", on_stderr=True)


def show_plan(
    catalog: Catalog,
    source: EdgeSource,
    options: IngestOptions,
    cluster: ClusterOptions,
    *,
    as_json: bool,
    vertex_bytes: int = 0,
    understood: Sequence[Understood] = (),
) -> None:
    """Print what an ingest is projected to need.

    Args:
        vertex_bytes: of the vertex data that come along.
        understood: how the files are read, which is a part of the JSON.

    Raises:
        BudgetError: it does not fit.
    """
    # Imported here, as it loads the planning code of every stage.
    from gnnloom.workflows.recipe.plan.stage_inputs import projected_ingest

    projection = replace(projected_ingest(source, options, catalog.root, cluster), vertex_bytes=vertex_bytes)
    projection.check()
    content = projection.to_json() if as_json else _for_people(projection, compact=options.ids != "keep")
    if as_json and understood:
        content["files"] = [each.to_json() for each in understood]
    show(content, as_json=as_json, title="plan")


def _for_people(projection: IngestProjection, *, compact: bool) -> dict[str, Any]:
    """The projection with estimated counts as ranges, rather than with more digits than are known."""
    content = projection.to_json()
    if not projection.compressed_bytes:
        del content["compressed_bytes"]
    for name in ("name_bytes", "vertex_bytes"):
        if not content[name]:
            del content[name]
    low, high = content.pop("edges_low"), content.pop("edges_high")
    content["edges"] = readable_range(low, high)
    shares = (low / max(1, projection.edges), high / max(1, projection.edges))
    if low != high:
        content["entries"] = readable_range(*(projection.entries * share for share in shares))
    if low != high or compact:
        content["vertices"] = readable_estimate(projection.vertices)
    return content


def show_outcome(figures: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the projected figures next to those that an ingest measured."""
    rows = [
        [name.replace("_", " "), *(readable(name, both[which]) for which in ("planned", "measured"))]
        for name, both in figures.items()
    ]
    show_rows(("", "planned", "measured"), rows)
