"""Runs the stages of a recipe in order and skips those that are done, however the training is started."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from gnnloom.pipeline.ingest.stage import ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.partition.stage import partition_graph
from gnnloom.pipeline.samples.stage import write_samples
from gnnloom.pipeline.shards.grid.grid_stage import shard_grid
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.files import written_aside
from gnnloom.storage.format.seal import seal_text
from gnnloom.storage.runs.run import Run, sole_writer
from gnnloom.workflows.interop.export import write_predictions
from gnnloom.workflows.recipe.request import Assignment
from gnnloom.workflows.recipe.stages import Stage
from gnnloom.workflows.recipe.trainable import check_trainable

logger = logging.getLogger(__name__)

#: Name of the resolved recipe in a run's folder.
SAVED_RECIPE = "recipe.toml"


def run_stages(stages: Sequence[Stage], actions: Mapping[str, Callable[[], None]]) -> None:
    """Run the stages that are not done, each by its action, and log when each begins and ends.

    Args:
        actions: what to call for each stage, by the stage's name.
    """
    for stage in stages:
        if stage.is_done:
            logger.info("%s: already done (%s)", stage.name, stage.key)
        else:
            with _timed(stage):
                actions[stage.name]()


@contextmanager
def _timed(stage: Stage) -> Iterator[None]:
    """Log when a stage begins, and how long it took."""
    started = time.perf_counter()
    logger.info("%s: begins", stage.name)
    yield
    logger.info("%s: done in %.1f s (%s)", stage.name, time.perf_counter() - started, stage.key)


def prepare(assignment: Assignment, cluster: Cluster) -> None:
    """Run the stages before training that are not done.

    Raises:
        GnnloomError: a stage failed, or the vertex data do not fit the training.
    """
    preparation = _Preparation(assignment, cluster)
    actions = {
        "graph": preparation.make_graph,
        "vertices": preparation.make_vertices,
        "partition": preparation.make_partition,
        "shards": preparation.make_shards,
        "samples": preparation.make_samples,
    }
    run_stages(assignment.workload.preparation, actions)


class _Preparation:
    """The stages before training, as methods that make one artifact each."""

    def __init__(self, assignment: Assignment, cluster: Cluster) -> None:
        self.recipe, self.keys, self.cluster = assignment.recipe, assignment.workload.all_keys, cluster
        self.dataset = Catalog(self.recipe.catalog).create(self.recipe.dataset.name)

    # Opened on first use: when this object is made, the stages that store them may not have run.
    @cached_property
    def graph(self) -> Graph:
        return self.dataset.graph(self.keys["graph"])

    @cached_property
    def vertices(self) -> Vertices:
        return self.dataset.vertices(self.keys["vertices"])

    def make_graph(self) -> None:
        edges = self.recipe.source.open(undirected=self.recipe.dataset.undirected)
        # Another recipe may keep another graph in this dataset: later stages name the graph that they read by its key.
        ingest_graph(self.dataset, edges, self.recipe.dataset.options(), self.cluster, allow_others=True)

    def make_vertices(self) -> None:
        source = self.recipe.vertices.open(self.recipe.source, self.graph)
        if source is not None:
            ingest_vertices(self.dataset, source, self.cluster, self.graph)
        # Fail now rather than after hours of partitioning.
        check_trainable(self.recipe, self.keys["vertices"])

    def make_partition(self) -> None:
        if self.recipe.partition is not None:
            partition_graph(self.dataset, self.graph, self.recipe.partition, self.cluster)

    def make_shards(self) -> None:
        key, grid = self.keys.get("partition"), self.recipe.grid
        partition = self.dataset.partition(key=key) if key is not None else None
        if grid is not None:
            shard_grid(self.dataset, self.graph, grid, self.cluster, self.vertices.artifact, partition)
        elif partition is not None:
            shard_rows(self.dataset, partition, self.cluster, self.vertices, self.recipe.shards.reorder)

    def make_samples(self) -> None:
        options = self.recipe.sampled
        if options is not None:
            partition = self.dataset.partition(key=self.keys["partition"]) if options.ranks > 1 else None
            write_samples(self.dataset, self.graph, partition, options, self.cluster)


def save_recipe(assignment: Assignment) -> None:
    """Write the resolved recipe into the run's folder.

    Raises:
        ExistsError: another process is writing the run.
    """
    recipe = assignment.recipe
    run = Run(Catalog(recipe.catalog)[recipe.dataset.name].run_path(assignment.workload.config.run_name))
    # Under the lock, or this could replace the recipe of a training that is in progress.
    with sole_writer(run):
        run.path.mkdir(parents=True, exist_ok=True)
        with written_aside(run.path / SAVED_RECIPE, durable=True) as aside:
            aside.write_text(seal_text(recipe.anywhere().to_toml()), encoding="utf-8")


def write_output(assignment: Assignment) -> None:
    """Write the predictions to the file that the recipe names, if it names one and they were asked for.

    An existing file is always replaced, because it may hold the predictions of another run.
    """
    recipe, workload = assignment.recipe, assignment.workload
    if "predict" in workload and recipe.predict is not None and recipe.predict.out is not None:
        dataset = Catalog(recipe.catalog)[recipe.dataset.name]
        write_predictions(dataset, Run.open(dataset, workload.config.run_name), Path(recipe.predict.out))


def summary(assignment: Assignment) -> dict[str, Any]:
    """Return the keys and digests of the artifacts that the stages made, and the result of the run."""
    recipe, workload = assignment.recipe, assignment.workload
    dataset = Catalog(recipe.catalog)[recipe.dataset.name]
    digests = {stage.name: Artifact(dataset.path / stage.name / stage.key).digest for stage in workload.preparation}
    keys = {stage.name: stage.key for stage in workload.stages}
    result = Run.open(dataset, workload.config.run_name).result() if "train" in workload else {}
    return {"dataset": dataset.name, "catalog": str(dataset.path.parent), "keys": keys, "digests": digests, **result}
