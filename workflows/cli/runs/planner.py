"""`gnnloom plan`: the time and memory of a training on every algorithm, process grid and partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from gnnloom.storage.option import Group, Option, options_of
from gnnloom.storage.wording import counted
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.planner.profile import LOCAL
from gnnloom.workflows.cli.terminal.help import GroupedCommand
from gnnloom.workflows.cli.terminal.options import add_options, click_option, current_catalog, json_option, key_option
from gnnloom.workflows.cli.terminal.output import show, show_rows
from gnnloom.workflows.cli.terminal.screen import say

if TYPE_CHECKING:
    from gnnloom.trainer.planner.candidates import Plan

#: Fields of a training that decide what an epoch takes, besides its algorithm.
MODEL_FIELDS = (
    "model", "mode", "hidden", "heads", "attention", "precision", "norm", "residual", "dropout", "product_order",
    "train_features", "embed", "permutation",
)  # fmt: skip


#: Fields that decide it, too, if pairs of vertices are predicted.
PAIR_FIELDS = ("task", "links", "output_dim", "link_batch", "exclude_targets", "negatives", "negative_sampler")
#: Precisions that `gnnloom plan` compares unless one is given.
PRECISIONS = ("float32", "bf16")


#: Options of the model that a plan is for.
MODEL_OPTIONS: Final = tuple(options_of(TrainConfig)[name] for name in MODEL_FIELDS)
#: Options of the task, if pairs of vertices are predicted.
PAIR_OPTIONS: Final = tuple(options_of(TrainConfig)[name] for name in PAIR_FIELDS)
#: Options of the machine that a plan is for.
MACHINE_OPTIONS: Final = (
    Option(
        "memory_per_rank",
        int,
        "Memory of a rank, such as 16G.",
        group=Group.EXECUTION,
        is_common=True,
        is_size=True,
        default_text="that of the profile",
    ),
    Option(
        "profile",
        str,
        "Profile of the machine: one that `gnnloom calibrate` stored, summit, perlmutter or frontier (published"
        " figures), generic (a small machine), or a JSON file.",
        LOCAL,
        group=Group.EXECUTION,
        is_common=True,
    ),
)


@click.command("plan", cls=GroupedCommand)
@click.argument("name", metavar="NAME")
@click_option(replace(options_of(TrainConfig)["ranks"], help="Number of MPI ranks.", default=2))
@add_options((*MODEL_OPTIONS, *PAIR_OPTIONS), checks=False)
@add_options(MACHINE_OPTIONS)
@key_option("graph")
@click_option(Option("top", int, "Rows of the table.", 15, group=Group.OUTPUT, least=1))
@json_option
def plan_command(
    name: str,
    ranks: int,
    memory_per_rank: int | None,
    profile: str,
    graph: str | None,
    top: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Predict an epoch of a training of dataset NAME on every algorithm and process grid, best first.

    Without --precision, both float32 and bf16 are in the table.

    Nothing runs: bytes and messages follow from the graph, the model and the partitions at hand, the times from the
    profile of the machine. An asterisk marks estimates; all other bytes and messages are exact.

    \b
    Example:
      gnnloom calibrate --ranks 4
      gnnloom plan web --ranks 4 --hidden 128,128
      gnnloom plan web --ranks 64 --profile perlmutter --memory-per-rank 40G
      gnnloom plan web --task link
    """
    from gnnloom.trainer.planner.candidates import make_plans
    from gnnloom.trainer.planner.profile import open_profile
    from gnnloom.trainer.planner.stored import situation_of

    catalog = current_catalog()
    machine = open_profile(catalog.root, profile)
    config = model_config(options, dataset=name, ranks=ranks)
    situation = situation_of(catalog.dataset(name), graph, given=config, embed=config.embed)
    is_open = click.get_current_context().get_parameter_source("precision") is ParameterSource.DEFAULT
    precisions = PRECISIONS if is_open else (config.precision,)
    plans = make_plans(config, situation, machine, memory_per_rank or 0, precisions=precisions)
    if as_json:
        content = {
            "dataset": name,
            "ranks": ranks,
            "profile": machine.name,
            "clock": machine.clock,
            "note": machine.note,
        }
        show({**content, "plans": [plan.to_json() for plan in plans]}, as_json=True, title="")
        return
    title = f"{name} on {counted(ranks, 'rank')}, profile {machine.name} ({machine.clock} time)"
    show_rows(_COLUMNS, [_row(plan) for plan in plans[:top]], title=title)
    if machine.note:
        say(machine.note)
    for note in sorted(
        {f"* {plan.partition or plan.config.algorithm}: {plan.estimated}" for plan in plans[:top] if plan.estimated}
    ):
        say(note)
    if len(plans) > top:
        say(f"{len(plans) - top} more; show them with --top {len(plans)} or --json")


def model_config(options: Mapping[str, Any], **fields: Any) -> TrainConfig:
    """The configuration of a training with these options."""
    # Options that can be denied are None if they are not given.
    given = {name: value for name, value in options.items() if value is not None}
    return TrainConfig(catalog=str(current_catalog().root), **given, **fields)


_COLUMNS = ("plan", "precision", "epoch ms", "compute", "comm.", "waiting", "sent MiB", "memory MiB")


def _row(plan: Plan) -> list[str]:
    cost = plan.cost
    name = f"{plan.config.algorithm} {'x'.join(map(str, plan.grid))} {plan.partition}".strip()
    return [
        name + ("*" if plan.estimated else ""),
        plan.config.precision,
        *(f"{each * 1e3:,.3g}" for each in (cost.total, cost.compute, cost.exposed, cost.waiting)),
        f"{sum(plan.volume.bytes.values()) / 2**20:,.1f}",
        f"{plan.peak_memory / 2**20:,.0f}" + ("" if plan.fits else " (too much)"),
    ]
