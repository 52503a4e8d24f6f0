"""`gnnloom generate`: graphs from a seed, without an intermediate file."""

from __future__ import annotations

from typing import Any

import click

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.sources.generators.generator import generators
from gnnloom.storage.option import Group, options_of
from gnnloom.workflows.api.ingest import OpenedSource, Storing
from gnnloom.workflows.cli.data.ingest import ADD, PLAN, show_plan, store_graph
from gnnloom.workflows.cli.data.source_options import dashed, given_flags, option_value, options_by_flag
from gnnloom.workflows.cli.terminal.help import GroupedCommand
from gnnloom.workflows.cli.terminal.options import (
    add_options,
    click_option,
    current_catalog,
    flag_option,
)
from gnnloom.workflows.cli.terminal.stage import stage_options

#: The options of all generators, by flag.
_OPTIONS = options_by_flag(generators(), "model", Group.GRAPH)

_HELP = """Generate a graph as dataset NAME, undirected unless --directed, without an intermediate file.

\b
{models}

`gnnloom features` makes features for graphs that have none.

\b
Example:
  gnnloom generate demo sbm --vertices 50000 --edges 1000000 --classes 16
  gnnloom generate web rmat --scale 24 --edge-factor 16
  gnnloom generate roads lattice --size 2000x2000 --shortcuts 0.01
"""


_WIDTH = max(map(len, generators())) + 2
_MODELS = "\n".join(f"  {known.name:<{_WIDTH}}{known.help}" for known in generators().values())


@click.command("generate", cls=GroupedCommand, help=_HELP.format(models=_MODELS))
@click.argument("name")
@click.argument("model", type=click.Choice(tuple(generators())))
@add_options(_OPTIONS.values())
@flag_option("directed", "Store every edge in its direction only.", Group.GRAPH)
@click_option(options_of(IngestOptions)["codec"])
@flag_option("add", ADD)
@stage_options(PLAN)
def generate_command(
    name: str,
    model: str,
    directed: bool,
    add: bool,
    codec: str,
    plan: bool,
    cluster: ClusterOptions,
    **_: Any,
) -> None:
    """Generate a graph as a dataset."""
    generator = generators()[model]
    given = given_flags(_OPTIONS)
    # The command has the options of all generators, so click itself accepts every option.
    known = {option.flag for option in generator.options}
    for flag in (each for each in given if each not in known):
        owners = ", ".join(_OPTIONS[flag].needs["model"])
        raise click.UsageError(f"{dashed({flag: None})} is an option of {owners}, not of {generator.name}")
    values = {option.name: option_value(option, given) for option in generator.options}
    edges = generator.open_edges(**values)
    options = IngestOptions(undirected=not directed, codec=codec)
    to = Storing(current_catalog(), name, cluster, options, add=add)
    if plan:
        show_plan(to, OpenedSource(edges, None))
        return
    vertices = generator.open_vertices(**values) if generator.open_vertices is not None else None
    store_graph(to, OpenedSource(edges, vertices))
