"""Reuses the memory of rows, because touching fresh memory takes longer than filling it."""

from __future__ import annotations

import math
import mmap
from queue import Empty, SimpleQueue
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: A buffer is larger than its rows by this share, so that it also fits the next batch, which has about the same size.
#: Bytes that nobody touches take no memory.
_SPARE: Final = 1 / 8
#: Smaller buffers are from the allocator.
_MAPPED_BYTES: Final = 1 << 20


class RowBuffers:
    """Arrays whose memory is given back after use; any thread may take and give back.

    Memory: the largest number of arrays in use at the same time, or at most ``most`` unused arrays.
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
            memory = _fresh(needed)
        if len(memory) < needed:
            # Release the small buffer before another one is allocated.
            del memory
            memory = _fresh(needed)
        return memory[:needed].view(dtype).reshape(shape)

    def give_back(self, array: NDArray[Any]) -> None:
        """Give back an array from :meth:`take`, which must not be used after that."""
        memory = array
        while isinstance(memory.base, np.ndarray):
            memory = memory.base
        if self._most is None or self._free.qsize() < self._most:
            self._free.put(memory)


def _fresh(needed: int) -> NDArray[np.uint8]:
    """(num_bytes,) a new buffer of at least ``needed`` bytes."""
    if needed < _MAPPED_BYTES:
        return np.empty(needed, np.uint8)
    # The allocator of the C library has a heap for every thread, and may keep freed memory.
    memory = mmap.mmap(-1, needed + int(needed * _SPARE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)
