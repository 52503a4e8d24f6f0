"""Runs a recipe from raw data to predictions, on ranks that this process starts or on the ranks of an MPI job.

The ranks of a job are a Dask cluster until the shards are made. Then the same ranks train.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage import Catalog
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.job.ranks import Ranks
from gnnloom.workflows.recipe.request import RecipeRequest
from gnnloom.workflows.recipe.stages.all_stages import RecipeStages
from gnnloom.workflows.recipe.stages.predict import write_output
from gnnloom.workflows.recipe.stages.stage import Display, Stage
from gnnloom.workflows.run.cluster_of_ranks import cluster_of_ranks

logger = logging.getLogger(__name__)
Kind = TypeVar("Kind")


def run_recipe(request: RecipeRequest, ranks: Ranks, display: Display) -> RecipeStages:
    """Run the stages of a recipe that are not done. Collective on the ranks of a job.

    Returns:
        The requested stages, as they were before.

    Raises:
        GnnloomError: the recipe or its input cannot be used, or a stage failed; on the ranks of a job a
            CollectiveError, raised on every rank.
        StoppedError: the work was asked to stop; finished work is kept.
    """
    # Every rank reads the recipe itself. Only the state of the stages, which may change meanwhile, is sent.
    checked = ranks.agree(lambda: request.check(ranks), lambda checked: _options(request, checked))
    done = ranks.on_first(lambda: [stage.is_done for stage in checked.stages])
    known = zip(checked.stages, done, strict=True)
    requested = replace(checked, stages=tuple(replace(stage, is_done=is_done) for stage, is_done in known))

    def work(options: ClusterOptions) -> None:
        # Interrupted only inside the cluster, which must be closed properly: that ends the other ranks' part.
        with open_cluster(options) as cluster, display.phases(), ranks.working_for_all():
            prepare(requested, cluster)

    if requested.needs_preparation:
        with cluster_of_ranks(ranks, requested.found) as options:
            # Ranks that have served sleep until the client is done; a failure of the client is raised on all ranks.
            ranks.agree(lambda: None if options is None else work(options))
    for kind, stage in _undone(requested.on_ranks):
        kind.run(requested.found, stage.options, ranks, display)
    if any(stage.name == "predict" for stage in requested.stages):
        write_output(requested.found, ranks)
    return requested


def _options(request: RecipeRequest, checked: RecipeStages) -> dict[str, Any]:
    """Options that must be equal on all ranks: the request, the recipe and the keys of its artifacts."""
    asked = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
    recipe = checked.found.recipe
    sections = {f"[{name}] {key}": value for name, values in recipe.values().items() for key, value in values.items()}
    others = {name: getattr(recipe, name) for name in ("source_name", "catalog", "relations", "lists")}
    artifacts = {f"key of the {kind}": key for kind, key in checked.found.keys.items()}
    return {**asked, **sections, **others, **artifacts}


def _undone(stages: Iterable[tuple[Kind, Stage]]) -> Iterator[tuple[Kind, Stage]]:
    """Yield the stages that are not done, and log when each begins and ends."""
    for kind, stage in stages:
        if stage.is_done:
            logger.info("%s: already done (%s)", stage.name, stage.key)
            continue
        started = time.perf_counter()
        logger.info("%s: begins", stage.name)
        yield kind, stage
        logger.info("%s: done in %.1f s (%s)", stage.name, time.perf_counter() - started, stage.key)


def prepare(requested: RecipeStages, cluster: Cluster) -> None:
    """Run the unfinished stages that come before the stages of the ranks.

    Raises:
        GnnloomError: a stage failed, or the vertex data do not fit the training.
    """
    recipe = requested.found.recipe
    dataset = Catalog(recipe.catalog).create(recipe.dataset.name)
    for kind, stage in _undone(requested.preparation):
        kind.prepare(requested.found, stage.options, dataset, cluster)


def summary(requested: RecipeStages) -> dict[str, Any]:
    """Return the keys and digests of the artifacts that the stages made, and the result of the run."""
    dataset = requested.found.dataset
    made = [stage for stage in requested.stages if stage.kind.makes_artifact]
    digests = {stage.name: Artifact(dataset.path / stage.name / stage.key).digest for stage in made}
    keys = {stage.name: stage.key for stage in requested.stages}
    result = Run.open(dataset, requested.found.run.name).result() if "train" in keys else {}
    return {"dataset": dataset.name, "catalog": str(dataset.path.parent), "keys": keys, "digests": digests, **result}
