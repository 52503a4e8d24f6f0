"""The counted tasks and opens are those of real runs, on graphs that are small enough to run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from scale.counted_cluster import OpenCounter

from gnnloom.pipeline.ingest.keys import arrays as key_arrays
from gnnloom.pipeline.ingest.keys.collect import file_edges
from gnnloom.pipeline.ingest.projection import ingest_phases
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.matrix_sort.sort_plan import SortSizes
from gnnloom.pipeline.shards.grid.grid_plan import GridPlaces, GridPlan
from gnnloom.pipeline.shards.grid.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.shards.rows.row_plan import row_phases
from gnnloom.pipeline.shards.rows.row_shuffles import RowPlaces
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.shards.shard_source import ShardSource
from gnnloom.pipeline.sources.names import NameChunk, Names
from gnnloom.pipeline.sources.source import EdgeChunk, SourceRange
from gnnloom.pipeline.tasks.cluster import DEFAULT_MEMORY, InProcessCluster
from gnnloom.pipeline.tasks.phase import PhaseCount, count
from gnnloom.pipeline.tasks.sizes import GraphSizes, PartSizes, VertexSizes
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.disk.work_folder import BESIDE, Scratch
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import ArtifactWriter
from support.edge_files import EdgeFiles, write_edges
from support.graphs import store_vertices
from support.partitions import random_parts, store_partition
from support.scratch import merging

NUM_VERTICES, NUM_EDGES, PARTS = 1 << 16, 1 << 17, 24
Counted = dict[str, PhaseCount]
#: Sizes that divide a graph of some hundred thousand entries as the real ones divide a large graph; so few spill files
#: that they are merged.
FEW_SPILLS = Scratch(spill_files=5, block_entries=25_000, spill_entries=1 << 14)


def edges(folder: Path) -> EdgeFiles:
    u, v = np.random.default_rng(1).integers(0, NUM_VERTICES, (2, NUM_EDGES))
    u[-1] = NUM_VERTICES - 1
    return write_edges(folder / "edges", u, v, range_edges=NUM_EDGES // 16)


def planned_ingest(
    graph: Graph,
    edges: int,
    ranges: int,
    options: IngestOptions,
    name_bytes: float = 0,
    scratch: Scratch = FEW_SPILLS,
) -> Counted:
    """What the phases of an ingest of evenly spread edges will do, by name."""
    undirected, compact = options.undirected, options.ids == "compact"
    sizes = SortSizes.even(graph.num_vertices, edges, ranges, DEFAULT_MEMORY, undirected=undirected, scratch=scratch)
    phases = ingest_phases(sizes, options.sort, DEFAULT_MEMORY, compact=compact, name_bytes=name_bytes, scratch=scratch)
    return {phase.phase: phase for phase in count(phases)}


@pytest.mark.parametrize("ids", ["keep", "compact"])
def test_an_ingest_runs_the_counted_tasks_and_opens_the_counted_files(
    catalog: Catalog, tmp_path: Path, ids: str
) -> None:
    source, cluster = edges(tmp_path), OpenCounter(FEW_SPILLS)
    options = IngestOptions(undirected=True, ids=ids)
    graph = ingest_graph(catalog.create("g"), source, options, cluster)
    planned = planned_ingest(graph, NUM_EDGES, 16, options)
    functions = {
        "scatter": "scatter_range",
        "merge": "merge_spilled",
        "sort": "make_block",
        "vertices": "write_degrees",
    }
    if ids == "compact":
        functions |= {"collect": "collect_range", "merge keys": "merge_range", "write original_id": "write_key_array"}
    assert functions.keys() == planned.keys()
    for phase, function in functions.items():
        assert cluster.tasks(function) == planned[phase].tasks, phase
    for phase in ("merge", "sort"):
        opened = cluster.opens(functions[phase])
        assert sum(opened) == planned[phase].opens
        assert max(opened) == planned[phase].most_opens


@pytest.mark.slow
def test_renumbering_opens_the_counted_files(catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 ranges of the source, each with two files of ids, none of which occurs twice; 64 ranges of ids."""
    num_ids, ranges, edges_of_file = 1 << 18, 40, 1 << 11
    scratch = replace(FEW_SPILLS, range_bytes=8 * num_ids // 64, slice_bytes=1, gathered_bytes=104 * edges_of_file)
    assert file_edges(DEFAULT_MEMORY, "compact", scratch=scratch) == edges_of_file
    monkeypatch.setattr(key_arrays, "_TASK_CHUNKS", 1)
    monkeypatch.setattr(key_arrays, "_CHUNK_BYTES", 8 * num_ids // 4)
    u, v = np.random.default_rng(1).permutation(num_ids).reshape(2, -1)
    source, cluster = write_edges(tmp_path / "edges", u, v, range_edges=-(-len(u) // ranges)), OpenCounter(scratch)
    graph = ingest_graph(catalog.create("g"), source, IngestOptions(ids="compact"), cluster)
    planned = planned_ingest(graph, len(u), ranges, IngestOptions(ids="compact"), scratch=scratch)
    # The source is not a temporary file.
    assert cluster.opens("collect_range") == [0] * ranges
    assert cluster.opens("merge_range") == [planned["merge keys"].most_opens] * planned["merge keys"].tasks == [16] * 64
    # Few numbers from many ranges of keys are merged, eight ranges at a time.
    assert cluster.opens("merge_runs") == [planned["merge numbers"].most_opens] * planned["merge numbers"].tasks
    assert len(cluster.opens("merge_runs")) == 64
    # The keys and edges of its files, and their numbers from eight merged ranges.
    assert cluster.opens("scatter_range") == [planned["scatter"].most_opens] * ranges == [9] * ranges
    assert sum(cluster.opens("scatter_range")) == planned["scatter"].opens
    opened = cluster.opens("write_key_array")
    assert len(opened) == planned["write original_id"].tasks == 4
    assert sum(opened) <= planned["write original_id"].opens
    # The merged ranges of a quarter of the ids are in all of the files.
    assert max(opened) == planned["write original_id"].most_opens == 16


@dataclass(frozen=True)
class NamedEdges:
    """Edges between names of eight digits and letters, no two of which are equal, in ranges and chunks of one size."""

    num_ranges: int
    range_edges: int
    chunk_edges: int

    def identity(self) -> dict[str, Any]:
        return {"format": "test", "names": self.num_ranges}

    def num_vertices(self) -> int | None:
        return None

    def ranges(self) -> Sequence[SourceRange]:
        return [SourceRange(number, 0, self.range_edges) for number in range(self.num_ranges)]

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        raise InputError(f"range {span.file}: a name")

    def begins_with_names(self) -> bool:
        return True

    def as_named(self) -> Self:
        return self

    def read_names(self, span: SourceRange) -> Iterator[NameChunk]:
        for start in range(0, self.range_edges, self.chunk_edges):
            first = 2 * (span.file * self.range_edges + start)
            # The digits of a multiple of an odd number, so that every file has names from all ranges of names.
            names = [f"{k * 61_803_399 % 10**7:07d}v" for k in range(first, first + 2 * self.chunk_edges)]
            yield NameChunk(Names.of_values(np.array(names[::2])), Names.of_values(np.array(names[1::2])))


def test_an_ingest_of_names_runs_the_counted_tasks_and_opens_the_counted_files(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file for every 1,024 edges: two names and what an edge takes in addition.
    name_bytes = 8
    gathered = 1024 * (2 * (128 + 4 * name_bytes) + 24)
    scratch = replace(FEW_SPILLS, range_bytes=1 << 15, slice_bytes=1 << 10, gathered_bytes=gathered)
    source, cluster = NamedEdges(num_ranges=3, range_edges=4096, chunk_edges=256), OpenCounter(scratch)
    assert file_edges(DEFAULT_MEMORY, "names", name_bytes, scratch) == 1024
    monkeypatch.setattr(key_arrays, "_TASK_CHUNKS", 1)
    monkeypatch.setattr(key_arrays, "_CHUNK_BYTES", 1 << 15)
    graph = ingest_graph(catalog.create("g"), source, IngestOptions(ids="compact"), cluster)
    edges = source.num_ranges * source.range_edges
    assert graph.num_vertices == 2 * edges
    planned = planned_ingest(graph, edges, source.num_ranges, IngestOptions(ids="compact"), name_bytes, scratch)
    functions = {"collect": "collect_range", "merge keys": "merge_range", "scatter": "scatter_range"}
    for phase, function in functions.items():
        assert cluster.tasks(function) == planned[phase].tasks > 2, phase
        assert sum(cluster.opens(function)) == planned[phase].opens, phase
        assert max(cluster.opens(function)) <= planned[phase].most_opens, phase
    arrays = [planned[f"write {array}"] for array in ("original_name_offset", "original_name")]
    assert cluster.tasks("write_key_array") == sum(phase.tasks for phase in arrays) > 8
    assert sum(cluster.opens("write_key_array")) <= sum(phase.opens for phase in arrays)
    assert max(cluster.opens("write_key_array")) <= max(phase.most_opens for phase in arrays)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of some row blocks with features, labels and a split."""
    folder = tmp_path_factory.mktemp("stored")
    dataset, rng = Catalog(folder / "catalog").create("g"), np.random.default_rng(2)
    ingest_graph(dataset, edges(folder), IngestOptions(undirected=True), InProcessCluster(scratch=FEW_SPILLS))
    feature = rng.normal(size=(NUM_VERTICES, 4)).astype(np.float32)
    store_vertices(dataset, feature, rng.integers(0, 4, NUM_VERTICES), rng.integers(0, 4, NUM_VERTICES))
    return folder / "catalog"


@pytest.fixture
def dataset(catalog: Catalog, stored: Path) -> Dataset:
    """A copy, of which a test makes shards."""
    shutil.copytree(stored, catalog.root)
    return catalog["g"]


def source_of(dataset: Dataset, graph: Graph) -> ShardSource:
    return ShardSource(GraphSizes.of(graph), VertexSizes.of(dataset.vertices()))


@pytest.mark.slow
@pytest.mark.parametrize("is_merged", [pytest.param(False, marks=pytest.mark.long), True])
def test_row_shards_of_many_parts_open_the_counted_files(dataset: Dataset, is_merged: bool) -> None:
    scratch = merging(3) if is_merged else BESIDE
    graph, cluster = dataset.graph(), OpenCounter(scratch)
    partition = store_partition(dataset, graph, random_parts(NUM_VERTICES, PARTS, 0), PARTS)
    shard_rows(dataset, partition, cluster)
    functions = {
        "route rows": "route_block",
        "route vertices": "route_vertices",
        "shard": "shard_rank",
        "send lists": "write_send_lists",
    }
    places = RowPlaces(ArtifactWriter(Path(), "shards", "", scratch=scratch))
    phases = count(row_phases(source_of(dataset, graph), PartSizes.of(partition), places))
    merges = {"merge halos", "merge rows"} if is_merged else {"merge halos"}
    assert {*functions, *merges} == {phase.phase for phase in phases}
    assert graph.num_blocks > 10
    for phase, function in {**functions, "merge": "merge_runs"}.items():
        planned = [each for each in phases if each.phase == phase or (phase == "merge" and each.phase in merges)]
        assert cluster.tasks(function) == sum(each.tasks for each in planned), phase
        opened = [files for name, files in cluster.opened if name == function]
        # Mapped files are opened once by a process.
        counted = sum(len({file for file in files if "/numbers/" not in file}) for files in opened)
        assert counted == sum(each.opens for each in planned), (phase, opened[:1])


@pytest.mark.slow
@pytest.mark.parametrize("is_merged", [False, pytest.param(True, marks=pytest.mark.long)])
def test_grid_shards_of_four_by_four_cells_open_the_counted_files(dataset: Dataset, is_merged: bool) -> None:
    scratch = merging(3) if is_merged else BESIDE
    graph, cluster, options = dataset.graph(), OpenCounter(scratch), GridOptions((4, 4), "double")
    shard_grid(dataset, graph, options, cluster)
    places = GridPlaces(ArtifactWriter(Path(), "shards", "", scratch=scratch))
    phases = count(GridPlan(source_of(dataset, graph), options, DEFAULT_MEMORY, places).phases())
    functions = {
        "scatter blocks": "scatter_to_cells",
        "write cells": "write_cell",
        "route vertices": "route_range",
        "write vertices": "write_bucket",
    }
    if is_merged:
        functions["merge cells"] = "merge_runs"
    assert functions.keys() == {phase.phase for phase in phases}
    for name, function in functions.items():
        planned = [phase for phase in phases if phase.phase == name]
        assert cluster.tasks(function) == sum(phase.tasks for phase in planned), name
        seen = [files for each, files in cluster.opened if each == function]
        assert sum(map(len, seen)) == sum(phase.opens for phase in planned), (name, seen[:1])
