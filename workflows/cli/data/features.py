"""`gnnloom features`: store vertex data for a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.pipeline.ingest.alike import stored_like
from gnnloom.pipeline.ingest.notes import vertex_notes
from gnnloom.pipeline.ingest.vertex_options import VertexOptions
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.sources.vertex_data.kind import FILE_OPTIONS, VertexKind, vertex_kinds
from gnnloom.storage.option import Group, Option
from gnnloom.workflows.api.features import open_vertex_data, plan_vertices, vertex_kind, vertices_like
from gnnloom.workflows.cli.data.ingest import say_notes, vertices_result
from gnnloom.workflows.cli.data.source_options import dashed, given_flags, option_value, options_by_flag
from gnnloom.workflows.cli.terminal.help import GroupedCommand
from gnnloom.workflows.cli.terminal.options import (
    add_options,
    click_option,
    current_catalog,
    flag_option,
    key_option,
    object_option,
)
from gnnloom.workflows.cli.terminal.output import say_understood, show, wants_json
from gnnloom.workflows.cli.terminal.progress import shown_progress
from gnnloom.workflows.cli.terminal.stage import stage_options
from gnnloom.workflows.interop.graph_libraries import source_ids

#: The options of all kinds of vertex data that do not come with the edges, by flag.
_VERTEX_OPTIONS = options_by_flag(vertex_kinds(), "synthetic", Group.INPUT, names_owners=False)
_SYNTHETIC = tuple(kind.name for kind in vertex_kinds().values() if kind.is_synthetic)

_BY_ID = Option(
    "by_id",
    bool,
    "Whether the first column of text and Parquet files holds vertex ids; by default no, and ambiguous files are an"
    " error.",
    group=Group.INPUT,
    deniable=True,
)

_FEATURES_HELP = """Store features, labels and a split for the vertices of dataset NAME: from files, or synthetic.

Row k belongs to vertex k or, after ingesting with --ids compact, to the vertex with id k or with the k-th name. With
--by-id, the first column has the id of each row's vertex: a number or a name, as in the edges. Each file may have its
own format. Rows of NumPy arrays have ids only with --ids-file; otherwise, row k of an array belongs to vertex k even
with --by-id.

FILE:COLUMNS reads some columns of a table, by name or by number from 1. Cells may be numbers, True and False, lists of
numbers, or words. Words become one feature per distinct word, or the names of classes.

\b
{kinds}

\b
Example:
  gnnloom features web --feature x.npy --label y.npy --split split.npz
  gnnloom features web --feature x.parquet --label y.csv
  gnnloom features web --feature x.npy --target prices.npy --split split.npz
  gnnloom features people --label labels.csv --split split.csv --by-id
  gnnloom features people --feature people.csv:age,income --label people.csv:sector --by-id
  gnnloom features people --feature x.npy --ids-file ids.npy --label labels.csv
  gnnloom features web --feature x.npy --store float16
  gnnloom features shop --of-type user --feature users.csv:age,income --by-id
  gnnloom features web degree-labels --dim 128 --classes 32 --seed 1
"""


_KINDS = "\n".join(f"{name}: {vertex_kinds()[name].help}" for name in _SYNTHETIC)


@click.command("features", cls=GroupedCommand, help=_FEATURES_HELP.format(kinds=_KINDS))
@click.argument("name")
@click.argument("synthetic", type=click.Choice(_SYNTHETIC), required=False)
@add_options(_VERTEX_OPTIONS.values())
@click_option(_BY_ID)
@object_option("storing", VertexOptions)
@key_option("graph")
@click_option(Option("of_type", str, "Type of the vertices, in a graph with types.", group=Group.INPUT))
@click_option(
    Option(
        "like",
        str,
        "Existing vertex data whose encoding to reuse: the same categories, means for missing values and numbers of"
        " classes, so that a model trained on that data can predict here.",
        group=Group.INPUT,
        metavar="NAME[/KEY]",
    )
)
@flag_option("add", "Store another set of vertex data for a graph that has one.")
@stage_options(quiet=True)
def features_command(
    name: str,
    synthetic: str | None,
    by_id: bool | None,
    storing: VertexOptions,
    graph: str | None,
    of_type: str | None,
    like: str | None,
    add: bool,
    plan: bool,
    quiet: bool,
    cluster: ClusterOptions,
    **_: Any,
) -> None:
    """Store features, labels and a split for the vertices of a dataset."""
    dataset = current_catalog()[name]
    given = given_flags(_VERTEX_OPTIONS)
    kind = vertex_kind(synthetic, by_id=bool(by_id or given.get("ids_file")))
    _check_given(kind, given | ({"by_id": True} if by_id else {}))
    values = {option.name: option_value(option, given) for option in kind.options if option.flag in given}
    owner = source_ids(dataset, graph, of_type)
    source = open_vertex_data(kind, values, owner, None if quiet else say_understood, asks=by_id is not False)
    if plan:
        needs = plan_vertices(source, owner, cluster, storing, by_id=kind.name == "keyed")
        show(needs, title=f"plan: vertex data of {name} (upper bounds)")
        return
    source = source if like is None else stored_like(source, vertices_like(dataset, like, of_type))
    with shown_progress(), open_cluster(cluster) as opened:
        vertices = ingest_vertices(dataset, source, opened, owner, options=storing, allow_others=add)
    say_notes(notes := vertex_notes(vertices, owner if kind.by_position else None))
    result = {"dataset": name, "vertices": vertices.num_vertices} | vertices_result(vertices)
    if wants_json() and notes:
        result["notes"] = notes
    show(result, title=f"vertex data of {name}")


def _check_given(kind: VertexKind, given: Mapping[str, Any]) -> None:
    known = {option.flag for option in kind.options} | ({"by_id"} if not kind.is_synthetic else set())
    others = {flag: value for flag, value in given.items() if flag not in known}
    names = " or ".join(_SYNTHETIC)
    if others:
        side = "with" if kind.is_synthetic else "without"
        raise click.UsageError(f"{dashed(others)} cannot be given {side} {names}")
    if not kind.is_synthetic and not any(given.get(option.flag) for option in FILE_OPTIONS):
        *files, last = (f"--{option.flag}" for option in FILE_OPTIONS)
        raise click.UsageError(f"give {', '.join(files)} or {last} files, or one of {' and '.join(_SYNTHETIC)}")
