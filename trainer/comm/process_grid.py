"""Ranks on a grid with named axes, and the groups of ranks along them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping

from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.ranges import Span, split_range
from gnnloom.trainer.comm.communicator import Communicator


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

    def index(self, axes: Iterable[str], coordinate: Mapping[str, int] | None = None) -> int:
        """Number within the group along ``axes`` of this rank, or of the one at a coordinate."""
        number, coordinate = 0, coordinate or self.coordinate
        for axis in axes:
            number = number * self.axes[axis] + coordinate[axis]
        return number

    def members(self, axes: tuple[str, ...]) -> list[dict[str, int]]:
        """Coordinates of the ranks of the group along ``axes``, in their order."""
        numbers = itertools.product(*(range(self.axes[axis]) for axis in axes))
        return [self.coordinate | dict(zip(axes, number, strict=True)) for number in numbers]

    def size(self, axes: Iterable[str]) -> int:
        """Number of ranks along ``axes`` together."""
        return math.prod(self.axes[axis] for axis in axes)

    def span(self, size: int, axes: Iterable[str], coordinate: Mapping[str, int] | None = None) -> Span:
        """The range of 0..size-1 cut along ``axes`` of this rank, or of the one at a coordinate."""
        axes = tuple(axes)
        return split_range(size, self.size(axes), self.index(axes, coordinate))

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
