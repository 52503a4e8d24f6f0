"""Runs a recipe: the stages in order, each found by its key and skipped where it is done."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from gnnloom.pipeline.ingest.stage import ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.partition.stage import partition_graph
from gnnloom.pipeline.shards.grid_stage import shard_grid
from gnnloom.pipeline.shards.row_stage import shard_rows
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.runs.run import Run, sole_writer
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import launch, launch_prediction
from gnnloom.workflows.interop.export import write_predictions
from gnnloom.workflows.recipe.recipe import Recipe
from gnnloom.workflows.recipe.stages import TRAINING, Plan, Step
from gnnloom.workflows.recipe.trainable import check_trainable

logger = logging.getLogger(__name__)

#: The resolved recipe in a run's folder.
SAVED_RECIPE = "recipe.toml"


def prepare(recipe: Recipe, plan: Plan, cluster: Cluster) -> None:
    """Run the stages of ``plan`` that come before training and are not done.

    Raises:
        GnnloomError: what a stage raises, or the vertex data do not fit the training.
    """
    work = _Work(recipe, plan, cluster)
    actions = {
        "graph": work.make_graph,
        "vertices": work.make_vertices,
        "partition": work.make_partition,
        "shards": work.make_shards,
    }
    for step in plan.steps:
        if step.stage in TRAINING:
            continue
        if step.is_done:
            logger.info("%s: there already (%s)", step.stage, step.key)
        else:
            with timed(step):
                actions[step.stage]()


@contextmanager
def timed(step: Step) -> Iterator[None]:
    """Say when a stage begins and when it is done."""
    started = time.perf_counter()
    logger.info("%s: begins", step.stage)
    yield
    logger.info("%s: done in %.1f s (%s)", step.stage, time.perf_counter() - started, step.key)


class _Work:
    """The stages before training, for one recipe."""

    def __init__(self, recipe: Recipe, plan: Plan, cluster: Cluster) -> None:
        self.recipe, self.plan, self.cluster = recipe, plan, cluster
        self.dataset = Catalog(recipe.catalog).create(recipe.dataset.name)

    @cached_property
    def graph(self) -> Graph:
        return self.dataset.graph(self.plan.all_keys["graph"])

    @cached_property
    def vertices(self) -> Vertices:
        return self.dataset.vertices(self.plan.all_keys["vertices"])

    def make_graph(self) -> None:
        edges = self.recipe.source.open(undirected=self.recipe.dataset.undirected)
        ingest_graph(self.dataset, edges, self.recipe.dataset.options(), self.cluster, allow_others=True)

    def make_vertices(self) -> None:
        source = self.recipe.vertices.open(self.recipe.source, self.graph)
        if source is not None:
            ingest_vertices(self.dataset, source, self.cluster, self.graph)
        check_trainable(self.recipe, self.plan.all_keys["vertices"])

    def make_partition(self) -> None:
        if self.recipe.partition is not None:
            partition_graph(self.dataset, self.graph, self.recipe.partition, self.cluster)

    def make_shards(self) -> None:
        key, grid = self.plan.all_keys.get("partition"), self.recipe.grid
        partition = self.dataset.partition(key=key) if key is not None else None
        if grid is not None:
            shard_grid(self.dataset, self.graph, grid, self.cluster, self.vertices.artifact, partition)
        elif partition is not None:
            shard_rows(self.dataset, partition, self.cluster, self.vertices)


def save_recipe(recipe: Recipe, config: TrainConfig) -> None:
    """Write the resolved recipe into the run's folder.

    Raises:
        ExistsError: another process writes the run.
    """
    run = Run(Catalog(recipe.catalog)[recipe.dataset.name].run_path(config.run_name))
    with sole_writer(run):
        run.path.mkdir(parents=True, exist_ok=True)
        aside = run.path / f".{SAVED_RECIPE}"
        aside.write_text(recipe.anywhere().to_toml(), encoding="utf-8")
        aside.replace(run.path / SAVED_RECIPE)


def train_here(recipe: Recipe, plan: Plan) -> None:
    """Run the training stages of ``plan`` that are not done, on new MPI ranks of this machine.

    Raises:
        ExistsError: another process writes the run.
        LaunchError: the ranks failed, or were stopped (:class:`~gnnloom.trainer.job.launch.StoppedError`).
        InputError, IncompleteError: what the ranks found wrong.
    """
    dataset = Catalog(recipe.catalog)[recipe.dataset.name]
    for step in plan.steps:
        if step.stage not in TRAINING:
            continue
        if step.is_done:
            logger.info("%s: there already (run %s)", step.stage, step.key)
            continue
        with timed(step):
            if step.stage == "train":
                save_recipe(recipe, plan.config)
                launch(plan.config)
            else:
                launch_prediction(dataset, step.key, embeddings=bool(recipe.predict and recipe.predict.embeddings))
    write_output(recipe, plan)


def write_output(recipe: Recipe, plan: Plan) -> None:
    """Write the predictions into the file that the recipe names, if it does and ``plan`` predicts.

    Always: what lies there may be of another run.
    """
    if "predict" in plan and recipe.predict is not None and recipe.predict.out is not None:
        dataset = Catalog(recipe.catalog)[recipe.dataset.name]
        write_predictions(dataset, Run.open(dataset, plan.config.run_name), Path(recipe.predict.out))


def summary(recipe: Recipe, plan: Plan) -> dict[str, Any]:
    """What came of the stages of ``plan``: keys and digests of the artifacts, and the run's result."""
    dataset = Catalog(recipe.catalog)[recipe.dataset.name]
    digests = {
        step.stage: Artifact(dataset.path / step.stage / step.key).digest
        for step in plan.steps
        if step.stage not in TRAINING
    }
    keys = {step.stage: step.key for step in plan.steps}
    result = Run.open(dataset, plan.config.run_name).result() if "train" in plan else {}
    return {"dataset": dataset.name, "catalog": str(dataset.path.parent), "keys": keys, "digests": digests, **result}
