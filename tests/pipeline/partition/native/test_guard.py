"""Malformed problems never reach native code, and malformed results never leave it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnloom.pipeline.partition.methods.metis import METIS
from gnnloom.pipeline.partition.model.adjacency_graph import AdjacencyGraph
from gnnloom.pipeline.partition.model.hypergraph import Hypergraph
from gnnloom.pipeline.partition.native import run as native
from gnnloom.pipeline.partition.native.guard import check_problem, native_weights
from gnnloom.pipeline.partition.native.ka_min_par import KAMINPAR
from gnnloom.pipeline.partition.native.program import NATIVE_LIMIT, PartitionRequest
from gnnloom.storage.errors import BudgetError, InputError, PartitionerError
from support.hypergraphs import as_graph, partition, ring


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda g: Hypergraph(g.vertex_weight, g.net_offset[:-1], g.pin), "net_offset does not run"),
        (lambda g: Hypergraph(g.vertex_weight, g.net_offset, g.pin[:-1]), "net_offset does not run"),
        (lambda g: Hypergraph(g.vertex_weight[:-1], g.net_offset, g.pin), "pins from 0 to 9, expected 0..8"),
        (lambda g: Hypergraph(g.vertex_weight, g.net_offset, g.pin - 1), "pins from -1"),
        (lambda g: Hypergraph(g.vertex_weight * 0, g.net_offset, g.pin), "a vertex has weight 0"),
        (lambda g: Hypergraph(g.vertex_weight, np.array([0, 1, 30]), g.pin), "fewer than two pins"),
    ],
)
def test_broken_hypergraphs_never_reach_native_code(
    broken: Callable[[Hypergraph], Hypergraph], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "run_child", lambda *_: pytest.fail("the child was started"))
    with pytest.raises(InputError, match=message):
        partition(broken(ring(10)), "mtkahypar", PartitionRequest(2, 0.01, 0))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda g: AdjacencyGraph(g.vertex_weight, g.offset[:-1], g.neighbor, g.edge_weight), "do not fit"),
        (lambda g: AdjacencyGraph(g.vertex_weight, g.offset, g.neighbor, g.edge_weight[1:]), "do not fit"),
        (
            lambda g: AdjacencyGraph(g.vertex_weight, g.offset, g.neighbor + 1, g.edge_weight),
            "neighbors from 1 to 10",
        ),
        (lambda g: AdjacencyGraph(g.vertex_weight, g.offset, g.neighbor, g.edge_weight * 0), "an edge has weight 0"),
        (lambda g: AdjacencyGraph(g.vertex_weight * 0, g.offset, g.neighbor, g.edge_weight), "a vertex has weight 0"),
    ],
)
def test_broken_graphs_never_reach_native_code(
    broken: Callable[[AdjacencyGraph], AdjacencyGraph], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "run_child", lambda *_: pytest.fail("the child was started"))
    with pytest.raises(InputError, match=message):
        partition(broken(as_graph(ring(10))), "metis", PartitionRequest(2, 0.01, 0))


def test_more_pins_than_a_program_can_count_are_refused() -> None:
    with pytest.raises(BudgetError, match="30 pins"):
        check_problem(ring(10), limit=29)
    check_problem(ring(10), limit=30)
    assert METIS.limit == NATIVE_LIMIT < KAMINPAR.limit


@pytest.mark.parametrize("weight", [np.zeros(40), np.ones(39), np.full(40, 1 << 30)])
def test_net_weights_out_of_range_are_refused(weight: NDArray[np.float64]) -> None:
    nets = ring(40)
    hypergraph = Hypergraph(nets.vertex_weight, nets.net_offset, nets.pin, weight.astype(np.int64))
    with pytest.raises((InputError, BudgetError), match=r"hypergraph: (net weights|expected a weight)"):
        partition(hypergraph, "mtkahypar", PartitionRequest(2, 0.01, 0))


@settings(deadline=None)
@given(weight=st.lists(st.integers(1, 1 << 50), min_size=1, max_size=50), spare=st.integers(1, 1000))
def test_scaled_weights_stay_positive_and_in_proportion(weight: list[int], spare: int) -> None:
    weights = np.array(weight, dtype=np.int64)
    limit = len(weights) + spare
    scaled = native_weights(weights, limit)
    assert scaled.min() >= 1
    assert scaled.sum() <= limit
    assert (np.diff(scaled[np.argsort(weights)]) >= 0).all()


def test_more_vertices_than_the_weight_limit_are_refused() -> None:
    with pytest.raises(BudgetError, match="5 vertices"):
        native_weights(np.full(5, 9), 5)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (np.zeros(9, np.int32), r"expected 10 parts as integers, found int32 of shape \(9,\)"),
        (np.zeros(10), "found float64"),
        (np.full(10, 2), "parts from 2 to 2, expected 0..1"),
        (np.full(10, -1), "parts from -1"),
    ],
)
def test_a_wrong_result_is_an_error(result: NDArray[Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "run_child", lambda *_: result)
    with pytest.raises(PartitionerError, match=message):
        partition(ring(10), "mtkahypar", PartitionRequest(2, 0.01, 0))
