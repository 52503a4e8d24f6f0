"""A dense matrix in blocks of columns, in memory or in temporary files: written and read in ranges of rows or whole.

A product with the adjacency reads rows at random, so it needs all rows of some columns in memory. What comes between
the products needs all columns of some rows. Blocks of columns serve both with long sequential transfers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from gnnloom.trainer.place.arrays import array_dtype, as_array
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.propagation.column_store import ColumnStore

#: Widths of blocks are multiples of this, unless there is no memory for so many columns: a cache line of float32.
COLUMNS: Final = 16


def even_width(dim: int, most: int) -> int:
    """Columns of each block, so that they are about equally wide.

    Args:
        most: columns of a block.

    >>> [even_width(48, 40), even_width(47, 16), even_width(3, 16), even_width(9, 5)]
    [32, 16, 3, 5]
    """
    count = max(1, -(-dim // most))
    each = max(1, -(-dim // count))
    # Not one column more than fits.
    return -(-each // COLUMNS) * COLUMNS if count > 1 and most % COLUMNS == 0 else each


@dataclass(frozen=True)
class Storage:
    """Where matrices are.

    Attributes:
        folder: of temporary files; None for memory.
        width: most columns of a block.
        range_rows: rows that are written and read at a time, a multiple of those of a chunk of the features.
        keeps_pages: there is memory for the pages of all files.
    """

    folder: Path | None
    width: int
    range_rows: int
    keeps_pages: bool = False


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
            CorruptError: they are not those that were written.
        """
        found = self._place.empty((stop - start, self._shape[1]), self.dtype)
        if self._store is None:
            return found.copy_(self._memory[start:stop])
        self._store.read_rows(start // self._range_rows, as_array(found))
        return found

    def put(self, start: int, rows: Tensor) -> None:
        """Write a range of rows.

        Raises:
            BudgetError: the disk is full.
        """
        if self._store is None:
            self._memory[start : start + len(rows)] = rows
        else:
            self._store.write_rows(start, as_array(rows), range(self.num_blocks))

    def block(self, number: int) -> Tensor:
        """(num_rows, width) a block of columns, in memory.

        Raises:
            CorruptError: they are not those that were written.
        """
        if self._store is None:
            return self._memory
        found = self._place.empty((self._shape[0], self._columns(number)), self.dtype)
        self._store.read_columns([number], as_array(found))
        return found

    def mapped(self, number: int) -> Tensor:
        """(num_rows, width) a block of columns, to be written, or to be kept as the result. Call :meth:`seal` then.

        Raises:
            BudgetError: the disk is full.
        """
        if self._store is None:
            return self._memory
        return self._place.from_numpy(self._store.mapped(number)).view(self.dtype)

    def seal(self, number: int, values: Tensor) -> None:
        """Say that a block has been written.

        Args:
            values: of :meth:`mapped`.
        """
        if self._store is not None:
            self._store.seal(number, as_array(values))

    def drop(self, number: int) -> None:
        """Free the disk space of a block, which nobody reads again."""
        if self._store is not None:
            self._store.drop([number])

    def _columns(self, number: int) -> int:
        return min(self._width, self._shape[1] - number * self._width)

    @property
    def _memory(self) -> Tensor:
        if self._values is None:
            raise ValueError("this matrix is on disk")
        return self._values
