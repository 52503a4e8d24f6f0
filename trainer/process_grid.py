"""Ranks on a grid with named axes, and the groups of ranks along them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm import Communicator


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

    def group(self, axes: tuple[str, ...]) -> Communicator:
        """The ranks that differ from this one along ``axes`` only. Collective at the first call with these axes."""
        if axes not in self._groups:
            others = [axis for axis in self.axes if axis not in axes]
            self._groups[axes] = self.comm.group(self.index(others), self.index(axes))
        return self._groups[axes]
