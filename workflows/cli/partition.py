"""`gnnloom partition` and `gnnloom shard`: assign vertices to parts, and write what each rank reads."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from importlib.util import find_spec
from typing import Any

import click

from gnnloom.pipeline.partition.choice import LEVELS
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.partitioners import METHODS, MODELS, PRESETS
from gnnloom.pipeline.partition.projection import MethodProjection, project_methods
from gnnloom.pipeline.partition.settings import BATCH_RATE, DIRECTIONS, WEIGHTS
from gnnloom.pipeline.partition.stage import partition_graph, partition_key
from gnnloom.pipeline.shards.grid.grid_stage import PERMUTATIONS, GridOptions
from gnnloom.pipeline.shards.rows.row_options import REORDERS
from gnnloom.pipeline.tasks.cluster import Cluster, ClusterOptions, open_cluster
from gnnloom.storage import Dataset, Graph, Partition, RowShards
from gnnloom.storage.artifacts.grid_shards import GridShards
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.sampling.kinds import BATCHES
from gnnloom.workflows.api.partition import find_partition, write_shards
from gnnloom.workflows.cli.options import (
    MemorySize,
    Sizes,
    cluster_options,
    current_catalog,
    json_option,
    key_option,
)
from gnnloom.workflows.cli.output import readable_bytes, readable_seconds, show, show_groups
from gnnloom.workflows.cli.progress import shown_progress
from gnnloom.workflows.cli.shard_plans import show_shards_plan


def _partition_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a partition; the command gets them as one argument, ``options``."""

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        names = {field.name for field in fields(PartitionOptions)}
        chosen = {name: given.pop(name) for name in names & given.keys()}
        # None stands for an option that was not given, for which the dataclass has the default.
        options = PartitionOptions(**{name: value for name, value in chosen.items() if value is not None})
        command(options=options, **given)

    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options


def _default_models() -> str:
    """Return the default of ``--model`` for the help: that of most methods, and the exceptions."""
    usual = MODELS[0]
    others = [f"{name}: {method.models[0]}" for name, method in METHODS.items() if method.models[0] != usual]
    return "; ".join([usual, *others])


def _method_table() -> str:
    """Return the methods and presets with their help lines, for the end of the command's help."""
    lines = ["\b", "Methods, each with its presets (the first is the default):"]
    for name, method in METHODS.items():
        # find_spec looks for a package without importing it, so that --help stays quick.
        missing = f" Not installed: `{method.install}`." if method.package and not find_spec(method.package) else ""
        lines.append(f"  {name:12} {method.help}{missing}")
        lines += [f"    {preset.name:22} {preset.help}" for preset in method.presets if preset.name]
    return "\n".join(lines)


_OPTIONS = (
    click.option(
        "--parts", type=click.IntRange(min=1), required=True, help="Number of parts, one for each rank that trains."
    ),
    click.option(
        "--quality",
        type=click.Choice(LEVELS),
        default=None,
        help=f"How good a partition to make: chooses the method by the graph.  [default: {LEVELS[0]}]",
    ),
    click.option(
        "--method",
        type=click.Choice(tuple(METHODS)),
        default=None,
        help="Partitioner, in place of the one that --quality chooses; the methods are listed below.",
    ),
    click.option(
        "--preset",
        type=click.Choice(PRESETS),
        default=None,
        help="Preset of the method.  [default: the method's first]",
    ),
    click.option(
        "--model",
        type=click.Choice(MODELS),
        default=None,
        help=f"Model of the communication that the method cuts.  [default: {_default_models()}]",
    ),
    click.option(
        "--imbalance",
        type=click.FloatRange(min=0),
        default=0.01,
        show_default=True,
        help="Share by which the work of a part may exceed the average.",
    ),
    click.option(
        "--weights",
        type=click.Choice(WEIGHTS),
        default="nonzeros",
        show_default=True,
        help="Work that a vertex counts for: the nonzeros of its row, or 1.",
    ),
    click.option(
        "--directions",
        type=click.Choice(DIRECTIONS),
        default="forward",
        show_default=True,
        help="Directed graphs: count only what the forward pass sends, or also what the backward pass sends.",
    ),
    click.option(
        "--batches",
        type=click.Choice(BATCHES),
        default="vertex",
        show_default=True,
        help="Model stochastic: kind of mini-batches.",
    ),
    click.option(
        "--batch-rate",
        type=click.FloatRange(0, 1, min_open=True),
        default=BATCH_RATE,
        show_default=True,
        help="Model stochastic: vertices drawn for a mini-batch, repeats included, as a share of all.",
    ),
    click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the partitioner."),
    click.option(
        "--threads",
        type=click.IntRange(min=1),
        default=None,
        help="Threads of a native partitioner.  [default: one per core]",
    ),
    click.option(
        "--time-limit",
        type=click.FloatRange(min=0, min_open=True),
        default=3600.0,
        show_default=True,
        metavar="SECONDS",
        help="Time after which a native partitioner is stopped; with model stochastic, the steps before and after it"
        " also end after this time, with the best result so far.",
    ),
    click.option(
        "--memory-limit",
        type=MemorySize(),
        default=None,
        help="Memory limit for native partitioners and for the multilevel method's state, such as 8G.",
    ),
)


@click.command("partition", epilog=_method_table())
@click.argument("name")
@_partition_options
@click.option(
    "--compare",
    type=click.Choice(tuple(name for name, method in METHODS.items() if method.is_baseline)),
    help="Baseline to partition by as well; the ratios to it are added to the figures.",
)
@click.option("--plan", is_flag=True, help="Show the memory, disk and time that each method would take, and stop.")
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
    """Partition the vertices of dataset NAME so that ranks exchange few rows, and measure what they exchange.

    km1, the connectivity cut, is the number of rows that all ranks together send per layer and direction. Volume
    (rows sent) and messages are reported per part.

    --quality balanced, the default, comes near the best partition in a fraction of the time of best; fast and best
    trade one for the other. The method is chosen by the size, the skew and the clusters of the graph, so it is
    the same on every machine. --plan and --json report what was chosen and why.

    --memory-limit applies to native partitioners and to the state that multilevel holds for each vertex. --memory
    applies to each worker, and to the partitioner that multilevel runs on the coarsest hypergraph.

    \b
    Example:
      gnnloom partition web --parts 4
      gnnloom partition web --parts 512 --quality fast --compare random
      gnnloom partition web --parts 64 --method multilevel --memory 4G
      gnnloom partition web --parts 8 --model stochastic --batches walk --batch-rate 0.05
      gnnloom partition web --parts 64 --plan
    """
    dataset = current_catalog()[name]
    stored = dataset.graph(graph)
    if plan:
        options.check_graph(stored)
        wanted = (options.model, options.directions, options.batches)
        projections = project_methods(stored, options.parts, options.memory_limit, cluster.memory, *wanted)
        _show_projections(name, projections, as_json=as_json)
        return
    with open_cluster(cluster) as opened, shown_progress():
        partition = partition_graph(dataset, stored, options, opened)
        result = partition_result(name, partition)
        if compare is not None:
            with _compared(dataset, stored, options.for_method(compare), opened) as other:
                result |= compare_quality(partition.quality, other)
    # Numbers per part, or per pair of parts, do not fit into a table.
    lists = [figure for figure in result if figure.endswith(("_per_part", "_matrix"))]
    show(result, as_json=as_json, title=f"partition of {name}", hide=lists)


@contextmanager
def _compared(dataset: Dataset, graph: Graph, options: PartitionOptions, cluster: Cluster) -> Iterator[Partition]:
    """Make a partition that is needed only for its figures, and remove it at the end unless it existed before."""
    before = {info.key for info in dataset.artifacts("partition") if info.state == "complete"}
    try:
        yield partition_graph(dataset, graph, options, cluster)
    finally:
        key = partition_key(graph.artifact.key, options, cluster.memory)
        # After an error or Ctrl-C too: what is unfinished would stay in the catalog.
        if key not in before and (dataset.path / "partition" / key).is_dir():
            dataset.remove_artifact("partition", key)


def _show_projections(name: str, projections: list[MethodProjection], *, as_json: bool) -> None:
    if as_json:
        show({"dataset": name, "methods": [asdict(each) for each in projections]}, as_json=True, title="")
        return
    groups: dict[str, list[Sequence[str]]] = {"--quality": [], "--method and --preset": []}
    for each in projections:
        cells = (
            each.preset if each.chosen else f"{each.method} {each.preset}",
            each.model,
            readable_bytes(each.memory),
            readable_bytes(each.disk),
            readable_seconds(each.cpu_seconds),
            "yes" if each.fits else "no",
        )
        groups["--quality" if each.chosen else "--method and --preset"].append(cells)
    columns = ("", "model", "memory", "scratch", "processor time", "fits")
    show_groups(columns, groups, f"partitioning methods for {name}")
    for each in projections:
        if each.chosen:
            click.echo(f"--quality {each.preset}: {each.chosen}")


def compare_quality(quality: dict[str, Any], other: Partition) -> dict[str, Any]:
    """Return volume and messages, in both directions if they differ, as shares of those of another partition."""
    directions = ("", "backward_") if "volume_backward_total" in quality else ("",)
    figures = itertools.product(("volume", "messages"), directions, ("avg", "max"))
    names = [f"{unit}_{direction}{figure}" for unit, direction, figure in figures]
    shares = {name: quality[name] / other.quality[name] if other.quality[name] else None for name in names}
    return {"compared_with": other.method} | {f"{name}_share": share for name, share in shares.items()}


def partition_result(name: str, partition: Partition) -> dict[str, Any]:
    """Return the object that `partition --json` prints."""
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
    help="Row shards: number of parts, one for each rank. Grid shards with --permutation partition: number of parts of"
    " the partition.",
)
@click.option(
    "--method",
    type=click.Choice(tuple(METHODS)),
    default=None,
    help="Method of the partition, if the dataset has several.",
)
@key_option("partition")
@key_option("graph")
@key_option("vertices", "vertex data")
@click.option(
    "--grid", type=Sizes(2, 2), default=None, help="Grid shards: number of blocks of rows and columns, such as 16x16."
)
@click.option(
    "--permutation",
    type=click.Choice(PERMUTATIONS),
    default="double",
    show_default=True,
    help="Order of rows and columns in grid shards.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the permutation.")
@click.option(
    "--reorder",
    type=click.Choice(REORDERS),
    default="none",
    show_default=True,
    help="Row shards: order of a rank's rows; degree, largest first, makes products of skewed graphs faster. Results"
    " stay in the order of the vertices.",
)
@click.option("--plan", is_flag=True, help="Only print what it would need: tasks, memory, disk space and time.")
@cluster_options
@json_option
def shard_command(
    name: str,
    parts: int | None,
    method: str | None,
    partition: str | None,
    graph: str | None,
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

    \b
    Example:
      gnnloom shard web --parts 4
      gnnloom shard web --parts 64 --method random --reorder degree
      gnnloom shard web --grid 16x16 --permutation double
      gnnloom shard web --grid 16x16 --permutation partition --parts 16
      gnnloom shard web --parts 64 --plan
    """
    dataset = current_catalog()[name]
    if (parts is None) == (grid is None or permutation == "partition"):
        raise click.UsageError(
            "give either --parts, for row shards, or --grid, for grid shards; give both with --permutation partition"
        )
    if grid is not None and reorder != "none":
        raise click.UsageError("--reorder is for row shards; grid shards have --permutation")
    chosen = dataset.graph(graph) if graph is not None else None
    found = None if parts is None else find_partition(dataset, parts, partition, method, chosen)
    data = None if vertices is None else dataset.vertices(vertices)
    options = None if grid is None else GridOptions(grid, permutation, seed)
    if plan:
        show_shards_plan(
            dataset, found, options, cluster, graph=chosen, vertices=data, reorder=reorder, as_json=as_json
        )
        return
    with shown_progress():
        shards = write_shards(dataset, found, options, cluster, graph=chosen, vertices=data, reorder=reorder)
    result = shard_result(name, shards) if isinstance(shards, RowShards) else grid_result(name, shards)
    show(result, as_json=as_json, title=f"{result['layout']} shards of {name}")


def shard_result(name: str, shards: RowShards) -> dict[str, Any]:
    """Return the object that `shard --parts --json` prints."""
    return {
        **_shards_result(name, shards.artifact),
        "layout": "row",
        "parts": shards.num_parts,
        "reorder": shards.reorder,
    }


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
