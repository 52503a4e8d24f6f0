"""Compressed sparse rows (CSR) in memory: a range of rows of a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: Widest matrix whose column ids are int32.
INT32_WIDTH: Final = int(np.iinfo(np.int32).max)

#: Bytes of the value that a nonzero may have: a weight (float32), or a time (float64), which needs more digits.
WEIGHT_BYTES: Final = 4
TIME_BYTES: Final = 8


@dataclass(frozen=True)
class CSR:
    """Rows ``row_offset`` to ``row_offset + num_rows`` of a matrix.

    Attributes:
        row_offset: index of the first row in the whole matrix.
        indptr: (num_rows + 1,) int64, starting at 0.
        indices: (nnz,) int32 or int64 column ids, ascending within a row.
        data: (nnz,) float32 or float64, or None for a pattern (all ones).
        num_columns: width of the matrix.
    """

    row_offset: int
    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    data: NDArray[Any] | None
    num_columns: int

    @property
    def num_rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        return int(self.indptr[-1])


def index_dtype(width: int) -> np.dtype[Any]:
    """int32 if it holds all ids below ``width``, else int64."""
    # Column ids are the largest part of a graph, and products are bound by memory bandwidth: int32 halves the bytes.
    return np.dtype(np.int32 if width <= INT32_WIDTH else np.int64)


def cast_ids(ids: NDArray[Any], width: int) -> NDArray[Any]:
    """Cast ids below ``width`` to the narrowest index dtype.

    Args:
        ids: (num_ids,) integers of any dtype.

    Returns:
        (num_ids,) int32 or int64; ``ids`` itself if it has this dtype already.

    Raises:
        OverflowError: an id is negative or not below ``width``.
    """
    # Checked before the cast: astype would wrap an id that is too large to another valid id, without an error.
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= width):
        raise OverflowError(f"ids from {ids.min()} to {ids.max()} do not lie in 0..{width - 1}")
    return ids.astype(index_dtype(width), copy=False)
