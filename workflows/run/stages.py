"""Runs the stages of a recipe in order and skips those that are done, however the training is started."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gnnloom.pipeline.ingest.notes import graph_notes, log_notes, vertex_notes
from gnnloom.pipeline.ingest.stage import ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.pipeline.partition.stage import partition_graph
from gnnloom.pipeline.samples.stage import write_samples
from gnnloom.pipeline.shards.grid.grid_stage import shard_grid
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage import Catalog
from gnnloom.storage.disk.files import written_aside
from gnnloom.storage.disk.seal import seal_text
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.runs.run import SAVED_RECIPE, Run, sole_writer
from gnnloom.workflows.interop.export import write_predictions
from gnnloom.workflows.recipe.request import Assignment, check_trainable
from gnnloom.workflows.recipe.stages import Stage, read_graph

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
    """Run the stages before training that are not done.

    Raises:
        GnnloomError: a stage failed, or the vertex data do not fit the training.
    """
    recipe, keys = assignment.recipe, assignment.workload.all_keys
    dataset = Catalog(recipe.catalog).create(recipe.dataset.name)

    # Earlier stages may only just have stored what a stage opens.
    for stage in undone(assignment.workload.preparation):
        if stage.name == "graph":
            edges = recipe.source.open(undirected=recipe.dataset.undirected)
            # Another recipe may keep another graph in this dataset: later stages name the graph that they read by key.
            options = recipe.dataset.options()
            found = ingest_graph(dataset, edges, options, cluster, allow_others=True)
            log_notes(graph_notes(found, edges, options))
            continue
        if stage.name == "vertices":
            graph = dataset.graph(keys["graph"])
            source = recipe.vertices.open(recipe.source, graph)
            if source is not None:
                stored = ingest_vertices(dataset, source, cluster, graph, options=recipe.vertices.storing())
                log_notes(vertex_notes(stored))
            # Fail now rather than after hours of partitioning.
            check_trainable(recipe, keys["vertices"])
            continue
        if stage.name == "links":
            if recipe.links is not None:
                draw_links(dataset, dataset.graph(keys["graph"]), recipe.links, cluster)
            continue
        graph, key = dataset.graph(read_graph(keys)), keys.get("partition")
        if stage.name == "partition" and recipe.partition is not None:
            partition_graph(dataset, graph, recipe.partition, cluster)
        elif stage.name == "shards":
            partition = dataset.partition(key=key) if key is not None else None
            vertices = dataset.vertices(keys["vertices"])
            if recipe.grid is not None:
                shard_grid(dataset, graph, recipe.grid, cluster, vertices.artifact, partition)
            elif partition is not None:
                shard_rows(dataset, partition, cluster, vertices, recipe.shards.reorder)
        elif stage.name == "samples" and recipe.sampled is not None:
            partition = dataset.partition(key=key) if recipe.sampled.ranks > 1 else None
            write_samples(dataset, graph, partition, recipe.sampled, cluster)


def save_recipe(assignment: Assignment) -> None:
    """Write the resolved recipe into the run's folder.

    Raises:
        ExistsError: another process is writing the run.
    """
    recipe = assignment.recipe
    run = Run(Catalog(recipe.catalog)[recipe.dataset.name].run_path(assignment.workload.config.run_name))
    content, saved = seal_text(recipe.anywhere().to_toml()), run.path / SAVED_RECIPE
    # A finished run may be in a catalog that cannot be written.
    if saved.is_file() and saved.read_bytes() == content.encode():
        return
    # Under the lock, or this could replace the recipe of a training that is in progress.
    with sole_writer(run):
        run.path.mkdir(parents=True, exist_ok=True)
        with written_aside(saved, durable=True) as aside:
            aside.write_text(content, encoding="utf-8")


def write_output(assignment: Assignment) -> None:
    """Write the predictions to the file that the recipe names, if it names one and they were asked for.

    An existing file is always replaced, because it may hold the predictions of another run.
    """
    recipe, workload = assignment.recipe, assignment.workload
    if "predict" in workload and recipe.predict is not None and recipe.predict.out is not None:
        dataset = Catalog(recipe.catalog)[recipe.dataset.name]
        run = Run.open(dataset, workload.config.run_name)
        write_predictions(dataset, run, Path(recipe.predict.out), smoothed=recipe.predict.smooths)


def summary(assignment: Assignment) -> dict[str, Any]:
    """Return the keys and digests of the artifacts that the stages made, and the result of the run."""
    recipe, workload = assignment.recipe, assignment.workload
    dataset = Catalog(recipe.catalog)[recipe.dataset.name]
    digests = {stage.name: Artifact(dataset.path / stage.name / stage.key).digest for stage in workload.artifacts}
    keys = {stage.name: stage.key for stage in workload.stages}
    result = Run.open(dataset, workload.config.run_name).result() if "train" in workload else {}
    return {"dataset": dataset.name, "catalog": str(dataset.path.parent), "keys": keys, "digests": digests, **result}
