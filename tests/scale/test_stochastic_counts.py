"""What partitions for mini-batches take: the tasks that draw and merge batches, and those that measure the parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scale.counted_cluster import OpenCounter, written_bytes
from scale.scale_graphs import GRAPHS, Described
from scale.test_counts import LARGEST, check_opens, check_shares, long_if

from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.partition.stochastic import batch_partition, merged_nets
from gnnloom.pipeline.partition.stochastic.batch_drawer import BatchDrawer
from gnnloom.pipeline.partition.stochastic.batch_partition import FULL, STOCHASTIC, expected_phases
from gnnloom.pipeline.partition.stochastic.batch_volume import num_fresh, volume_phases
from gnnloom.pipeline.partition.stochastic.drawn_batches import (
    MOST_BATCHES,
    MOST_PINS,
    batch_groups,
    expected_merging,
    merge_batches,
    merging_plan,
    most_batches,
)
from gnnloom.pipeline.partition.stochastic.restricted_nets import DrawnProblem, net_pieces
from gnnloom.pipeline.shuffle.mapped_vectors import write_vector
from gnnloom.pipeline.tasks.phase import PhaseCount, count, run
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage import Catalog
from gnnloom.storage.disk.work_folder import BESIDE, Scratch
from gnnloom.storage.format.artifact import ArtifactWriter
from support.graphs import random_adjacency, store_graph
from support.partitions import random_parts, transpose_of

RATES = (0.02, 0.06, 0.3)
cases = pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
rates = pytest.mark.parametrize("rate", RATES)

#: At the middle rate, the merged batches have the most nets, but on the largest graph that takes three seconds.
cases_of_rates = pytest.mark.parametrize(
    ("graph", "rate"),
    [
        pytest.param(
            graph,
            rate,
            id=f"{rate}-{graph.name}",
            marks=long_if(graph in GRAPHS[-2:] and rate != RATES[2 if graph is LARGEST else 1]),
        )
        for graph in GRAPHS
        for rate in RATES
    ],
)


def phases(graph: Described, rate: float, batches: str = "walk") -> list[PhaseCount]:
    """Phases that draw and merge batches, and measure parts."""
    sizes = graph.source.graph
    return count(
        expected_phases(sizes, sizes, PartitionOptions(4, model="stochastic", batches=batches, batch_rate=rate))
    )


def fit_at_random(problem: Any, _: Any, folder: Any) -> dict[str, Any]:
    folder.mkdir()
    for name in (FULL, STOCHASTIC):
        write_vector(folder / name, [random_parts(problem.graph.num_vertices, 4, 0)])
    return {}


def phases_of(phases: list[PhaseCount], name: str) -> list[PhaseCount]:
    return [phase for phase in phases if phase.phase == name]


@pytest.mark.slow
@cases_of_rates
def test_drawing_and_merging_open_few_files_and_read_the_graph_once_for_each_group(
    graph: Described, rate: float
) -> None:
    counted = phases(graph, rate)
    check_opens(counted)
    # Four times the pins at most, and the last group; and the offsets, sizes, hashes and indexes of their nets.
    drawn = int(1.25 * MOST_PINS * (4 + 5 * 8) * (graph.nnz + graph.num_vertices))
    merged = [phase for phase in counted if phase.phase.endswith("nets") and phase.phase != "restrict nets"]
    check_shares(merged, graph.matrix_bytes + drawn, (graph.matrix_bytes + drawn) / (2 << 20) + 64)
    restricted = phases_of(counted, "restrict nets")
    groups = [len(numbers) for numbers in batch_groups() if numbers.start < most_batches(rate)]
    assert len(restricted) == len(groups) <= 30
    for phase in restricted:
        assert phase.tasks == graph.source.graph.num_blocks
        # A bit of every row, and a look at each column of drawn rows.
        looks = max(groups) * (graph.num_vertices / 8 + rate * graph.nnz + phase.tasks)
        assert phase.bytes_read <= 1.1 * graph.matrix_bytes + looks


@pytest.mark.parametrize(
    ("graph", "rate"),
    [
        pytest.param(graph, rate, id=f"{rate}-{graph.name}", marks=long_if(graph is LARGEST and rate != RATES[1]))
        for rate in RATES
        for graph in GRAPHS
    ],
)
def test_measuring_opens_three_files_in_a_task_and_reads_the_graph_a_few_times(graph: Described, rate: float) -> None:
    counted = phases(graph, rate, "vertex")
    assert [phase.phase for phase in counted] == ["draw fresh batches", "measure batches"]
    check_opens(counted)
    (measured,) = phases_of(counted, "measure batches")
    assert measured.most_opens == 3
    batches = 2 * max(20, min(200, (1 << 28) // graph.nnz))
    looks = 2 * batches * (graph.num_vertices / 8 + 5 * rate * (graph.num_vertices + graph.nnz) + measured.tasks)
    # Several tasks read a block if one would look at too much.
    blocks = graph.source.graph.num_blocks
    assert measured.tasks <= blocks + (2 * batches * graph.nnz >> 29)
    assert measured.bytes_read <= 1.1 * -(-measured.tasks // blocks) * graph.matrix_bytes + looks


def test_groups_of_batches_waste_at_most_a_quarter() -> None:
    groups = list(batch_groups())
    assert [number for group in groups for number in group] == list(range(MOST_BATCHES))
    for group in groups[1:]:
        assert len(group) <= max(8, group.start // 4)
        assert len(group) <= group.start
    assert len(groups) <= 30


@pytest.mark.slow
@pytest.mark.parametrize("symmetric", [True, False])
def test_a_stochastic_partition_runs_the_counted_tasks_and_opens_the_counted_files(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, symmetric: bool
) -> None:
    monkeypatch.setattr(batch_partition, "fit_apart", fit_at_random)
    dataset, cluster, rate = catalog.create("g"), OpenCounter(), 0.3
    graph = store_graph(dataset, random_adjacency(500, 4000, 1, symmetric=symmetric), symmetric=symmetric, num_blocks=4)
    directions = "forward" if symmetric else "both"
    options = PartitionOptions(4, model="stochastic", batches="walk", batch_rate=rate, directions=directions)
    quality = partition_graph(dataset, graph, options, cluster).quality
    sizes, back = GraphSizes.of(graph), GraphSizes.of(transpose_of(dataset, graph))
    matrices = [sizes] if symmetric else [back, sizes]
    drawn = DrawnProblem(
        ArtifactWriter(Path(), "partition", ""),
        net_pieces([(Path(), each) for each in matrices]),
        BatchDrawer.of("walk", Path(), 500, rate, 0),
    )
    merged = quality["batches_merged"]
    assert merged > 8
    counted = count(
        [*expected_merging(drawn, merged), *volume_phases(drawn, (Path(), Path()), 4, num_fresh(graph.nnz))]
    )
    for phase, function in (
        ("restrict nets", "restrict_nets"),
        ("index nets", "_index_piece"),
        ("keep nets", "_merge_bucket"),
        ("choose nets", "_choose_nets"),
        ("measure batches", "count_batches"),
    ):
        planned = phases_of(counted, phase)
        assert cluster.tasks(function) == sum(each.tasks for each in planned) > 0, phase
        assert sum(cluster.opens(function)) == sum(each.opens for each in planned), phase
    drawn_tasks = sum(each.tasks for each in counted if each.phase.startswith("draw"))
    assert cluster.tasks("draw_batches") == drawn_tasks


def test_merging_writes_about_the_counted_bytes(catalog: Catalog, tmp_path: Path) -> None:
    graph = store_graph(
        catalog.create("g"), random_adjacency(2000, 30_000, 1, symmetric=True), symmetric=True, num_blocks=4
    )
    drawn = DrawnProblem(
        ArtifactWriter(tmp_path, "partition", "0" * 16),
        net_pieces([(graph.artifact.path, GraphSizes.of(graph))]),
        BatchDrawer.of("vertex", graph.artifact.path, 2000, 0.3, 0),
    )
    merged = merge_batches(drawn, OpenCounter())
    found = drawn.writer.recorded_of(["drawn/0"])["drawn/0"].facts
    measured, _ = merging_plan(drawn, merged.count, list(zip(found["nets"], found["pins"], strict=True)))
    for stated in (measured, expected_merging(drawn, merged.count)):
        for phase in stated:
            if phase.name != "draw batches":
                planned, written = count([phase])[0].bytes_written, written_bytes(drawn.writer, phase)
                # Batches of uniform vertices have few equal nets; and runs have headers.
                assert 0.8 * written <= planned <= 1.2 * written, phase.name


def test_drawing_and_measuring_batches_writes_the_counted_bytes(catalog: Catalog, tmp_path: Path) -> None:
    graph = store_graph(catalog.create("g"), random_adjacency(500, 4000, 1, symmetric=True), symmetric=True)
    drawn = DrawnProblem(
        ArtifactWriter(tmp_path, "partition", "0" * 16),
        net_pieces([(graph.artifact.path, GraphSizes.of(graph))]),
        BatchDrawer.of("vertex", graph.artifact.path, 500, 0.3, 0),
    )
    paths = tmp_path / "one", tmp_path / "other"
    for seed, path in enumerate(paths):
        write_vector(path, [random_parts(500, 4, seed)])
    phases = volume_phases(drawn, paths, 4, 20)
    run(phases, OpenCounter(), drawn.writer, phases[0].files)
    drawing, measuring = count(phases)
    (path,) = (path for path in (drawn.writer.work / "batches").iterdir() if not path.suffix)
    assert drawing.bytes_written == path.stat().st_size
    # Runs have headers.
    assert 0 <= written_bytes(drawn.writer, phases[1]) - measuring.bytes_written <= 64 * measuring.tasks


@pytest.mark.slow
def test_tasks_open_few_files_of_many_pieces_groups_and_ranges_of_hashes(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_partition, "fit_apart", fit_at_random)
    dataset, cluster = catalog.create("g"), OpenCounter(Scratch(range_bytes=8000, slice_bytes=1))
    graph = store_graph(dataset, random_adjacency(500, 4000, 1, symmetric=True), symmetric=True, num_blocks=20)
    partition_graph(dataset, graph, PartitionOptions(4, model="stochastic", batches="walk", batch_rate=0.2), cluster)
    assert cluster.tasks("restrict_nets") >= 5 * 20
    assert cluster.tasks("_merge_bucket") > BESIDE.files
    groups = cluster.tasks("restrict_nets") // 20
    assert max(cluster.opens("restrict_nets")) == 2
    assert set(cluster.opens("_index_piece")) == {groups}
    assert max(cluster.opens("_merge_bucket")) <= BESIDE.files
    assert max(cluster.opens("_choose_nets")) <= groups + BESIDE.files


def test_ranges_of_hashes_hold_16_mib_of_indexes_and_128_kib_of_each() -> None:
    assert merged_nets.num_buckets(0, 1, BESIDE) == 1
    assert merged_nets.num_buckets(10 * (16 << 20) // 32, 128, BESIDE) == 10
    assert merged_nets.num_buckets(10 * (16 << 20) // 32 + 1, 128, BESIDE) == 11
    assert merged_nets.num_buckets(10 * (16 << 20) // 32, 256, BESIDE) == 5
