"""Runs recipes: all stages from raw data to predictions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from gnnloom.trainer.job.launch import StoppedError
from gnnloom.trainer.job.stop import StopRequest, preparing_signals
from gnnloom.workflows.api.catalog import CatalogLike, Dataset, as_catalog
from gnnloom.workflows.api.ranks import ranks_of_job
from gnnloom.workflows.api.run import Run
from gnnloom.workflows.recipe.request import Assignment, Request
from gnnloom.workflows.run.local import prepare_here, train_here


def run(
    recipe: Path | str,
    *,
    settings: Mapping[str, Any] | Sequence[str] = (),
    first: str | None = None,
    until: str | None = None,
    cluster: str | None = None,
    catalog: CatalogLike = None,
    performance_report: Path | str | None = None,
    restart: bool = False,
) -> Run:
    """Run a recipe from raw data to predictions; stages that are done are skipped.

    Inside an MPI job the call is collective: its ranks are a Dask cluster first, and then they train.

    Args:
        recipe: a file, or the name of a recipe that comes with gnnloom.
        settings: values that override the recipe's, such as ``{"train.epochs": 200}``.
        first, until: first and last stage to run: ``graph``, ``vertices``, ``partition``, ``shards``, ``samples``,
            ``train`` or ``predict``.
        cluster: where to run the stages before training: ``local``, ``mpi``, the address of a Dask scheduler, or its
            file; by default ``mpi`` inside an MPI job, and otherwise ``local``.
        catalog: folder of the datasets, unless the recipe names one.
        performance_report: HTML file for Dask's report on its workers.
        restart: start the training over instead of continuing it; the stages before it are kept.

    Returns:
        The run, which does not exist yet if ``until`` comes before the training.

    Raises:
        InputError, NotFoundError: the recipe, or a source that it names, cannot be used.
        ExistsError: the run's name in the recipe belongs to another training; ``restart`` starts it over.
        IncompleteError: a stage before ``first`` is not done.
        LaunchError: the ranks of the training failed or, as ``StoppedError``, were asked to stop.
        CollectiveError: inside an MPI job: any of these errors, raised on every rank.
    """
    in_job = ranks_of_job() > 1
    where = cluster or ("mpi" if in_job else "local")
    report = None if performance_report is None else Path(performance_report)
    request = Request(Path(recipe), as_catalog(catalog).root, _texts(settings), where, first, until, report, restart)
    return _run_of(_run_on_ranks(request) if where == "mpi" else _run_here(request))


def _run_here(request: Request) -> Assignment:
    assignment = request.check()
    prepare_here(assignment)
    train_here(assignment)
    return assignment


def _run_on_ranks(request: Request) -> Assignment:
    """Run on the ranks of this MPI job. Collective."""
    # Before the import, which takes seconds: a request to stop that comes meanwhile is remembered.
    stop = StopRequest(*preparing_signals())
    # This import starts MPI, which only the ranks of a job may do.
    from gnnloom.workflows.run.mpi import run_on_ranks

    outcome = run_on_ranks(request, nullcontext, stop)
    if not outcome.is_finished:
        raise StoppedError("stopped after a checkpoint; run the same recipe again to continue")
    return outcome.assignment


def _run_of(assignment: Assignment) -> Run:
    recipe, config = assignment.recipe, assignment.workload.config
    return Run(Dataset(recipe.dataset_path), config.run_name)


def _texts(settings: Mapping[str, Any] | Sequence[str]) -> tuple[str, ...]:
    """Settings as the command takes them, ``section.key=value`` each."""
    if not isinstance(settings, Mapping):
        return tuple(settings)
    # Numbers, texts and lists are written in JSON as in TOML.
    return tuple(f"{key}={json.dumps(value, default=str)}" for key, value in settings.items())
