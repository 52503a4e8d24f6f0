"""`gnnloom sample`: draw the batches of a training ahead of it."""

from __future__ import annotations

from typing import Any

import click

from gnnloom.pipeline.partition.partitioners import METHODS
from gnnloom.pipeline.samples.options import MODES, SampleOptions
from gnnloom.pipeline.samples.projection import project_samples
from gnnloom.pipeline.tasks.cluster import ClusterOptions, available_cores
from gnnloom.storage.artifacts.samples import Samples
from gnnloom.workflows.api.sample import find_sampled, make_samples
from gnnloom.workflows.cli.options import (
    Fanouts,
    MemorySize,
    cluster_options,
    current_catalog,
    json_option,
    key_option,
)
from gnnloom.workflows.cli.output import show
from gnnloom.workflows.cli.progress import shown_progress

_DEFAULTS = SampleOptions()


@click.command("sample")
@click.argument("name")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default=_DEFAULTS.mode,
    show_default=True,
    help="Mode of the training that reads the samples.",
)
@click.option(
    "--fanout",
    type=Fanouts(),
    default=",".join(map(str, _DEFAULTS.fanout)),
    show_default=True,
    help="Neighbors to draw for each vertex, from the last layer to the first; -1 for all.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    default=_DEFAULTS.batch_size,
    show_default=True,
    help="Training vertices of a batch.",
)
@click.option(
    "--epochs",
    type=click.IntRange(min=1),
    default=_DEFAULTS.epochs,
    show_default=True,
    help="Epochs to draw; a longer training reads them again.",
)
@click.option("--ranks", type=click.IntRange(min=1), default=1, show_default=True, help="Ranks of the training.")
@click.option(
    "--method",
    type=click.Choice(tuple(METHODS)),
    default=None,
    help="Method of the partition for several ranks, if the dataset has several.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the batches; a training with this seed that draws its own has the same.",
)
@click.option("--replace", is_flag=True, help="Draw neighbors with replacement.")
@click.option(
    "--cache-memory",
    type=MemorySize(),
    default="256M",
    show_default=True,
    help="Memory of each training rank for the features of frequent vertices, which are stored once.",
)
@key_option("graph")
@key_option("partition")
@click.option("--plan", is_flag=True, help="Only print what it would need: tasks, memory and disk space.")
@cluster_options
@json_option
def sample_command(
    name: str,
    method: str | None,
    graph: str | None,
    partition: str | None,
    plan: bool,
    cluster: ClusterOptions,
    as_json: bool,
    **given: Any,
) -> None:
    """Draw the batches of some epochs of dataset NAME, and pack the features that they read.

    `gnnloom train NAME --mode neighbor --samples KEY` then reads the batches from disk one after the other, and its
    losses are those of a training with the same seed that draws its own.

    \b
    Example:
      gnnloom sample web --fanout 15,10,5 --batch-size 1024 --epochs 5
      gnnloom sample web --fanout 15,10,5 --ranks 4 --workers 8
      gnnloom sample web --fanout 15,10,5 --epochs 20 --plan
    """
    dataset, options = current_catalog()[name], SampleOptions(**given)
    stored, parts = find_sampled(dataset, options, graph, partition, method)
    if plan:
        workers = available_cores() if cluster.workers is None else max(1, cluster.workers)
        projection = project_samples(dataset, stored, parts, options, workers)
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
