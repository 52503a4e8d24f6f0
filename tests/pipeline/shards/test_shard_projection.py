"""A projection of shards has the key and the tasks that making them has, and about its bytes and memory."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.shards.grid.grid_plan import GridPlaces, GridPlan
from gnnloom.pipeline.shards.grid.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.shards.projection import project_grid_shards, project_row_shards
from gnnloom.pipeline.shards.rows.row_plan import row_phases
from gnnloom.pipeline.shards.rows.row_shuffles import RowPlaces
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.shards.shard_source import ShardSource
from gnnloom.pipeline.tasks.cluster import DEFAULT_MEMORY, InProcessCluster
from gnnloom.pipeline.tasks.phase import Phase
from gnnloom.pipeline.tasks.sizes import PartSizes
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.format.artifact import Artifact
from support.counting import CountingCluster
from support.graphs import random_adjacency, store_graph, store_vertices


def store(catalog: Catalog, *, symmetric: bool) -> Dataset:
    dataset = catalog.create("web")
    adjacency = random_adjacency(300, 3000, 0, symmetric=symmetric)
    store_graph(dataset, adjacency, symmetric=symmetric, num_blocks=3)
    store_vertices(dataset, np.ones((300, 5)), np.arange(300) % 3, np.arange(300) % 4)
    return dataset


def drop_transposes(dataset: Dataset) -> None:
    """Let the next stage that needs the transpose of a directed graph make it."""
    for info in dataset.artifacts("transpose"):
        dataset.remove_artifact("transpose", info.key)


@pytest.mark.slow
@pytest.mark.parametrize("symmetric", [True, False])
def test_tasks_and_keys_are_those_of_the_stage(catalog: Catalog, symmetric: bool) -> None:
    dataset = store(catalog, symmetric=symmetric)
    graph = dataset.graph()
    partition = partition_graph(dataset, graph, PartitionOptions(4, "random"), InProcessCluster())
    drop_transposes(dataset)
    planned = project_row_shards(dataset, partition, 2)
    assert (planned.seconds, planned.is_done) == (None, False)
    cluster = CountingCluster()
    rows = shard_rows(dataset, partition, cluster)
    assert (planned.key, planned.tasks) == (rows.artifact.key, cluster.tasks)
    known = project_row_shards(dataset, partition, 2)
    assert (known.is_done, known.tasks, known.seconds, known.seconds_from) == (True, 0, 0.0, planned.key)
    for permutation, by in (("double", None), ("single", None), ("partition", partition)):
        options, cluster = GridOptions((2, 3), permutation), CountingCluster()
        grid = project_grid_shards(dataset, graph, options, by, 1, DEFAULT_MEMORY)
        shards = shard_grid(dataset, graph, options, cluster, partition=by)
        assert (grid.key, grid.tasks) == (shards.artifact.key, cluster.tasks)


def raw_bytes(shards: Artifact) -> int:
    records = shards.records.values()
    return sum(math.prod(record.shape) * np.dtype(record.dtype).itemsize for record in records)


def planned_bytes(phases: Sequence[Phase]) -> int:
    return sum(task.needs.writes for phase in phases if phase.makes_arrays for task in phase.tasks)


def test_the_arrays_have_the_bytes_that_tasks_are_planned_to_write(catalog: Catalog) -> None:
    dataset, cluster = store(catalog, symmetric=True), InProcessCluster()
    graph = dataset.graph()
    partition = partition_graph(dataset, graph, PartitionOptions(4, "random"), cluster)
    source = ShardSource.of(graph, dataset.vertices(), None)
    rows = shard_rows(dataset, partition, cluster)
    planned = planned_bytes(row_phases(source, PartSizes.of(partition), RowPlaces()))
    # Pointers and offsets have one more element than there are rows and parts.
    assert raw_bytes(rows.artifact) - planned == 4 * 8 * 4
    options = GridOptions((2, 3), "double")
    grid = shard_grid(dataset, graph, options, cluster)
    planned = planned_bytes(GridPlan(source, options, DEFAULT_MEMORY, GridPlaces()).phases())
    assert raw_bytes(grid.artifact) == pytest.approx(planned, abs=2 * 6 * 16)


PROGRAM = """
import json, sys
from pathlib import Path
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.sources.generators.sbm import StochasticBlockModel
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
cluster = InProcessCluster()
dataset = Catalog(sys.argv[1]).create("web")
model = StochasticBlockModel(num_vertices=400_000, num_edges=4_000_000, num_blocks=8, num_features=32, seed=1)
graph = ingest_graph(dataset, model.edges(), IngestOptions(undirected=True), cluster)
ingest_vertices(dataset, model.vertices(), cluster)
partition_graph(dataset, graph, PartitionOptions(2, "random"), cluster)
"""


@pytest.mark.long
@pytest.mark.parametrize("options", [("--parts", "2"), ("--grid", "2x2")])
def test_memory_and_bytes_are_near_the_measured_ones(tmp_path: Path, options: tuple[str, ...]) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], check=True)
    planned, measured = (_shard(tmp_path, *options, *more) for more in (("--plan",), ()))
    assert planned["key"] == measured["key"]
    assert 0.8 < planned["peak_memory"] / measured["peak_memory"] < 1.6
    assert 0.7 < planned["output_bytes"] / measured["bytes"] < 1.4


def _shard(catalog: Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "gnnloom", "--catalog", str(catalog), "shard", "web", *options]
    done = subprocess.run([*command, "--workers", "0", "--json"], check=True, capture_output=True, text=True)
    content = json.loads(done.stdout)
    assert isinstance(content, dict)
    return content
