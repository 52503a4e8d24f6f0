"""Drawing ahead changes neither the batches nor their order, and stays within the pool."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from gnnloom.storage.errors import InputError
from gnnloom.storage.sampling.ahead import prepare_ahead
from gnnloom.storage.sampling.sampler import Sample, Sampler
from support.graphs import random_adjacency
from support.samples import content_of, in_memory, sampler_of

PLACES = [(epoch, batch) for epoch in range(3) for batch in range(4)]


def samples_ahead(sampler: Any, places: Iterable[tuple[int, int]], threads: int, pool: int) -> Any:
    return prepare_ahead(lambda at: sampler.sample(*at), places, threads, pool)


class Counting(Sampler):
    """Counts the batches that were begun; refuses one of them."""

    kind = "counting"
    num_batches = 4

    def __init__(self, refused: tuple[int, int] | None = None) -> None:
        super().__init__(in_memory(random_adjacency(5, 5, 0, symmetric=True)), 0)
        self.begun, self.lock, self.refused = 0, threading.Lock(), refused

    def draw(self, epoch: int, batch: int) -> Any:
        return np.array([epoch, batch])

    def sample(self, epoch: int, batch: int) -> Sample:
        with self.lock:
            self.begun += 1
        if (epoch, batch) == self.refused:
            raise InputError("refused")
        return Sample(self.draw(epoch, batch), ())


@pytest.mark.parametrize("kind", ["frontier", "uniform"])
def test_batches_and_their_order_do_not_depend_on_threads(kind: str) -> None:
    sampler = sampler_of(kind, in_memory(random_adjacency(300, 900, 0, symmetric=True)), 40)
    expected = [content_of(sampler.sample(*place)) for place in PLACES]
    for threads, pool in ((0, 1), (1, 1), (2, 5), (4, 100)):
        assert [content_of(sample) for sample in samples_ahead(sampler, PLACES, threads, pool)] == expected


def test_no_more_batches_are_drawn_than_the_pool_holds() -> None:
    sampler = Counting()
    samples = samples_ahead(sampler, PLACES, 2, 3)
    for used in range(1, 6):
        next(samples)
        assert sampler.begun <= used + 3
    samples.close()
    assert sampler.begun <= 8
    assert threading.active_count() == len([thread for thread in threading.enumerate() if "sampler" not in thread.name])


def test_an_error_of_a_thread_reaches_the_reader() -> None:
    samples = samples_ahead(Counting(refused=(1, 2)), PLACES, 2, 4)
    found: list[Any] = []
    with pytest.raises(InputError, match="refused"):
        found.extend(sample.vertices.tolist() for sample in samples)
    with pytest.raises(InputError, match="expected 0 or more"):
        samples_ahead(Counting(), PLACES, -1, 1)
    with pytest.raises(InputError, match="expected 0 or more"):
        samples_ahead(Counting(), PLACES, 1, 0)
