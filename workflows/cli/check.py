"""`gnnloom check`: a tiny parallel training run, to try after installation."""

from __future__ import annotations

import click

from gnnloom.workflows.cli.terminal.options import json_option
from gnnloom.workflows.cli.terminal.output import show_json, show_rows
from gnnloom.workflows.formatting import readable_seconds


@click.command("check")
@click.option("--ranks", type=click.IntRange(min=2, max=64), default=2, show_default=True, help="Number of MPI ranks.")
@json_option
def check_command(ranks: int) -> None:
    """Generate a graph, partition, shard, train on one rank and on several, compare the losses, verify, clean up.

    Exits with code 0 on success.

    \b
    Example:
      gnnloom check
    """
    from gnnloom.workflows.api.machine import check

    steps = check(ranks=ranks)
    rows = [{"step": step.name, "found": step.found, "seconds": step.seconds} for step in steps]
    if show_json({"ok": True, "ranks": ranks, "steps": rows}):
        return
    lines = [(step.name, step.found, readable_seconds(step.seconds)) for step in steps]
    show_rows(("step", "result", "time"), lines, title="all checks passed")
