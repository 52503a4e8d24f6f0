"""`gnnloom check`: a tiny parallel training, to run after installation."""

from __future__ import annotations

import time
from pathlib import Path

import click

from gnnloom.storage.disk.own_folder import own_folder
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
    from gnnloom.workflows.doctor.tiny_example import run_tiny_example

    rows, before = [], time.perf_counter()
    with own_folder("gnnloom-check-") as folder:
        for step in run_tiny_example(Path(folder, "catalog"), ranks):
            now = time.perf_counter()
            rows.append({"step": step.name, "found": step.found, "seconds": round(now - before, 3)})
            before = now
    if show_json({"ok": True, "ranks": ranks, "steps": rows}):
        return
    lines = [(str(row["step"]), str(row["found"]), readable_seconds(float(str(row["seconds"])))) for row in rows]
    show_rows(("step", "result", "time"), lines, title="all checks passed")
