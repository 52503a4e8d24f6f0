"""Memory that nobody writes to, and how much a process takes that does write to it.

Arrays and tensors from here are ordinary ones whose pages nobody touches, so the system gives them none; they may be
larger than the memory of this machine.
"""

from __future__ import annotations

import math
import mmap
import tracemalloc
from collections.abc import Sequence
from typing import Any, Final, Self
from weakref import finalize

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.place.place import Place
from gnnloom.trainer.place.workspace import SMALL, UNLIMITED


class Unwritten:
    """Arrays without values, and what all arrays of a process and a workspace take at the worst moment.

    Counts inside a ``with`` block. Arrays that NumPy allocates there count as well.

    Attributes:
        place: one that rehearses.
        peak: most bytes that arrays and the workspace have had at one time.
        workspace_at_peak: those of the workspace at that time.
    """

    def __init__(self, place: Place) -> None:
        self.place: Final = place
        self.peak = self.workspace_at_peak = 0
        self._unwritten = self._before = 0

    def __enter__(self) -> Self:
        self._stops = not tracemalloc.is_tracing()
        if self._stops:
            tracemalloc.start()
        self._before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        return self

    def __exit__(self, *_: object) -> None:
        if self._stops:
            tracemalloc.stop()

    @property
    def held(self) -> int:
        """Bytes of the arrays that exist now, without the workspace."""
        return self._unwritten + tracemalloc.get_traced_memory()[0] - self._before

    def observe(self) -> None:
        """Note what was taken since the last call; called by itself whenever an array is made."""
        # The highest sum that NumPy's arrays have had since then, as short-lived ones are never there when asked for.
        total = self._unwritten + self.place.workspace.nbytes + tracemalloc.get_traced_memory()[1] - self._before
        if total > self.peak:
            self.peak, self.workspace_at_peak = total, self.place.workspace.nbytes
        tracemalloc.reset_peak()

    def array(self, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
        """An array of zeros; a large one must not be written to."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < SMALL:
            return np.zeros(shape, dtype)
        array: NDArray[Any] = np.ndarray(shape, dtype, mmap.mmap(-1, nbytes, flags=UNLIMITED))
        self._unwritten += nbytes
        finalize(array, self._give_back, nbytes).atexit = False
        self.observe()
        return array

    def _give_back(self, nbytes: int) -> None:
        self.observe()
        self._unwritten -= nbytes

    def tensor(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A contiguous tensor of zeros; a large one must not be written to."""
        count = math.prod(shape)
        if count * dtype.itemsize < SMALL:
            return torch.zeros(tuple(shape), dtype=dtype)
        return (
            torch.from_numpy(self.array((count * dtype.itemsize,), np.dtype(np.uint8))).view(dtype).view(tuple(shape))
        )


def even_offsets(count: int, total: int) -> NDArray[np.int64]:
    """(count,) int64 offsets that begin at 0 and end at ``total``, of ranges of about equal lengths."""
    return np.linspace(0, total, count).astype(np.int64)
