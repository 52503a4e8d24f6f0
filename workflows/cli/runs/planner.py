"""`gnnloom plan`: the time and memory of a training run for every algorithm, process grid and partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gnnloom.storage.option import Group, Option, options_of
from gnnloom.storage.wording import counted
from gnnloom.trainer.algorithms.p2p import ROWS
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.workflows.api.options.plan_options import MACHINE_OPTIONS, MODEL_OPTIONS, PAIR_OPTIONS, planned
from gnnloom.workflows.cli.terminal.help import GroupedCommand
from gnnloom.workflows.cli.terminal.options import add_options, click_option, current_catalog, json_option, key_option
from gnnloom.workflows.cli.terminal.output import show_json, show_rows
from gnnloom.workflows.cli.terminal.screen import say

if TYPE_CHECKING:
    from gnnloom.trainer.planner.candidates import Plan


@click.command("plan", cls=GroupedCommand)
@click.argument("name", metavar="NAME")
@click_option(replace(options_of(TrainConfig)["ranks"], help="Number of MPI ranks.", default=2))
@add_options((*MODEL_OPTIONS, *PAIR_OPTIONS), checks=False)
@add_options(MACHINE_OPTIONS)
@key_option("graph")
@click_option(Option("top", int, "Number of rows of the table.", 15, group=Group.OUTPUT, least=1))
@json_option
def plan_command(
    name: str,
    ranks: int,
    memory_per_rank: int | None,
    profile: str,
    graph: str | None,
    top: int,
    **options: Any,
) -> None:
    """Predict the time and the traffic of an epoch on dataset NAME for every algorithm and process grid, best first.

    Without --precision, the table has both float32 and bf16.

    Nothing is trained. Bytes and messages are computed from the stored graph and partitions and the model; times are
    computed from the profile of the machine. An asterisk marks an estimate; all other bytes and messages are exact.

    \b
    Example:
      gnnloom calibrate --ranks 4
      gnnloom plan web --ranks 4 --hidden 128,128
      gnnloom plan web --ranks 64 --profile perlmutter --memory-per-rank 40G
      gnnloom plan web --task link
    """
    config = model_config(options, dataset=name, ranks=ranks)
    is_open = click.get_current_context().get_parameter_source("precision") is ParameterSource.DEFAULT
    machine, plans = planned(config, graph, profile, memory_per_rank or 0, is_open=is_open)
    content = {
        "dataset": name,
        "ranks": ranks,
        "profile": machine.name,
        "clock": machine.clock,
        "note": machine.note,
        "plans": [plan.to_json() for plan in plans],
    }
    if show_json(content):
        return
    title = f"{name} on {counted(ranks, 'rank')}, profile {machine.name} ({machine.clock} time)"
    show_rows(_COLUMNS, [_row(plan) for plan in plans[:top]], title=title)
    if machine.note:
        say(machine.note)
    for note in sorted(
        {
            f"* {plan.partition or plan.config.algorithm.name}: {plan.estimated}"
            for plan in plans[:top]
            if plan.estimated
        }
    ):
        say(note)
    if len(plans) > top:
        say(f"{len(plans) - top} more; show them with --top {len(plans)} or --json")


def model_config(options: Mapping[str, Any], **fields: Any) -> TrainConfig:
    """The configuration of a training run with these options."""
    # Options that can be negated are None if they are not given.
    given = {name: value for name, value in options.items() if value is not None}
    return TrainConfig.of(catalog=str(current_catalog().root), **given, **fields)


_COLUMNS = ("plan", "precision", "epoch ms", "compute", "comm.", "waiting", "sent MiB", "memory MiB")


def _row(plan: Plan) -> list[str]:
    cost = plan.cost
    what = [plan.config.algorithm.name, "x".join(map(str, plan.grid)), plan.partition]
    name = " ".join(filter(None, [*what, plan.exchange if plan.exchange != ROWS else ""]))
    return [
        name + ("*" if plan.estimated else ""),
        plan.config.model.precision,
        *(f"{each * 1e3:,.3g}" for each in (cost.total, cost.compute, cost.exposed, cost.waiting)),
        f"{sum(plan.volume.bytes.values()) / 2**20:,.1f}",
        f"{plan.peak_memory / 2**20:,.0f}" + ("" if plan.fits else " (too much)"),
    ]
