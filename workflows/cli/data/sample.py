"""`gnnloom sample`: draw the batches of a training run ahead of time."""

from __future__ import annotations

from typing import Any, Final

import click

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.pipeline.partition.options import METHODS
from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.samples.projection import project_samples
from gnnloom.pipeline.samples.stage import find_inputs, write_samples
from gnnloom.storage.artifacts.samples import StoredSamples
from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph
from gnnloom.storage.artifacts.typed.typed_names import vertex_choices
from gnnloom.storage.option import Group, Option
from gnnloom.workflows.api.cluster import on_cluster
from gnnloom.workflows.api.sample import find_sampled
from gnnloom.workflows.cli.terminal.help import GroupedCommand
from gnnloom.workflows.cli.terminal.options import (
    add_options,
    current_catalog,
    key_option,
    method_option,
    object_option,
)
from gnnloom.workflows.cli.terminal.screen import say
from gnnloom.workflows.cli.terminal.stage import show_stage, stage_options, stored_result

_VERTEX_DATA: Final = Option(
    "vertex_data",
    tuple[str, ...],
    "In a graph with types, vertex data to use if a type has several, as TYPE=KEY,...",
    default=(),
    group=Group.INPUT,
    metavar="TYPE=KEY",
)


@click.command("sample", cls=GroupedCommand)
@click.argument("name")
@object_option("options", SampleOptions)
@method_option(METHODS, "Method of the partition for several ranks, if the dataset has several.")
@key_option("graph")
@key_option("partition")
@add_options([_VERTEX_DATA])
@stage_options()
def sample_command(
    name: str,
    options: SampleOptions,
    plan: bool,
    cluster: ClusterOptions,
    vertex_data: tuple[str, ...],
    **keys: str | None,
) -> None:
    """Draw the batches of some epochs of dataset NAME, and pack the features that they read.

    `gnnloom train NAME --mode neighbor --samples KEY` then reads the batches from disk one after the other, and its
    losses equal the losses of a run with the same seed that draws its own.

    \b
    Example:
      gnnloom sample web --fanout 15,10,5 --batch-size 1024 --epochs 5
      gnnloom sample web --fanout 15,10,5 --ranks 4 --workers 8
      gnnloom sample web --fanout 15,10,5 --epochs 20 --plan
      gnnloom sample shop --of-type item --fanout 15,10 --relation-fanout bought_with=5:0 --ranks 4
    """
    dataset = current_catalog()[name]
    stored, parts = find_sampled(dataset, options, **keys)
    chosen = vertex_choices(vertex_data)
    if not plan and isinstance(stored, TypedGraph):
        expected = find_inputs(dataset, stored, parts, options, chosen).expected
        if expected is not None:
            say(f"expected in a batch: {expected}", on_stderr=True)
    show_stage(
        f"samples of {name}",
        "memory and disk are upper bounds",
        plan=plan,
        project=lambda: project_samples(dataset, stored, parts, options, cluster.tasks_at_once, chosen),
        make=lambda: samples_result(
            name, on_cluster(cluster, lambda opened: write_samples(dataset, stored, parts, options, opened, chosen))
        ),
    )


def samples_result(name: str, samples: StoredSamples[Any]) -> dict[str, Any]:
    """Return the object that `sample --json` prints."""
    batches = sum(samples.num_batches) * samples.num_epochs
    figures = {"ranks": samples.num_ranks, "epochs": samples.num_epochs, "batches": batches}
    return stored_result(name, samples.artifact, figures)
