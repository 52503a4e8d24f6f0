"""Native programs on well-formed problems, from the ordinary to the degenerate: valid, balanced, repeatable parts."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

from gnnloom.pipeline.partition.methods.kahypar import KAHYPAR
from gnnloom.pipeline.partition.model.hypergraph import Hypergraph
from gnnloom.pipeline.partition.native.mt_kahypar import MT_KAHYPAR
from gnnloom.pipeline.partition.native.program import PartitionRequest
from gnnloom.pipeline.partition.native.run import native_partition
from gnnloom.storage.errors import InputError
from support.hypergraphs import as_graph, hypergraph_of, partition, ring
from support.partitions import connectivity_minus_one

NATIVE = pytest.mark.parametrize("method", ["mtkahypar", "kahypar"])
GRAPHS = pytest.mark.parametrize("method", ["metis", "mtkahypar", "kaminpar"])
PRESETS = pytest.mark.parametrize(
    ("method", "preset"),
    [(program.name, preset.name) for program in (MT_KAHYPAR, KAHYPAR) for preset in program.presets],
)


@PRESETS
def test_a_ring_is_cut_into_arcs_with_every_preset(method: str, preset: str) -> None:
    hypergraph = ring(200)
    part = partition(hypergraph, method, PartitionRequest(4, 0.03, 1, preset=preset))
    assert part.dtype == np.int32
    assert part.shape == (200,)
    assert np.bincount(part).max() <= 51
    assert connectivity_minus_one(hypergraph, part) <= 12


@NATIVE
def test_the_same_seed_gives_the_same_parts(method: str) -> None:
    rng = np.random.default_rng(0)
    hypergraph = hypergraph_of([rng.choice(200, 5, replace=False) for _ in range(400)], rng.integers(1, 9, 200))
    first, second = (partition(hypergraph, method, PartitionRequest(7, 0.05, 3, threads)) for threads in (1, 4))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("method", ["mtkahypar", "kahypar", "metis", "kaminpar"])
def test_no_part_exceeds_the_limit_if_the_average_is_not_whole(method: str) -> None:
    """Partitioners measure from the average rounded up: here 82 instead of 81.2."""
    nets = ring(200)
    weight = np.full(200, 2)
    weight[:6] = 3
    hypergraph = Hypergraph(weight, nets.net_offset, nets.pin)
    problem = as_graph(hypergraph) if method in {"metis", "kaminpar"} else hypergraph
    part = partition(problem, method, PartitionRequest(5, 0.03, 0))
    assert np.bincount(part, weights=weight).max() <= 1.03 * weight.sum() / 5


def test_given_parts_are_improved() -> None:
    hypergraph = ring(200)
    given = np.repeat(np.arange(4, dtype=np.int32), 50)
    given[np.arange(0, 200, 9)] = given[np.arange(0, 200, 9)[::-1]]
    with tempfile.TemporaryDirectory() as scratch:
        request = PartitionRequest(4, 0.03, 1, improve=1)
        part = native_partition(hypergraph, MT_KAHYPAR, request, Path(scratch), given=given)
    assert connectivity_minus_one(hypergraph, part) <= 12 < connectivity_minus_one(hypergraph, given)
    assert np.bincount(part).max() <= 51


@NATIVE
def test_two_components_are_not_cut(method: str) -> None:
    half = [[a, b] for a in range(20) for b in range(a)]
    hypergraph = hypergraph_of(half + [[a + 20, b + 20] for a, b in half], [1] * 40)
    part = partition(hypergraph, method, PartitionRequest(2, 0.03, 0))
    assert connectivity_minus_one(hypergraph, part) == 0


@NATIVE
@pytest.mark.parametrize("parts", [2, 29, 30, *(pytest.param(parts, marks=pytest.mark.long) for parts in (1, 5))])
def test_a_hypergraph_without_nets_gives_balanced_parts(method: str, parts: int) -> None:
    weight = np.arange(1, 31)
    part = partition(hypergraph_of([], weight), method, PartitionRequest(parts, 0.03, 0))
    load = np.bincount(part, weights=weight, minlength=parts)
    assert load.min() > 0
    assert load.max() <= weight.sum() / parts + weight.max()


@NATIVE
def test_without_nets_the_imbalance_is_met_if_the_weights_allow_it(method: str) -> None:
    weight = [100, *[1] * 100]
    part = partition(hypergraph_of([], weight), method, PartitionRequest(2, 0.01, 0))
    assert np.bincount(part, weights=weight).tolist() == [100, 100]


@pytest.mark.parametrize("method", ["mtkahypar", "kahypar", "metis", "kaminpar"])
def test_a_huge_imbalance_leaves_no_part_empty(method: str) -> None:
    problem = as_graph(ring(40)) if method in {"metis", "kaminpar"} else ring(40)
    part = partition(problem, method, PartitionRequest(4, 1e30, 0))
    assert set(part.tolist()) == set(range(4))


@NATIVE
def test_one_vertex_as_heavy_as_all_others_leaves_no_part_empty(method: str) -> None:
    hypergraph = ring(40)
    heavy = Hypergraph(np.where(np.arange(40) == 7, 1000, 1), hypergraph.net_offset, hypergraph.pin)
    part = partition(heavy, method, PartitionRequest(8, 0.01, 0))
    assert set(part.tolist()) == set(range(8))


@NATIVE
def test_almost_as_many_parts_as_vertices_leave_no_part_empty(method: str) -> None:
    part = partition(ring(24), method, PartitionRequest(23, 0.01, 0))
    assert set(part.tolist()) == set(range(23))


@NATIVE
def test_isolated_vertices_are_spread_over_the_parts(method: str) -> None:
    part = partition(hypergraph_of([[0, 1], [1, 2]], [1] * 50), method, PartitionRequest(5, 0.1, 0))
    assert np.bincount(part).tolist() == [10] * 5


@NATIVE
def test_weights_beyond_31_bits_are_scaled(method: str) -> None:
    hypergraph = ring(60)
    heavy = Hypergraph(np.full(60, 1 << 40), hypergraph.net_offset, hypergraph.pin)
    part = partition(heavy, method, PartitionRequest(3, 0.05, 0))
    assert np.bincount(part).max() <= 21


@NATIVE
def test_as_many_parts_as_vertices_are_possible_and_more_are_refused(method: str) -> None:
    assert sorted(partition(ring(9), method, PartitionRequest(9, 0.01, 0)).tolist()) == list(range(9))
    with pytest.raises(InputError, match="parts=10: "):
        partition(ring(9), method, PartitionRequest(10, 0.01, 0))


@GRAPHS
def test_a_graph_is_cut_like_its_hypergraph(method: str) -> None:
    graph = as_graph(ring(200))
    parts = [partition(graph, method, PartitionRequest(4, 0.03, 1)) for _ in range(2)]
    np.testing.assert_array_equal(parts[0], parts[1])
    assert np.bincount(parts[0]).max() <= 51
    assert connectivity_minus_one(ring(200), parts[0]) <= 16


@GRAPHS
@pytest.mark.parametrize("parts", [23, *(pytest.param(parts, marks=pytest.mark.long) for parts in (1, 2, 24))])
def test_heavy_isolated_and_edgeless_graphs_fill_every_part(method: str, parts: int) -> None:
    heavy = as_graph(ring(24))
    heavy.vertex_weight[7] = 1 << 40
    isolated = as_graph(hypergraph_of([[0, 1], [1, 2]], [1] * 24))
    lonely = as_graph(hypergraph_of([], [1] * 24))
    for graph in (heavy, isolated, lonely):
        part = partition(graph, method, PartitionRequest(parts, 0.01, 0))
        assert set(part.tolist()) == set(range(parts))


@NATIVE
def test_net_weights_decide_where_to_cut(method: str) -> None:
    """A ring with two nets that are cheap to cut is cut there."""
    cheap = ring(60, 2)
    weight = np.full(60, 50)
    weight[[9, 39]] = 1
    hypergraph = Hypergraph(cheap.vertex_weight, cheap.net_offset, cheap.pin, weight)
    part = partition(hypergraph, method, PartitionRequest(2, 0.03, 0))
    assert part[9] != part[10]
    assert part[39] != part[40]
    assert connectivity_minus_one(hypergraph, part) == 2
