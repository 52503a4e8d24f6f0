"""The counted pre-sampling finds the vertices that batches contain most often."""

from __future__ import annotations

import numpy as np

from gnnloom.storage.sampling.hot_rows import COUNTED_BATCHES, hot_vertices
from support.graphs import random_adjacency
from support.samples import Seeded, in_memory, seeded


def skewed() -> Seeded:
    """Half of the edges lead to the first 20 of 2000 vertices."""
    adjacency = random_adjacency(2000, 8000, 0, symmetric=False).tolil()
    rng = np.random.default_rng(1)
    adjacency[rng.integers(0, 2000, 8000), rng.integers(0, 20, 8000)] = 1
    return seeded(in_memory(adjacency.tocsr()), 0, np.arange(0, 2000, 3), [3, 3], 30)


def test_the_vertices_of_most_batches_are_found() -> None:
    sampler = skewed()
    np.testing.assert_array_equal(hot_vertices(sampler.sampler, sampler.seeds, 20), np.arange(20))


def test_only_chosen_vertices_are_returned_ascending_and_no_more_than_there_are() -> None:
    sampler = skewed()
    odd = hot_vertices(sampler.sampler, sampler.seeds, 12, lambda vertices: vertices % 2 == 1)
    assert (odd % 2 == 1).all()
    assert set(range(1, 20, 2)) < set(odd.tolist())
    assert (np.diff(odd) > 0).all()
    assert len(odd) == 12
    assert len(hot_vertices(sampler.sampler, sampler.seeds, 10**6)) <= 2000
    assert len(hot_vertices(sampler.sampler, sampler.seeds, 0)) == 0


def test_batches_of_training_are_not_counted() -> None:
    sampler = skewed()
    counted = np.unique(np.concatenate([sampler.sample(-1, k).vertices for k in range(COUNTED_BATCHES)]))
    np.testing.assert_array_equal(hot_vertices(sampler.sampler, sampler.seeds, 10**6), counted)
