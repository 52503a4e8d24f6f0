"""Prepares batches ahead of their use, by threads. The kernels of the samplers release Python's lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from gnnloom.storage.errors import InputError

Place = TypeVar("Place")
Batch = TypeVar("Batch")


def prepare_ahead(
    prepare: Callable[[Place], Batch], places: Iterable[Place], threads: int, pool: int
) -> Generator[Batch, None, None]:
    """Prepare batches while earlier ones are used. The batches and their order do not depend on the threads.

    Args:
        prepare: makes the batch of a place; several threads may call it at a time.
        threads: number of threads that prepare; 0 prepares each batch when it is asked for.
        pool: most batches that are ready or being prepared and not yet used, at least 1. Bounds the memory.

    Raises:
        InputError: an argument is out of its range.

    Zeng et al. (IPDPS 2019), algorithm 5: ``threads`` is p_inter.
    """
    if threads < 0 or pool < 1:
        raise InputError(f"{threads} threads and a pool of {pool} batches: expected 0 or more, and 1 or more")
    return _prepared(prepare, iter(places), threads, pool) if threads else (prepare(at) for at in places)


def _prepared(
    prepare: Callable[[Place], Batch], places: Iterator[Place], threads: int, pool: int
) -> Generator[Batch, None, None]:
    with ThreadPoolExecutor(threads, thread_name_prefix="sampler") as executor:
        # Results are taken in the order of the places, whichever thread is done first.
        pending: deque[Future[Batch]] = deque(executor.submit(prepare, at) for at in islice(places, pool))
        try:
            while pending:
                ready = [pending.popleft().result()]
                pending.extend(executor.submit(prepare, at) for at in islice(places, 1))
                # Not bound to a name here, so that the batch is freed once its user drops it.
                yield ready.pop()
        finally:
            # A consumer that stops early, or fails, waits only for the batches that are being prepared.
            for future in pending:
                future.cancel()
