"""`--codec` and `--plan`: how a graph is stored, and what storing it will take, for `ingest` and `generate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from gnnloom.pipeline.ingest.stage import IngestOptions, plan_ingest
from gnnloom.pipeline.sources.source import EdgeSource
from gnnloom.pipeline.tasks.cluster import ClusterOptions, available_cores, threads_suffice
from gnnloom.storage import Catalog
from gnnloom.storage.format.chunks import CODECS, DEFAULT_CODEC
from gnnloom.workflows.cli.output import readable, show, show_rows

Command = TypeVar("Command", bound=Callable[..., Any])


def plan_options(command: Command) -> Command:
    """``--codec`` and ``--plan``; the command gets ``codec`` and ``plan``."""
    codec = click.option(
        "--codec",
        type=click.Choice(CODECS),
        default=DEFAULT_CODEC,
        show_default=True,
        help="Compression of the graph: none, one that costs hardly any time, or the smallest files.",
    )
    plan = click.option("--plan", is_flag=True, help="Only say what it will take: tasks, memory, disk, time.")
    return codec(plan(command))


def show_plan(
    catalog: Catalog, source: EdgeSource, options: IngestOptions, cluster: ClusterOptions, *, as_json: bool
) -> None:
    """Print what an ingest would take.

    Raises:
        BudgetError: it cannot fit.
    """
    workers = available_cores() if cluster.workers is None else max(1, cluster.workers)
    plan = plan_ingest(source, options, _existing(catalog.root), workers, cluster.memory)
    if cluster.kind == "local" and cluster.workers is None and threads_suffice(workers, plan.work):
        plan = plan.in_one_process()
    show(plan.to_json(), as_json=as_json, title="plan")


def show_outcome(plan: Mapping[str, Mapping[str, Any]]) -> None:
    """Print what was planned beside what a run measured."""
    rows = [
        [name.replace("_", " "), *(readable(name, both[which]) for which in ("planned", "measured"))]
        for name, both in plan.items()
    ]
    show_rows(("", "planned", "measured"), rows)


def _existing(folder: Path) -> Path:
    """The folder itself, or the nearest above it that is there."""
    folder = folder.absolute()
    return next(path for path in (folder, *folder.parents) if path.is_dir())
