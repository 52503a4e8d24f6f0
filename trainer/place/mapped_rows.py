"""Rows in temporary files, and what compares the files with what was written once the rows have been read."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.format.memory_map import RecordedArray, Rows
from gnnloom.trainer.place.arrays import array_dtype, as_array, tensor_over
from gnnloom.trainer.place.workspace import UNLIMITED


class MappedRows:
    """Rows in a file without a name, whose pages the system takes back where it needs the memory.

    Attributes:
        tensor: (num_rows, ...) to be read; zeros where nothing is written.
    """

    def __init__(self, folder: Path, what: str, shape: Sequence[int], dtype: torch.dtype) -> None:
        """Take the space on disk.

        Raises:
            OSError: the disk is full.
        """
        self.recorded = RecordedArray(folder, what, shape, array_dtype(dtype))
        self.tensor = tensor_over(self.recorded.values, dtype)

    def write(self, rows: Rows, values: Tensor, columns: slice = slice(None)) -> None:
        """Write some rows, or some of their columns, each number once; see :meth:`RecordedArray.write`."""
        self.recorded.write(rows, as_array(values), columns)

    def check(self) -> None:
        """Compare the file with the checksums of the written data.

        Raises:
            DamagedWorkError: it has changed.
        """
        self.recorded.check()


class UnbackedRows(MappedRows):
    """Rows of any size that nobody writes, for the forecast of memory."""

    def __init__(self, shape: Sequence[int], dtype: torch.dtype) -> None:
        kind = array_dtype(dtype)
        memory = mmap.mmap(-1, max(1, math.prod(shape) * kind.itemsize), flags=UNLIMITED)
        self.values: NDArray[Any] = np.ndarray(tuple(shape), kind, memory)
        self.tensor = tensor_over(self.values, dtype)

    def write(self, rows: Rows, values: Tensor, columns: slice = slice(None)) -> None:
        """Write nothing."""

    def check(self) -> None:
        """Nothing has been written."""


class FileChecks:
    """Temporary files to compare with their checksums, before results that depend on them are kept."""

    def __init__(self) -> None:
        self._used = WeakSet[RecordedArray | UnbackedRows]()
        self._read = list[Callable[[], None]]()

    def while_used(self, rows: RecordedArray | UnbackedRows) -> None:
        """Compare the file of some rows every time, for as long as anything refers to them."""
        self._used.add(rows)

    def once(self, check: Callable[[], None]) -> None:
        """Call what compares a file the next time only; the file stays until then."""
        self._read.append(check)

    def check(self) -> None:
        """Compare the files. Communicates nothing.

        Raises:
            CorruptError: one has changed.
        """
        read, self._read = self._read, []
        for check in (*read, *(rows.check for rows in self._used)):
            check()
