"""A dense matrix in blocks of columns, in memory or temporary files, written and read in ranges of rows or whole.

A product with the adjacency reads rows at random, so it needs all rows of some columns in memory. The steps between
products need all columns of some rows. Blocks of columns serve both with long sequential transfers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.place.arrays import array_dtype
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.propagation.column_store import ColumnStore

#: Widths of blocks are multiples of this, a cache line of float32, unless memory is too small.
COLUMNS: Final = 16
#: Bytes of the rows of a product that a thread computes and writes at a time.
PART_BYTES: Final = 1 << 20


def even_width(dim: int, most: int) -> int:
    """Width of each block, such that blocks are about equally wide.

    Args:
        most: maximum number of columns of a block.

    >>> [even_width(48, 40), even_width(47, 16), even_width(3, 16), even_width(9, 5)]
    [24, 16, 3, 5]
    """
    count = max(1, -(-dim // most))
    each = max(1, -(-dim // count))
    # Never more columns than fit.
    return -(-each // COLUMNS) * COLUMNS if count > 1 and most % COLUMNS == 0 else each


@dataclass(frozen=True)
class Storage:
    """Place of matrices: memory or disk.

    Attributes:
        folder: folder for temporary files; None for memory.
        width: maximum number of columns of a block.
        range_rows: number of rows that are written and read at a time, a multiple of the rows of a chunk of the
            features.
        keeps_pages: memory suffices for the pages of all files.
    """

    folder: Path | None
    width: int
    range_rows: int
    keeps_pages: bool = False


class FileRows:
    """A block of columns in a file, for a product to write; see :class:`gnnloom.trainer.place.contract.RowSink`."""

    def __init__(
        self, store: ColumnStore, number: int, shape: tuple[int, int], dtype: torch.dtype, place: Place
    ) -> None:
        self._store, self._number, self.shape, self.dtype, self._place = store, number, shape, dtype, place
        self.range_rows = max(1, PART_BYTES // (shape[1] * dtype.itemsize))

    def read(self, start: int, out: Tensor) -> None:
        self._place.fill(out, lambda array: self._store.read_range(self._number, start, array))

    def write(self, start: int, rows: Tensor) -> None:
        self._place.store(rows, partial(self._store.write_range, self._number, start))


class ColumnBlocks:
    """A (num_rows, dim) matrix; rows are written in order."""

    def __init__(self, shape: tuple[int, int], dtype: torch.dtype, storage: Storage, place: Place) -> None:
        """Make a matrix without values."""
        self.dtype, self._shape, self._place = dtype, shape, place
        self._width, self._range_rows = even_width(shape[1], storage.width), storage.range_rows
        self._values: Tensor | None = None
        self._store: ColumnStore | None = None
        # An empty file cannot be mapped.
        if storage.folder is None or not shape[0]:
            self._values = place.empty(shape, dtype)
        else:
            self._store = ColumnStore(
                storage.folder,
                *shape,
                dtype=array_dtype(dtype),
                width=self._width,
                tile_rows=storage.range_rows,
                is_unnamed=True,
                keeps_pages=storage.keeps_pages,
            )

    @property
    def num_blocks(self) -> int:
        return 1 if self._store is None else self._store.num_blocks

    def rows(self, start: int, stop: int) -> Tensor:
        """(stop - start, dim) a range of rows, which the caller may overwrite.

        Raises:
            CorruptError: the file differs from the written data.
        """
        found, store = self._place.empty((stop - start, self._shape[1]), self.dtype), self._store
        if store is None:
            return found.copy_(self._memory[start:stop])
        return self._place.fill(found, lambda array: store.read_rows(start // self._range_rows, array))

    def put(self, start: int, rows: Tensor) -> None:
        """Write a range of rows.

        Raises:
            BudgetError: the disk is full.
        """
        store = self._store
        if store is None:
            self._memory[start : start + len(rows)] = rows
        else:
            self._place.store(rows, lambda array: store.write_rows(start, array, range(self.num_blocks)))

    def block(self, number: int) -> Tensor:
        """(num_rows, width) a block of columns, in memory.

        Raises:
            CorruptError: the file differs from the written data.
        """
        store = self._store
        if store is None:
            return self._memory
        found = self._place.empty((self._shape[0], self._columns(number)), self.dtype)
        return self._place.fill(found, lambda array: store.read_columns([number], array))

    def product(self, number: int, bounds: NDArray[np.int64]) -> Tensor | FileRows:
        """A block of columns, for a product to write. Call :meth:`end` afterwards.

        Args:
            bounds: rows at which the blocks of the matrix begin, and the number of rows.

        Raises:
            BudgetError: the disk is full.
        """
        if self._store is None:
            return self._memory
        rows = FileRows(self._store, number, (self._shape[0], self._columns(number)), self.dtype, self._place)
        self._store.begin(number, [*bounds.tolist(), *range(0, self._shape[0], rows.range_rows)])
        return rows

    def ranges(self, bounds: Sequence[int]) -> Callable[[int, Tensor], None]:
        """A function that writes ranges of a matrix of whole rows, given their first row. Call :meth:`end` afterwards.

        Args:
            bounds: rows at which the ranges begin and end.
        """
        store = self._store
        if store is None:
            memory = self._memory

            def put(start: int, rows: Tensor) -> None:
                memory[start : start + len(rows)] = rows

            return put
        store.begin(0, bounds)
        return lambda start, rows: self._place.store(rows, partial(store.write_range, 0, start))

    def end(self, number: int) -> None:
        """Mark a block as written."""
        if self._store is not None:
            self._store.end(number)

    def mapped(self) -> Tensor:
        """The rows of a matrix of whole rows; call :meth:`check` after reading them."""
        if self._store is None:
            return self._memory
        return self._place.from_numpy(self._store.mapped(0)).view(self.dtype)

    def check(self) -> None:
        """Compare a matrix of whole rows with the checksums of the written rows.

        Raises:
            CorruptError: the matrix has changed since it was written.
        """
        if self._store is not None:
            self._store.check(0)

    def drop(self, number: int) -> None:
        """Free the disk space of a block that is not read again."""
        if self._store is not None:
            self._store.drop([number])

    def _columns(self, number: int) -> int:
        return min(self._width, self._shape[1] - number * self._width)

    @property
    def _memory(self) -> Tensor:
        if self._values is None:
            raise ValueError("this matrix is on disk")
        return self._values
