"""Sums over the rows of a matrix, formed chunk by chunk, of which many are computed at a time.

A call for every chunk would take longer than its work, and run on one thread.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import Tensor

from gnnloom.trainer.place.arrays import as_array
from gnnloom.trainer.place.place import Place


def chunk_groups(num_rows: int, chunk: int, most: int) -> Iterator[slice]:
    """Ranges of rows with up to ``most`` chunks each (at least one), then one with what is left, less than a chunk."""
    whole, step = num_rows // chunk * chunk, chunk * max(1, most)
    for start in range(0, whole, step):
        yield slice(start, min(start + step, whole))
    if whole < num_rows:
        yield slice(whole, num_rows)


def in_chunks(rows: Tensor, chunk: int) -> Tensor:
    """(number of chunks, rows of a chunk, dim) a view of the (num_rows, dim) rows of a group."""
    length = min(chunk, len(rows))
    return rows.view(len(rows) // length, length, rows.shape[1])


def add_in_order(total: Tensor, summands: Tensor, place: Place) -> None:
    """Add (count, *shape) summands to a total, one after the other, in the dtype of the total."""
    rows = place.empty((len(summands) + 1, *total.shape), total.dtype)
    rows[0], rows[1:] = total, summands
    # NumPy adds along the first axis row by row.
    np.add.reduce(as_array(rows), axis=0, out=as_array(total))
