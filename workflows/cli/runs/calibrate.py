"""`gnnloom calibrate`: measure the profile of this machine, for `gnnloom plan`."""

from __future__ import annotations

from typing import Any

import click

from gnnloom.trainer.planner.profile import LOCAL
from gnnloom.workflows.cli.terminal.options import current_catalog, json_option
from gnnloom.workflows.cli.terminal.output import show_json, show_rows


@click.command("calibrate")
@click.option("--ranks", type=click.IntRange(1, 4096), default=2, show_default=True, help="Ranks to start here.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Threads per rank.")
@click.option("--name", default=LOCAL, show_default=True, help="Name of the profile in the catalog.")
@click.option(
    "--clock",
    type=click.Choice(("wall", "processor")),
    default="wall",
    show_default=True,
    help="Clock to use; measure processor time if other programs use the machine too.",
)
@click.option("--scale", type=click.FloatRange(min=0.001, max=4), default=1.0, hidden=True)
@json_option
def calibrate_command(ranks: int, threads: int, name: str, clock: str, scale: float) -> None:
    """Measure products, memory and communication, and store them in the catalog as a profile of this machine.

    Takes one to two minutes. In an MPI job, the ranks of the job measure; use as many ranks per node as the training
    run will use.

    \b
    Example:
      gnnloom calibrate --ranks 4
      srun -n 64 gnnloom calibrate --name cluster
    """
    from gnnloom.trainer.job.ranks import ranks_of_job
    from gnnloom.workflows.api.machine import measured_profile

    with ranks_of_job("gnnloom calibrate", exits=True) as here:
        profile, path = measured_profile(here, current_catalog().root, name, ranks, threads, clock, scale)
        if not here.is_first:
            return
    content = profile.to_json()
    if show_json({"profile": name, "path": str(path), **content}):
        return
    show_rows(("figure", "measured", "spread"), _rows(content), title=f"profile {name}, in {path}")


def _products(rates: dict[str, Any], suffix: str, spread: dict[str, str]) -> list[list[str]]:
    """The largest measured product of each kind."""
    widths, degrees, _ = (axis[-1] for axis in rates["spmm"]["axes"])
    shown = {
        "spmm": f"sparse product{suffix}, {widths} columns, {degrees} nonzeros per row",
        "gemm": f"dense product{suffix}, short side {rates['gemm']['axes'][0][-1]}",
    }
    return [
        [what, f"{2e-9 / rates[kind]['values'][-1]:.2f} GFLOP/s", spread.get(kind + suffix, "-")]
        for kind, what in shown.items()
    ]


def _rows(content: dict[str, Any]) -> list[list[str]]:
    """The figures for people."""
    spread = {what: f"{share:.0%}" for what, share in content["spread"].items()}
    rows = [
        row for suffix, rates in (("", content), (" bf16", content["bf16"])) for row in _products(rates, suffix, spread)
    ]
    rows.append(["memory, sum of two arrays", f"{content['stream'] / 1e9:.1f} GB/s", spread.get("stream", "-")])
    rows.append(["any operation", f"{content['call'] * 1e6:.1f} us", spread.get("call", "-")])
    rows.append(["exchange hidden by a product", f"{content['overlap']:.0%}", spread.get("overlap", "-")])
    for what, key in (("intra", "link within a node"), ("inter", "link between nodes")):
        link = content[what]
        shown = f"{link['latency'] * 1e6:.1f} us, {link['bandwidth'] / 1e9:.2f} GB/s"
        rows.append([key, shown, spread.get(key, "-")])
    for rate in content["collectives"]:
        shown = f"{rate['latency'] * 1e6:.1f} us, {1e-9 / rate['byte_seconds']:.2f} GB/s"
        rows.append([f"{rate['operation']} of {rate['group']}", shown, spread.get(rate["operation"], "-")])
    return rows
