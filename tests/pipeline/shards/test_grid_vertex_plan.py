"""Vertex data of grid shards are routed in as many levels as needed, with few files per task, and the same bytes."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from gnnloom.pipeline.shards.grid import grid_vertex_plan
from gnnloom.pipeline.shards.grid.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.shards.grid.grid_vertex_plan import VertexPlan
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.grid_shards import GridShards
from gnnloom.storage.checks.shard_invariants import check_grid_shards
from support.graphs import random_adjacency, store_graph, store_vertices
from support.partitions import random_parts, store_partition

TYPES: dict[str, tuple[str, tuple[int, ...]]] = {
    "degree": ("int64", ()), "feature": ("float32", (128,)), "label": ("int32", ()), "split": ("uint8", ()),
}  # fmt: skip


@pytest.mark.parametrize(("ranges", "fan_in"), [(1, 4), (4, 4), (5, 4), (17, 4), (65, 4), (9, 2), (164, 32)])
def test_levels_end_with_few_files_and_merge_each_file_once(ranges: int, fan_in: int) -> None:
    plan = VertexPlan(ranges * 10 - 3, 2, TYPES, 10, fan_in=fan_in)
    assert plan.num_ranges == ranges
    for before, level in itertools.pairwise(plan.levels):
        made = list(plan.merges(level))
        merged = [each for merge in made if not merge.span for each in merge.group]
        assert merged == list(range(before.sources))
        assert max(len(merge.group) for merge in made) <= fan_in
        # Spans lie within those of the level before.
        for merge in made:
            assert plan.spans(before, merge.positions) == [merge.span_before]
    assert plan.levels[-1].sources <= fan_in


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


@contextmanager
def counted_opens() -> Iterator[Counter[str]]:
    """Count how often files of routed rows are opened to read within the block, by path."""
    opened: Counter[str] = Counter()
    counting = [True]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if counting[0] and event == "open" and re.search(r"/routed/\w+/\d+/\d/lanes-", str(arguments[0])):
            opened[str(arguments[0])] += arguments[2] & os.O_ACCMODE == os.O_RDONLY

    sys.addaudithook(hook)
    yield opened
    counting[0] = False


def cut_store(catalog: Catalog, name: str, permutation: str) -> GridShards:
    """Grid shards of 500 vertices with features and labels."""
    n, rng = 500, np.random.default_rng(1)
    dataset = catalog.create(name)
    graph = store_graph(dataset, random_adjacency(n, 3000, 0, symmetric=True), symmetric=True)
    store_vertices(dataset, rng.normal(size=(n, 6)).astype(np.float32), rng.integers(0, 4, n), rng.integers(0, 4, n))
    by = store_partition(dataset, graph, random_parts(n, 3, 0), 3) if permutation == "partition" else None
    return shard_grid(dataset, graph, GridOptions((3, 2), permutation), InProcessCluster(), partition=by)


@pytest.mark.usefixtures("small_lanes")
@pytest.mark.parametrize("permutation", ["double", "partition", "none"])
def test_many_ranges_and_levels_give_the_same_bytes_and_the_counted_opens(
    catalog: Catalog, permutation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = cut_store(catalog, "whole", permutation)
    monkeypatch.setattr(grid_vertex_plan, "RANGE_BYTES", 2000)
    monkeypatch.setattr(grid_vertex_plan, "FAN_IN", 3)
    with counted_opens() as opened:
        cut = cut_store(catalog, "cut", permutation)
    assert cut.artifact.digest == whole.artifact.digest
    check_grid_shards(cut.artifact, None)
    types = {"degree": ("int64", ()), "feature": ("float32", (6,)), "label": ("int32", ()), "split": ("uint8", ())}
    if permutation == "partition":
        types["vertex"] = ("int64", ())
    plan = VertexPlan.of(500, 3, types, 1 << 30, is_identity=permutation == "none")
    orders = 2 if permutation == "double" else 1
    assert sum(opened.values()) == orders * sum(phase.opens for phase in plan.counts())
    assert len(plan.levels) == (1 if permutation == "none" else 3)
