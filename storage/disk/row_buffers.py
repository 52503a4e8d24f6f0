"""Reuses the memory of rows, because touching fresh memory takes longer than filling it."""

from __future__ import annotations

import math
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray


class RowBuffers:
    """Arrays whose memory is given back after use; any thread may take and give back.

    Memory: as many arrays as were ever in use at the same time, or at most ``most`` that are not in use.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._free: SimpleQueue[NDArray[np.uint8]] = SimpleQueue()

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """An array of this shape with any contents."""
        needed = math.prod(shape) * dtype.itemsize
        try:
            memory = self._free.get_nowait()
        except Empty:
            memory = np.empty(needed, np.uint8)
        if len(memory) < needed:
            memory = np.empty(needed, np.uint8)
        return memory[:needed].view(dtype).reshape(shape)

    def give_back(self, array: NDArray[Any]) -> None:
        """Give back an array from :meth:`take`, which must not be used after that."""
        memory = array
        while isinstance(memory.base, np.ndarray):
            memory = memory.base
        if self._most is None or self._free.qsize() < self._most:
            self._free.put(memory)
