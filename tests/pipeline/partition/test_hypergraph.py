"""The column-net hypergraph: its cut equals the communication."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnnloom.pipeline.partition.model.hypergraph import Hypergraph, column_net_hypergraph
from gnnloom.storage import Catalog
from support.covering import examples
from support.graphs import random_adjacency, store_graph
from support.partitions import connectivity_minus_one, random_parts, rows_sent, transpose_of


def hypergraph_of(catalog: Catalog, name: str, adjacency: Any, *, symmetric: bool, num_blocks: int = 3) -> Hypergraph:
    dataset = catalog.create(name)
    graph = store_graph(dataset, adjacency, symmetric=symmetric, num_blocks=num_blocks)
    return column_net_hypergraph(graph, transpose_of(dataset, graph))


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    num_vertices=st.integers(1, 30),
    nnz=st.integers(0, 150),
    seed=st.integers(0, 10**6),
    symmetric=st.booleans(),
    loops=st.booleans(),
    parts=st.integers(1, 6),
)
def test_the_cut_equals_the_rows_sent_for_any_partition(
    catalog: Catalog, num_vertices: int, nnz: int, seed: int, symmetric: bool, loops: bool, parts: int
) -> None:
    adjacency = random_adjacency(num_vertices, nnz, seed, symmetric=symmetric, loops=loops)
    name = f"g-{num_vertices}-{nnz}-{seed}-{symmetric}-{loops}-{parts}".lower()
    hypergraph = hypergraph_of(catalog, name, adjacency, symmetric=symmetric)
    part = random_parts(num_vertices, parts, seed)
    assert connectivity_minus_one(hypergraph, part) == rows_sent(adjacency.toarray(), part, parts).sum()


def test_weights_are_the_nonzeros_of_rows_and_at_least_one(catalog: Catalog) -> None:
    adjacency = random_adjacency(50, 60, 3, symmetric=False, loops=False)
    hypergraph = hypergraph_of(catalog, "g", adjacency, symmetric=False)
    expected = (adjacency.toarray() != 0).sum(axis=1)
    assert (expected == 0).any()
    np.testing.assert_array_equal(hypergraph.vertex_weight, np.maximum(expected, 1))


def test_nets_are_columns_with_their_own_vertex_and_at_least_two_pins(catalog: Catalog) -> None:
    adjacency = random_adjacency(40, 50, 4, symmetric=False, loops=False)
    hypergraph = hypergraph_of(catalog, "g", adjacency, symmetric=False)
    expected = []
    for column, entries in enumerate((adjacency.toarray() != 0).T):
        pins = set(np.flatnonzero(entries)) | {column}
        if len(pins) > 1:
            expected.append(pins)
    offset = hypergraph.net_offset
    found = [hypergraph.pin[a:b].tolist() for a, b in pairwise(offset)]
    assert all(len(set(pins)) == len(pins) for pins in found)
    assert [set(pins) for pins in found] == expected


@pytest.mark.parametrize("num_blocks", [1, 2, 7])
def test_the_number_of_row_blocks_does_not_change_the_hypergraph(catalog: Catalog, num_blocks: int) -> None:
    adjacency = random_adjacency(30, 100, 5, symmetric=False)
    one = hypergraph_of(catalog, "one", adjacency, symmetric=False, num_blocks=1)
    other = hypergraph_of(catalog, "other", adjacency, symmetric=False, num_blocks=num_blocks)
    np.testing.assert_array_equal(one.pin, other.pin)
    np.testing.assert_array_equal(one.net_offset, other.net_offset)


def test_a_matrix_of_loops_has_no_nets(catalog: Catalog) -> None:
    hypergraph = hypergraph_of(catalog, "g", scipy.sparse.eye_array(5).tocsr(), symmetric=True)
    assert (hypergraph.num_nets, hypergraph.num_pins, hypergraph.num_vertices) == (0, 0, 5)
