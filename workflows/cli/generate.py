"""`gnnloom generate`: graphs from a seed, without a file between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from click.core import ParameterSource

from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.sources.generators.lattice import LatticeEdges
from gnnloom.pipeline.sources.generators.rmat import RmatEdges
from gnnloom.pipeline.sources.generators.sbm import StochasticBlockModel
from gnnloom.pipeline.sources.source import EdgeSource, VertexSource
from gnnloom.pipeline.tasks.cluster import ClusterOptions
from gnnloom.workflows.cli.ingest import store_graph
from gnnloom.workflows.cli.options import Sizes, cluster_options, current_catalog, json_option
from gnnloom.workflows.cli.plan import plan_options, show_plan

#: Options by the model that has them; ``seed`` and ``directed`` belong to all.
_MODELS: Mapping[str, tuple[str, ...]] = {
    "sbm": ("vertices", "edges", "classes", "homophily", "skew", "dim", "noise"),
    "rmat": ("scale", "edge_factor", "ordered"),
    "lattice": ("size", "shortcuts", "scramble"),
}


@click.command("generate")
@click.argument("name")
@click.argument("model", type=click.Choice(tuple(_MODELS)))
@click.option("--vertices", type=click.IntRange(min=1), default=10_000, show_default=True, help="sbm: vertices.")
@click.option("--edges", type=click.IntRange(min=1), default=200_000, show_default=True, help="sbm: edges to draw.")
@click.option("--classes", type=click.IntRange(min=1), default=16, show_default=True, help="sbm: communities.")
@click.option(
    "--homophily",
    type=click.FloatRange(0, 1),
    default=0.8,
    show_default=True,
    help="sbm: edges that stay in a community.",
)
@click.option(
    "--skew", type=click.FloatRange(0, 1, max_open=True), default=0.3, show_default=True, help="sbm: of degrees."
)
@click.option("--dim", type=click.IntRange(min=1), default=64, show_default=True, help="sbm: features.")
@click.option("--noise", type=click.FloatRange(min=0), default=6.0, show_default=True, help="sbm: of the features.")
@click.option("--scale", type=click.IntRange(1, 40), default=16, show_default=True, help="rmat: 2^SCALE vertices.")
@click.option(
    "--edge-factor", type=click.IntRange(min=1), default=16, show_default=True, help="rmat: edges to draw per vertex."
)
@click.option("--ordered", is_flag=True, help="rmat: low ids have the most edges, instead of scrambled ids.")
@click.option("--size", type=Sizes(), default="1000x1000", show_default=True, help="lattice: its axes, AxB or AxBxC.")
@click.option(
    "--shortcuts", type=click.FloatRange(min=0), default=0.0, show_default=True, help="lattice: random edges per edge."
)
@click.option("--scramble", is_flag=True, help="lattice: scattered ids, instead of ids along the axes.")
@click.option("--directed", is_flag=True, help="Store every edge in its direction only.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The same seed, the same graph.")
@plan_options
@cluster_options
@json_option
def generate_command(
    name: str,
    model: str,
    directed: bool,
    codec: str,
    plan: bool,
    cluster: ClusterOptions,
    as_json: bool,
    **given: Any,
) -> None:
    """Generate a graph as dataset NAME, undirected unless --directed, without a file between.

    sbm: a stochastic block model, with features, labels (the communities) and a split.
    rmat: a Kronecker graph with Graph500's parameters; lattice: a grid with random shortcuts, like a road network.
    These two have no features; `gnnloom features` makes them.

    \b
    Example:
      gnnloom generate demo sbm --vertices 50000 --edges 1000000 --classes 16
      gnnloom generate web rmat --scale 24 --edge-factor 16
      gnnloom generate roads lattice --size 2000x2000 --shortcuts 0.01
    """
    _refuse_others(model)
    edges, vertices = _open(model, given)
    options = IngestOptions(undirected=not directed, codec=codec)
    if plan:
        show_plan(current_catalog(), edges, options, cluster, as_json=as_json)
        return
    store_graph(name, edges, vertices, options, cluster, as_json)


def _refuse_others(model: str) -> None:
    """Options of other models, if they were given."""
    context = click.get_current_context()
    for other, options in _MODELS.items():
        for option in options:
            if other != model and context.get_parameter_source(option) is not ParameterSource.DEFAULT:
                raise click.UsageError(f"--{option.replace('_', '-')} is an option of {other}, not of {model}")


def _open(model: str, given: Mapping[str, Any]) -> tuple[EdgeSource, VertexSource | None]:
    seed = given["seed"]
    if model == "rmat":
        scale, factor = given["scale"], given["edge_factor"]
        return RmatEdges(scale, factor, scramble=not given["ordered"], seed=seed), None
    if model == "lattice":
        return LatticeEdges(given["size"], given["shortcuts"], given["scramble"], seed), None
    block_model = StochasticBlockModel(
        num_vertices=given["vertices"],
        num_edges=given["edges"],
        num_blocks=given["classes"],
        homophily=given["homophily"],
        skew=given["skew"],
        num_features=given["dim"],
        noise=given["noise"],
        seed=seed,
    )
    return block_model.edges(), block_model.vertices()
