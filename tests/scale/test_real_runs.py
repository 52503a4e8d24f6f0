"""The counted tasks and opens are those of real runs, on graphs that are small enough to run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scale.counted_cluster import OpenCounter

from gnnloom.pipeline.external_sort import merge_levels
from gnnloom.pipeline.ingest.counts import ingest_counts
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.matrix_sort import counts, merge_runs, scatter, sort_plan
from gnnloom.pipeline.matrix_sort.counts import SortSizes
from gnnloom.pipeline.shards.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.shards.projection import ShardSource, grid_counts, row_counts
from gnnloom.pipeline.shards.row_stage import shard_rows
from gnnloom.pipeline.shards.sizes import GraphSizes, PartSizes, VertexSizes
from gnnloom.pipeline.tasks.cluster import DEFAULT_MEMORY
from gnnloom.pipeline.tasks.phase_counts import PhaseCount
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.graph import Graph
from support.edge_files import EdgeFiles, write_edges
from support.graphs import store_vertices
from support.partitions import random_parts, store_partition

NUM_VERTICES, NUM_EDGES, PARTS = 1 << 16, 1 << 19, 64


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that divide a graph of a million entries as the real ones divide a large graph."""
    for module in (sort_plan, counts):
        monkeypatch.setattr(module, "BLOCK_ENTRIES", 100_000)
    monkeypatch.setattr(scatter, "MAX_SPILL_ENTRIES", 1 << 16)
    monkeypatch.setattr(merge_runs, "FAN_IN", 5)


def edges(folder: Path) -> EdgeFiles:
    u, v = np.random.default_rng(1).integers(0, NUM_VERTICES, (2, NUM_EDGES))
    u[-1] = NUM_VERTICES - 1
    return write_edges(folder / "edges", u, v, range_edges=NUM_EDGES // 16)


def by_phase(phases: list[PhaseCount]) -> dict[str, PhaseCount]:
    return {phase.phase: phase for phase in phases}


@pytest.mark.parametrize("ids", ["keep", "compact"])
def test_an_ingest_runs_the_counted_tasks_and_opens_the_counted_files(
    catalog: Catalog, tmp_path: Path, ids: str
) -> None:
    source, cluster = edges(tmp_path), OpenCounter()
    graph = ingest_graph(catalog.create("g"), source, IngestOptions(undirected=True, ids=ids), cluster)
    sizes = SortSizes(graph.num_vertices, NUM_EDGES, 16, undirected=True, weighted=False)
    planned = by_phase(ingest_counts(sizes, DEFAULT_MEMORY, compact=ids == "compact"))
    functions = {"scatter": "scatter_range", "merge": "merge_files", "sort": "make_block", "vertices": "write_degrees"}
    if ids == "compact":
        functions |= {"collect": "collect_ids", "merge ids": "merge_ids"}
    assert functions.keys() == planned.keys()
    for phase, function in functions.items():
        assert cluster.tasks(function) == planned[phase].tasks, phase
    for phase in ("merge", "sort"):
        opened = cluster.opens(functions[phase])
        # Blocks whose bounds are bounds of spans as well have files of one span less than those that are not.
        assert 0.8 * planned[phase].opens <= sum(opened) <= planned[phase].opens
        assert max(opened) <= planned[phase].most_opens


@pytest.fixture
def dataset(catalog: Catalog, tmp_path: Path) -> Dataset:
    """A graph of some row blocks with features, labels and a split."""
    dataset, rng = catalog.create("g"), np.random.default_rng(2)
    ingest_graph(dataset, edges(tmp_path), IngestOptions(undirected=True), OpenCounter())
    feature = rng.normal(size=(NUM_VERTICES, 4)).astype(np.float32)
    store_vertices(dataset, feature, rng.integers(0, 4, NUM_VERTICES), rng.integers(0, 4, NUM_VERTICES))
    return dataset


def source_of(dataset: Dataset, graph: Graph) -> ShardSource:
    return ShardSource(GraphSizes.of(graph), VertexSizes.of(dataset.vertices()))


@pytest.mark.parametrize("is_merged", [False, True])
def test_row_shards_of_64_parts_open_the_counted_files(
    dataset: Dataset, is_merged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, cluster = dataset.graph(), OpenCounter()
    if is_merged:
        monkeypatch.setattr(merge_levels, "FEW_SOURCES", 3)
        monkeypatch.setattr(merge_levels, "OPEN_BYTES", 1 << 30)
    partition = store_partition(dataset, graph, random_parts(NUM_VERTICES, PARTS, 0), PARTS)
    shard_rows(dataset, partition, cluster)
    functions = {
        "route rows": "_route_block",
        "route vertices": "_route_vertices",
        "write ranks": "shard_rank",
        "merge halos": "merge_halos",
        "collect halos": "collect_halos",
        "send lists": "write_send_lists",
    }
    if is_merged:
        functions["merge rows"] = "merge_parts"
    phases = row_counts(source_of(dataset, graph), PartSizes.at_random(GraphSizes.of(graph), PARTS))
    assert functions.keys() == {phase.phase for phase in phases}
    assert graph.num_blocks > 10
    for phase, function in functions.items():
        planned = [each for each in phases if each.phase == phase]
        assert cluster.tasks(function) == sum(each.tasks for each in planned), phase
        opened = [files for name, files in cluster.opened if name == function]
        counted = sum(len({file for file in files if not file.endswith(".npy")}) for files in opened)
        assert counted == sum(each.opens for each in planned), (phase, opened[:1])


@pytest.mark.parametrize("is_merged", [False, True])
def test_grid_shards_of_four_by_four_cells_open_the_counted_files(
    dataset: Dataset, is_merged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, cluster, options = dataset.graph(), OpenCounter(), GridOptions((4, 4), "double")
    if is_merged:
        monkeypatch.setattr(merge_levels, "FEW_SOURCES", 3)
        monkeypatch.setattr(merge_levels, "OPEN_BYTES", 1 << 30)
    shard_grid(dataset, graph, options, cluster)
    phases = grid_counts(source_of(dataset, graph), options, DEFAULT_MEMORY)
    functions = {
        "scatter blocks": "scatter_to_cells",
        "write cells": "write_cell",
        "route vertices": "route_rows",
        "write vertices": "write_bucket",
    }
    if is_merged:
        functions["merge cells"] = "merge_cells"
    assert functions.keys() == {phase.phase for phase in phases}
    for name, function in functions.items():
        planned = [phase for phase in phases if phase.phase == name]
        assert cluster.tasks(function) == sum(phase.tasks for phase in planned), name
        seen = [files for each, files in cluster.opened if each == function]
        assert sum(map(len, seen)) == sum(phase.opens for phase in planned), (name, seen[:1])
