"""`gnnloom partition` and `gnnloom shard`: who owns which vertices, and what each rank will read."""

from __future__ import annotations

from typing import Any

import click

from gnnloom.pipeline.cluster import ClusterOptions, open_cluster
from gnnloom.pipeline.partition import METHODS, PartitionOptions, partition_graph
from gnnloom.pipeline.shard_rows import shard_rows
from gnnloom.storage import Partition, RowShards
from gnnloom.storage.errors import NotFoundError
from gnnloom.workflows.cli.options import cluster_options, current_catalog, json_option, key_option
from gnnloom.workflows.cli.output import show


@click.command("partition")
@click.argument("name")
@click.option("--parts", type=click.IntRange(min=1), required=True, help="Number of parts: the ranks to train on.")
@click.option("--method", type=click.Choice(METHODS), default="mtkahypar", show_default=True, help="Partitioner.")
@click.option(
    "--imbalance",
    type=click.FloatRange(min=0),
    default=0.01,
    show_default=True,
    help="How much more work than the average a part may have; work is nonzeros.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the partitioner.")
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    default=3600.0,
    show_default=True,
    metavar="SECONDS",
    help="End the partitioner after this time.",
)
@key_option("graph")
@cluster_options
@json_option
def partition_command(
    name: str,
    parts: int,
    method: str,
    imbalance: float,
    seed: int,
    time_limit: float,
    graph: str | None,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Split the vertices of dataset NAME so that little has to be sent, and measure what has to be.

    km1, the connectivity cut, is the number of rows that all ranks together send per layer and direction;
    volume and messages are per part.

    \b
    Example:
      gnnloom partition web --parts 4
      gnnloom partition web --parts 64 --method random --seed 1
    """
    dataset = current_catalog()[name]
    options = PartitionOptions(parts, method, imbalance, seed, time_limit=time_limit)
    with open_cluster(cluster) as opened:
        partition = partition_graph(dataset, dataset.graph(graph), options, opened)
    show(partition_result(name, partition), as_json=as_json, title=f"partition of {name}")


def partition_result(name: str, partition: Partition) -> dict[str, Any]:
    """What `partition --json` prints."""
    artifact = partition.artifact
    return {
        "dataset": name,
        "key": artifact.key,
        "digest": artifact.digest,
        **partition.quality,
        "seconds": sum(artifact.measured["task_seconds"].values()),
    }


@click.command("shard")
@click.argument("name")
@click.option("--parts", type=click.IntRange(min=1), required=True, help="Number of parts: the ranks to train on.")
@click.option("--method", type=click.Choice(METHODS), default=None, help="Which partition, where there are several.")
@key_option("partition")
@cluster_options
@json_option
def shard_command(
    name: str, parts: int, method: str | None, partition: str | None, cluster: ClusterOptions, as_json: bool
) -> None:
    """Write the row shards of a partition of dataset NAME: all that each rank reads.

    \b
    Example:
      gnnloom shard web --parts 4
      gnnloom shard web --parts 64 --method random
    """
    dataset = current_catalog()[name]
    try:
        found = dataset.partition(parts, partition, method=method)
    except NotFoundError as error:
        raise NotFoundError(f"{error}; make one with `gnnloom partition {name} --parts {parts}`") from error
    with open_cluster(cluster) as opened:
        shards = shard_rows(dataset, found, opened)
    show(shard_result(name, shards), as_json=as_json, title=f"row shards of {name}")


def shard_result(name: str, shards: RowShards) -> dict[str, Any]:
    """What `shard --json` prints."""
    artifact = shards.artifact
    return {
        "dataset": name,
        "key": artifact.key,
        "digest": artifact.digest,
        "layout": "row",
        "parts": shards.num_parts,
        "bytes": artifact.stored_bytes(),
        "seconds": sum(artifact.measured["task_seconds"].values()),
        "peak_memory": artifact.measured["peak_memory"],
    }
