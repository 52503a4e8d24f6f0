"""Sizes of the ranges of a pass: what their rows read and compute fits in memory, unless one row needs more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

Made = TypeVar("Made")

#: Numbers that one step gathers, at most, unless one vertex has more.
GATHERED: Final = 1 << 24
#: Numbers that the edges of a batch carry at once, at most, unless one vertex needs more.
CARRIED: Final = 1 << 24
#: Numbers of the widest layer of rows without neighbors.
_NUMBERS: Final = 1 << 22
#: Vertices of the first batch; the next ones follow from its size.
_FIRST: Final = 64


def gathering_bounds(indptr: NDArray[np.int64], vertices: NDArray[np.int64], dim: int) -> list[int]:
    """Bounds of ranges of vertices which gather at most ``GATHERED`` numbers each, or have one vertex.

    Args:
        indptr: of the graph.
        vertices: (num_vertices,) int64.
        dim: width of the rows that are gathered: each vertex's own, and one for each of its neighbors.
    """
    before = np.concatenate([[0], np.cumsum(indptr[vertices + 1] - indptr[vertices] + 1)])
    most, bounds = max(1, GATHERED // max(1, dim)), [0]
    while bounds[-1] < len(vertices):
        stop = int(np.searchsorted(before, before[bounds[-1]] + most, side="right")) - 1
        bounds.append(max(stop, bounds[-1] + 1))
    return bounds


def rows_alone(dims: Sequence[int]) -> int:
    """Number of rows, without neighbors, that layers of these widths treat at a time."""
    return max(1, _NUMBERS // max(dims))


def most_seeds(carried_by_one: float, width: int, num_own: int) -> int:
    """Vertices of a batch in the middle of a pass.

    Args:
        carried_by_one: mean number of vertices and edges that one vertex of the batch needs.
        width: numbers that each of these carries.
        num_own: vertices of the rank.
    """
    count = _FIRST
    while count < num_own and count * carried_by_one * width <= CARRIED // 4:
        count *= 2
    while count > 1 and count * carried_by_one * width > CARRIED:
        count //= 2
    return min(count, num_own)


class SeedsThatFit:
    """Ranges of vertices whose batches carry at most ``CARRIED`` numbers each, or have one vertex."""

    def __init__(self) -> None:
        self._count = _FIRST

    def batch(
        self,
        vertices: NDArray[np.int64],
        start: int,
        make: Callable[[NDArray[np.int64]], Made],
        carried: Callable[[Made], int],
    ) -> tuple[int, Made]:
        """The end of the range of vertices that begins at ``start``, and its batch.

        Args:
            make: makes the batch of some vertices.
            carried: numbers that it carries.
        """
        while True:
            stop = min(start + self._count, len(vertices))
            made, count = make(vertices[start:stop]), stop - start
            numbers = carried(made)
            if numbers <= CARRIED or count == 1:
                self._count = 2 * count if numbers <= CARRIED // 4 else count
                return stop, made
            self._count = max(1, count // 2)
