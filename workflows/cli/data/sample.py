"""`gnnloom sample`: draw the batches of a training ahead of it."""

from __future__ import annotations

from typing import Any

import click

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.pipeline.partition.options import METHODS
from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.samples.projection import project_samples
from gnnloom.pipeline.samples.stage import write_samples
from gnnloom.storage.artifacts.samples import Samples
from gnnloom.workflows.api.cluster import on_cluster
from gnnloom.workflows.api.sample import find_sampled
from gnnloom.workflows.cli.terminal.help import GroupedCommand
from gnnloom.workflows.cli.terminal.options import current_catalog, key_option, method_option, object_option
from gnnloom.workflows.cli.terminal.stage import show_stage, stage_options, stored_result


@click.command("sample", cls=GroupedCommand)
@click.argument("name")
@object_option("options", SampleOptions)
@method_option(METHODS, "Method of the partition for several ranks, if the dataset has several.")
@key_option("graph")
@key_option("partition")
@stage_options()
def sample_command(name: str, options: SampleOptions, plan: bool, cluster: ClusterOptions, **keys: str | None) -> None:
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
    stored, parts = find_sampled(dataset, options, **keys)
    show_stage(
        f"samples of {name}",
        "memory and disk are upper bounds",
        plan=plan,
        project=lambda: project_samples(dataset, stored, parts, options, cluster.tasks_at_once),
        make=lambda: samples_result(
            name, on_cluster(cluster, lambda opened: write_samples(dataset, stored, parts, options, opened))
        ),
    )


def samples_result(name: str, samples: Samples) -> dict[str, Any]:
    """Return the object that `sample --json` prints."""
    batches = sum(samples.num_batches) * samples.num_epochs
    figures = {"ranks": samples.num_ranks, "epochs": samples.num_epochs, "batches": batches}
    return stored_result(name, samples.artifact, figures)
