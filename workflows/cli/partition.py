"""`gnnloom partition` and `gnnloom shard`: who owns which vertices, and what each rank will read."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any

import click

from gnnloom.pipeline.partition.options import DIRECTIONS, WEIGHTS, PartitionOptions
from gnnloom.pipeline.partition.presets import METHODS, MODELS, PRESETS
from gnnloom.pipeline.partition.projection import MethodPlan, plan_partition
from gnnloom.pipeline.partition.stage import partition_graph, partition_key
from gnnloom.pipeline.shards.grid_stage import PERMUTATIONS, GridOptions, shard_grid
from gnnloom.pipeline.shards.row_stage import shard_rows
from gnnloom.pipeline.tasks.cluster import Cluster, ClusterOptions, open_cluster
from gnnloom.storage import Dataset, Graph, Partition, RowShards
from gnnloom.storage.artifacts.grid_shards import GridShards
from gnnloom.storage.errors import NotFoundError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.sampling.batches import BATCHES
from gnnloom.workflows.cli.options import (
    MemorySize,
    Sizes,
    cluster_options,
    current_catalog,
    json_option,
    key_option,
)
from gnnloom.workflows.cli.output import readable_bytes, readable_seconds, show, show_rows
from gnnloom.workflows.cli.progress import shown_progress


def _partition_options(command: Callable[..., None]) -> Callable[..., None]:
    """What decides a partition; the command gets it as one argument, ``options``."""

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        names = {field.name for field in fields(PartitionOptions)}
        chosen = {name: given.pop(name) for name in names & given.keys()}
        options = PartitionOptions(**{name: value for name, value in chosen.items() if value is not None})
        command(options=options, **given)

    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options


_OPTIONS = (
    click.option("--parts", type=click.IntRange(min=1), required=True, help="Number of parts: the ranks to train on."),
    click.option("--method", type=click.Choice(tuple(METHODS)), default="mtkahypar", show_default=True),
    click.option("--preset", type=click.Choice(PRESETS), default=None, help="Of the method.  [default: its first]"),
    click.option(
        "--model", type=click.Choice(MODELS), default=None, help="What is cut.  [default: hypergraph; metis: graph]"
    ),
    click.option(
        "--imbalance",
        type=click.FloatRange(min=0),
        default=0.01,
        show_default=True,
        help="How much more work than the average a part may have.",
    ),
    click.option(
        "--weights",
        type=click.Choice(WEIGHTS),
        default="nonzeros",
        show_default=True,
        help="Work of a vertex: the nonzeros of its row, or 1.",
    ),
    click.option(
        "--directions",
        type=click.Choice(DIRECTIONS),
        default="forward",
        show_default=True,
        help="Directed graphs: weigh what the forward pass sends, or the backward pass as well.",
    ),
    click.option(
        "--batches",
        type=click.Choice(BATCHES),
        default="vertex",
        show_default=True,
        help="Model stochastic: how mini-batches are drawn.",
    ),
    click.option(
        "--batch-rate",
        type=click.FloatRange(0, 1, min_open=True),
        default=0.06,
        show_default=True,
        help="Model stochastic: the share of the vertices in a batch; edge: of the edges, whose ends are far more.",
    ),
    click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the partitioner."),
    click.option(
        "--time-limit",
        type=click.FloatRange(min=0, min_open=True),
        default=3600.0,
        show_default=True,
        metavar="SECONDS",
        help="End a native partitioner after this time; model stochastic: and the work around it, with what it has.",
    ),
    click.option(
        "--memory-limit",
        type=MemorySize(),
        default=None,
        help="Of a native partitioner, or of the state of multilevel, such as 8G.",
    ),
)


@click.command("partition")
@click.argument("name")
@_partition_options
@click.option("--compare", type=click.Choice(("random", "block", "metis")), help="Also measure this, for the ratios.")
@click.option("--plan", is_flag=True, help="Only show what each method would take.")
@key_option("graph")
@cluster_options
@json_option
def partition_command(
    name: str,
    options: PartitionOptions,
    compare: str | None,
    plan: bool,
    graph: str | None,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Split the vertices of dataset NAME so that little has to be sent, and measure what has to be.

    km1, the connectivity cut, is the number of rows that all ranks together send per layer and direction;
    volume and messages are per part.

    --memory-limit is for a native partitioner, and for what multilevel holds for each vertex; --memory is for each
    worker, and for the partitioner of the coarsest hypergraph that multilevel starts.

    \b
    Presets: mtkahypar  deterministic, deterministic-quality, default, quality, highest-quality, large-k
             kahypar    recursive, direct
             multilevel auto (coarsens on disk until it fits Mt-KaHyPar), streaming (without it), flat (refines only)

    \b
    Example:
      gnnloom partition web --parts 4
      gnnloom partition web --parts 512 --preset large-k --compare random
      gnnloom partition web --parts 64 --method multilevel --memory 4G
      gnnloom partition web --parts 8 --model stochastic --batches walk --batch-rate 0.05
      gnnloom partition web --parts 64 --plan
    """
    dataset = current_catalog()[name]
    stored = dataset.graph(graph)
    if plan:
        options.check_graph(stored)
        wanted = (options.model, options.directions, options.batches)
        plans = plan_partition(stored, options.parts, options.memory_limit, cluster.memory, *wanted)
        _show_plan(name, plans, as_json=as_json)
        return
    with open_cluster(cluster) as opened, shown_progress():
        partition = partition_graph(dataset, stored, options, opened)
        result = partition_result(name, partition)
        if compare is not None:
            with _compared(dataset, stored, options.for_method(compare), opened) as other:
                result |= compare_quality(partition.quality, other)
    lists = [figure for figure in result if figure.endswith(("_per_part", "_matrix"))]
    show(result, as_json=as_json, title=f"partition of {name}", hide=lists)


@contextmanager
def _compared(dataset: Dataset, graph: Graph, options: PartitionOptions, cluster: Cluster) -> Iterator[Partition]:
    """A partition for its figures only: one that was not there before goes away again."""
    before = {info.key for info in dataset.artifacts("partition") if info.state == "complete"}
    try:
        yield partition_graph(dataset, graph, options, cluster)
    finally:
        key = partition_key(graph.artifact.key, options, cluster.memory)
        if key not in before and (dataset.path / "partition" / key).is_dir():
            dataset.remove_artifact("partition", key)


def _show_plan(name: str, plans: list[MethodPlan], *, as_json: bool) -> None:
    if as_json:
        show({"dataset": name, "methods": [asdict(plan) for plan in plans]}, as_json=True, title="")
        return
    rows = [
        (
            f"{plan.method} {plan.preset}",
            plan.model,
            readable_bytes(plan.memory),
            readable_bytes(plan.disk),
            readable_seconds(plan.cpu_seconds),
            "yes" if plan.fits else "no",
        )
        for plan in plans
    ]
    show_rows(("method", "model", "memory", "scratch", "processor time", "fits"), rows, f"ways to partition {name}")


def compare_quality(quality: dict[str, Any], other: Partition) -> dict[str, Any]:
    """Volume and messages, of both directions where they differ, as shares of those of another partition."""
    directions = ("", "backward_") if "volume_backward_total" in quality else ("",)
    figures = itertools.product(("volume", "messages"), directions, ("avg", "max"))
    names = [f"{unit}_{direction}{figure}" for unit, direction, figure in figures]
    shares = {name: quality[name] / other.quality[name] if other.quality[name] else None for name in names}
    return {"compared_with": other.method} | {f"{name}_share": share for name, share in shares.items()}


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
@click.option(
    "--parts",
    type=click.IntRange(min=1),
    default=None,
    help="Row shards: number of parts, the ranks. Grid shards with permutation partition: whose parts.",
)
@click.option(
    "--method", type=click.Choice(tuple(METHODS)), default=None, help="Which partition, where there are several."
)
@key_option("partition")
@click.option("--grid", type=Sizes(2, 2), default=None, help="Grid shards: blocks of rows and columns, such as 16x16.")
@click.option(
    "--permutation", type=click.Choice(PERMUTATIONS), default="double", show_default=True, help="Of grid shards."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the permutation.")
@cluster_options
@json_option
def shard_command(
    name: str,
    parts: int | None,
    method: str | None,
    partition: str | None,
    grid: tuple[int, int] | None,
    permutation: str,
    seed: int,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Write the shards of dataset NAME: all that each rank reads.

    Row shards (--parts) are those of a partition and serve p2p on as many ranks. Grid shards (--grid) hold the
    permuted adjacency in blocks and serve every other algorithm on any number of ranks.

    \b
    Example:
      gnnloom shard web --parts 4
      gnnloom shard web --parts 64 --method random
      gnnloom shard web --grid 16x16 --permutation double
      gnnloom shard web --grid 16x16 --permutation partition --parts 16
    """
    dataset = current_catalog()[name]
    if (parts is None) == (grid is None or permutation == "partition"):
        raise click.UsageError(
            "give either --parts, for row shards, or --grid, for grid shards; both for permutation partition"
        )
    found = None if parts is None else _find_partition(dataset, parts, partition, method)
    if grid is not None:
        options = GridOptions(grid, permutation, seed)
        graph = dataset.graph(found.artifact.inputs["graph"] if found else None)
        with open_cluster(cluster) as opened, shown_progress():
            result = grid_result(name, shard_grid(dataset, graph, options, opened, partition=found))
    elif found is not None:
        with open_cluster(cluster) as opened, shown_progress():
            result = shard_result(name, shard_rows(dataset, found, opened))
    show(result, as_json=as_json, title=f"{result['layout']} shards of {name}")


def _find_partition(dataset: Dataset, parts: int, key: str | None, method: str | None) -> Partition:
    try:
        return dataset.partition(parts, key, method=method)
    except NotFoundError as error:
        raise NotFoundError(f"{error}; make one with `gnnloom partition {dataset.name} --parts {parts}`") from error


def shard_result(name: str, shards: RowShards) -> dict[str, Any]:
    """What `shard --parts --json` prints."""
    return {**_shards_result(name, shards.artifact), "layout": "row", "parts": shards.num_parts}


def grid_result(name: str, shards: GridShards) -> dict[str, Any]:
    """What `shard --grid --json` prints; balance is the nonzeros of the heaviest block over the average."""
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
