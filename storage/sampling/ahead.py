"""Draws batches ahead of their use, by threads. The kernels of the samplers release Python's lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

from gnnloom.storage.errors import InputError
from gnnloom.storage.sampling.sampler import Sample, Sampler


def sample_ahead(sampler: Sampler, places: Iterable[tuple[int, int]], threads: int, pool: int) -> Iterator[Sample]:
    """Draw batches while earlier ones are used. The batches and their order do not depend on the threads.

    Args:
        places: epoch and batch of each sample.
        threads: number of threads that draw; 0 draws each batch when it is asked for.
        pool: most batches that are drawn or being drawn and not yet used, at least 1. Bounds the memory.

    Raises:
        InputError: an argument is out of its range.

    Zeng et al. (IPDPS 2019), algorithm 5: ``threads`` is p_inter.
    """
    if threads < 0 or pool < 1:
        raise InputError(f"{threads} threads and a pool of {pool} batches: expected 0 or more, and 1 or more")
    return _drawn_ahead(sampler, iter(places), threads, pool) if threads else (sampler.sample(*at) for at in places)


def _drawn_ahead(sampler: Sampler, places: Iterator[tuple[int, int]], threads: int, pool: int) -> Iterator[Sample]:
    with ThreadPoolExecutor(threads, thread_name_prefix="sampler") as executor:
        # Results are taken in the order of the places, whichever thread is done first.
        pending: deque[Future[Sample]] = deque(executor.submit(sampler.sample, *at) for at in islice(places, pool))
        try:
            while pending:
                sample = pending.popleft().result()
                pending.extend(executor.submit(sampler.sample, *at) for at in islice(places, 1))
                yield sample
        finally:
            # Whoever stops early, or fails, waits for the batches that are being drawn only.
            for future in pending:
                future.cancel()
