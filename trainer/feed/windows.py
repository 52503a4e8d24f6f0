"""Draws windows of batches ahead of their use, and reads the features of all batches of a window together.

A batch depends on its number only, so drawing ahead changes nothing. Batches are drawn twice, for the rows of their
window and for their use, as the drawn edges of a window would take more memory than its rows. While the batches of a
window are used, the next window is read, and the one after it is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import repeat
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.disk.row_windows import block_cost, pages_of_rows
from gnnloom.storage.matrix.distinct import distinct
from gnnloom.storage.sampling.ahead import prepare_ahead
from gnnloom.trainer.feed.feature_view import FeatureView, FeatureWindows

Made = TypeVar("Made")
#: The number of a batch, and the (num_vertices,) int64 vertices of each type whose features it reads.
Drawn = tuple[int, Mapping[str, NDArray[np.int64]]]


class _Window:
    """The distinct rows of some batches, for one view; batches are added while the rows fit."""

    def __init__(self, windows: FeatureWindows) -> None:
        self._windows = windows
        self._found, self._more, self._count = np.empty(0, np.int64), list[NDArray[np.int64]](), 0

    def fits(self, rows: NDArray[np.int64]) -> bool:
        """Whether the rows of one more batch fit, (num_rows,) int64."""
        most = self._windows.most - len(rows)
        if self._count > most and self._more:
            # Only now, since batches share many rows, and each count sorts them all.
            self._join()
        return self._count <= most

    def add(self, rows: NDArray[np.int64]) -> None:
        self._more.append(rows)
        self._count += len(rows)

    @property
    def rows(self) -> NDArray[np.int64]:
        """(num_rows,) int64 the rows of all batches, each once, ascending."""
        self._join()
        return self._found

    def _join(self) -> None:
        self._found, self._more = distinct(np.concatenate([self._found, *self._more]), overwrite=True), []
        self._count = len(self._found)


class _WindowedBatches:
    """Windows of the batches that an iterator gives; a window has all batches that fit."""

    def __init__(self, drawn: Iterator[Drawn], windows: Mapping[str, FeatureWindows]) -> None:
        """Read nothing yet.

        Args:
            windows: the views whose rows are read in windows, by the types of their vertices.
        """
        self._drawn, self._windows = drawn, windows
        self._next: Drawn | None = None
        self._stopped = False

    def stop(self) -> None:
        """Let the window that is being drawn end with the current batch."""
        self._stopped = True

    def collect(self) -> tuple[list[int], dict[str, NDArray[np.int64]]]:
        """The numbers of the next batches, and the rows of their window by type; no numbers at the end.

        A batch whose rows do not fit in a window comes alone, without rows.
        """
        numbers, parts = list[int](), {name: _Window(each) for name, each in self._windows.items()}
        while not self._stopped:
            drawn = self._next if self._next is not None else next(self._drawn, None)
            self._next = None
            if drawn is None:
                break
            number, vertices = drawn
            needed = {name: each.needed(vertices[name]) for name, each in self._windows.items()}
            if not all(part.fits(needed[name]) for name, part in parts.items()):
                if not numbers:
                    return [number], {}
                self._next = drawn
                break
            for name, part in parts.items():
                part.add(needed[name])
            numbers.append(number)
        return numbers, {name: part.rows for name, part in parts.items()}

    def read(self, rows: Mapping[str, NDArray[np.int64]]) -> dict[str, FeatureView]:
        """Views of the features of a window."""
        return {} if self._stopped else {name: self._windows[name].read(each) for name, each in rows.items()}


def pages_read(
    batches: Iterable[NDArray[np.int64]],
    kept: NDArray[np.int64],
    fewer: NDArray[np.int64],
    windows: FeatureWindows,
) -> tuple[float, float]:
    """Pages that the first batches read one by one, and that a window of the same batches reads.

    Pages count as single pages; pages in blocks that are read whole cost less.

    Args:
        batches: (num_rows,) int64 rows of each batch, ascending; only batches that fit in one window count.
        kept, fewer: (num_kept,) int64 rows in memory, ascending, without and with windows.
    """
    window, alone = _Window(windows), 0
    for rows in batches:
        cold = _without(rows, fewer)
        if not window.fits(cold):
            break
        window.add(cold)
        alone += pages_of_rows(_without(rows, kept), windows.row_bytes)
    return alone, block_cost(window.rows, windows.row_bytes)


def _without(rows: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows that are not among others, both ascending."""
    if not len(others):
        return rows
    place = np.minimum(np.searchsorted(others, rows), len(others) - 1)
    found: NDArray[np.int64] = rows[others[place] != rows]
    return found


def in_windows(
    drawn: Generator[Drawn, None, None],
    windows: Mapping[str, FeatureWindows],
    make: Callable[[int, Mapping[str, FeatureView]], Made],
    threads: int,
    pool: int,
) -> Generator[Made, None, None]:
    """Batches with their features, in order; close the generator to end the threads.

    Args:
        drawn: the numbers of the batches, and the vertices whose features they read; closed at the end.
        windows: the views whose rows are read in windows, by the types of their vertices.
        make: makes the result of a batch, with the views of its window if there are any; several threads may call it.
        threads, pool: see :func:`gnnloom.storage.sampling.ahead.prepare_ahead`.
    """
    reader, one = _WindowedBatches(drawn, windows), min(threads, 1)
    collected = prepare_ahead(lambda _: reader.collect(), repeat(None), one, 1)

    def read(numbers: list[int], rows: Mapping[str, NDArray[np.int64]]) -> tuple[list[int], dict[str, FeatureView]]:
        return numbers, reader.read(rows)

    with (
        closing(drawn),
        closing(collected),
        closing(prepare_ahead(lambda _: read(*next(collected)), repeat(None), one, 1)) as ready,
    ):
        try:
            for numbers, views in ready:
                if not numbers:
                    return
                # The window after the next one takes the memory of this one, so all its batches are made before that.
                with closing(prepare_ahead(lambda number: make(number, views), numbers, threads, pool)) as made:  # noqa: B023 - ends before the next one
                    yield from made
        finally:
            reader.stop()
