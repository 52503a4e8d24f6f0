"""`gnnloom demo`: every stage on a generated graph, in less than a minute, along with the commands that ran."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import click

from gnnloom.storage.errors import LaunchError
from gnnloom.storage.wording import counted, shell_command
from gnnloom.workflows.cli.terminal.options import current_catalog
from gnnloom.workflows.cli.terminal.output import show_rows
from gnnloom.workflows.cli.terminal.screen import console, say, text
from gnnloom.workflows.formatting import readable_bytes, readable_seconds


@dataclass(frozen=True)
class DemoStep:
    """One command of the demonstration."""

    title: str
    arguments: str


@dataclass(frozen=True)
class Outcome:
    """The JSON object that a step printed, and its wall time in seconds."""

    step: DemoStep
    result: dict[str, Any]
    seconds: float


def demo_steps(name: str, ranks: int, edges: int) -> list[DemoStep]:
    """Return the commands, from a generator to predictions."""
    vertices = max(100, edges // 20)
    classes = max(2, min(16, vertices // 250))
    return [
        DemoStep(
            "generate and ingest",
            f"generate {name} sbm --vertices {vertices} --edges {edges} --classes {classes} --noise 50 --seed 1",
        ),
        DemoStep("partition", f"partition {name} --parts {ranks} --quality fast"),
        DemoStep("shard", f"shard {name} --parts {ranks}"),
        DemoStep("train", f"train {name} --ranks {ranks} --hidden 64,64 --epochs 40 --lr 0.01 --run demo"),
        DemoStep("predict", f"predict {name} --run demo"),
    ]


@click.command("demo")
@click.option("--name", default="demo", show_default=True, help="Name of the dataset.")
@click.option("--ranks", type=click.IntRange(min=1), default=4, show_default=True, help="Number of MPI ranks.")
@click.option(
    "--edges", type=click.IntRange(min=1000), default=1_000_000, show_default=True, help="Number of edges to generate."
)
def demo_command(name: str, ranks: int, edges: int) -> None:
    """Run every stage on a generated graph: ingest, partition, shard, train, predict.

    \b
    Example:
      gnnloom demo --ranks 2 --edges 200000
    """
    root = str(current_catalog().root)
    screen = console()
    outcomes = []
    for step in demo_steps(name, ranks, edges):
        with screen.status(text(f"{step.title} ...")):
            outcome = _run(root, step)
        screen.print(text(("green", "done"), f"  {step.title} ({readable_seconds(outcome.seconds)})"))
        outcomes.append(outcome)
    _show_summary(outcomes)
    say("\nThe commands, to run on your own data (`gnnloom ingest --help` lists the formats):")
    for outcome in outcomes:
        say(f"  {shell_command('gnnloom', '--catalog', root)} {outcome.step.arguments}")
    say(f"  {shell_command('gnnloom', '--catalog', root, 'report', f'{name}/demo')}")


def _run(root: str, step: DemoStep) -> Outcome:
    # In a separate process, as a user would run it: imports and compilation are part of its time.
    command = [sys.executable, "-P", "-m", "gnnloom", "--catalog", root, *shlex.split(step.arguments)]
    started = time.perf_counter()
    done = subprocess.run([*command, "--json"], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise LaunchError(f"`gnnloom {step.arguments}` exited with code {done.returncode}:\n{done.stderr.strip()}")
    return Outcome(step, json.loads(done.stdout), time.perf_counter() - started)


def _show_summary(outcomes: list[Outcome]) -> None:
    graph, partition, _, training, _ = (outcome.result for outcome in outcomes)
    rows = [
        ("vertices", f"{graph['vertices']:,}"),
        ("edges generated", f"{graph['edges_in']:,}"),
        ("nonzeros stored", f"{graph['nnz']:,}"),
        *((f"seconds: {outcome.step.title}", f"{outcome.seconds:.1f}") for outcome in outcomes),
        ("peak memory of an ingest process", readable_bytes(graph["peak_memory"])),
        ("peak memory of a rank", _range(training["peak_memory"])),
        ("bytes read by a rank", _range(training["bytes_read"])),
        ("rows exchanged per layer and direction", f"{partition['km1']:,}"),
        ("imbalance", f"{partition['imbalance']:.3f}"),
        ("bytes sent per epoch, all ranks", readable_bytes(training["bytes_sent"])),
        ("epoch", readable_seconds(training["epoch_seconds"])),
        ("test accuracy", f"{training['test_accuracy']:.4f}"),
    ]
    show_rows(("", ""), rows, title=f"{counted(training['ranks'], 'rank')}, {training['algorithm']}")


def _range(values: list[int]) -> str:
    return f"{readable_bytes(min(values))} to {readable_bytes(max(values))}"
