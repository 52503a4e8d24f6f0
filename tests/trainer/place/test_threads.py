"""Threads share ranges of rows: each is computed once, and an error of any thread reaches the caller."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from gnnloom.trainer.place.threads import Threads


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_every_row_is_computed_once(num_threads: int) -> None:
    threads, count, used = Threads(num_threads), np.zeros(1000, np.int64), set()

    def kernel(start: int, stop: int) -> None:
        count[start:stop] += 1
        used.add(threading.get_ident())
        time.sleep(0.002)

    threads.run(kernel, threads.even_ranges(1000))
    assert (count == 1).all()
    # The calling thread takes part.
    assert threading.get_ident() in used
    assert len(used) <= num_threads


@pytest.mark.parametrize("in_caller", [True, False])
def test_an_error_reaches_the_caller_after_all_threads_have_stopped(in_caller: bool) -> None:
    caller, running = threading.get_ident(), set()

    def kernel(start: int, stop: int) -> None:
        running.add(start)
        time.sleep(0.01)
        running.remove(start)
        if (threading.get_ident() == caller) == in_caller:
            raise RuntimeError("wrong")

    with pytest.raises(RuntimeError, match="wrong"):
        Threads(3).run(kernel, [(row, row + 1) for row in range(12)])
    assert not running


def test_balanced_ranges_have_about_equal_numbers_of_nonzeros() -> None:
    count = np.random.default_rng(0).integers(0, 20, 5000)
    indptr = np.concatenate([[0], np.cumsum(count)])
    ranges = Threads(3).balanced_ranges(indptr)
    assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
    assert ranges[-1][1] == 5000
    nonzeros = [int(indptr[stop] - indptr[start]) for start, stop in ranges]
    assert max(nonzeros) - min(nonzeros) <= 2 * count.max()
