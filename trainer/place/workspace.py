"""Reuses the memory of a rank's large tensors without returning it to the system.

The first touch of a fresh page costs several times as much as the work on it, and an allocator that keeps freed memory
instead fragments it. A workspace keeps what it has, hands it out again from the lowest address on, and gives each
tensor's memory to others as soon as nothing refers to the tensor, which is when torch would have freed it. An epoch
repeats the same shapes in the same order, so from the second one on it touches no fresh page, and the workspace has
grown to the largest sum of tensors that exist at one time.
"""

from __future__ import annotations

import math
import mmap
import sys
from collections import deque
from collections.abc import Sequence
from typing import Any
from weakref import finalize

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.place.arrays import array_dtype, tensor_over

#: Tensors below this size come from torch: the system's allocator itself keeps memory of small tensors.
SMALL = 64 << 10
#: Every tensor begins at a multiple of this, a cache line, in bytes.
ALIGNMENT = 64
#: Address space that is reserved at a time, in bytes; only what is touched takes memory.
_SEGMENT = 1 << 30
#: Lets the system hand out more address space than it has memory. Python names it from 3.13 on.
_UNRESERVED = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
#: Flags of memory that is never written.
UNLIMITED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _UNRESERVED


class Workspace:
    """Hands out tensors on the CPU whose memory it reuses.

    They are ordinary tensors: views keep the memory, and so does autograd. A tensor may outlive the workspace.
    """

    def __init__(self, flags: int = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) -> None:
        """Begin without memory.

        Args:
            flags: flags of mapped memory; :data:`UNLIMITED` if the tensors are never written.
        """
        self._flags = flags
        self._segments: list[_Segment] = []
        # A tensor may be freed at any point of a program, even while another one is handed out, so its memory waits
        # here.
        self._returned: deque[tuple[_Segment, int, int]] = deque()

    @property
    def nbytes(self) -> int:
        """Bytes of memory that tensors have ever had at one time, and the gaps between them."""
        return sum(segment.top for segment in self._segments)

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor's memory is the workspace's."""
        address = tensor.untyped_storage().data_ptr()
        return any(segment.address <= address < segment.address + len(segment.memory) for segment in self._segments)

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A contiguous tensor without values, at a multiple of 64 bytes."""
        size = math.prod(shape) * dtype.itemsize
        if size < SMALL:
            return torch.empty(tuple(shape), dtype=dtype)
        nbytes = -(-size // ALIGNMENT) * ALIGNMENT
        segment, start = self._take(nbytes)
        array: NDArray[Any] = np.ndarray(tuple(shape), array_dtype(dtype), segment.memory, start)
        # torch refers to the array as long as any tensor uses its memory, and nothing else does.
        finalize(array, self._returned.append, (segment, start, start + nbytes)).atexit = False
        return tensor_over(array, dtype)

    def _take(self, nbytes: int) -> tuple[_Segment, int]:
        while self._returned:
            segment, start, stop = self._returned.popleft()
            segment.give_back(start, stop)
        for segment in self._segments:
            found = segment.take(nbytes)
            if found is not None:
                return segment, found
        self._segments.append(_Segment(max(nbytes, _SEGMENT), self._flags))
        return self._segments[-1], self._segments[-1].take(nbytes) or 0


class _Segment:
    """A range of memory, and its parts that are free.

    Attributes:
        address: address of its first byte.
        top: bytes up to the end of the highest part that was ever taken.
    """

    def __init__(self, nbytes: int, flags: int) -> None:
        self.memory = mmap.mmap(-1, nbytes, flags=flags)
        # Rows of a dense matrix are read in the order of a graph's columns: with large pages, fewer reads miss the TLB.
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self.memory.madvise(mmap.MADV_HUGEPAGE)
        self.address = np.frombuffer(self.memory, np.uint8, 1).ctypes.data
        self.top = 0
        self._holes = [(0, nbytes)]  # in the order of their addresses; no two holes touch

    def take(self, nbytes: int) -> int | None:
        """Take the lowest hole that is large enough; return its start, or None if there is none."""
        for number, (start, stop) in enumerate(self._holes):
            if stop - start >= nbytes:
                rest = start + nbytes
                self._holes[number : number + 1] = [(rest, stop)] if rest < stop else []
                self.top = max(self.top, rest)
                return start
        return None

    def give_back(self, start: int, stop: int) -> None:
        """Make a part free, and one with its free neighbors."""
        place = sum(hole[0] < start for hole in self._holes)
        if place < len(self._holes) and self._holes[place][0] == stop:
            stop = self._holes.pop(place)[1]
        if place and self._holes[place - 1][1] == start:
            start = self._holes.pop(place - 1)[0]
            place -= 1
        self._holes.insert(place, (start, stop))
