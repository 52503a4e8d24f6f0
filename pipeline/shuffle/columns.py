"""The columns of the rows that are shuffled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Column:
    """One column: an array with an element for each row, or, if it is ragged, with any number of elements for each.

    Attributes:
        name: name of the column; none is called ``position``.
        dtype: of the elements.
        trailing: shape of an element.
        lengths: for a ragged column, the name of the column with the number of elements of each row, which is int64 and
            comes earlier. Several columns may share it.
    """

    name: str
    dtype: str
    trailing: tuple[int, ...] = ()
    lengths: str | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.dtype).itemsize * math.prod(self.trailing)

    def empty(self, count: int) -> NDArray[Any]:
        """(count, ...) elements, not initialized."""
        return np.empty((count, *self.trailing), self.dtype)


def lengths_of(columns: Sequence[Column]) -> list[str]:
    """Names of the columns with the lengths of ragged ones, in the order of the columns."""
    used = {column.lengths for column in columns}
    return [column.name for column in columns if column.name in used]


def row_bytes(columns: Sequence[Column]) -> int:
    """Bytes of a row, without its ragged columns."""
    return sum(column.num_bytes for column in columns if column.lengths is None)
