"""`gnnloom simulate`: how a training scales to thousands of ranks, by calculation."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnnloom.storage.errors import needing
from gnnloom.storage.option import Group, Option
from gnnloom.workflows.api.options.plan_options import MACHINE_OPTIONS, MODEL_OPTIONS, PAIR_OPTIONS
from gnnloom.workflows.cli.runs.planner import model_config
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
    from gnnloom.trainer.config.train_config import TrainConfig
    from gnnloom.trainer.planner.candidates import Plan, Situation

#: Most numbers of ranks in one simulation, and the largest: all grids of all algorithms are tried for each.
_MOST_POINTS, _MOST_RANKS = 64, 1 << 17


class RankList(click.ParamType[tuple[int, ...], object]):
    """Ascending numbers of ranks, such as ``2,4,8``; ``4,16,...,4096`` goes on with the same factor."""

    name = "ranks"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        items, found = [item.strip() for item in str(value).split(",")], list[int]()
        for number, item in enumerate(items):
            if item == "..." and len(found) > 1 and number == len(items) - 2 and found[-1] > found[-2]:
                last, factor = items[-1], found[-1] / found[-2]
                while last.isdecimal() and found[-1] * factor < int(last) and len(found) < _MOST_POINTS:
                    found.append(round(found[-1] * factor))
            elif re.fullmatch(r"[1-9]\d{0,6}", item):
                found.append(int(item))
            else:
                found.append(0)
        is_ascending = found == sorted(set(found)) and found[0] > 0
        if not is_ascending or found[-1] > _MOST_RANKS or len(found) > _MOST_POINTS:
            self.fail(f"{value!r} is not a list of ascending numbers such as 2,4,8 or 4,16,...,4096", param, ctx)
        return tuple(found)


#: A graph that exists as numbers only.
_SIZES = (
    Option("vertices", int, "Vertices of a graph that exists as numbers only.", least=1),
    Option("edges", int, "Its nonzeros: edges in both directions, and self loops.", least=1),
    Option("features", int, "Its features.", 128, least=1),
    Option("classes", int, "Its classes.", 32, least=1),
    Option("training_share", float, "Its labeled training vertices, as a share of all.", 0.5, above=0, most=1),
)


@click.command("simulate", cls=GroupedCommand)
@click.argument("name", metavar="[NAME]", required=False)
@add_options(replace(option, group=Group.GRAPH) for option in _SIZES)
@click.option(
    "--ranks",
    type=RankList(),
    default="4,16,...,4096",
    show_default=True,
    cls=DerivedOption,
    declared=Option(group=Group.DISTRIBUTION, is_common=True),
    help="Numbers of ranks.",
)
@flag_option("weak", "Let the graph grow with the ranks.", Group.GRAPH)
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
    """Predict how a training of dataset NAME, or of a graph given by its size, scales with the number of ranks.

    Each algorithm runs on its best process grid. Bytes and messages are exact, except those of p2p on numbers of ranks
    without a partition: these follow a law that is fitted to the partitions of the dataset, or, without any, the
    expectation of a random partition.

    \b
    Example:
      gnnloom simulate web --profile perlmutter --ranks 4,16,...,4096 --out scaling
      gnnloom simulate --vertices 111059956 --edges 3228124712 --profile frontier --csv papers.csv
    """
    from gnnloom.trainer.planner.profile import open_profile
    from gnnloom.trainer.planner.simulate import crossings, simulate

    sizes, graph = {size.name: options.pop(size.name) for size in _SIZES}, options.pop("graph")
    config = model_config(options, dataset=name or "numbers")
    situation = _situation(name, sizes, graph, config)
    machine = open_profile(current_catalog().root, profile)
    plans = simulate(config, situation, machine, ranks, memory_per_rank or 0, weak=weak)
    changes = crossings(plans)
    notes = [*filter(None, [machine.note]), *_notes(plans, situation)]
    if table is not None:
        _write_csv(table, plans)
    pages: list[Path] = []
    if out is not None:
        # Matplotlib is optional: it comes with the extra `report`.
        with needing("a page", "gnnloom[report]"):
            from gnnloom.workflows.report.scaling import write_scaling
        pages = write_scaling(f"Scaling of {name or 'a graph'} on {machine.name}", notes, plans, changes, out)
    content: dict[str, Any] = {
        "profile": machine.name,
        "plans": [plan.to_json() for plan in plans],
        "crossings": [vars(each) for each in changes],
        "notes": notes,
        "pages": [str(file) for file in pages],
    }
    if show_json(content):
        return
    show_rows(
        ("ranks", "fastest", "grid", "epoch ms", "comm.", "memory"), _rows(plans), title=f"profile {machine.name}"
    )
    for change in changes:
        say(f"from {change.ranks} ranks on: {change.now} instead of {change.before}")
    for note in notes:
        say(note)


def _situation(name: str | None, sizes: Mapping[str, Any], graph: str | None, config: TrainConfig) -> Situation:
    """The graph to simulate.

    Args:
        sizes: of a graph that exists as numbers only.
        graph: key of the dataset's.

    Raises:
        UsageError: neither a dataset nor a size is given, or both.
    """
    from gnnloom.trainer.planner.candidates import Situation
    from gnnloom.trainer.planner.describe import GraphFacts
    from gnnloom.trainer.planner.pair_steps import PairFacts
    from gnnloom.trainer.planner.stored import situation_of

    n, nnz = sizes["vertices"], sizes["edges"]
    is_size = n is not None and nnz is not None
    if (name is None) != is_size or (name is not None and (n or nnz)):
        raise click.UsageError("give the NAME of a dataset, or --vertices and --edges")
    if name is not None:
        return situation_of(current_catalog().dataset(name), graph, config=config)
    # Its edges are those in both directions.
    pairs = PairFacts.of(config, max(1, (nnz - n) // 2)) if config.task.on_pairs else None
    facts = GraphFacts(
        num_vertices=n,
        nnz=nnz,
        num_features=sizes["features"],
        num_outputs=config.task.output_dim if config.task.on_pairs else sizes["classes"],
        num_training=pairs.step_pairs if pairs is not None else max(1, round(n * sizes["training_share"])),
        one_class=pairs is None,
        pairs=pairs,
    )
    return Situation(facts)


def _notes(plans: Sequence[Plan], situation: Situation) -> list[str]:
    """Notes for display on figures that are not exact."""
    notes = sorted({f"{plan.config.algorithm.name}: {plan.estimated}" for plan in plans if plan.estimated})
    error = situation.law.error
    if error is not None:
        notes.append(f"the partitions are within {error:.1%} of the law")
    return notes


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


def _write_csv(path: Path, plans: Sequence[Plan]) -> None:
    rows = [plan.to_json() for plan in plans]
    names = [name for name, value in rows[0].items() if not isinstance(value, dict)]
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows({**row, "grid": "x".join(map(str, row["grid"]))} for row in rows)
