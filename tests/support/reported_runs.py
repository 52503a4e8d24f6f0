"""Runs with the files of a training run but invented content: any number of ranks and epochs, profiled or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.shards.grid.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.sources.generators.sbm import StochasticBlockModel
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.runs.run import Run

CLUSTER = InProcessCluster()


def store_reported(catalog: Catalog, parts: int = 3, *, links: bool = False) -> Dataset:
    """Store a small graph with row shards and grid shards, perhaps without held-out links."""
    dataset = catalog.create("web")
    model = StochasticBlockModel(num_vertices=60, num_edges=300, num_blocks=3, num_features=4, seed=1)
    graph = ingest_graph(dataset, model.edges(), IngestOptions(undirected=True), CLUSTER)
    ingest_vertices(dataset, model.vertices(), CLUSTER)
    if links:
        graph = dataset.graph(draw_links(dataset, graph, DrawOptions(test=0.3), CLUSTER).message_graph)
    shard_rows(dataset, partition_graph(dataset, graph, PartitionOptions(parts, "random"), CLUSTER), CLUSTER)
    shard_grid(dataset, graph, GridOptions((2, 3), "double"), CLUSTER)
    return dataset


def store_run(dataset: Dataset, name: str, ranks: int, epochs: int = 12, **given: Any) -> Run:
    """Store a run that looks as if it had been trained.

    Args:
        given: ``layout`` of the shards (default row), ``profiled`` and ``finished`` (default True), and more of the
            ``result``.
    """
    layout = given.get("layout", "row")
    shards = dataset.find("shards", layout=layout).key
    run = Run(dataset.run_path(name))
    config = {"model": "gcn", "algorithm": "p2p" if layout == "row" else "summa", "hidden": [8, 8], "ranks": ranks}
    run.start(
        {**config, "epochs": 12, "dtype": "float32", "seed": 0, "bias": True, "grid": None}, 0, {"shards": shards}
    )
    random = np.random.default_rng(ranks)
    for epoch in range(epochs):
        run.append_metrics(_line(random, epoch, ranks, profiled=given.get("profiled", True)))
    if given.get("finished", True):
        matrix = random.integers(1, 9, (ranks, ranks)) * (1 - np.eye(ranks, dtype=int))
        memory, read = (random.integers(10**8, 2 * 10**8, ranks).tolist() for _ in range(2))
        grid = [ranks] if layout == "row" else [2, ranks // 2]
        result = {"epochs": epochs, "grid": grid, "peak_memory": memory, "bytes_read": read}
        run.finish({**result, "bytes_between": matrix.tolist(), **given.get("result", {})})
    return run


def draw_few_pixels(patch: pytest.MonkeyPatch) -> None:
    """Leave pictures in files of their own almost empty, for tests of the page alone: they take half of the time."""
    patch.setattr("gnnloom.workflows.report.pictures.style._PNG_DPI", 10)


def _line(random: np.random.Generator, epoch: int, ranks: int, *, profiled: bool) -> dict[str, Any]:
    counts = {"halo forward": 1000 * ranks, "gradient": 50}
    line: dict[str, Any] = {"epoch": epoch, "loss": 2.0 * 0.9**epoch, "seconds": 0.02 + 0.001 * random.random()}
    line |= {"bytes": counts, "messages": dict.fromkeys(counts, 2)}
    if epoch % 2:
        line |= {"train_accuracy": 0.9, "val_accuracy": 0.7, "test_accuracy": 0.6 + epoch / 100}
    seconds = {"spmm": 0.004, "gemm": 0.002, "other": 0.001, "waiting": 0.002, "halo forward": 0.001, "gradient": 0.002}
    return {**line, "profile": [{"seconds": seconds}] * ranks} if profiled else line
