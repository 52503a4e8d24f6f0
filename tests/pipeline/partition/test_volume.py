"""The exact counter, compared with a count by hand."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnloom.pipeline.partition.measure.quality import MATRIX_PARTS, Load, describe_quality, load_phase, read_load
from gnnloom.pipeline.partition.measure.volume import (
    CountBuffers,
    PartExchange,
    exchange_phase,
    pair_sums,
    read_exchange,
)
from gnnloom.pipeline.shuffle.mapped_vectors import write_vector
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.tasks.phase import run
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage import Catalog, Graph
from gnnloom.storage.disk.work_folder import BESIDE, Scratch
from gnnloom.storage.format.artifact import ArtifactWriter
from support.covering import examples
from support.graphs import random_adjacency, store_graph
from support.partitions import random_parts, rows_sent
from support.scratch import small_chunks


def new_writer(folder: Path, scratch: Scratch = BESIDE) -> ArtifactWriter:
    return ArtifactWriter(Path(mkdtemp(dir=folder)), "partition", "0" * 16, scratch=scratch)


def count(
    graph: Graph, part: NDArray[np.int32], parts: int, folder: Path, buffers: CountBuffers | None = None
) -> PartExchange:
    """Count the exchange of the product with the *transpose* of the graph."""
    write_vector(folder / "parts", [part])
    where = new_writer(folder), graph.artifact.path, folder / "parts"
    phase = exchange_phase(*where, GraphSizes.of(graph), buffers or CountBuffers(parts, 1 << 30), "forward")
    run([phase], InProcessCluster(), where[0])
    return read_exchange(where[0], "forward", parts)


def load_of(graph: Graph, parts: int, folder: Path, weights: str = "nonzeros", scratch: Scratch = BESIDE) -> Load:
    """Measure the load of the parts that :func:`count` counted last."""
    where = new_writer(folder, scratch), graph.artifact.path, folder / "parts"
    run([load_phase(*where, GraphSizes.of(graph), parts, weights)], InProcessCluster(), where[0])
    return read_load(where[0], graph.num_blocks, parts)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    num_vertices=st.integers(1, 40),
    nnz=st.integers(0, 200),
    seed=st.integers(0, 10**6),
    parts=st.integers(1, 9),
    num_blocks=st.integers(1, 4),
)
def test_every_figure_equals_a_brute_force_count(
    catalog: Catalog, tmp_path: Path, num_vertices: int, nnz: int, seed: int, parts: int, num_blocks: int
) -> None:
    adjacency = random_adjacency(num_vertices, nnz, seed, symmetric=False, loops=seed % 2 == 0)
    dataset = catalog.create(f"g-{num_vertices}-{nnz}-{seed}-{parts}-{num_blocks}")
    graph = store_graph(dataset, adjacency, symmetric=True, num_blocks=num_blocks)
    part = random_parts(num_vertices, parts, seed)
    exchange = count(graph, part, parts, tmp_path / "work")
    expected = rows_sent(adjacency.T.toarray(), part, parts)
    np.testing.assert_array_equal(exchange.matrix(), expected)
    np.testing.assert_array_equal(exchange.sent(), expected.sum(axis=1))
    np.testing.assert_array_equal(exchange.received(), expected.sum(axis=0))
    np.testing.assert_array_equal(exchange.messages(), (expected > 0).sum(axis=1))
    assert exchange.total == expected.sum()

    quality = describe_quality("random", 0.01, load_of(graph, parts, tmp_path / "work"), exchange, None)
    nonzeros = (adjacency.toarray() != 0).sum(axis=1)
    load = np.array([nonzeros[part == number].sum() for number in range(parts)])
    assert quality["km1"] == quality["volume_total"] == expected.sum()
    assert quality["volume_avg"] == expected.sum() / parts
    assert quality["volume_max"] == expected.sum(axis=1).max()
    assert quality["receive_volume_max"] == expected.sum(axis=0).max()
    assert quality["messages_avg"] == (expected > 0).sum() / parts
    assert quality["messages_max"] == (expected > 0).sum(axis=1).max()
    assert quality["volume_matrix"] == expected.tolist()
    assert (quality["load_max"], quality["load_avg"]) == (load.max(), load.mean())
    for name, figures in {
        "volume": expected.sum(axis=1),
        "receive_volume": expected.sum(axis=0),
        "messages": (expected > 0).sum(axis=1),
        "receive_messages": (expected > 0).sum(axis=0),
        "load": load,
        "vertices": np.bincount(part, minlength=parts),
    }.items():
        assert quality[f"{name}_per_part"] == figures.tolist()
    if load.sum():
        assert quality["imbalance"] == pytest.approx(load.max() / load.mean() - 1)
    average = np.maximum(nonzeros, 1).sum() / parts
    limit = max(nonzeros.max(), np.floor(1.01 * average), np.ceil(average))
    assert quality["imbalance_bound"] == pytest.approx(limit / average - 1 if parts > 1 else 0)


def test_the_bound_and_the_imbalance_follow_the_weights(catalog: Catalog, tmp_path: Path) -> None:
    """Ten rows, one with ten nonzeros and the others with one each, in two parts of five vertices."""
    dense = np.eye(10)
    dense[0] = 1
    graph = store_graph(catalog.create("g"), scipy.sparse.csr_array(dense), symmetric=True)
    part = np.repeat(np.array([0, 1], dtype=np.int32), 5)
    exchange = count(graph, part, 2, tmp_path / "work")
    unit = describe_quality("metis", 0.1, load_of(graph, 2, tmp_path / "work", "unit"), exchange, None)
    assert (unit["weight_imbalance"], unit["imbalance_bound"]) == (0, 0)
    assert unit["imbalance"] == pytest.approx(14 / 9.5 - 1)
    work = describe_quality("metis", 0.1, load_of(graph, 2, tmp_path / "work"), exchange, None)
    assert work["imbalance_bound"] == pytest.approx(10 / 9.5 - 1)
    assert "weight_imbalance" not in work
    exact = describe_quality("metis", 0.0, load_of(graph, 2, tmp_path / "work"), exchange, None)
    assert exact["imbalance_bound"] == pytest.approx(10 / 9.5 - 1)


@pytest.mark.parametrize("parts", [5000, 6000])
def test_thousands_of_parts_are_counted_with_and_without_a_table(catalog: Catalog, tmp_path: Path, parts: int) -> None:
    adjacency = random_adjacency(20_000, 60_000, 1, symmetric=True)
    graph = store_graph(catalog.create("g"), adjacency, symmetric=True)
    part = random_parts(20_000, parts, 2)
    exchange = count(graph, part, parts, tmp_path / "work")
    entries = adjacency.tocoo()
    rows, columns = entries.coords
    needs = np.unique(np.stack([columns, part[rows]])[:, part[rows] != part[columns]], axis=1)
    np.testing.assert_array_equal(exchange.sent(), np.bincount(part[needs[0]], minlength=parts))
    np.testing.assert_array_equal(exchange.received(), np.bincount(needs[1], minlength=parts))
    pairs = np.unique(part[needs[0]].astype(np.int64) * parts + needs[1])
    np.testing.assert_array_equal(exchange.pair, pairs)
    quality = describe_quality("random", 0.01, load_of(graph, parts, tmp_path / "work"), exchange, None)
    assert parts > MATRIX_PARTS
    assert "volume_matrix" not in quality
    assert quality["messages_total"] == len(pairs)
    assert quality["volume_per_part"] == exchange.sent().tolist()
    json.dumps(quality)


def test_sums_of_dense_pairs_take_the_memory_of_the_table_and_one_task() -> None:
    """Sorting the waiting pairs would take ten times the memory of the table."""
    parts, tasks = 1000, 8
    pair = np.arange(parts * parts)
    tracemalloc.start()
    counts = pair_sums(parts)
    for _ in range(tasks):
        counts.add(pair, np.ones(len(pair), dtype=np.int64))
    found, rows = counts.merged()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(found, pair)
    assert set(rows.tolist()) == {tasks}
    assert peak < 6 * pair.nbytes


@pytest.mark.parametrize(("memory", "has_table"), [(2000, True), (1000, False)])
@pytest.mark.parametrize("num_blocks", [1, 3])
def test_a_block_that_is_read_in_ranges_gives_the_same_figures(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int, has_table: bool, num_blocks: int
) -> None:
    # Chunks of 16 columns or 8 pointers.
    small_chunks(monkeypatch, 64)
    adjacency = random_adjacency(100, 900, 5, symmetric=False).tolil()
    # A row of several ranges, and rows without nonzeros at a block's begin and end and at a bound of a range.
    adjacency[40] = 1
    adjacency[[0, 7, 8, 9, 66, 67, 99]] = 0
    matrix = scipy.sparse.csr_array(adjacency)
    matrix.eliminate_zeros()
    graph = store_graph(catalog.create("g"), matrix, symmetric=True, num_blocks=num_blocks)
    part = random_parts(100, 10, 6)
    buffers = CountBuffers(10, 0, buffers=memory, least_nonzeros=16, range_rows=8, piece_cells=7)
    assert buffers.has_table == has_table
    exchange = count(graph, part, 10, tmp_path / "work", buffers)
    np.testing.assert_array_equal(exchange.matrix(), rows_sent(matrix.T.toarray(), part, 10))
    load = load_of(graph, 10, tmp_path / "work", scratch=Scratch(range_rows=8))
    nonzeros = np.diff(matrix.indptr)
    assert load.nonzeros.tolist() == [nonzeros[part == number].sum() for number in range(10)]
    assert load.vertices.tolist() == np.bincount(part, minlength=10).tolist()
    assert load.heaviest == 100


@pytest.mark.parametrize("parts", [8, 400])
def test_counting_a_large_block_takes_the_memory_of_its_ranges(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    small_chunks(monkeypatch, 1 << 14)
    n = 30_000
    graph = store_graph(
        catalog.create("g"), random_adjacency(n, 600_000, 7, symmetric=False), symmetric=True, num_blocks=1
    )
    write_vector(tmp_path / "parts", [random_parts(n, parts, 8)])
    few = 1 << 12
    buffers = CountBuffers(parts, 0, buffers=1 << 20, least_nonzeros=few, range_rows=few, piece_cells=few)
    assert buffers.has_table == (parts == 8)
    for name in ("compiles", "measured"):
        tracemalloc.start()
        where = new_writer(tmp_path), graph.artifact.path, tmp_path / "parts"
        run([exchange_phase(*where, GraphSizes.of(graph), buffers, name)], InProcessCluster(), where[0])
        load_of(graph, parts, tmp_path, scratch=Scratch(range_rows=few))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    # The Python objects of the tasks and of what they open.
    assert peak <= buffers.peak_memory(1 << 12) + (300 << 10) < 4 * graph.nnz
