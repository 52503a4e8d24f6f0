"""Reads rows of a mapped array in windows: the rows of many batches together, each block of the file once.

Batches read few rows of every page. The rows of many batches, sorted, have most rows of some blocks of the file; such
blocks are read whole, and of the others the pages that have rows. Rows that the window before has are copied from it.

"AGNES" (Jang et al., KDD 2026) reads blocks of storage for many batches in this way, and calls them a hyperbatch.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.disk.converted_rows import fill_rows
from gnnloom.storage.disk.mapped_rows import READERS

#: Bytes that are read whole if at least ``_DENSE`` of their pages have rows. A disk reads them several times as fast
#: as single pages.
_BLOCK: Final = 1 << 20
_DENSE: Final = 0.5


@dataclass(frozen=True)
class RowWindow:
    """Rows in memory.

    Attributes:
        rows: (num_rows,) int64 numbers of the rows in the mapped array, ascending.
        values: (num_rows, ...) the rows.
    """

    rows: NDArray[np.int64]
    values: NDArray[Any]

    def take(self, rows: NDArray[np.int64], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """(num_taken, ...) some rows of the window; in ``out``, if it is given, which may have another dtype.

        Raises:
            ValueError: the window lacks a row.
        """
        place = np.searchsorted(self.rows, rows)
        if len(rows) and not np.array_equal(self.rows.take(place, mode="clip"), rows):
            raise ValueError(f"a window of {len(self.rows)} rows lacks some of {len(rows)} rows that a batch takes")
        if out is None:
            out = np.empty((len(rows), *self.values.shape[1:]), self.values.dtype)
        fill_rows(self.values, place, out)
        return out


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
        values[known] = last.values[place[known]]
        missing = np.flatnonzero(~known)
        pieces = np.array_split(missing, READERS)
        list(self._threads.map(lambda piece: _read(self._array, rows[piece], piece, values), pieces))
        self._last = RowWindow(rows, values)
        return self._last


def _read(array: NDArray[Any], rows: NDArray[np.int64], place: NDArray[np.int64], values: NDArray[Any]) -> None:
    """Copy ascending rows of a mapped array to their places, block by block."""
    mapped: object = array.base
    row_bytes, start = array[:1].nbytes, _start(array, mapped)
    first = (start + rows * row_bytes) // _BLOCK
    bounds = [0, *(np.flatnonzero(np.diff(first)) + 1).tolist(), len(rows)] if len(rows) else [0]
    for begin, end in pairwise(bounds):
        some = rows[begin:end]
        if isinstance(mapped, mmap.mmap) and _pages(start + some * row_bytes) >= _DENSE * _BLOCK / mmap.PAGESIZE:
            at = int(first[begin]) * _BLOCK
            mapped.madvise(mmap.MADV_WILLNEED, at, min(_BLOCK, len(mapped) - at))
        values[place[begin:end]] = array[some]


def _start(array: NDArray[Any], mapped: object) -> int:
    """Bytes of a mapping before the first row."""
    if not isinstance(mapped, mmap.mmap):
        return 0
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


def distinct(lists: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The numbers of some lists, each once, ascending."""
    return np.unique(np.concatenate([np.empty(0, np.int64), *lists]))
