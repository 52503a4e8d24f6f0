"""The stochastic model: hypergraphs of mini-batches, and the comparison on batches that no model has seen."""

from __future__ import annotations

import time
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnloom.pipeline.partition.measure.balance import heaviest_allowed
from gnnloom.pipeline.partition.model.hypergraph import column_net_hypergraph
from gnnloom.pipeline.partition.multilevel.heavy_first import assign_heavy_first
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.partition.stochastic import batch_partition, drawn_batches, uniform_batches
from gnnloom.pipeline.partition.stochastic.annealing import IMPROVING, POLISHING, anneal, annealing_memory
from gnnloom.pipeline.partition.stochastic.batch_drawer import BatchDrawer
from gnnloom.pipeline.partition.stochastic.batch_volume import batch_volumes
from gnnloom.pipeline.partition.stochastic.drawn_batches import MOST_BATCHES, hoeffding_batches
from gnnloom.pipeline.partition.stochastic.uniform_batches import BatchNets, PinCounts, net_owners, uniform_hypergraph
from gnnloom.pipeline.shuffle.mapped_vectors import write_vector
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Graph
from gnnloom.storage.errors import BudgetError
from gnnloom.storage.samplers.kind import BATCHES
from support.batches import made_up_problem, merge, merged_by_hand
from support.covering import examples
from support.fits import fit_here
from support.graphs import random_adjacency, store_graph
from support.partitions import connectivity_minus_one, random_parts, rows_sent, transpose_of

HERE = InProcessCluster()
EXAMPLES = settings(
    max_examples=examples(16), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
GRAPHS = given(n=st.integers(2, 25), nnz=st.integers(0, 120), seed=st.integers(0, 10**6), symmetric=st.booleans())


def make(
    folder: pytest.TempPathFactory, n: int, nnz: int, seed: int, symmetric: bool
) -> tuple[NDArray[np.bool_], Graph, Graph]:
    """A dense pattern, its stored graph, and the stored transpose."""
    adjacency = random_adjacency(n, nnz, seed, symmetric=symmetric)
    dataset = Catalog(folder.mktemp("catalog")).create("g")
    graph = store_graph(dataset, adjacency, symmetric=symmetric)
    return adjacency.toarray() != 0, graph, transpose_of(dataset, graph)


@EXAMPLES
@GRAPHS
def test_the_rows_of_a_batch_equal_a_count_by_hand(
    tmp_path_factory: pytest.TempPathFactory, n: int, nnz: int, seed: int, symmetric: bool
) -> None:
    dense, _, transpose = make(tmp_path_factory, n, nnz, seed, symmetric)
    folder = tmp_path_factory.mktemp("volumes")
    batches = np.random.default_rng(seed).random((4, n)) < 0.6
    drawn = made_up_problem([transpose], lambda number: batches[number - MOST_BATCHES], folder)
    parts = [random_parts(n, 4, seed), random_parts(n, 4, seed + 1)]
    paths = [folder / "0", folder / "1"]
    for path, part in zip(paths, parts, strict=True):
        write_vector(path, [part])
    sent = batch_volumes(drawn, paths, 4, 2, HERE)
    induced = [dense & batch[:, None] & batch[None, :] for batch in batches]
    assert sent.tolist() == [[rows_sent(each, part, 4).sum() for part in parts] for each in induced]


@pytest.mark.slow
@EXAMPLES
@GRAPHS
def test_the_cut_of_merged_batches_is_the_sum_of_what_they_send(
    tmp_path_factory: pytest.TempPathFactory, n: int, nnz: int, seed: int, symmetric: bool
) -> None:
    dense, graph, transpose = make(tmp_path_factory, n, nnz, seed, symmetric)
    batches = np.random.default_rng(seed).random((MOST_BATCHES, n)) < 0.5
    merged = merge([transpose], batches.__getitem__, tmp_path_factory.mktemp("merged"))
    full = column_net_hypergraph(graph, transpose)
    sampled = merged.nets.load(full.vertex_weight)
    assert sampled.net_weight is not None
    nets = [full.pin[a:b].tolist() for a, b in pairwise(full.net_offset)]
    expected = merged_by_hand(
        list(zip(net_owners([transpose]).tolist(), nets, strict=True)), batches.__getitem__, merged.count
    )
    pins = [frozenset(sampled.pin[a:b].tolist()) for a, b in pairwise(sampled.net_offset)]
    # In this order: partitioners give other parts for another one.
    assert (pins, sampled.net_weight.tolist()) == expected
    part = random_parts(n, 3, seed)
    induced = [dense & batch[:, None] & batch[None, :] for batch in batches[: merged.count]]
    cuts = [
        connectivity_minus_one_of(sampled.pin[a:b], part) * weight
        for a, b, weight in zip(sampled.net_offset[:-1], sampled.net_offset[1:], sampled.net_weight, strict=True)
    ]
    assert sum(cuts) == sum(rows_sent(batch, part, 3).sum() for batch in induced)
    assert merged.covered >= 0.9 or merged.count > 4


def connectivity_minus_one_of(pins: NDArray[Any], part: NDArray[np.int32]) -> int:
    """Parts that one net touches, less 1."""
    return len({int(part[pin]) for pin in pins}) - 1


@EXAMPLES
@GRAPHS
def test_owners_are_the_vertices_whose_nets_have_other_pins(
    tmp_path_factory: pytest.TempPathFactory, n: int, nnz: int, seed: int, symmetric: bool
) -> None:
    dense, _, transpose = make(tmp_path_factory, n, nnz, seed, symmetric)
    np.fill_diagonal(dense, False)
    np.testing.assert_array_equal(net_owners([transpose]), np.flatnonzero(dense.any(axis=0)))


def test_at_rate_one_the_uniform_hypergraph_is_the_full_one(tmp_path_factory: pytest.TempPathFactory) -> None:
    _, graph, transpose = make(tmp_path_factory, 40, 300, 1, False)
    full = column_net_hypergraph(graph, transpose)
    weighted_nets = uniform_hypergraph(full, net_owners([transpose]), 1.0, 5)
    assert weighted_nets.net_weight is not None
    part = random_parts(40, 5, 2)
    weighted = sum(
        connectivity_minus_one_of(weighted_nets.pin[a:b], part) * weight
        for a, b, weight in zip(
            weighted_nets.net_offset[:-1], weighted_nets.net_offset[1:], weighted_nets.net_weight, strict=True
        )
    )
    assert weighted == 64 * connectivity_minus_one(full, part)


@pytest.mark.parametrize("kind", ["walk", "frontier"])
def test_batches_of_a_graph_without_edges_are_uniform(catalog: Catalog, kind: str) -> None:
    graph = store_graph(catalog.create("g"), scipy.sparse.csr_array((10000, 10000), dtype=np.int8), symmetric=True)
    # Of 2000 draws with repeats, 10000 * (1 - (1 - 1/10000)^2000) = 1813 vertices on average, with a deviation of 12.
    path = graph.artifact.path
    assert len(BatchDrawer.of(kind, path, 10000, 0.2, 0).vertices()(0)) == pytest.approx(1813, abs=75)
    assert len(BatchDrawer.of(kind, path, 10000, 1e-9, 0).vertices()(0)) == 1


def test_annealing_finds_communities(catalog: Catalog) -> None:
    """Four cliques of 30 vertices with random parts: the best parts send nothing."""
    cliques: Any = scipy.sparse.block_diag([np.ones((30, 30), dtype=np.int8)] * 4).tocsr()
    graph = store_graph(catalog.create("g"), cliques, symmetric=True)
    nets = BatchNets(column_net_hypergraph(graph, graph), net_owners([graph]), 0.1)
    part = random_parts(120, 4, 0)
    assert nets.expected_volume(part, 4) > 10
    annealed, finished = anneal(nets, {IMPROVING: part}, 4, 0.2, 0)
    assert finished
    assert nets.expected_volume(annealed, 4) == 0
    assert np.bincount(annealed).tolist() == [30] * 4


def test_the_chances_of_sending_have_the_same_bits_on_every_processor(catalog: Catalog) -> None:
    """NumPy's powers have other last bits with wider vectors, so the chances are products, as Python computes them."""
    graph = store_graph(catalog.create("g"), random_adjacency(60, 3000, 0, symmetric=True), symmetric=True)
    nets = BatchNets(column_net_hypergraph(graph, graph), net_owners([graph]), 0.2)
    sending, missing = PinCounts.of(nets, random_parts(60, 4, 0), 4).sending.tolist(), 1.0
    assert len(sending) > 30
    for chance in sending:
        assert chance == 1 - missing
        missing *= 1 - nets.rate


def test_annealing_stays_within_the_predicted_memory(catalog: Catalog) -> None:
    graph = store_graph(catalog.create("g"), random_adjacency(5000, 20000, 0, symmetric=True), symmetric=True)
    full = column_net_hypergraph(graph, graph)
    nets = BatchNets(full, net_owners([graph]), 0.1)
    part = random_parts(5000, 100, 0)
    nets.expected_volume(part, 100)
    tracemalloc.start()
    anneal(nets, {((3, 0.1),): part}, 100, 0.2, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.8 * peak < annealing_memory(5000, full.num_nets, full.num_pins, 100)


def test_annealing_stops_at_the_deadline_with_parts_that_are_no_worse(catalog: Catalog) -> None:
    graph = store_graph(catalog.create("g"), random_adjacency(200, 900, 0, symmetric=True), symmetric=True)
    nets = BatchNets(column_net_hypergraph(graph, graph), net_owners([graph]), 0.1)
    part = random_parts(200, 4, 0)
    annealed, finished = anneal(nets, {IMPROVING: part}, 4, 0.2, 0, time.monotonic())
    assert not finished
    np.testing.assert_array_equal(annealed, part)


@pytest.mark.slow
def test_the_reason_to_stop_drawing_is_reported(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = store_graph(catalog.create("g"), random_adjacency(200, 900, 0, symmetric=True), symmetric=True)
    everything, nothing = np.ones(200, dtype=np.bool_), np.zeros(200, dtype=np.bool_)
    assert merge([graph], lambda _: everything, tmp_path / "all").stopped_by == "coverage"
    late = merge([graph], lambda _: nothing, tmp_path / "late", time.monotonic())
    assert (late.stopped_by, late.count, late.facts()["batches_nets"]) == ("time", 1, 0)
    monkeypatch.setattr(drawn_batches, "MOST_BATCHES", 100)
    most = merge([graph], lambda _: nothing, tmp_path / "none")
    assert (most.stopped_by, most.count) == ("most", 100)
    monkeypatch.setattr(drawn_batches, "_COVERED", 2.0)
    full = merge([graph], lambda _: everything, tmp_path / "again")
    # Four times the pins are not yet too many.
    assert (full.stopped_by, full.count) == ("pins", 5)


def test_weights_of_batches_stay_below_the_native_limit(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = store_graph(catalog.create("g"), random_adjacency(200, 900, 0, symmetric=True), symmetric=True)
    full, owner = column_net_hypergraph(graph, graph), net_owners([graph])
    limit = 3 * (full.num_nets + full.num_pins)
    monkeypatch.setattr(uniform_batches, "NATIVE_LIMIT", limit)
    weighted = uniform_hypergraph(full, owner, 0.1, 4)
    assert weighted.net_weight is not None
    assert 0 < weighted.net_weight.sum() <= limit
    assert weighted.net_weight.min() >= 1


@pytest.mark.slow
def test_the_full_batch_partition_is_kept_if_both_are_equal(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of one vertex sends nothing."""
    monkeypatch.setattr(batch_partition, "fit_apart", fit_here)
    monkeypatch.setattr(drawn_batches, "MOST_BATCHES", 100)
    graph = store_graph(catalog.create("g"), random_adjacency(60, 200, 0, symmetric=True), symmetric=True)
    options = PartitionOptions(3, model="stochastic", batches="walk", batch_rate=1e-9)
    partition = partition_graph(catalog["g"], graph, options, HERE)
    full = partition_graph(catalog["g"], graph, PartitionOptions(3, "mtkahypar"), HERE)
    assert partition.quality["batch_model"] == "hypergraph"
    np.testing.assert_array_equal(partition.part(), full.part())
    assert (partition.quality["batches_nets"], partition.quality["batches_stopped_by"]) == (0, "most")


def test_the_memory_check_counts_the_pins_of_both_directions(catalog: Catalog) -> None:
    graph = store_graph(catalog.create("g"), random_adjacency(60, 200, 0, symmetric=False), symmetric=False)
    pins = graph.nnz + 60
    options = PartitionOptions(3, model="stochastic", directions="both", memory_limit=150 * pins)
    with pytest.raises(BudgetError, match=f"{2 * pins} pins.*use model hypergraph with method multilevel"):
        partition_graph(catalog["g"], graph, options, HERE)


def test_the_number_of_batches_is_hoeffdings_bound() -> None:
    assert hoeffding_batches() == 185  # ln(2 / 0.05) / (2 * 0.1^2) = 184.4


@EXAMPLES
@GRAPHS
def test_the_closed_form_is_the_expectation_over_batches(
    tmp_path_factory: pytest.TempPathFactory, n: int, nnz: int, seed: int, symmetric: bool
) -> None:
    """A part receives a row if its owner and any of the part's pins are drawn, independently at rate 0.3."""
    dense, graph, transpose = make(tmp_path_factory, n, nnz, seed, symmetric)
    part = random_parts(n, 3, seed)
    nets = BatchNets(column_net_hypergraph(graph, transpose), net_owners([transpose]), 0.3)
    expected = 0.0
    for column in range(n):
        others = np.flatnonzero(dense[:, column])
        for receiver in set(range(3)) - {int(part[column])}:
            expected += 0.3 * (1 - 0.7 ** (part[others] == receiver).sum())
    assert nets.expected_volume(part, 3) == pytest.approx(expected)


@EXAMPLES
@GRAPHS
def test_annealed_parts_send_no_more_and_stay_balanced(
    tmp_path_factory: pytest.TempPathFactory, n: int, nnz: int, seed: int, symmetric: bool
) -> None:
    _, graph, transpose = make(tmp_path_factory, n, nnz, seed, symmetric)
    nets = BatchNets(column_net_hypergraph(graph, transpose), net_owners([transpose]), 0.3)
    weight = nets.full.vertex_weight
    part = np.empty(n, dtype=np.int32)
    assign_heavy_first(weight, 3, seed, part)
    before = nets.expected_volume(part, 3)
    load = np.bincount(part, weights=weight, minlength=3)
    annealed, _ = anneal(nets, {POLISHING: part, IMPROVING: part}, 3, 0.5, seed)
    assert nets.expected_volume(annealed, 3) <= before + 1e-9
    after = np.bincount(annealed, weights=weight, minlength=3)
    assert (after <= np.maximum(load, heaviest_allowed(weight, 3, 0.5))).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    # Of the kinds that know the graph and of those that do not, one is quick.
    "batches",
    [pytest.param(kind, marks=[] if kind in {"vertex", "walk"} else [pytest.mark.long]) for kind in BATCHES],
)
def test_the_better_partition_on_fresh_batches_is_kept(
    catalog: Catalog, batches: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if batches == "vertex":
        monkeypatch.setattr(batch_partition, "fit_apart", fit_here)
    dataset = catalog.create("g")
    graph = store_graph(dataset, random_adjacency(200, 900, 0, symmetric=True), symmetric=True)
    options = PartitionOptions(4, model="stochastic", imbalance=0.05, batches=batches, batch_rate=0.2)
    partition = partition_graph(dataset, graph, options, HERE)
    quality = partition.quality
    assert quality["batch_gain"] == pytest.approx(1 - quality["batch_volume"] / quality["batch_volume_full"])
    assert quality["batch_model"] in {"stochastic", "hypergraph"}
    assert set(partition.part().tolist()) == set(range(4))
