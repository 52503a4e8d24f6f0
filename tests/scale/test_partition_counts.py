"""What a partition of a graph of any size takes: the tasks after it, and what one process holds while it is made."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from scale.counted_cluster import OpenCounter, written_bytes
from scale.scale_graphs import GRAPHS, Described
from scale.test_counts import RANKS, check_opens, check_shares

from gnnloom.pipeline.partition.measure.quality import MeasurePlan
from gnnloom.pipeline.partition.measure.volume import CountBuffers
from gnnloom.pipeline.partition.options import METHODS, PartitionOptions
from gnnloom.pipeline.partition.partition_plan import partition_counts
from gnnloom.pipeline.partition.partitioner import PartitionWorkload
from gnnloom.pipeline.partition.stage import partition_graph
from gnnloom.pipeline.shuffle.mapped_vectors import write_vector
from gnnloom.pipeline.tasks.memory import BASE_MEMORY
from gnnloom.pipeline.tasks.phase import PhaseCount, count, run
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage import Catalog
from gnnloom.storage.format.arrays import default_chunk_rows
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.matrix.csr import index_dtype
from support.graphs import random_adjacency, store_graph
from support.partitions import random_parts, transpose_of
from support.scratch import small_chunks

MEMORY = 1 << 30
cases = pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
on_ranks = pytest.mark.parametrize("ranks", RANKS)


def phases(graph: Described, ranks: int) -> list[PhaseCount]:
    sizes = graph.source.graph
    return partition_counts(sizes, sizes, PartitionOptions(ranks, "random"), 1, MEMORY)


def client_memory(graph: Described, method: str, preset: str = "", parts: int = 64) -> int:
    """Bytes that one process holds while the parts are made, in addition to itself."""
    known = METHODS[method]
    workload = PartitionWorkload(graph.num_vertices, graph.nnz, True, parts, "hypergraph", 1, "vertex", MEMORY)
    chosen = next(each for each in known.presets if each.name == preset) if preset else known.presets[0]
    return known.cost(workload, chosen).memory - BASE_MEMORY


@cases
@on_ranks
def test_counting_a_cover_moves_the_nonzeros_a_few_times_and_opens_few_files(graph: Described, ranks: int) -> None:
    sizes, options = graph.source.graph, PartitionOptions(ranks, "random", exchange="cover")
    counted = partition_counts(sizes, sizes, options, 1, MEMORY)
    check_opens(counted)
    added = counted[len(phases(graph, ranks)) :]
    assert bool(added) == (ranks > 1)
    ends = 2 * index_dtype(graph.num_vertices).itemsize * graph.nnz
    for phase in added:
        # A merge moves a key and an offset of each pair, too. Only the parts of all vertices take more memory.
        assert phase.bytes_read < 4 * ends + graph.matrix_bytes + (64 << 20)
        assert phase.most_memory < MEMORY + 4 * graph.num_vertices


@cases
@on_ranks
def test_storing_and_measuring_parts_opens_one_file_in_a_task_and_moves_the_graph_once(
    graph: Described, ranks: int
) -> None:
    counted = phases(graph, ranks)
    check_opens(counted)
    # The graph, and the part of every row and column.
    data = graph.matrix_bytes + 4 * (graph.nnz + graph.num_vertices)
    check_shares(counted, data, data / (4 << 20) + 64)
    for phase in counted:
        assert phase.most_opens == 1
    # A single part exchanges nothing, and all nonzeros are its own.
    if ranks == 1:
        assert {phase.phase for phase in counted} == {"store parts"}
        return
    # Pairs of parts that exchange rows are not more than nonzeros, and P^2 for each block.
    exchange = next(phase for phase in counted if phase.phase == "count exchange")
    assert exchange.bytes_written <= 16 * min(graph.nnz, ranks**2 * exchange.tasks)


@pytest.mark.parametrize("memory", [448 << 20, 1 << 30, 16 << 30])
def test_counting_what_parts_exchange_holds_the_budget(memory: int) -> None:
    for graph, ranks in itertools.product(GRAPHS, RANKS):
        chunk = default_chunk_rows((graph.nnz,), index_dtype(graph.num_vertices))
        assert BASE_MEMORY + CountBuffers(ranks, memory).peak_memory(chunk) <= memory, (graph.name, ranks)


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_partition_runs_the_counted_tasks_and_opens_the_counted_files(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, symmetric: bool
) -> None:
    small_chunks(monkeypatch, 4096)
    adjacency = random_adjacency(5000, 40_000, 1, symmetric=symmetric)
    dataset = catalog.create("g")
    graph, cluster = store_graph(dataset, adjacency, symmetric=symmetric, num_blocks=7), OpenCounter()
    partition = partition_graph(dataset, graph, PartitionOptions(8, "random"), cluster)
    sizes, back = GraphSizes.of(graph), GraphSizes.of(transpose_of(dataset, graph))
    counted = partition_counts(sizes, back, PartitionOptions(8, "random"), 1, cluster.memory)
    functions = {"store parts": "_store_rows", "count exchange": "count_block", "measure load": "_measure_block"}
    assert functions.keys() == {phase.phase for phase in counted}
    for phase, function in functions.items():
        planned = [each for each in counted if each.phase == phase]
        assert cluster.tasks(function) == sum(each.tasks for each in planned) > 2, phase
        assert sum(cluster.opens(function)) == sum(each.opens for each in planned), phase
    assert counted[0].bytes_written == partition.part().nbytes


@pytest.mark.parametrize("symmetric", [True, False])
def test_measuring_writes_the_counted_bytes(catalog: Catalog, tmp_path: Path, symmetric: bool) -> None:
    dataset, writer = catalog.create("g"), ArtifactWriter(tmp_path, "partition", "0" * 16)
    adjacency = random_adjacency(3000, 40_000, 1, symmetric=symmetric)
    graph = store_graph(dataset, adjacency, symmetric=symmetric, num_blocks=5)
    write_vector(tmp_path / "parts", [random_parts(3000, 8, 0)])
    plan = MeasurePlan.of(graph, transpose_of(dataset, graph), 8, MEMORY, "unit", writer, tmp_path / "parts")
    phases = plan.phases()
    run(phases, OpenCounter(), writer)
    for phase in phases:
        # Every pair of parts exchanges rows, but for the 8 that are one part twice; and runs have headers.
        planned = count([phase])[0].bytes_written - 8 * 16 * len(phase.tasks) * (phase.name == "count exchange")
        written = written_bytes(writer, phase)
        assert planned <= written <= planned + 64 * len(phase.tasks), phase.name


@cases
@pytest.mark.parametrize("method", ["random", "block"])
def test_the_baselines_hold_the_part_vector_and_nothing_that_grows_with_the_edges(
    graph: Described, method: str
) -> None:
    assert client_memory(graph, method) == 4 * graph.num_vertices


@cases
@pytest.mark.parametrize("preset", ["auto", "streaming", "flat"])
def test_the_out_of_core_method_holds_few_bytes_of_a_vertex_and_nothing_that_grows_with_the_edges(
    graph: Described, preset: str
) -> None:
    denser = Described("denser", graph.num_vertices, 16 * graph.nnz, graph.width)
    held = client_memory(graph, "multilevel", preset)
    # One process works on levels of few pins, or on one that fits in memory, whatever the size of the graph.
    assert held <= 4 * graph.num_vertices + (4 << 30)
    assert client_memory(denser, "multilevel", preset) == held


@cases
def test_the_program_in_memory_holds_what_grows_with_the_edges_alone_and_not_with_its_square(graph: Described) -> None:
    held = client_memory(graph, "mtkahypar")
    assert held >= 4 * (graph.nnz + graph.num_vertices)
    twice = Described("twice", 2 * graph.num_vertices, 2 * graph.nnz, graph.width)
    assert client_memory(twice, "mtkahypar") <= 2 * held + BASE_MEMORY
