"""Vertex data of grid shards are routed in as many levels as needed, with few files per task, and the same bytes."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from scale.counted_cluster import OpenCounter

from gnnloom.pipeline.shards.grid import grid_vertex_plan
from gnnloom.pipeline.shards.grid.grid_plan import GridPlaces, GridPlan
from gnnloom.pipeline.shards.grid.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.shards.grid.grid_vertex_plan import VertexPlan
from gnnloom.pipeline.shards.shard_source import ShardSource
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.tasks.phase import count
from gnnloom.pipeline.tasks.sizes import GraphSizes, VertexSizes
from gnnloom.storage import Catalog
from gnnloom.storage.checks.shard_invariants import check_grid_shards
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.shards.grid_shards import GridShards
from support.graphs import random_adjacency, store_graph, store_vertices
from support.partitions import random_parts, store_partition
from support.scratch import SMALL_LANES, merging

TYPES: dict[str, tuple[str, tuple[int, ...]]] = {
    "degree": ("int64", ()), "feature": ("float32", (128,)), "label": ("int32", ()), "split": ("uint8", ()),
}  # fmt: skip


@pytest.mark.parametrize("vertices", [1, 1000, 5_000_000])
def test_every_row_of_every_array_is_written_by_one_bucket(vertices: int) -> None:
    plan = VertexPlan.of(vertices, 3, TYPES, 1 << 30, is_identity=False)
    for name in TYPES:
        spans = [plan.written(bucket, name) for bucket in plan.buckets()]
        assert sum(stop - start for start, stop in spans) == vertices
        assert all(a[1] == b[0] for a, b in itertools.pairwise(spans))


def test_pieces_of_the_artifact_do_not_depend_on_the_memory() -> None:
    small, large = (VertexPlan.of(10**8, 4, TYPES, memory, is_identity=False) for memory in (1 << 29, 1 << 34))
    assert small.num_ranges > large.num_ranges
    assert [small.written(each, "label") for each in small.buckets()] == [
        large.written(each, "label") for each in large.buckets()
    ]


def cut_store(catalog: Catalog, name: str, permutation: str, cluster: InProcessCluster) -> GridShards:
    """Grid shards of 500 vertices with features and labels."""
    n, rng = 500, np.random.default_rng(1)
    dataset = catalog.create(name)
    graph = store_graph(dataset, random_adjacency(n, 3000, 0, symmetric=True), symmetric=True)
    store_vertices(dataset, rng.normal(size=(n, 6)).astype(np.float32), rng.integers(0, 4, n), rng.integers(0, 4, n))
    by = store_partition(dataset, graph, random_parts(n, 3, 0), 3) if permutation == "partition" else None
    return shard_grid(dataset, graph, GridOptions((3, 2), permutation), cluster, partition=by)


@pytest.mark.parametrize("permutation", ["double", "partition", "none"])
def test_many_ranges_and_levels_give_the_same_bytes_and_the_counted_opens(
    catalog: Catalog, permutation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = cut_store(catalog, "whole", permutation, InProcessCluster())
    monkeypatch.setattr(grid_vertex_plan, "RANGE_BYTES", 2000)
    scratch = merging(3, SMALL_LANES)
    cluster = OpenCounter(scratch)
    cut = cut_store(catalog, "cut", permutation, cluster)
    assert cut.artifact.digest == whole.artifact.digest
    check_grid_shards(cut.artifact, None)
    dataset = catalog.dataset("cut")
    source = ShardSource(GraphSizes.of(dataset.graph()), VertexSizes.of(dataset.vertices()))
    places = GridPlaces(ArtifactWriter(Path(), "shards", "", scratch=scratch))
    phases = count(GridPlan(source, GridOptions((3, 2), permutation), cluster.memory, places).phases())
    planned = [phase for phase in phases if phase.phase.endswith("vertices")]
    opened = [file for _, files in cluster.opened for file in files if "/shuffle/vertices/" in file]
    assert len(opened) == sum(phase.opens for phase in planned)
    levels = {"double": 4, "partition": 2, "none": 0}[permutation]
    assert [phase.phase for phase in planned].count("merge vertices") == levels
