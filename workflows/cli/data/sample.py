"""`gnnloom sample`: draw the batches of a training ahead of it."""

from __future__ import annotations

from typing import Any

import click

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.pipeline.partition.options import METHODS
from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.samples.projection import project_samples
from gnnloom.storage.artifacts.samples import Samples
from gnnloom.workflows.api.sample import find_sampled, make_samples
from gnnloom.workflows.cli.terminal.help import GroupedCommand
from gnnloom.workflows.cli.terminal.options import (
    cluster_options,
    current_catalog,
    flag_option,
    json_option,
    key_option,
    method_option,
    object_option,
)
from gnnloom.workflows.cli.terminal.output import show
from gnnloom.workflows.cli.terminal.progress import shown_progress


@click.command("sample", cls=GroupedCommand)
@click.argument("name")
@object_option("options", SampleOptions)
@method_option(METHODS, "Method of the partition for several ranks, if the dataset has several.")
@key_option("graph")
@key_option("partition")
@flag_option("plan", "Only print what it would need: tasks, memory and disk space.")
@cluster_options
@json_option
def sample_command(
    name: str,
    options: SampleOptions,
    method: str | None,
    graph: str | None,
    partition: str | None,
    plan: bool,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Draw the batches of some epochs of dataset NAME, and pack the features that they read.

    `gnnloom train NAME --mode neighbor --samples KEY` then reads the batches from disk one after the other, and its
    losses equal the losses of a run with the same seed that draws its own.

    \b
    Example:
      gnnloom sample web --fanout 15,10,5 --batch-size 1024 --epochs 5
      gnnloom sample web --fanout 15,10,5 --ranks 4 --workers 8
      gnnloom sample web --fanout 15,10,5 --epochs 20 --plan
    """
    dataset = current_catalog()[name]
    stored, parts = find_sampled(dataset, options, graph, partition, method)
    if plan:
        projection = project_samples(dataset, stored, parts, options, cluster.tasks_at_once)
        show(projection.to_json(), as_json=as_json, title=f"plan: samples of {name} (memory and disk are upper bounds)")
        return
    with shown_progress():
        samples = make_samples(dataset, stored, parts, options, cluster)
    show(samples_result(name, samples), as_json=as_json, title=f"samples of {name}")


def samples_result(name: str, samples: Samples) -> dict[str, Any]:
    """Return the object that `sample --json` prints."""
    artifact = samples.artifact
    return {
        "dataset": name,
        "key": artifact.key,
        "digest": artifact.digest,
        "ranks": samples.num_ranks,
        "epochs": samples.num_epochs,
        "batches": sum(samples.num_batches) * samples.num_epochs,
        "bytes": artifact.stored_bytes(),
        "seconds": sum(artifact.measured["task_seconds"].values()),
        "peak_memory": artifact.measured["peak_memory"],
    }
