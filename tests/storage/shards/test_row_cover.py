"""Ranks that exchange rows and sums compute the product of the whole matrix, and find the same cover alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.csgraph import maximum_bipartite_matching

from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, RowShards
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.shards.row_cover import CoveredMatrix
from support.covering import few_of
from support.graphs import random_adjacency, store_graph
from support.partitions import random_parts, store_partition

KINDS: dict[str, dict[str, Any]] = {
    "undirected": {"symmetric": True},
    "directed": {"symmetric": False},
    "weighted": {"symmetric": False, "weighted": True},
    "by-degree": {"symmetric": False, "weighted": True, "reorder": "degree"},
}


def _shards(catalog: Catalog, adjacency: Any, part: np.ndarray, parts: int, **options: Any) -> RowShards:
    """Row shards as the stage writes them."""
    dataset, reorder = catalog.create("g"), options.pop("reorder", "none")
    graph = store_graph(dataset, adjacency, **options)
    return shard_rows(dataset, store_partition(dataset, graph, part, parts), InProcessCluster(), reorder=reorder)


def _adjacency(weighted: bool, symmetric: bool) -> Any:
    """A graph in which some vertices have many neighbors, with weights or without."""
    rng = np.random.default_rng(3)
    adjacency = random_adjacency(80, 300, 1, symmetric=symmetric).toarray()
    hubs = rng.random((80, 80)) < 0.4
    hubs[:, 4:] = False
    adjacency = np.where((adjacency != 0) | hubs | (hubs.T if symmetric else False), 1.0, 0.0)
    if weighted:
        adjacency *= rng.integers(1, 9, adjacency.shape)
    return scipy.sparse.csr_array(adjacency)


def _matrix(block: CSR) -> Any:
    data = np.ones(block.nnz) if block.data is None else block.data
    return scipy.sparse.csr_matrix((data, block.indices, block.indptr), (block.num_rows, block.num_columns))


@pytest.mark.parametrize(("parts", "kind", "backward"), few_of([1, 2, 5], KINDS, [False, True], together=2))
def test_a_product_of_covered_blocks_is_that_of_the_matrix(
    catalog: Catalog, kind: str, parts: int, backward: bool
) -> None:
    options = dict(KINDS[kind])
    adjacency = _adjacency(bool(options.get("weighted")), bool(options["symmetric"]))
    # The last rank has no vertex.
    part = random_parts(80, max(1, parts - 1), 2)
    shards = _shards(catalog, adjacency, part, parts, **options)
    whole = scipy.sparse.csr_array(adjacency.T) if backward else adjacency
    features = np.random.default_rng(4).integers(-9, 9, (80, 3)).astype(float)
    vertex = [shards.shard(rank).vertex() for rank in range(parts)]
    covered: list[CoveredMatrix] = []
    for rank in range(parts):
        shard = shards.shard(rank)
        given = shard.matrix(transpose=backward), shard.matrix(transpose=not backward)
        covered.append(shard.covered(*given))
    # What every rank sends, as it packs it.
    packed = [_matrix(each.send) @ features[ids] for each, ids in zip(covered, vertex, strict=True)]
    total = 0
    for rank, each in enumerate(covered):
        arrived = [
            packed[sender][slice(*covered[sender].send_offset[rank : rank + 2].tolist())] for sender in range(parts)
        ]
        found = _matrix(each.own) @ features[vertex[rank]] + _matrix(each.halo) @ np.concatenate(arrived)
        # All numbers are whole, so sums are exact in any order.
        np.testing.assert_array_equal(found, (whole @ features)[vertex[rank]])
        # Every rank knows what the others send, from its own shard alone.
        _, awaited = each.exchanged(vertex[rank])
        sent = np.array([covered[sender].exchanged(vertex[sender])[0][rank] for sender in range(parts)])
        np.testing.assert_array_equal(sent, awaited)
        total += len(each.halo_vertex)
    least = sum(
        int((maximum_bipartite_matching(scipy.sparse.csr_matrix(whole[part == one][:, part == other])) >= 0).sum())
        for one in range(parts)
        for other in range(parts)
        if one != other
    )
    assert total == least
