"""Tasks of row shards hold what their plan says, and no more for a larger rank."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scale.counted_cluster import MeteredCluster

from gnnloom.pipeline.shards.rows import row_plan
from gnnloom.pipeline.shards.rows.row_plan import row_phases
from gnnloom.pipeline.shards.rows.row_routed import RowSteps
from gnnloom.pipeline.shards.rows.row_shuffles import RowPlaces
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.shards.shard_source import ShardSource
from gnnloom.pipeline.shuffle import mapped_vectors, runs
from gnnloom.pipeline.tasks.phase import count
from gnnloom.pipeline.tasks.sizes import PartSizes
from gnnloom.storage import Catalog
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.format.artifact import ArtifactWriter
from support.graphs import random_adjacency, store_graph, store_vertices
from support.partitions import random_parts, store_partition
from support.scratch import small_chunks

#: Bytes of a range, of a chunk, and of what is read or joined at once.
RANGE_BYTES, STEP_BYTES = 1 << 20, 1 << 16
SMALL_STEPS = RowSteps(
    segment_nonzeros=STEP_BYTES // 4,
    pending_ids=STEP_BYTES // 8,
    listed_columns=STEP_BYTES // 8,
    joined_bytes=4 * STEP_BYTES,
    place_ranges=1 << 10,
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that divide a graph of some hundred thousand entries as the real ones divide a large graph."""
    small_chunks(monkeypatch, STEP_BYTES)
    monkeypatch.setattr(mapped_vectors, "_STEP_BYTES", STEP_BYTES)
    monkeypatch.setattr(runs, "BLOCK_BYTES", STEP_BYTES)
    monkeypatch.setattr(row_plan, "CHUNK_BYTES", STEP_BYTES)
    monkeypatch.setattr(row_plan, "WRITING_BYTES", 16 * STEP_BYTES)


def held_bytes(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, num_vertices: int, reorder: str
) -> dict[str, tuple[int, int]]:
    """The most bytes that a task of each function held, and was planned to hold."""
    dataset = catalog.create(f"g-{num_vertices}")
    adjacency = random_adjacency(num_vertices, 20 * num_vertices, 1, symmetric=True)
    # Rows of all ranges in every block.
    graph = store_graph(dataset, adjacency, symmetric=True, num_blocks=num_vertices // 5000)
    feature = np.random.default_rng(1).random((num_vertices, 8))
    store_vertices(dataset, feature, None, None)
    partition = store_partition(dataset, graph, random_parts(num_vertices, 2, 1), 2)
    scratch = Scratch(range_bytes=RANGE_BYTES)
    cluster = MeteredCluster(monkeypatch, scratch=scratch)
    shard_rows(dataset, partition, cluster, reorder=reorder, steps=SMALL_STEPS)
    source = ShardSource.of(graph, dataset.vertices(), None)
    functions = {
        "find_halo": "find halos",
        "shard_rank": "shard",
        "write_range": "write rows",
        "join_ranges": "join rows",
        "write_send_lists": "send lists",
    }
    places = RowPlaces(ArtifactWriter(Path(), "shards", "", scratch=scratch), steps=SMALL_STEPS)
    planned = {phase.phase: phase for phase in count(row_phases(source, PartSizes.of(partition), places, reorder))}
    held = {phase.where[1]: phase.held for phase in cluster.phases if phase.held}
    assert len(held["write_range"]) >= num_vertices // 5000
    return {name: (max(held[name]), planned[phase].most_memory) for name, phase in functions.items()}


@pytest.mark.slow
@pytest.mark.parametrize("reorder", [pytest.param("none", marks=pytest.mark.long), "degree"])
def test_tasks_of_a_rank_of_many_ranges_hold_what_is_planned(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, reorder: str
) -> None:
    for name, (held, planned) in held_bytes(catalog, monkeypatch, 30_000, reorder).items():
        assert held <= planned, name
        # Whatever the size of the rank.
        assert planned <= RANGE_BYTES + 25 * STEP_BYTES, name
