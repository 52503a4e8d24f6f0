"""`gnnloom ingest` and `features`: from files to a stored graph with vertex data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.sources.formats import bundled_vertices, formats, open_edges
from gnnloom.pipeline.sources.source import EdgeSource, VertexSource
from gnnloom.pipeline.sources.vertex_data.kind import FILE_OPTIONS, VertexKind, vertex_kinds
from gnnloom.storage import Graph, Vertices
from gnnloom.storage.option import Group, Option
from gnnloom.workflows.api.ingest import store_source, store_vertices, vertex_kind
from gnnloom.workflows.cli.data.plan import show_outcome, show_plan
from gnnloom.workflows.cli.data.source_options import dashed, given_flags, option_value, options_by_flag
from gnnloom.workflows.cli.terminal.help import GroupedCommand
from gnnloom.workflows.cli.terminal.options import (
    add_options,
    click_option,
    cluster_options,
    current_catalog,
    flag_option,
    json_option,
    key_option,
    object_option,
)
from gnnloom.workflows.cli.terminal.output import is_verbose, show
from gnnloom.workflows.cli.terminal.progress import shown_progress

#: What `--add` and `--plan` do, in all commands that store a graph.
ADD = "Store another graph in a dataset that has one; other commands then choose with --graph KEY."
PLAN = "Only print what it would need: tasks, memory, disk space and time."

#: The options of all formats, by flag.
_FORMAT_OPTIONS = options_by_flag(formats(), "format_name", Group.INPUT)
#: The options of all kinds of vertex data that do not come with the edges, by flag.
_VERTEX_OPTIONS = options_by_flag(vertex_kinds(), "synthetic", Group.INPUT, names_owners=False)
_SYNTHETIC = tuple(kind.name for kind in vertex_kinds().values() if kind.is_synthetic)

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
"""


def _ingest_help() -> str:
    width = max(map(len, formats())) + 2
    return _INGEST_HELP.format(files=_table(width, one_location=False), folders=_table(width, one_location=True))


def _table(width: int, *, one_location: bool) -> str:
    shown = [known for known in formats().values() if known.one_location == one_location]
    return "\n".join(f"  {known.name:<{width}}{known.summary}" for known in shown)


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
@click.argument("source", nargs=-1, required=True)
@click_option(
    Option(
        "format",
        str,
        "Format of the files.",
        group=Group.INPUT,
        is_common=True,
        choices=tuple(formats()),
        default_text="by the file name",
    ),
    "format_name",
)
@object_option("options", IngestOptions)
@add_options(_FORMAT_OPTIONS.values())
@flag_option("add", ADD)
@flag_option("plan", PLAN)
@cluster_options
@json_option
def ingest_command(
    name: str,
    source: tuple[str, ...],
    format_name: str | None,
    options: IngestOptions,
    add: bool,
    plan: bool,
    cluster: ClusterOptions,
    as_json: bool,
    **_: Any,
) -> None:
    """Store the edges of a source as the graph of a dataset."""
    given = given_flags(_FORMAT_OPTIONS)
    values = {_FORMAT_OPTIONS[flag].name: option_value(_FORMAT_OPTIONS[flag], given) for flag in given}
    edges = open_edges(format_name, source, values, undirected=options.undirected)
    _say_headers(edges)
    if plan:
        show_plan(current_catalog(), edges, options, cluster, as_json=as_json)
        return
    vertices = bundled_vertices(format_name, source)
    store_graph(name, edges, vertices, options, cluster, as_json, add=add)


def _say_headers(edges: EdgeSource) -> None:
    """Say which files have a first line that was recognized as a header."""
    found = getattr(edges, "recognized_headers", ())
    if found:
        more = f" (and {len(found) - 1} more files)" if len(found) > 1 else ""
        click.echo(
            f"note: the first line of {found[0]}{more} names the columns and is not an edge; --no-header reads it as"
            " one",
            err=True,
        )


def store_graph(
    name: str,
    edges: EdgeSource,
    vertices: VertexSource | None,
    options: IngestOptions,
    cluster: ClusterOptions,
    as_json: bool,
    *,
    add: bool = False,
) -> None:
    """Store a source's graph and vertex data as a dataset and print a summary.

    Args:
        add: allow the dataset to have other graphs.
    """
    with shown_progress():
        graph, stored = store_source(current_catalog(), name, edges, vertices, options, cluster, add=add)
    result = graph_result(name, graph) | (vertices_result(stored) if stored is not None else {})
    if stored is not None:
        _say_left_out(stored)
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


_FEATURES_HELP = """Store features, labels and a split for the vertices of dataset NAME, from files or synthetic.

Row k belongs to vertex k; with --ids compact, to the vertex whose id was k, or to the k-th name; with --by-id, to
the vertex whose id (number or name, as in the edges) is in the first column. Each file may have its own format. With
--ids-file, the rows of NumPy arrays have ids too; without it, row k of an array belongs to vertex k even with --by-id.

\b
{kinds}

\b
Example:
  gnnloom features web --feature x.npy --label y.npy --split split.npz
  gnnloom features web --feature x.parquet --label y.csv
  gnnloom features web --feature x.npy --target prices.npy --split split.npz
  gnnloom features people --label labels.csv --split split.csv --by-id
  gnnloom features people --feature x.npy --ids-file ids.npy --label labels.csv
  gnnloom features web degree-labels --dim 128 --classes 32 --seed 1
"""


def _features_help() -> str:
    return _FEATURES_HELP.format(kinds="\n".join(f"{name}: {vertex_kinds()[name].help}" for name in _SYNTHETIC))


@click.command("features", cls=GroupedCommand, help=_features_help())
@click.argument("name")
@click.argument("synthetic", type=click.Choice(_SYNTHETIC), required=False)
@add_options(_VERTEX_OPTIONS.values())
@flag_option("by_id", "Text and Parquet: the first column is the id of the vertex.", Group.INPUT)
@key_option("graph")
@flag_option("add", "Store other vertex data next to those that the graph has.")
@cluster_options
@json_option
def features_command(
    name: str,
    synthetic: str | None,
    by_id: bool,
    graph: str | None,
    add: bool,
    cluster: ClusterOptions,
    as_json: bool,
    **_: Any,
) -> None:
    """Store features, labels and a split for the vertices of a dataset."""
    dataset = current_catalog()[name]
    given = given_flags(_VERTEX_OPTIONS)
    kind = vertex_kind(synthetic, by_id=by_id or bool(given.get("ids_file")))
    _check_given(kind, given | ({"by_id": True} if by_id else {}))
    values = {option.name: option_value(option, given) for option in kind.options if option.flag in given}
    vertices = store_vertices(dataset, kind, values, cluster, dataset.graph(graph), add=add)
    _say_left_out(vertices)
    result = {"dataset": name, "vertices": vertices.num_vertices} | vertices_result(vertices)
    show(result, as_json=as_json, title=f"vertex data of {name}")


def _say_left_out(vertices: Vertices) -> None:
    """Say how many rows belong to no vertex of the graph."""
    count = vertices.artifact.facts.get("left_out", 0)
    if count:
        click.echo(
            f"note: the files have data for {count:,} vertices that are not in the graph, because they have no edge;"
            " these rows are left out",
            err=True,
        )


def _check_given(kind: VertexKind, given: Mapping[str, Any]) -> None:
    known = {option.flag for option in kind.options} | ({"by_id"} if not kind.is_synthetic else set())
    others = {flag: value for flag, value in given.items() if flag not in known}
    names = " or ".join(_SYNTHETIC)
    if others:
        side = "with" if kind.is_synthetic else "without"
        raise click.UsageError(f"{dashed(others)} cannot be given {side} {names}")
    if not kind.is_synthetic and not any(given[flag] for flag in given if flag not in {"by_id", "ids_file"}):
        *files, last = (f"--{option.flag}" for option in FILE_OPTIONS)
        raise click.UsageError(f"give {', '.join(files)} or {last} files, or one of {' and '.join(_SYNTHETIC)}")
