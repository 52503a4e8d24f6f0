"""Scalar products whose bits depend only on the two rows, compiled by numba.

Two equal pairs of rows have equal scores in any block, on any number of ranks and threads. A library's matrix product
gives no such guarantee: the shapes determine the loop that computes an element, and the order of its sum. Ranks among
many scores count ties, so they need this guarantee.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.kernels import kernel
from gnnloom.trainer.place.arrays import as_array
from gnnloom.trainer.place.place import Place

#: Number of targets whose scores are formed at a time, with vector instructions across the targets; their rows stay in
#: the caches.
_TILE = 256
#: Count of a row's numbers that are multiplied between loading and storing a sum.
_STEPS = 4


def score_block(left: Tensor, right: Tensor, out: Tensor, place: Place) -> None:
    """See :func:`gnnloom.trainer.kernels.dispatch.score_block`."""
    arrays = _array(left, place), _array(right, place), as_array(out)
    num_tiles = -(-len(right) // _TILE)
    place.threads.run(
        lambda start, stop: _score_tiles(*arrays, start * _TILE, min(stop * _TILE, len(right))),
        place.threads.even_ranges(num_tiles),
    )


def score_pairs(left: Tensor, right: Tensor, out: Tensor, place: Place) -> None:
    """See :func:`gnnloom.trainer.kernels.dispatch.score_pairs`."""
    arrays = _array(left, place), _array(right, place), as_array(out)
    place.threads.run(lambda start, stop: _score_rows(*arrays, start, stop), place.threads.even_ranges(len(left)))


def score_entries(
    left: Tensor, right: Tensor, entries: tuple[NDArray[Any], NDArray[Any]], out: Tensor, place: Place
) -> None:
    """See :func:`gnnloom.trainer.kernels.dispatch.score_entries`."""
    arrays = _array(left, place), _array(right, place), *entries, as_array(out)
    place.threads.run(lambda start, stop: _score_entries(*arrays, start, stop), place.threads.even_ranges(len(out)))


def _array(matrix: Tensor, place: Place) -> NDArray[Any]:
    """A matrix as an array with contiguous rows, for which the kernels are compiled."""
    return as_array(place.contiguous(matrix.detach()))


@kernel
def _score_tiles(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any], start: int, stop: int) -> None:
    dim = left.shape[1]
    # Zeros, because columns beyond the last target are multiplied, too.
    tile, sums = np.zeros((dim, _TILE), left.dtype), np.zeros(_TILE, left.dtype)
    for first in range(start, stop, _TILE):
        width = min(_TILE, stop - first)
        for target in range(width):
            for column in range(dim):
                tile[column, target] = right[first + target, column]
        for row in range(len(left)):
            sums[:] = 0
            whole = dim - dim % _STEPS
            for column in range(0, whole, _STEPS):
                # Load and store the sums once for several products; the order of products is still the order of the
                # columns.
                a, b, c, d = left[row, column], left[row, column + 1], left[row, column + 2], left[row, column + 3]
                first_row, second, third, fourth = tile[column], tile[column + 1], tile[column + 2], tile[column + 3]
                for k in range(_TILE):
                    sums[k] = (((sums[k] + a * first_row[k]) + b * second[k]) + c * third[k]) + d * fourth[k]
            for column in range(whole, dim):
                a, first_row = left[row, column], tile[column]
                for k in range(_TILE):
                    sums[k] += a * first_row[k]
            for target in range(width):
                out[row, first + target] = sums[target]


@kernel
def _score_rows(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any], start: int, stop: int) -> None:
    zero = left.dtype.type(0)
    whole = stop - (stop - start) % _STEPS
    # Several rows at a time, whose sums do not wait for each other.
    for row in range(start, whole, _STEPS):
        a, b, c, d = zero, zero, zero, zero
        for column in range(left.shape[1]):
            a += left[row, column] * right[row, column]
            b += left[row + 1, column] * right[row + 1, column]
            c += left[row + 2, column] * right[row + 2, column]
            d += left[row + 3, column] * right[row + 3, column]
        out[row], out[row + 1], out[row + 2], out[row + 3] = a, b, c, d
    for row in range(whole, stop):
        total = zero
        for column in range(left.shape[1]):
            total += left[row, column] * right[row, column]
        out[row] = total


# Sums in any order, so that a row is multiplied by vector instructions.
@kernel(fastmath={"reassoc", "contract", "nsz"})
def _score_entries(
    left: NDArray[Any],
    right: NDArray[Any],
    rows: NDArray[Any],
    columns: NDArray[Any],
    out: NDArray[Any],
    start: int,
    stop: int,
) -> None:
    zero = left.dtype.type(0)
    for k in range(start, stop):
        one, other, total = left[rows[k]], right[columns[k]], zero
        for column in range(left.shape[1]):
            total += one[column] * other[column]
        out[k] = total
