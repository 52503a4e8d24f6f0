"""Runs the stages of a recipe in order and skips those that are done, however the training is started."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage import Catalog
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.runs.run import Run
from gnnloom.workflows.interop.export import write_predictions
from gnnloom.workflows.recipe.request import Assignment
from gnnloom.workflows.recipe.stages.predict import predicted_run
from gnnloom.workflows.recipe.stages.stage import Prepares, Stage

logger = logging.getLogger(__name__)


def undone(stages: Sequence[Stage]) -> Iterator[Stage]:
    """Yield the stages that are not done, and log when each begins and when its caller asks for the next one."""
    for stage in stages:
        if stage.is_done:
            logger.info("%s: already done (%s)", stage.name, stage.key)
            continue
        started = time.perf_counter()
        logger.info("%s: begins", stage.name)
        yield stage
        logger.info("%s: done in %.1f s (%s)", stage.name, time.perf_counter() - started, stage.key)


def prepare(assignment: Assignment, cluster: Cluster) -> None:
    """Run the stages before the stages of the ranks that are not done.

    Raises:
        GnnloomError: a stage failed, or the vertex data do not fit the training.
    """
    dataset = Catalog(assignment.recipe.catalog).create(assignment.recipe.dataset.name)
    for stage in undone(assignment.workload.preparation):
        if isinstance(stage.kind, Prepares):
            stage.kind.prepare(assignment.workload.found, dataset, cluster)


def write_output(assignment: Assignment) -> None:
    """Write the predictions to the file that the recipe names, if it names one and they were asked for.

    An existing file is always replaced, because it may hold the predictions of another run.
    """
    recipe, workload = assignment.recipe, assignment.workload
    if "predict" in workload and recipe.predict is not None and recipe.predict.out is not None:
        dataset, run = predicted_run(workload.found)
        write_predictions(dataset, run, Path(recipe.predict.out), smoothed=recipe.predict.smoothing.smooths)


def summary(assignment: Assignment) -> dict[str, Any]:
    """Return the keys and digests of the artifacts that the stages made, and the result of the run."""
    recipe, workload = assignment.recipe, assignment.workload
    dataset = Catalog(recipe.catalog)[recipe.dataset.name]
    digests = {stage.name: Artifact(dataset.path / stage.name / stage.key).digest for stage in workload.artifacts}
    keys = {stage.name: stage.key for stage in workload.stages}
    result = Run.open(dataset, workload.config.run_name).result() if "train" in workload else {}
    return {"dataset": dataset.name, "catalog": str(dataset.path.parent), "keys": keys, "digests": digests, **result}
