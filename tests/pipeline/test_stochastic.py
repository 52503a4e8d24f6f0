"""The stochastic model: hypergraphs of mini-batches, and the check on batches that they have not seen."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnnloom.pipeline.cluster import InProcessCluster
from gnnloom.pipeline.hypergraph import column_net_hypergraph
from gnnloom.pipeline.partition import PartitionOptions, partition_graph
from gnnloom.pipeline.stochastic import batch_counts, batch_volume, mixed_hypergraph, net_owners, sampled_hypergraph
from gnnloom.storage import Catalog
from gnnloom.storage.sampling.batches import draw_batch
from support.graphs import random_adjacency, store_graph
from support.partitions import connectivity_minus_one, random_parts, rows_sent, transpose_of

HERE = InProcessCluster()
EXAMPLES = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
GRAPHS = given(n=st.integers(2, 25), nnz=st.integers(0, 120), seed=st.integers(0, 10**6), symmetric=st.booleans())


def make(folder: pytest.TempPathFactory, n: int, nnz: int, seed: int, symmetric: bool):
    adjacency = random_adjacency(n, nnz, seed, symmetric=symmetric)
    dataset = Catalog(folder.mktemp("catalog")).create("g")
    graph = store_graph(dataset, adjacency, symmetric=symmetric)
    return adjacency.toarray() != 0, graph, transpose_of(dataset, graph)


@EXAMPLES
@GRAPHS
def test_the_rows_of_a_batch_equal_a_count_by_hand(tmp_path_factory, n, nnz, seed, symmetric) -> None:
    dense, _, transpose = make(tmp_path_factory, n, nnz, seed, symmetric)
    batch = np.random.default_rng(seed).random(n) < 0.6
    part = random_parts(n, 4, seed)
    induced = dense & batch[:, None] & batch[None, :]
    assert batch_volume(transpose, part, 4, batch) == rows_sent(induced, part, 4).sum()


@EXAMPLES
@GRAPHS
def test_the_cut_of_merged_batches_is_what_they_send_together(tmp_path_factory, n, nnz, seed, symmetric) -> None:
    dense, graph, transpose = make(tmp_path_factory, n, nnz, seed, symmetric)
    rng = np.random.default_rng(seed)
    batches = [rng.random(n) < 0.5 for _ in range(6)]
    sampled = sampled_hypergraph(column_net_hypergraph(graph, transpose), batches)
    part = random_parts(n, 3, seed)
    sent = 0
    for batch in batches:
        # A net of a batch that did not draw its owner still joins the rows that need it.
        for column in range(n):
            touched = {int(part[row]) for row in np.flatnonzero((dense[:, column] | (np.arange(n) == column)) & batch)}
            sent += max(0, len(touched) - 1)
    cuts = [
        connectivity_minus_one_of(sampled.pin[a:b], part) * weight
        for a, b, weight in zip(sampled.net_offset[:-1], sampled.net_offset[1:], sampled.net_weight, strict=True)
    ]
    assert sum(cuts) == sent
    pins = [frozenset(sampled.pin[a:b].tolist()) for a, b in pairwise(sampled.net_offset)]
    assert max(Counter(pins).values(), default=1) == 1


def connectivity_minus_one_of(pins: np.ndarray, part: np.ndarray) -> int:
    return len({int(part[pin]) for pin in pins}) - 1


@EXAMPLES
@GRAPHS
def test_owners_are_the_vertices_whose_nets_have_other_pins(tmp_path_factory, n, nnz, seed, symmetric) -> None:
    dense, _, transpose = make(tmp_path_factory, n, nnz, seed, symmetric)
    np.fill_diagonal(dense, False)
    np.testing.assert_array_equal(net_owners([transpose]), np.flatnonzero(dense.any(axis=0)))


def test_at_rate_one_the_mixed_hypergraph_is_the_full_one(tmp_path_factory) -> None:
    _, graph, transpose = make(tmp_path_factory, 40, 300, 1, False)
    full = column_net_hypergraph(graph, transpose)
    mixed = mixed_hypergraph(full, net_owners([transpose]), 1.0, 5)
    part = random_parts(40, 5, 2)
    weighted = sum(
        connectivity_minus_one_of(mixed.pin[a:b], part) * weight
        for a, b, weight in zip(mixed.net_offset[:-1], mixed.net_offset[1:], mixed.net_weight, strict=True)
    )
    assert weighted == 64 * connectivity_minus_one(full, part)


@pytest.mark.parametrize("kind", ["vertex", "edge"])
def test_batches_repeat_for_a_seed_and_differ_between_numbers(catalog: Catalog, kind: str) -> None:
    graph = store_graph(catalog.create("g"), random_adjacency(5000, 10000, 0, symmetric=True), symmetric=True)
    one = draw_batch(kind, graph, 0.1, 3, 0)
    np.testing.assert_array_equal(one, draw_batch(kind, graph, 0.1, 3, 0))
    for other in (draw_batch(kind, graph, 0.1, 3, 1), draw_batch(kind, graph, 0.1, 4, 0)):
        assert (one != other).any()
    if kind == "vertex":
        assert one.sum() == pytest.approx(500, abs=130)  # six standard deviations
    assert draw_batch(kind, graph, 1.0, 0, 0).sum() >= 4900


def test_edge_batches_have_the_ends_of_the_drawn_share_of_edges(catalog: Catalog) -> None:
    pairs = np.zeros((2000, 2000), dtype=np.int8)
    pairs[np.arange(0, 2000, 2), np.arange(1, 2000, 2)] = 1
    import scipy.sparse

    graph = store_graph(catalog.create("g"), scipy.sparse.csr_array(pairs), symmetric=False)
    batch = draw_batch("edge", graph, 0.3, 0, 0).reshape(-1, 2)
    np.testing.assert_array_equal(batch[:, 0], batch[:, 1])
    assert batch[:, 0].sum() == pytest.approx(300, abs=90)


def test_the_number_of_batches_is_the_larger_of_bound_and_need() -> None:
    assert batch_counts(0.06**2) == {"batches_hoeffding": 185, "batches_sufficient": 278}


@pytest.mark.parametrize("batches", ["vertex", "edge"])
def test_the_better_partition_on_fresh_batches_is_kept(catalog: Catalog, batches: str) -> None:
    dataset = catalog.create("g")
    graph = store_graph(dataset, random_adjacency(200, 900, 0, symmetric=True), symmetric=True)
    options = PartitionOptions(4, model="stochastic", imbalance=0.05, batches=batches, batch_rate=0.2)
    partition = partition_graph(dataset, graph, options, HERE)
    quality = partition.quality
    assert quality["batch_volume"] <= quality["batch_volume_full"]
    assert quality["batch_gain"] == pytest.approx(1 - quality["batch_volume"] / quality["batch_volume_full"])
    assert quality["batch_model"] in {"stochastic", "hypergraph"}
    assert set(partition.part().tolist()) == set(range(4))
