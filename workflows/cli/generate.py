"""`gnnloom generate`: graphs from a seed, without an intermediate file."""

from __future__ import annotations

from typing import Any

import click

from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.sources.generators.generator import Generator, generators
from gnnloom.pipeline.sources.option import merge_options
from gnnloom.pipeline.tasks.cluster import ClusterOptions
from gnnloom.workflows.cli.ingest import store_graph
from gnnloom.workflows.cli.options import cluster_options, current_catalog, json_option
from gnnloom.workflows.cli.plan import add_option, plan_options, show_plan
from gnnloom.workflows.cli.source_options import dashed, given_flags, option_value, source_options

#: The options of all generators, by flag.
_OPTIONS = merge_options({known.name: known.options for known in generators().values()}, lambda option: option.flag)

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


def _help() -> str:
    width = max(map(len, generators())) + 2
    lines = [f"  {known.name:<{width}}{known.help}" for known in generators().values()]
    return _HELP.format(models="\n".join(lines))


@click.command("generate", help=_help())
@click.argument("name")
@click.argument("model", type=click.Choice(tuple(generators())))
@source_options(_OPTIONS, num_owners=len(generators()))
@click.option("--directed", is_flag=True, help="Store every edge in its direction only.")
@add_option
@plan_options
@cluster_options
@json_option
def generate_command(
    name: str,
    model: str,
    directed: bool,
    add: bool,
    codec: str,
    plan: bool,
    cluster: ClusterOptions,
    as_json: bool,
    **_: Any,
) -> None:
    """Generate a graph as a dataset."""
    generator = generators()[model]
    given = given_flags(_OPTIONS)
    _refuse_others(generator, given)
    values = {option.name: option_value(option, given) for option in generator.options}
    edges = generator.open_edges(**values)
    options = IngestOptions(undirected=not directed, codec=codec)
    if plan:
        show_plan(current_catalog(), edges, options, cluster, as_json=as_json)
        return
    vertices = generator.open_vertices(**values) if generator.open_vertices is not None else None
    store_graph(name, edges, vertices, options, cluster, as_json, add=add)


def _refuse_others(generator: Generator, given: dict[str, Any]) -> None:
    """Refuse options of other generators."""
    known = {option.flag for option in generator.options}
    # The command has the options of all generators, so click itself accepts any of them.
    for flag in given:
        if flag not in known:
            owners = ", ".join(_OPTIONS[flag].owners)
            raise click.UsageError(f"{dashed({flag: None})} is an option of {owners}, not of {generator.name}")
