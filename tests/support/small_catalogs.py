"""A small dataset with every kind of artifact and a finished run, without pipeline or trainer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.runs.checkpoint import Checkpoint, write_checkpoint
from gnnloom.storage.runs.run import Run
from support.graphs import random_adjacency, store_graph, store_vertices
from support.partitions import random_parts, store_partition


def store_small_dataset(catalog: Catalog, name: str = "web") -> Dataset:
    """Store a directed graph of 30 vertices and its transpose, vertices, a partition, shards (vertices only), a run."""
    dataset = catalog.create(name)
    graph = store_graph(dataset, random_adjacency(30, 90, 0, symmetric=False), symmetric=False, num_blocks=1)
    vertices = store_vertices(dataset, np.ones((30, 2)), np.arange(30) % 3, np.arange(30) % 4)
    partition = store_partition(dataset, graph, random_parts(30, 2, 0), 2)
    inputs = {
        "graph": graph.artifact.key,
        "partition": partition.artifact.key,
        "vertices": vertices.artifact.key,
    }
    with ArtifactWriter.begin(
        dataset.path, "shards", {"layout": "row", "parts": 2, "method": "given"}, inputs
    ) as writer:
        with writer.task("row/0") as output:
            output.add(write_array(writer.path, "row/00000/vertex", np.arange(30), ("row",)))
        writer.commit(["row/0"], {"vertex": 30, "part": 2}, {"symmetric": False, "weighted": False, "quality": {}})
    store_run(dataset)
    return dataset


def store_run(dataset: Dataset, name: str = "first", inputs: Mapping[str, str] | None = None) -> Run:
    """Store a finished run of three epochs with a checkpoint and predictions; by default made from the shards."""
    run = Run(dataset.run_path(name))
    inputs = {"shards": dataset.find("shards").key} if inputs is None else inputs
    run.start({"dataset": dataset.name, "ranks": 2, "method": "given"}, 0, inputs)
    for epoch in range(3):
        run.append_metrics({"epoch": epoch, "loss": 1.0 / (epoch + 1)})
    write_checkpoint(run.checkpoints, Checkpoint(3, {"layers/0/weight": np.eye(3)}, {"step": 3}))
    run.predictions_aside().mkdir()
    record = write_array(run.predictions_aside(), "label", np.zeros(30, np.int32), ("vertex",))
    run.publish_predictions([record], {})
    run.finish({"epochs": 3, "loss": [1.0, 0.5, 1 / 3]})
    return run


def begin_partition(dataset: Dataset) -> ArtifactWriter:
    """Begin a partition, write some of it, and leave it unfinished."""
    with ArtifactWriter.begin(dataset.path, "partition", {"parts": 9}, {"graph": "0"}) as writer:
        write_array(writer.path, "part", np.zeros(30, np.int32), ("vertex",))
        (writer.work / "spill").write_bytes(b"x" * 1000)
    return writer
