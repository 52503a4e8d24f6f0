"""`gnnloom shard`: write what each rank reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.pipeline.partition.options import METHODS
from gnnloom.pipeline.shards.projection import project_grid_shards, project_row_shards, project_typed_row_shards
from gnnloom.pipeline.shards.shard_options import REORDER, GridOptions
from gnnloom.storage import RowShards
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.option import Group, Option, options_of
from gnnloom.storage.shards.grid_shards import GridShards
from gnnloom.storage.shards.typed_row_shards import TypedRowShards
from gnnloom.workflows.api.partition import WantedShards, graph_key
from gnnloom.workflows.cli.terminal.help import GroupedCommand
from gnnloom.workflows.cli.terminal.options import (
    add_options,
    click_option,
    cluster_options,
    current_catalog,
    flag_option,
    json_option,
    key_option,
    links_option,
    method_option,
)
from gnnloom.workflows.cli.terminal.output import show
from gnnloom.workflows.cli.terminal.progress import shown_progress

_GRID = options_of(GridOptions)


@click.command("shard", cls=GroupedCommand)
@click.argument("name")
@click_option(
    Option(
        "parts",
        int,
        "Row shards: number of parts, one for each rank. Grid shards with --permutation partition: number of parts of"
        " the partition.",
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
@flag_option("plan", "Only print what it would need: tasks, memory, disk space and time.")
@cluster_options
@json_option
def shard_command(
    name: str,
    parts: int | None,
    method: str | None,
    partition: str | None,
    graph: str | None,
    links: bool,
    vertices: str | None,
    grid: tuple[int, int] | None,
    permutation: str,
    seed: int,
    reorder: str,
    plan: bool,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Write the shards of dataset NAME, which hold everything that each rank reads.

    Row shards (--parts) follow a partition; algorithm p2p reads them on as many ranks as there are parts. Grid shards
    (--grid) hold the permuted adjacency in blocks; every other algorithm reads them on any number of ranks.

    Row shards of a graph with types have a matrix for each relation with the columns of its edges, one halo for all
    relations, and the data of the vertices of each type. Training reads shards of graphs without types so far.

    \b
    Example:
      gnnloom shard web --parts 4
      gnnloom shard web --parts 64 --method random --reorder degree
      gnnloom shard web --grid 16x16 --permutation double
      gnnloom shard web --grid 16x16 --permutation partition --parts 16
      gnnloom shard web --parts 4 --links
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
    chosen = graph_key(dataset, graph, links)
    keys = {"method": method, "partition": partition, "graph": chosen, "vertices": vertices}
    wanted = WantedShards.find(dataset, parts, options, **keys, reorder=reorder)
    if plan:
        _show_plan(wanted, cluster, as_json=as_json)
        return
    with shown_progress():
        shards = wanted.write(cluster)
    result = grid_result(name, shards) if isinstance(shards, GridShards) else shard_result(name, shards)
    show(result, as_json=as_json, title=f"{result['layout']} shards of {name}")


def shard_result(name: str, shards: RowShards | TypedRowShards) -> dict[str, Any]:
    """Return the object that `shard --parts --json` prints."""
    found = {**_shards_result(name, shards.artifact), "layout": "row", "parts": shards.num_parts}
    if isinstance(shards, RowShards):
        return found | {"reorder": shards.reorder}
    return found | {"relations": [each.name for each in shards.relations], "halo_rows": shards.quality["km1"]}


def grid_result(name: str, shards: GridShards) -> dict[str, Any]:
    """Return the object that `shard --grid --json` prints.

    ``balance`` is the number of nonzeros of the heaviest block over the average.
    """
    return {
        **_shards_result(name, shards.artifact),
        "layout": "grid",
        "grid": "x".join(map(str, shards.grid)),
        "permutation": shards.permutation,
        "balance": max(shards.artifact.facts["balance"].values()),
    }


def _shards_result(name: str, artifact: Artifact) -> dict[str, Any]:
    return {
        "dataset": name,
        "key": artifact.key,
        "digest": artifact.digest,
        "bytes": artifact.stored_bytes(),
        "seconds": sum(artifact.measured["task_seconds"].values()),
        "peak_memory": artifact.measured["peak_memory"],
    }


def _show_plan(wanted: WantedShards, cluster: ClusterOptions, *, as_json: bool) -> None:
    """Print what shards are projected to need.

    Raises:
        InputError: there are several graphs or vertex data to choose from.
        BudgetError: the memory per worker is too small.
    """
    dataset, workers, data = wanted.dataset, cluster.tasks_at_once, wanted.vertices
    if wanted.grid is None and wanted.is_typed:
        wanted.check_types()
        projection = project_typed_row_shards(dataset, wanted.parts, workers)
    elif wanted.grid is None:
        projection = project_row_shards(dataset, wanted.parts, workers, data, wanted.reorder)
    else:
        ordering, memory = wanted.partition, cluster.memory
        projection = project_grid_shards(dataset, wanted.matrix, wanted.grid, ordering, workers, memory, data)
    title = f"plan: {projection.layout} shards of {projection.dataset} (memory, disk and time are estimates)"
    show(projection.to_json(), as_json=as_json, title=title)
