"""`gnnloom simulate`: calculates how a training run scales to thousands of ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Group, Option
from gnnloom.workflows.api.machine import MOST_POINTS, check_rank_list, is_one_graph, simulate
from gnnloom.workflows.api.options.plan_options import MACHINE_OPTIONS, MODEL_OPTIONS, PAIR_OPTIONS, SIZE_OPTIONS
from gnnloom.workflows.cli.terminal.help import DerivedOption, GroupedCommand
from gnnloom.workflows.cli.terminal.options import (
    FOLDER,
    add_options,
    click_option,
    current_catalog,
    flag_option,
    json_option,
    key_option,
)
from gnnloom.workflows.cli.terminal.output import show_json, show_rows
from gnnloom.workflows.cli.terminal.screen import say
from gnnloom.workflows.formatting import readable_bytes

if TYPE_CHECKING:
    from gnnloom.trainer.planner.candidates import Plan


class RankList(click.ParamType[tuple[int, ...], object]):
    """Ascending numbers of ranks, such as ``2,4,8``; ``4,16,...,4096`` continues with the same factor."""

    name = "ranks"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        items, found = [item.strip() for item in str(value).split(",")], list[int]()
        for number, item in enumerate(items):
            if item == "..." and len(found) > 1 and number == len(items) - 2 and found[-1] > found[-2]:
                last, factor = items[-1], found[-1] / found[-2]
                while last.isdecimal() and found[-1] * factor < int(last) and len(found) < MOST_POINTS:
                    found.append(round(found[-1] * factor))
            elif re.fullmatch(r"[1-9]\d{0,6}", item):
                found.append(int(item))
            else:
                found.append(0)
        try:
            check_rank_list(found)
        except InputError:
            self.fail(f"{value!r} is not a list of ascending numbers such as 2,4,8 or 4,16,...,4096", param, ctx)
        return tuple(found)


@click.command("simulate", cls=GroupedCommand)
@click.argument("name", metavar="[NAME]", required=False)
@add_options(SIZE_OPTIONS)
@click.option(
    "--ranks",
    type=RankList(),
    default="4,16,...,4096",
    show_default=True,
    cls=DerivedOption,
    declared=Option(group=Group.DISTRIBUTION, is_common=True),
    help="Numbers of ranks to predict, such as 4,16 or 4,8,...,64.",
)
@flag_option("weak", "Weak scaling: let the graph grow in proportion to the ranks.", Group.GRAPH)
@add_options((*MODEL_OPTIONS, *PAIR_OPTIONS), checks=False)
@add_options(MACHINE_OPTIONS)
@key_option("graph")
@click_option(Option("csv", Path, "Write all figures to this file.", group=Group.OUTPUT, metavar="FILE"), "table")
@click_option(Option("out", Path, "Write a page with the curves into this folder.", group=Group.OUTPUT, metavar=FOLDER))
@json_option
def simulate_command(
    name: str | None,
    ranks: tuple[int, ...],
    weak: bool,
    memory_per_rank: int | None,
    profile: str,
    table: Path | None,
    out: Path | None,
    **options: Any,
) -> None:
    """Predict how training on dataset NAME, or on a graph of a given size, scales with the number of ranks.

    The table shows each algorithm on its best process grid. Bytes and messages are exact, with one exception: if the
    dataset has no partition for a number of ranks, the figures of p2p are extrapolated from the partitions it has. A
    dataset without partitions is treated as randomly partitioned.

    \b
    Example:
      gnnloom simulate web --profile perlmutter --ranks 4,16,...,4096 --out scaling
      gnnloom simulate --vertices 111059956 --edges 3228124712 --profile frontier --csv papers.csv
    """
    if not is_one_graph(name, options["vertices"], options["edges"]):
        raise click.UsageError("give the NAME of a dataset, or --vertices and --edges")
    # Options that can be negated are None if they are not given.
    given = {option: value for option, value in options.items() if value is not None}
    found = simulate(
        None if name is None else current_catalog().dataset(name),
        ranks=ranks,
        weak=weak,
        memory_per_rank=memory_per_rank,
        profile=profile,
        csv=table,
        out=out,
        catalog=current_catalog(),
        **given,
    )
    if show_json(found.to_json()):
        return
    columns = ("ranks", "fastest", "grid", "epoch ms", "comm.", "memory")
    show_rows(columns, _rows(found.plans), title=f"profile {found.machine.name}")
    for change in found.crossings:
        say(f"from {change.ranks} ranks on: {change.now} instead of {change.before}")
    for note in found.notes:
        say(note)


def _rows(plans: Sequence[Plan]) -> list[list[str]]:
    """The fastest plan for every number of ranks."""
    from gnnloom.trainer.planner.simulate import fastest

    return [
        [
            f"{number:,}",
            plan.config.algorithm.name + ("*" if plan.estimated else ""),
            "x".join(map(str, plan.grid)),
            f"{plan.cost.total * 1e3:,.4g}",
            f"{plan.cost.exposed * 1e3:,.4g}",
            readable_bytes(plan.peak_memory) + ("" if plan.fits else " (too much)"),
        ]
        for number, plan in fastest(plans).items()
    ]
