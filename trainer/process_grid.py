"""Ranks on a grid with named axes, and the groups of ranks along them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from gnnloom.storage.errors import InputError
from gnnloom.storage.grid_shards import Span, split_range
from gnnloom.trainer.comm import Communicator


def factorisations(number: int, num_axes: int) -> list[tuple[int, ...]]:
    """All ways to write ``number`` as a product of ``num_axes`` factors, in their order."""
    if num_axes == 1:
        return [(number,)]
    divisors = [first for first in range(1, number + 1) if number % first == 0]
    return [(first, *rest) for first in divisors for rest in factorisations(number // first, num_axes - 1)]


def most_square(number: int, num_axes: int) -> tuple[int, ...]:
    """The factors of ``number`` that differ least, the largest first."""
    return max(factorisations(number, num_axes), key=lambda factors: (-sum(factors), factors))


class ProcessGrid:
    """The ranks of a communicator, numbered over the axes in the given order, the last one fastest."""

    def __init__(self, comm: Communicator, axes: Mapping[str, int]) -> None:
        """Lay the ranks out.

        Args:
            axes: name to number of ranks along it.

        Raises:
            InputError: the axes do not multiply to the number of ranks.
        """
        if math.prod(axes.values()) != comm.size:
            raise InputError(f"process grid {dict(axes)}: has {math.prod(axes.values())} places, not {comm.size}")
        self.comm = comm
        self.axes = dict(axes)
        self.coordinate: dict[str, int] = {}
        rest = comm.rank
        for axis in reversed(self.axes):
            rest, self.coordinate[axis] = divmod(rest, self.axes[axis])
        self._groups: dict[tuple[str, ...], Communicator] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.axes.values())

    def index(self, axes: Iterable[str]) -> int:
        """This rank's number within the group along ``axes``."""
        number = 0
        for axis in axes:
            number = number * self.axes[axis] + self.coordinate[axis]
        return number

    def size(self, axes: Iterable[str]) -> int:
        """Number of ranks along ``axes`` together."""
        return math.prod(self.axes[axis] for axis in axes)

    def span(self, size: int, axes: Iterable[str]) -> Span:
        """This rank's range of 0..size-1 cut along ``axes``."""
        axes = tuple(axes)
        return split_range(size, self.size(axes), self.index(axes))

    def sizes(self, size: int, axes: Iterable[str]) -> list[int]:
        """Lengths of the ranges of all ranks of the group along ``axes``."""
        parts = self.size(axes)
        return [stop - start for start, stop in (split_range(size, parts, number) for number in range(parts))]

    def sizes_along_last(self, size: int, axes: tuple[str, ...]) -> list[int]:
        """As :meth:`sizes`, of those ranks only that differ from this one along the last of the axes."""
        count = self.axes[axes[-1]]
        first = self.index(axes) - self.coordinate[axes[-1]]
        return self.sizes(size, axes)[first : first + count]

    def group(self, axes: tuple[str, ...]) -> Communicator:
        """The ranks that differ from this one along ``axes`` only. Collective at the first call with these axes."""
        if axes not in self._groups:
            others = [axis for axis in self.axes if axis not in axes]
            self._groups[axes] = self.comm.group(self.index(others), self.index(axes))
        return self._groups[axes]
