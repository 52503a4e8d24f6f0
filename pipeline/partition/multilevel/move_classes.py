"""The weights of classes of moves, summed over the files of many tasks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Fewest classes that are merged at a time: merging them sorts those that are merged already as well.
_MERGED_AT_ONCE = 1 << 16


class MoveClasses:
    """Sums weights by class of move, in memory for about twice as many classes as there are different ones."""

    def __init__(self) -> None:
        self._class, self._weight = np.empty((2, 0), dtype=np.int64)
        self._added: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self._num_added = 0

    def add(self, move_class: NDArray[np.int64], weight: NDArray[np.int64]) -> None:
        """Add the weights of moves."""
        self._added.append((move_class, weight))
        self._num_added += len(move_class)
        if self._num_added > max(_MERGED_AT_ONCE, len(self._class)):
            self._merge()

    def merged(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All classes, ascending, and their weights; both (num_classes,) int64."""
        self._merge()
        return self._class, self._weight

    def _merge(self) -> None:
        classes = [self._class, *(each for each, _ in self._added)]
        weights = [self._weight, *(each for _, each in self._added)]
        merged, inverse = np.unique(np.concatenate(classes), return_inverse=True)
        total = np.zeros(len(merged), dtype=np.int64)
        np.add.at(total, inverse, np.concatenate(weights))
        self._class, self._weight = merged, total
        self._added, self._num_added = [], 0
