"""Windows of batches: every batch once and in order, with a view that has its rows, however many threads there are."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gnnloom.trainer.feed.feature_view import FeatureView, FeatureWindows
from gnnloom.trainer.feed.windows import Drawn, in_windows

NUM_BATCHES = 25
#: The batch with this number has more rows than a window.
LARGE = 11


@dataclass
class Rows(FeatureView):
    """A view of some rows."""

    has: NDArray[np.int64]

    def rows(self, vertices: NDArray[np.int64]) -> torch.Tensor:
        assert np.isin(vertices, self.has).all()
        return torch.from_numpy(vertices)


class Windows(FeatureWindows):
    """Windows of at most 60 rows. Rows with even numbers are not in memory."""

    most, row_bytes = 60, 4

    def __init__(self) -> None:
        self.read_rows: list[NDArray[np.int64]] = []

    def needed(self, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        even: NDArray[np.int64] = vertices[vertices % 2 == 0]
        return even

    def read(self, vertices: NDArray[np.int64]) -> Rows:
        assert len(vertices) <= self.most
        assert (np.diff(vertices) > 0).all()
        self.read_rows.append(vertices)
        return Rows(vertices)


def _drawn(batches: list[NDArray[np.int64]], ended: threading.Event) -> Generator[Drawn, None, None]:
    try:
        yield from ((number, {"vertex": rows}) for number, rows in enumerate(batches))
    finally:
        ended.set()


def _batches() -> list[NDArray[np.int64]]:
    rng = np.random.default_rng(3)
    sizes = [2000 if number == LARGE else 40 for number in range(NUM_BATCHES)]
    return [rng.permutation(3000)[:size] for size in sizes]


@pytest.mark.parametrize(("num_threads", "pool"), [(0, 1), (1, 1), (1, 4), (3, 2)])
def test_batches_come_in_order_with_the_rows_of_their_windows(num_threads: int, pool: int) -> None:
    batches, windows, ended = _batches(), Windows(), threading.Event()

    def make(number: int, views: Mapping[str, FeatureView]) -> tuple[int, bool]:
        assert bool(views) == (number != LARGE)
        for view in views.values():
            view.rows(windows.needed(batches[number]))
        return number, bool(views)

    made = list(in_windows(_drawn(batches, ended), {"vertex": windows}, make, num_threads, pool))
    assert [number for number, _ in made] == list(range(NUM_BATCHES))
    assert ended.is_set()
    # Some windows have several batches.
    assert sum(len(rows) > 0 for rows in windows.read_rows) < NUM_BATCHES - 1


@pytest.mark.parametrize("num_threads", [0, 1, 3])
@pytest.mark.parametrize("used", [0, 1, 12])
def test_a_consumer_that_stops_early_ends_all_threads(num_threads: int, used: int) -> None:
    before, ended = threading.active_count(), threading.Event()
    found: Generator[Any, None, None] = in_windows(
        _drawn(_batches(), ended), {"vertex": Windows()}, lambda number, _: number, num_threads, 2
    )
    assert [next(found) for _ in range(used)] == list(range(used))
    found.close()
    assert threading.active_count() == before
    # A generator that was never started has nothing to end.
    assert ended.is_set() == (used > 0)


@pytest.mark.parametrize("num_threads", [0, 1])
def test_an_error_of_a_batch_is_raised_where_the_batch_is_used(num_threads: int) -> None:
    before = threading.active_count()

    def make(number: int, _: Mapping[str, FeatureView]) -> int:
        if number == 5:
            raise ValueError("batch 5")
        return number

    found = in_windows(_drawn(_batches(), threading.Event()), {"vertex": Windows()}, make, num_threads, 2)
    with pytest.raises(ValueError, match="batch 5"):
        list(found)
    assert threading.active_count() == before
