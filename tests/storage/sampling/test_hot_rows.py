"""The counted pre-sampling finds the vertices that batches contain most often."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.samples import ONLY_TYPE
from gnnloom.storage.sampling.hot_rows import COUNTED_BATCHES, by_frequency, hot_vertices
from gnnloom.storage.sampling.layers.seeds import VertexSeeds
from support.graphs import random_adjacency
from support.samples import Seeded, in_memory, seeded


def skewed() -> Seeded:
    """Half of the edges lead to the first 20 of 2000 vertices."""
    adjacency = random_adjacency(2000, 8000, 0, symmetric=False).tolil()
    rng = np.random.default_rng(1)
    adjacency[rng.integers(0, 2000, 8000), rng.integers(0, 20, 8000)] = 1
    return seeded(in_memory(adjacency.tocsr()), 0, np.arange(0, 2000, 3), [3, 3], 30)


def hot(sampler: Seeded, most: int) -> NDArray[np.int64]:
    """The most frequent vertices, whose features have 8 bytes each."""
    return hot_vertices(sampler.sampler, sampler.seeds, {ONLY_TYPE: 8}, 8 * most + 7 * (most > 0))[ONLY_TYPE]


def test_the_vertices_of_most_batches_are_found() -> None:
    sampler = skewed()
    np.testing.assert_array_equal(hot(sampler, 20), np.arange(20))


def test_only_chosen_vertices_are_returned_ascending_and_no_more_than_there_are() -> None:
    sampler = skewed()
    odd = np.sort(by_frequency(sampler.sampler, sampler.seeds, lambda vertices: vertices % 2 == 1)[:12])
    assert (odd % 2 == 1).all()
    assert set(range(1, 20, 2)) < set(odd.tolist())
    assert (np.diff(odd) > 0).all()
    assert len(odd) == 12
    assert len(hot(sampler, 10**6)) <= 2000
    assert (np.diff(hot(sampler, 10**6)) > 0).all()
    assert len(hot(sampler, 0)) == 0


class Given:
    """Draws batches that are given, of two types."""

    def __init__(self, *batches: dict[str, list[int]]) -> None:
        self._batches = batches

    def sample_of(self, seeds: object, epoch: int, batch: int) -> SimpleNamespace:
        del seeds, epoch
        return SimpleNamespace(vertices={name: np.array(own) for name, own in self._batches[batch].items()})


def test_types_share_the_memory_by_the_frequency_of_their_vertices() -> None:
    batches = {"a": [1, 2], "b": [7, 8], "c": [5]}, {"a": [1], "b": [8, 9], "c": [5]}, {"a": [1], "b": [8], "c": [5]}
    found = hot_vertices(Given(*batches), VertexSeeds(np.arange(3), 1, 0), {"a": 100, "b": 10}, 129)
    # Vertex 1 of a and 8 of b are in all batches; of the others, vertex 2 of a would be next and does not fit.
    assert {name: each.tolist() for name, each in found.items()} == {"a": [1], "b": [8]}
    wider = hot_vertices(Given(*batches), VertexSeeds(np.arange(3), 1, 0), {"a": 100, "b": 10}, 220)
    assert {name: each.tolist() for name, each in wider.items()} == {"a": [1, 2], "b": [7, 8]}


def test_batches_of_training_are_not_counted() -> None:
    sampler = skewed()
    counted = np.unique(np.concatenate([sampler.sample(-1, k).vertices for k in range(COUNTED_BATCHES)]))
    np.testing.assert_array_equal(hot(sampler, 10**6), counted)
