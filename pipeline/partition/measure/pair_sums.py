"""Sums of counts by pair of parts, in a table or, for very many parts, in lists of pairs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

#: Most cells of a table: 256 MiB.
TABLE_CELLS = 1 << 25
#: Pairs that may wait before they are merged: 16 MiB of pairs and counts.
_PENDING_PAIRS = 1 << 20


def pair_sums(num_parts: int) -> _PairTable | _PairCounts:
    """An empty sum of counts by pair of parts, as a table if that is small enough."""
    return _PairTable(num_parts) if num_parts * num_parts <= TABLE_CELLS else _PairCounts()


class _PairTable:
    """Sums counts by pair in a table with one cell for each; pages of cells that stay zero take no memory."""

    def __init__(self, num_parts: int) -> None:
        self._rows = np.zeros(num_parts * num_parts, dtype=np.int64)

    def add(self, pair: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Add the counts of distinct pairs."""
        self._rows[pair] += rows

    def merged(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All pairs so far, ascending, with their sums."""
        pair = np.flatnonzero(self._rows)
        return pair, self._rows[pair]


@dataclass
class _PairCounts:
    """Sums counts by pair in lists.

    Merges when as many pairs wait as were merged before, so each pair is sorted only a few times.
    """

    _waiting: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=list)
    _num_merged: int = 0
    _num_waiting: int = 0

    def add(self, pair: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Add the counts of distinct pairs."""
        self._waiting.append((pair, rows))
        self._num_waiting += len(pair)
        if self._num_waiting > max(_PENDING_PAIRS, self._num_merged):
            self.merged()

    def merged(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All pairs so far, ascending, with their sums."""
        empty = np.empty(0, dtype=np.int64)
        pairs = np.concatenate([empty, *(pair for pair, _ in self._waiting)])
        distinct, position = np.unique(pairs, return_inverse=True)
        total = np.zeros(len(distinct), dtype=np.int64)
        np.add.at(total, position, np.concatenate([empty, *(rows for _, rows in self._waiting)]))
        self._waiting = [(distinct, total)]
        self._num_merged, self._num_waiting = len(distinct), 0
        return distinct, total
