"""A few threads that share the rows of a kernel's output."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
from numpy.typing import NDArray

#: Ranges per thread: with eight, a range that takes twice as long as the others delays the end by an eighth.
_RANGES_PER_THREAD = 8

#: Number of slices of a kernel, between which its caller can do other work, with one thread; with several threads, a
#: slice has one range for each.
_SLICES = 16

RowRange = tuple[int, int]


def num_block_buffers(num_threads: int) -> int:
    """Blocks of a matrix on disk that are in memory during a product.

    Every thread multiplies a block, while another thread reads and decodes the next one.
    """
    return num_threads + 1


class Threads:
    """Runs a kernel over ranges of rows; kernels release the GIL.

    One thread computes a row, always in the same order, so the number of threads changes no bit of a result.
    """

    def __init__(self, num_threads: int = 1) -> None:
        self.num_threads = num_threads
        # The calling thread also works: it would otherwise only wait, and waking another thread takes longer than a
        # small kernel.
        self._pool = ThreadPoolExecutor(num_threads - 1) if num_threads > 1 else None

    def run(self, kernel: Callable[[int, int], None], ranges: Iterable[RowRange]) -> None:
        """Call ``kernel(start, stop)`` for every range, and return when all calls have returned."""
        if self._pool is None:
            for start, stop in ranges:
                kernel(start, stop)
            return
        # A free thread takes the next range.
        remaining = deque(ranges)
        helpers = [self._pool.submit(_take, kernel, remaining) for _ in range(self.num_threads - 1)]
        try:
            _take(kernel, remaining)
        finally:
            # A helper that has not started yet finds nothing left; no helper may write after the return.
            started = [helper for helper in helpers if not helper.cancel()]
            wait(started)
        for helper in started:
            helper.result()

    def run_slices(
        self,
        kernel: Callable[[int, int], None],
        ranges: list[RowRange],
        slices: list[list[RowRange]],
        between: Callable[[], None] | None,
    ) -> None:
        """Like :meth:`run`, slice by slice if there is something to do after each; see :meth:`slices`."""
        if between is None:
            self.run(kernel, ranges)
            return
        for each in slices:
            self.run(kernel, each)
            between()

    def even_ranges(self, num_rows: int) -> list[RowRange]:
        """Ranges with about equal numbers of rows."""
        return self._ranges(np.linspace(0, num_rows, self._num_ranges + 1).astype(np.int64))

    def balanced_ranges(self, indptr: NDArray[np.int64], num_ranges: int | None = None) -> list[RowRange]:
        """Ranges of rows with about equal numbers of nonzeros.

        Args:
            indptr: (num_rows + 1,) int64 row pointers of a CSR matrix.
            num_ranges: maximum number of ranges; by default a number that the threads share well.
        """
        num_ranges = self._num_ranges if num_ranges is None else num_ranges
        nnz, num_rows = int(indptr[-1]), len(indptr) - 1
        # A row with many nonzeros may span several targets; their bounds coincide, and the empty ranges are dropped.
        # Integers like the row pointers, which a search for fractions would convert first.
        targets = np.linspace(0, nnz, num_ranges + 1)[1:-1].astype(np.int64)
        return self._ranges(np.concatenate([[0], np.searchsorted(indptr, targets), [num_rows]]))

    def slices(self, ranges: list[RowRange], indptr: NDArray[np.int64]) -> list[list[RowRange]]:
        """The same rows in slices that run one after the other, each in ranges for the threads.

        Args:
            ranges: of :meth:`balanced_ranges`.
            indptr: (num_rows + 1,) int64 row pointers that the ranges balance.
        """
        if self._pool is None:
            targets = np.linspace(0, int(indptr[-1]), _SLICES + 1)[1:-1].astype(np.int64)
            bounds = np.concatenate([[0], np.searchsorted(indptr, targets), [len(indptr) - 1]])
            return [[each] for each in self._ranges(bounds)]
        return [ranges[start : start + self.num_threads] for start in range(0, len(ranges), self.num_threads)]

    @property
    def _num_ranges(self) -> int:
        return 1 if self._pool is None else self.num_threads * _RANGES_PER_THREAD

    @staticmethod
    def _ranges(bounds: NDArray[np.int64]) -> list[RowRange]:
        """The ranges between consecutive bounds, without empty ones."""
        pairs = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        return [(start, stop) for start, stop in pairs if start < stop]


def _take(kernel: Callable[[int, int], None], remaining: deque[RowRange]) -> None:
    """Call a kernel for one remaining range after the other, until none is left."""
    while remaining:
        try:
            start, stop = remaining.popleft()
        # Another thread has taken the last one.
        except IndexError:
            return
        kernel(start, stop)
