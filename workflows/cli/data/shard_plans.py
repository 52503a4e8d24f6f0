"""`gnnloom shard --plan`: what making shards will need."""

from __future__ import annotations

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.pipeline.shards.grid.grid_options import GridOptions
from gnnloom.pipeline.shards.projection import project_grid_shards, project_row_shards
from gnnloom.pipeline.tasks.cluster import available_cores
from gnnloom.storage import Dataset, Graph, Partition
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.errors import InputError
from gnnloom.workflows.cli.terminal.output import show


def show_shards_plan(
    dataset: Dataset,
    partition: Partition | None,
    options: GridOptions | None,
    cluster: ClusterOptions,
    *,
    graph: Graph | None,
    vertices: Vertices | None,
    reorder: str,
    as_json: bool,
) -> None:
    """Print what grid shards, or without ``options`` the row shards of a partition, are projected to need.

    Raises:
        InputError: neither is given, or there are several graphs or vertex data to choose from.
        BudgetError: the memory per worker is too small.
    """
    workers = _workers(cluster)
    if options is not None:
        matrix = dataset.graph(partition.artifact.inputs["graph"]) if partition else graph or dataset.graph()
        projection = project_grid_shards(dataset, matrix, options, partition, workers, cluster.memory, vertices)
    elif partition is not None:
        projection = project_row_shards(dataset, partition, workers, vertices, reorder)
    else:
        raise InputError("row shards need a partition")
    title = f"plan: {projection.layout} shards of {projection.dataset} (memory, disk and time are estimates)"
    show(projection.to_json(), as_json=as_json, title=title)


def _workers(cluster: ClusterOptions) -> int:
    return available_cores() if cluster.workers is None else max(1, cluster.workers)
