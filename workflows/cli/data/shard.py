"""`gnnloom shard`: write the shards that training ranks read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.pipeline.partition.options import METHODS
from gnnloom.pipeline.shards.projection import (
    ShardProjection,
    project_grid_shards,
    project_row_shards,
    project_typed_grid_shards,
    project_typed_row_shards,
)
from gnnloom.pipeline.shards.shard_options import REORDER, GridOptions
from gnnloom.storage import RowShards, TypedGraph
from gnnloom.storage.option import Group, Option, options_of
from gnnloom.storage.shards.grid_shards import GridShards
from gnnloom.storage.shards.typed_grid_shards import TypedGridShards
from gnnloom.storage.shards.typed_row_shards import TypedRowShards
from gnnloom.workflows.api.partition import WantedShards
from gnnloom.workflows.cli.terminal.help import GroupedCommand
from gnnloom.workflows.cli.terminal.options import (
    add_options,
    click_option,
    current_catalog,
    key_option,
    links_option,
    method_option,
)
from gnnloom.workflows.cli.terminal.stage import show_stage, stage_options, stored_result

_GRID = options_of(GridOptions)


@click.command("shard", cls=GroupedCommand)
@click.argument("name")
@click_option(
    Option(
        "parts",
        int,
        "Row shards: number of parts, one per rank. Grid shards with --permutation partition: number of parts of the"
        " partition.",
        group=Group.INPUT,
        is_common=True,
        least=1,
    )
)
@method_option(METHODS, "Method of the partition, if the dataset has several.")
@key_option("partition")
@key_option("graph")
@links_option
@key_option("vertices", "vertex data")
@add_options([replace(_GRID["grid"], default=None), _GRID["permutation"], _GRID["seed"], REORDER])
@stage_options("Only print the requirements: tasks, memory, disk space and time.")
def shard_command(
    name: str,
    parts: int | None,
    grid: tuple[int, int] | None,
    permutation: str,
    seed: int,
    reorder: str,
    plan: bool,
    cluster: ClusterOptions,
    **keys: Any,
) -> None:
    """Write the shards of dataset NAME: the files that each training rank reads.

    Row shards (--parts) follow a partition; algorithm p2p reads them on one rank per part. Grid shards (--grid) hold
    the permuted adjacency in blocks; every other algorithm reads them on any number of ranks.

    Row shards of a graph with types have one matrix per relation with the columns of its edges, one halo for all
    relations, and the vertex data of each type. Every rank holds all rows of replicated types, which are therefore in
    no halo. Grid shards of a graph with types have blocks of each relation with the columns of its edges, on one
    permutation of all vertices. Training does not read shards of graphs with types yet.

    \b
    Example:
      gnnloom shard web --parts 4
      gnnloom shard web --parts 64 --method random --reorder degree
      gnnloom shard web --grid 16x16 --permutation double
      gnnloom shard web --grid 16x16 --permutation partition --parts 16
      gnnloom shard web --parts 4 --links
      gnnloom shard typed --grid 8x8 --permutation double
      gnnloom shard web --parts 64 --plan
    """
    dataset = current_catalog()[name]
    if (parts is None) == (grid is None or permutation == "partition"):
        raise click.UsageError(
            "give either --parts, for row shards, or --grid, for grid shards; give both with --permutation partition"
        )
    if grid is not None and reorder != "none":
        raise click.UsageError("--reorder is for row shards; grid shards have --permutation")
    options = None if grid is None else GridOptions(grid, permutation, seed)
    wanted = WantedShards.find(dataset, parts, options, **keys, reorder=reorder)
    show_stage(
        f"{'row' if grid is None else 'grid'} shards of {name}",
        "memory, disk and time are estimates",
        plan=plan,
        project=lambda: _projection(wanted, cluster),
        make=lambda: shards_result(name, wanted.write(cluster)),
    )


def shards_result(name: str, shards: RowShards | TypedRowShards | GridShards | TypedGridShards) -> dict[str, Any]:
    """Return the object that `shard --json` prints.

    ``balance`` of grid shards is the number of nonzeros of the largest block over the average.
    """
    figures: dict[str, Any]
    if isinstance(shards, RowShards):
        figures = {"layout": "row", "parts": shards.num_parts, "reorder": shards.reorder}
    elif isinstance(shards, TypedRowShards):
        relations = [each.name for each in shards.relations]
        figures = {
            "layout": "row",
            "parts": shards.num_parts,
            "relations": relations,
            "halo_rows": shards.quality["km1"],
        }
        figures |= {"replicated": list(shards.replicated)} if shards.replicated else {}
    else:
        balance = max(shards.artifact.facts["balance"].values())
        grid = {"grid": "x".join(map(str, shards.grid)), "permutation": shards.permutation, "balance": balance}
        figures = {"layout": "grid", **grid}
        if isinstance(shards, TypedGridShards):
            figures["relations"] = [each.name for each in shards.relations]
    return stored_result(name, shards.artifact, figures)


def _projection(wanted: WantedShards, cluster: ClusterOptions) -> ShardProjection:
    """The projected needs of shards.

    Raises:
        InputError: there are several graphs or vertex data to choose from.
        BudgetError: the memory per worker is too small.
    """
    dataset, workers, data = wanted.dataset, cluster.tasks_at_once, wanted.vertices
    graph = wanted.sharded
    if isinstance(graph, TypedGraph):
        wanted.check_types()
        if wanted.grid is not None:
            return project_typed_grid_shards(dataset, graph, wanted.grid, workers, cluster.memory)
        return project_typed_row_shards(dataset, wanted.parts, workers)
    if wanted.grid is None:
        return project_row_shards(dataset, wanted.parts, workers, data, wanted.reorder)
    ordering, memory = wanted.partition, cluster.memory
    return project_grid_shards(dataset, graph, wanted.grid, ordering, workers, memory, data)
