"""`gnnloom partition`: assign vertices to parts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.util import find_spec
from typing import Any

import click

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.pipeline.partition.options import METHODS, PartitionOptions, partition_key
from gnnloom.pipeline.partition.partition_plan import MethodProjection, project_methods
from gnnloom.pipeline.partition.stage import partition_graph, partitioned_matrix
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage import Dataset, Graph, Partition, TypedGraph
from gnnloom.storage.option import Group, Option, options_of
from gnnloom.storage.wording import counted
from gnnloom.workflows.api.partition import graph_key
from gnnloom.workflows.cli.terminal.help import GroupedCommand
from gnnloom.workflows.cli.terminal.options import (
    click_option,
    current_catalog,
    key_option,
    links_option,
    object_option,
)
from gnnloom.workflows.cli.terminal.output import show, show_groups, show_json
from gnnloom.workflows.cli.terminal.progress import shown_progress
from gnnloom.workflows.cli.terminal.screen import say
from gnnloom.workflows.cli.terminal.stage import stage_options
from gnnloom.workflows.formatting import readable_bytes, readable_seconds

#: The main figures of a partition, shown unless all figures are requested.
_BRIEF = (
    "parts", "chosen", "km1", "replicated_types", "replicated_rows", "volume_cover_total", "imbalance", "volume_avg",
    "volume_max", "messages_avg", "messages_max", "seconds", "command_seconds",
)  # fmt: skip


def _method_table() -> str:
    """Return the methods and presets with their help lines, for the end of the command's help."""
    lines = ["\b", "Methods, each with its presets (the first is the default):"]
    for name, method in METHODS.items():
        # find_spec looks for a package without importing it, so that --help stays quick.
        missing = f" Not installed: `{method.install}`." if method.package and not find_spec(method.package) else ""
        lines.append(f"  {name:12} {method.help}{missing}")
        lines += [f"    {preset.name:22} {preset.help}" for preset in method.presets if preset.name]
        lines += [
            f"    --method-options {own}={option.shown(option.default)}: {option.help}"
            for own, option in method.options.items()
        ]
    memory = (
        "--memory-limit applies to native partitioners and to the state that multilevel holds for each vertex. --memory"
        " applies to each worker, and to the partitioner that multilevel runs on the coarsest hypergraph."
    )
    return "\n".join([memory, "", *lines])


_KNOWN = options_of(PartitionOptions)
#: The most important options first. Only the command limits the time by default.
_OPTIONS = {name: _KNOWN[name] for name in dict.fromkeys(("parts", "quality", "method", "preset", "model", *_KNOWN))}
_OPTIONS["time_limit"] = replace(_KNOWN["time_limit"], default=3600.0)


@click.command("partition", cls=GroupedCommand, epilog=_method_table())
@click.argument("name")
@object_option("options", PartitionOptions, _OPTIONS)
@click_option(
    Option(
        "compare",
        str,
        "Baseline method to compare with; reports ratios to its figures.",
        group=Group.OUTPUT,
        choices=tuple(name for name, method in METHODS.items() if method.is_baseline),
    )
)
@key_option("graph")
@links_option
@stage_options("Show the memory, disk and time that each method would take, and stop.")
def partition_command(
    name: str,
    options: PartitionOptions,
    compare: str | None,
    plan: bool,
    graph: str | None,
    links: bool,
    cluster: ClusterOptions,
) -> None:
    """Partition the vertices of dataset NAME so that ranks exchange few rows, and measure what they exchange.

    km1, the connectivity cut, is the number of rows that all ranks together send per layer and direction. Volume
    (rows sent) and messages are reported per part.

    --quality balanced, the default, comes close to the quality of best in a fraction of its time; fast takes even less
    time. The size, the skew and the clusters of the graph determine the method, so it is the same on every machine.
    --plan and --json report the choice and its reason.

    In a graph with types, the partitioner reads the union of all relations, which is stored in the dataset: a row that
    several relations need is sent once. The work of a vertex is the number of edges of all relations in its row.
    --replicate keeps the rows of small types, which most parts need, on every rank; km1 does not count them.

    \b
    Example:
      gnnloom partition web --parts 4
      gnnloom partition web --parts 512 --quality fast --compare random
      gnnloom partition web --parts 64 --method multilevel --memory 4G
      gnnloom partition web --parts 8 --model stochastic --batches walk
      gnnloom partition web --parts 4 --links
      gnnloom partition typed --parts 4 --balance paper --reverse
      gnnloom partition typed --parts 4 --replicate auto
      gnnloom partition web --parts 64 --plan
    """
    dataset = current_catalog()[name]
    stored = dataset.any_graph(graph_key(dataset, graph, links))
    if plan:
        options.check_graph(stored)
        wanted = (options.model, options.directions, options.batches, options.exchange, options.cover_passes)
        with open_cluster(cluster) as opened:
            matrix, _ = partitioned_matrix(dataset, stored, options, opened, plans=True)
        projections = project_methods(matrix, options.parts, options.memory_limit, cluster.memory, *wanted)
        _show_projections(name, projections)
        return
    with open_cluster(cluster) as opened, shown_progress():
        partition = partition_graph(dataset, stored, options, opened)
        result = partition_result(name, partition)
        if compare is not None:
            with _compared(dataset, stored, options.for_method(compare), opened) as other:
                result |= compare_quality(partition.quality, other)
    # Figures per part, or per pair of parts, do not fit in a table.
    lists = [figure for figure in result if figure.endswith(("_per_part", "_matrix")) or figure == "replication"]
    for line in replication_lines(result.get("replication", ())):
        say(line, on_stderr=True)
    compared = [figure for figure in result if figure == "compared_with" or figure.endswith("_share")]
    show(result, title=f"partition of {name}", hide=lists, brief=(*_BRIEF, *compared))


@contextmanager
def _compared(
    dataset: Dataset, graph: Graph | TypedGraph, options: PartitionOptions, cluster: Cluster
) -> Iterator[Partition]:
    """Make a partition that is needed only for its figures, and remove it at the end unless it existed before."""
    before = {info.key for info in dataset.artifacts("partition") if info.state == "complete"}
    try:
        yield partition_graph(dataset, graph, options, cluster)
    finally:
        key = partition_key(graph.artifact.key, options, cluster.memory)
        # Also after an error or Ctrl-C: an unfinished artifact would stay in the catalog.
        if key not in before and (dataset.path / "partition" / key).is_dir():
            dataset.remove_artifact("partition", key)


def _show_projections(name: str, projections: list[MethodProjection]) -> None:
    if show_json({"dataset": name, "methods": [asdict(each) for each in projections]}):
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
            say(f"--quality {each.preset}: {each.chosen}")


def replication_lines(considered: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say which types are replicated, and why.

    Args:
        considered: figures of the types, in the form that the partition stores.
    """
    lines = []
    for each in considered:
        what = f"replicate {each['type']}: {counted(each['vertices'], 'vertex')}"
        if each["halo_rows"] is None:
            lines.append(f"{what}, no: more than a quarter of a rank's vertices")
            continue
        share = each["halo_rows"] / each["copies"] if each["copies"] else 0.0
        chosen = "yes" if each["replicated"] else "no"
        lines.append(f"{what}, {chosen}: random parts would have {share:.0%} of the copies in halos")
    return lines


def compare_quality(quality: dict[str, Any], other: Partition) -> dict[str, Any]:
    """Return volume and messages, in both directions if they differ, relative to another partition."""
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
