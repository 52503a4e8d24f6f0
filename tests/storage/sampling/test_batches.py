"""Batches repeat for a seed, differ between seeds and numbers, and have the size and the shape of their kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gnnloom.storage import Catalog
from gnnloom.storage.sampling.batches import BatchDrawer
from gnnloom.storage.sampling.kinds import BATCHES
from support.graphs import random_adjacency, store_graph


@pytest.mark.parametrize("kind", BATCHES)
def test_batches_repeat_for_a_seed_and_differ_between_numbers(catalog: Catalog, kind: str) -> None:
    graph = store_graph(catalog.create("g"), random_adjacency(5000, 10000, 0, symmetric=True), symmetric=True)
    drawer = BatchDrawer(kind, graph, 0.1, 3)
    one = drawer.draw(0)
    np.testing.assert_array_equal(one, BatchDrawer(kind, graph, 0.1, 3).draw(0))
    for other in (drawer.draw(1), BatchDrawer(kind, graph, 0.1, 4).draw(0)):
        assert (one != other).any()
    if kind == "vertex":
        assert one.sum() == pytest.approx(500, abs=130)  # six standard deviations
    if kind in {"walk", "frontier"}:
        assert one.sum() == 500
    assert BatchDrawer(kind, graph, 1.0, 0).draw(0).sum() >= 4900


def test_edge_batches_have_the_ends_of_the_drawn_share_of_edges(catalog: Catalog) -> None:
    pairs = np.zeros((2000, 2000), dtype=np.int8)
    pairs[np.arange(0, 2000, 2), np.arange(1, 2000, 2)] = 1
    graph = store_graph(catalog.create("g"), scipy.sparse.csr_array(pairs), symmetric=False)
    batch = BatchDrawer("edge", graph, 0.3, 0).draw(0).reshape(-1, 2)
    np.testing.assert_array_equal(batch[:, 0], batch[:, 1])
    assert batch[:, 0].sum() == pytest.approx(300, abs=90)


def test_walks_stay_within_components_and_frontiers_prefer_high_degrees(catalog: Catalog) -> None:
    """A clique of 40 vertices and 180 pairs: uniform batches of 40 have 4 vertices of the clique on average."""
    clique = np.ones((40, 40), dtype=np.int8)
    pairs: Any = scipy.sparse.block_diag([clique] + [np.ones((2, 2), dtype=np.int8)] * 180).tocsr()
    graph = store_graph(catalog.create("g"), pairs, symmetric=True)
    for kind, least in (("walk", 8), ("frontier", 12)):
        drawer = BatchDrawer(kind, graph, 0.1, 0)
        batches = [drawer.draw(number) for number in range(50)]
        assert np.mean([batch[:40].sum() for batch in batches]) > least
        # A walk goes on from its root, so most vertices of pairs come with their partner.
        assert np.mean([batch[40:].reshape(-1, 2).all(axis=1).sum() for batch in batches]) > 3
