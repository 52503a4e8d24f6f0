"""`gnnloom shard --plan`: what making shards will need."""

from __future__ import annotations

from gnnloom.pipeline.shards.grid_options import GridOptions
from gnnloom.pipeline.shards.projection import ShardProjection, project_grid_shards, project_row_shards
from gnnloom.pipeline.tasks.cluster import ClusterOptions, available_cores
from gnnloom.storage import Dataset, Graph, Partition
from gnnloom.workflows.cli.output import show


def show_row_shards_plan(dataset: Dataset, partition: Partition, cluster: ClusterOptions, *, as_json: bool) -> None:
    """Print what the row shards of a partition are projected to need."""
    _show(project_row_shards(dataset, partition, _workers(cluster)), as_json=as_json)


def show_grid_shards_plan(
    dataset: Dataset,
    graph: Graph,
    options: GridOptions,
    partition: Partition | None,
    cluster: ClusterOptions,
    *,
    as_json: bool,
) -> None:
    """Print what grid shards are projected to need.

    Raises:
        BudgetError: the memory per worker is too small.
    """
    _show(project_grid_shards(dataset, graph, options, partition, _workers(cluster), cluster.memory), as_json=as_json)


def _workers(cluster: ClusterOptions) -> int:
    return available_cores() if cluster.workers is None else max(1, cluster.workers)


def _show(projection: ShardProjection, *, as_json: bool) -> None:
    title = f"plan: {projection.layout} shards of {projection.dataset} (memory, disk and time are estimates)"
    show(projection.to_json(), as_json=as_json, title=title)
