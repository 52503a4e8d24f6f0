"""Ranks on a grid with named axes, and the groups of ranks along those axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping

from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.ranges import Span, split_range
from gnnloom.storage.wording import counted
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.place.place import Place


class ProcessGrid:
    """The ranks of a communicator, numbered along the axes in the given order; the last axis varies fastest."""

    def __init__(self, comm: Communicator, axes: Mapping[str, int], place: Place) -> None:
        """Arrange the ranks.

        Args:
            axes: number of ranks along each axis, by name.
            place: place of this rank's tensors.

        Raises:
            InputError: the product of the axes differs from the number of ranks.
        """
        if math.prod(axes.values()) != comm.size:
            raise InputError(
                f"process grid {dict(axes)}: {counted(math.prod(axes.values()), 'rank')}, the job has {comm.size}"
            )
        self.comm, self.place = comm, place
        self.axes = dict(axes)
        self.coordinate: dict[str, int] = {}
        rest = comm.rank
        # The last axis varies fastest, so its coordinate is the first remainder.
        for axis in reversed(self.axes):
            rest, self.coordinate[axis] = divmod(rest, self.axes[axis])
        self._groups: dict[tuple[str, ...], Communicator] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.axes.values())

    def index(self, axes: Iterable[str], coordinate: Mapping[str, int] | None = None) -> int:
        """Number of this rank, or of the rank at a coordinate, in its group along ``axes``."""
        # A number in mixed radix whose first axis counts most; groups are ordered by the same number.
        number, coordinate = 0, coordinate or self.coordinate
        for axis in axes:
            number = number * self.axes[axis] + coordinate[axis]
        return number

    def members(self, axes: tuple[str, ...]) -> list[dict[str, int]]:
        """Coordinates of the ranks in this rank's group along ``axes``, in the group's order."""
        # The product varies its last axis fastest, as the groups do.
        numbers = itertools.product(*(range(self.axes[axis]) for axis in axes))
        return [self.coordinate | dict(zip(axes, number, strict=True)) for number in numbers]

    def size(self, axes: Iterable[str]) -> int:
        """Number of ranks in a group along ``axes``."""
        # No axes give 1: a group of this rank alone.
        return math.prod(self.axes[axis] for axis in axes)

    def span(self, size: int, axes: Iterable[str], coordinate: Mapping[str, int] | None = None) -> Span:
        """The part of 0..size-1, split along ``axes``, that belongs to this rank or to the rank at a coordinate."""
        axes = tuple(axes)
        return split_range(size, self.size(axes), self.index(axes, coordinate))

    def sizes(self, size: int, axes: Iterable[str]) -> list[int]:
        """Lengths of the spans of all ranks in a group along ``axes``."""
        count = self.size(axes)
        return [stop - start for start, stop in (split_range(size, count, number) for number in range(count))]

    def sizes_along_last(self, size: int, axes: tuple[str, ...]) -> list[int]:
        """Like :meth:`sizes`, for the ranks that differ from this one along the last of ``axes`` only."""
        count = self.axes[axes[-1]]
        # Ranks that differ along the last axis only have consecutive numbers in the group.
        first = self.index(axes) - self.coordinate[axes[-1]]
        return self.sizes(size, axes)[first : first + count]

    def group(self, axes: tuple[str, ...]) -> Communicator:
        """The ranks that differ from this one along ``axes`` only. Collective on the first call with these axes."""
        if axes not in self._groups:
            # One split forms all groups along these axes: the color is the position along the other axes, and the key
            # orders the ranks of a group. Groups are kept, because a split is collective and communicators are limited.
            others = [axis for axis in self.axes if axis not in axes]
            self._groups[axes] = self.comm.group(self.index(others), self.index(axes), self.size(axes))
        return self._groups[axes]
