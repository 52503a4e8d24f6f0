"""Chooses the ranges of a pass, so that inputs and results of their rows fit in memory, unless one row needs more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

Made = TypeVar("Made")

#: Lengths of the rows of a range of vertices, given the number of the first vertex and the number after the last one.
Lengths = Callable[[int, int], NDArray[np.int64]]

#: Maximum count of numbers that one step gathers, unless one vertex has more.
GATHERED: Final = 1 << 24
#: Maximum count of numbers that the edges of a batch carry at once, unless one vertex needs more.
CARRIED: Final = 1 << 24
#: Maximum count of numbers in the widest layer of rows without neighbors.
_NUMBERS: Final = 1 << 22
#: Number of vertices of the first batch; the sizes of later batches follow from its size.
_FIRST: Final = 64


def gathering_bounds(indptr: NDArray[np.int64], vertices: NDArray[np.int64], dim: int) -> list[int]:
    """Bounds of ranges of vertices that each gather at most ``GATHERED`` numbers, or have one vertex.

    Args:
        indptr: row pointers of the graph.
        vertices: (num_vertices,) int64.
        dim: width of the gathered rows: each vertex's own row, and one row for each of its neighbors.
    """
    before = np.concatenate([[0], np.cumsum(indptr[vertices + 1] - indptr[vertices] + 1)])
    most, bounds = max(1, GATHERED // max(1, dim)), [0]
    while bounds[-1] < len(vertices):
        stop = int(np.searchsorted(before, before[bounds[-1]] + most, side="right")) - 1
        bounds.append(max(stop, bounds[-1] + 1))
    return bounds


def end_of_range(lengths: Lengths, start: int, count: int, width: int) -> int:
    """The end of a range of vertices that carries at most ``CARRIED`` numbers, or has one vertex.

    Numbers are carried for each vertex, for each entry of its row, and for the vertex at the other end of the entry.

    Args:
        lengths: number of entries of rows in all relations together.
        start: first vertex of the range.
        count: number of all vertices.
        width: count of numbers that each vertex and each entry carries.
    """
    most = max(1, CARRIED // max(1, width))
    carried = np.cumsum(1 + 2 * lengths(start, min(count, start + most)))
    return start + max(1, int(np.searchsorted(carried, most, side="right")))


def rows_alone(dims: Sequence[int]) -> int:
    """Number of rows without neighbors per call of layers with widths ``dims``."""
    return max(1, _NUMBERS // max(dims))


def most_seeds(carried_by_one: float, width: int, num_own: int) -> int:
    """Number of vertices of a batch in the middle of a pass.

    Args:
        carried_by_one: mean number of vertices and edges that one vertex of the batch needs.
        width: numbers per vertex or edge.
        num_own: number of vertices of the rank.
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
        make: Callable[[NDArray[np.int64]], Made | None],
        carried: Callable[[Made], int],
    ) -> tuple[int, Made]:
        """The end of the range of vertices that begins at ``start``, and its batch.

        Args:
            make: makes the batch of some vertices; None if there are several and the batch would carry too much.
            carried: count of numbers that a batch carries.
        """
        while True:
            stop = min(start + self._count, len(vertices))
            made, count = make(vertices[start:stop]), stop - start
            if made is None:
                self._count = max(1, count // 2)
                continue
            numbers = carried(made)
            if numbers <= CARRIED or count == 1:
                self._count = 2 * count if numbers <= CARRIED // 4 else count
                return stop, made
            self._count = max(1, count // 2)
