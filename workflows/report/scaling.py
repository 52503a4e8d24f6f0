"""The report of a simulation: predicted epoch times and bytes over the number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from gnnloom.trainer.planner.candidates import Plan
from gnnloom.trainer.planner.simulate import Crossing
from gnnloom.workflows.formatting import readable_bytes
from gnnloom.workflows.report.folder import write_folder
from gnnloom.workflows.report.page import card, page, picture_card, section, table
from gnnloom.workflows.report.pictures.style import SERIES, WHOLE, Picture, color, draw_grid, draw_legend, new_axes


def write_scaling(
    title: str, notes: Sequence[str], plans: Sequence[Plan], found: Sequence[Crossing], folder: Path
) -> list[Path]:
    """Write a page with the curves, and the curves as PNG files.

    Returns:
        The page, then the pictures.

    Raises:
        ExistsError: the folder exists and is not a report.
        InputError: the folder cannot be created.
    """
    return write_folder(folder, lambda: _draw(title, notes, plans, found))


def _draw(
    title: str, notes: Sequence[str], plans: Sequence[Plan], found: Sequence[Crossing]
) -> tuple[str, list[Picture]]:
    """The page, and its pictures."""
    pictures = [
        _picture("seconds", "Predicted time per epoch", "seconds per epoch", plans, lambda plan: plan.cost.total),
        _picture(
            "bytes",
            "Bytes sent per rank",
            "MB sent per rank and epoch",
            plans,
            lambda plan: sum(plan.volume.bytes.values()) / plan.config.algorithm.ranks / 1e6,
        ),
    ]
    changes = [(f"{each.ranks:,}", each.before, each.now) for each in found]
    rows = [
        (
            plan.config.algorithm.name,
            f"{plan.config.algorithm.ranks:,}",
            "x".join(map(str, plan.grid)),
            f"{plan.cost.total:.4g}",
            f"{plan.cost.compute:.4g}",
            f"{plan.cost.exposed:.4g}",
            f"{plan.cost.waiting:.4g}",
            readable_bytes(plan.peak_memory) + ("" if plan.fits else " (too much)"),
        )
        for plan in plans
    ]
    columns = ("algorithm", "ranks", "grid", "epoch s", "compute", "communication", "waiting", "memory per rank")
    text = page(
        title,
        "\n".join(notes),
        section("Scaling", *map(picture_card, pictures)),
        section(
            "Figures",
            card("Where the fastest algorithm changes", table(("from ranks", "before", "then"), changes), kind="table"),
            card("Best grid of every algorithm", table(columns, rows), kind="wide tall"),
        ),
    )
    return text, pictures


def _picture(name: str, title: str, label: str, plans: Sequence[Plan], value: Callable[[Plan], float]) -> Picture:
    """Draw one line per algorithm; open circles mark plans that do not fit in memory."""
    figure, axes = new_axes(WHOLE)
    for number, algorithm in enumerate(sorted({plan.config.algorithm.name for plan in plans})):
        mine = [plan for plan in plans if plan.config.algorithm.name == algorithm and value(plan) > 0]
        shade = color(SERIES[number % len(SERIES)])
        points = [plan.config.algorithm.ranks for plan in mine], [value(plan) for plan in mine]
        axes.plot(*points, color=shade, label=algorithm, marker="o", markersize=3)
        missing = [plan for plan in mine if not plan.fits]
        axes.scatter(
            [plan.config.algorithm.ranks for plan in missing],
            [value(plan) for plan in missing],
            40,
            "none",
            edgecolors=shade,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(lambda ranks, _: f"{ranks:g}")
    axes.set_xlabel("ranks")
    axes.set_ylabel(label)
    draw_grid(axes)
    draw_legend(axes, columns=6)
    has_missing = any(not plan.fits for plan in plans)
    note = "Circles mark points that do not fit in the memory of a rank." if has_missing else ""
    rows = [
        (plan.config.algorithm.name, f"ranks  {plan.config.algorithm.ranks:,}", f"{label}  {value(plan):.4g}")
        for plan in plans
    ]
    return Picture(name, title, figure, note, rows=rows)
