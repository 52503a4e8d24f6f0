"""Runs recipes: all stages from raw data to predictions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnloom.trainer.comm.transports.registry import LaunchedRank
from gnnloom.trainer.job.ranks import ranks_of_job
from gnnloom.workflows.api.catalog import CatalogLike, Dataset, Run, as_catalog
from gnnloom.workflows.recipe.request import RecipeRequest
from gnnloom.workflows.recipe.stages.stage import Display
from gnnloom.workflows.run.run_recipe import run_recipe


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
) -> Run | None:
    """Run a recipe from raw data to predictions; stages that are done are skipped.

    Inside an MPI job, the call is collective: the ranks first form a Dask cluster and then train.

    Args:
        recipe: a file, or the name of a recipe that comes with gnnloom.
        settings: values that override values of the recipe, such as ``{"train.epochs": 200}``.
        first, until: first and last stage to run: ``graph``, ``vertices``, ``links``, ``partition``, ``shards``,
            ``samples``, ``propagated``, ``train`` or ``predict``.
        cluster: where to run the stages before training: ``local``, ``mpi``, the address of a Dask scheduler, or its
            file; by default ``mpi`` inside an MPI job, and otherwise ``local``.
        catalog: folder of the datasets, unless the recipe names one.
        performance_report: HTML file for Dask's report on its workers.
        restart: start the training run over instead of continuing it; earlier stages are kept.

    Returns:
        The run, which does not exist yet if ``until`` names a stage before ``train``; None for a recipe without a
        section ``[train]``.

    Raises:
        InputError, NotFoundError: the recipe, or a source that it names, cannot be used.
        ExistsError: a run with another configuration has the name in the recipe; ``restart`` starts it over.
        IncompleteError: a stage before ``first`` is not done.
        LaunchError: the training ranks failed or, as ``StoppedError``, were asked to stop.
        CollectiveError: inside an MPI job: any of these errors, raised on every rank.
    """
    where = cluster or ("mpi" if LaunchedRank.from_environment().size > 1 else "local")
    report = None if performance_report is None else Path(performance_report)
    if isinstance(settings, Mapping):
        # Numbers, strings and lists have the same notation in JSON and TOML.
        settings = [f"{key}={json.dumps(value, default=str)}" for key, value in settings.items()]
    root = as_catalog(catalog).root
    request = RecipeRequest(Path(recipe), root, tuple(settings), where, first, until, report, restart)
    with ranks_of_job("gnnloom run", trains=True, is_rank=where == "mpi") as ranks:
        found = run_recipe(request, ranks, Display()).found
    return None if found.recipe.train is None else Run(Dataset(found.recipe.dataset_path), found.run.name)
