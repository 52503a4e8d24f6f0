"""Reads rows of a mapped array in windows: the rows of many batches together, each block of the file once.

Batches read few rows of every page. The rows of many batches, sorted, have most rows of some blocks of the file; such
blocks are read whole, and of the others the pages that have rows. Rows that the window before has are copied from it.

"AGNES" (Jang et al., KDD 2026) reads blocks of storage for many batches in this way, and calls them a hyperbatch.
"""

from __future__ import annotations

import mmap
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.disk.converted_rows import fill_rows
from gnnloom.storage.disk.mapped_rows import BLOCK, mapping_of, read_block

#: Blocks are read whole if at least this share of their pages have rows. A disk reads them several times as fast as
#: single pages.
_DENSE: Final = 0.5
#: Single pages that a disk reads in the time of a page of a block.
_BLOCK_PAGE: Final = 0.25
#: Rows that are copied together from the window before.
_PIECE: Final = 1 << 14
#: Bytes of the number of a row that is in memory.
NUMBER_BYTES: Final = 8


@dataclass(frozen=True)
class RowWindow:
    """Rows in memory.

    Attributes:
        rows: (num_rows,) int64 numbers of the rows in the mapped array, ascending.
        values: (num_rows, ...) the rows.
    """

    rows: NDArray[np.int64]
    values: NDArray[Any]

    def take(self, rows: NDArray[np.int64], out: NDArray[Any], place: NDArray[np.int64] | None = None) -> None:
        """Copy some rows of the window; for ``out`` and ``place`` see :func:`fill_rows`.

        Raises:
            ValueError: the window lacks a row.
        """
        found = np.searchsorted(self.rows, rows)
        if len(rows) and not np.array_equal(self.rows.take(found, mode="clip"), rows):
            raise ValueError(f"a window of {len(self.rows)} rows lacks some of {len(rows)} rows that a batch takes")
        fill_rows(self.values, found, out, place)


class RowWindows:
    """Windows of a mapped array, one after the other. When a window is read, only the previous window may be in use.

    Memory: twice ``most`` rows.
    """

    def __init__(self, array: NDArray[Any], most: int, threads: Executor) -> None:
        """Read nothing yet.

        Args:
            array: (num_rows, ...) a mapped array.
            most: rows of a window, at most.
            threads: ``READERS`` threads that read.
        """
        self.most, self._array, self._threads = most, array, threads
        # Pages that no window needs are not touched.
        self._memory = [np.empty((most, *array.shape[1:]), array.dtype) for _ in range(2)]
        self._last = RowWindow(np.empty(0, np.int64), array[:0])

    def read(self, rows: NDArray[np.int64]) -> RowWindow:
        """Read the next window.

        Args:
            rows: (num_rows,) int64 distinct existing rows, ascending; at most ``most``.
        """
        self._memory.reverse()
        last, values = self._last, self._memory[0][: len(rows)]
        place = np.searchsorted(last.rows, rows)
        known = np.zeros(len(rows), np.bool_)
        if len(last.rows):
            known = last.rows[np.minimum(place, len(last.rows) - 1)] == rows
        common = np.flatnonzero(known)
        for start in range(0, len(common), _PIECE):
            some = common[start : start + _PIECE]
            values[some] = last.values[place[some]]
        missing = np.flatnonzero(~known)
        read_blocks(self._array, rows[missing], missing, values, self._threads)
        self._last = RowWindow(rows, values)
        return self._last


def read_blocks(
    array: NDArray[Any], rows: NDArray[np.int64], place: NDArray[np.int64], values: NDArray[Any], threads: Executor
) -> None:
    """Copy many rows of a mapped array: blocks of the file with many such rows are read whole.

    Args:
        array: (num_rows, ...) the mapped array.
        rows: (num_read,) int64 existing rows, ascending.
        place: (num_read,) int64 where the rows go in ``values``.
        values: of the dtype of the array.
        threads: ``READERS`` threads that read.
    """
    mapped, row_bytes = mapping_of(array), array[:1].nbytes
    position = rows * row_bytes + (0 if mapped is None else _start(array, mapped))

    def read(begin: int, end: int) -> None:
        if mapped is not None and _pages(position[begin:end]) >= _DENSE * BLOCK / mmap.PAGESIZE:
            read_block(mapped, int(position[begin]) // BLOCK * BLOCK)
        # Filling releases Python's lock while pages are read; assigning does not.
        some = np.empty((end - begin, *array.shape[1:]), array.dtype)
        fill_rows(array, rows[begin:end], some)
        values[place[begin:end]] = some

    starts = np.flatnonzero(np.diff(position // BLOCK, prepend=-1)).tolist()
    list(threads.map(read, starts, [*starts[1:], len(rows)]))


def _start(array: NDArray[Any], mapped: mmap.mmap) -> int:
    """Bytes of a mapping before the first row."""
    return int(array.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data)


def _pages(positions: NDArray[np.int64]) -> int:
    """Number of pages in which ascending positions are."""
    pages = positions // mmap.PAGESIZE
    return 1 + int(np.count_nonzero(pages[1:] != pages[:-1]))


def pages_of_rows(rows: NDArray[np.int64], row_bytes: int) -> int:
    """Number of pages in which rows of a file begin.

    Args:
        rows: (num_rows,) int64 numbers of rows, ascending.
    """
    return _pages(rows * row_bytes) if len(rows) else 0


def block_cost(rows: NDArray[np.int64], row_bytes: int) -> float:
    """Pages that :func:`read_blocks` reads, as the number of single pages that take as long.

    Args:
        rows: (num_rows,) int64 numbers of rows, ascending.
    """
    per_block = BLOCK // mmap.PAGESIZE
    pages = rows * row_bytes // mmap.PAGESIZE
    pages = pages[np.diff(pages, prepend=-1) != 0]
    _, counts = np.unique(pages // per_block, return_counts=True)
    is_dense = counts >= _DENSE * per_block
    return float(counts[~is_dense].sum() + _BLOCK_PAGE * per_block * np.count_nonzero(is_dense))
