"""The rows of several runs within a range of positions, in one order: by position, and then by run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.runs import Section


@dataclass(frozen=True)
class Gathered:
    """Rows of some sections; each column is read when it is asked for.

    Attributes:
        columns: of the rows.
        sections: in the order in which rows of one position follow each other.
    """

    columns: tuple[Column, ...]
    sections: Sequence[Section]

    @property
    def num_rows(self) -> int:
        return sum(section.num_rows for section in self.sections)

    @cached_property
    def _order(self) -> tuple[NDArray[np.int64], list[NDArray[np.int64]] | None]:
        """Positions, ascending, and the places of the rows of each section; None if the sections follow each other."""
        found = [section.position() for section in self.sections]
        position = np.concatenate([np.empty(0, np.int64), *found])
        if len(position) < 2 or (position[1:] >= position[:-1]).all():
            return position, None
        # Each section ascends, which a stable sort uses.
        order = np.argsort(position, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        ends = np.cumsum([len(each) for each in found])
        return position[order], np.split(place, ends[:-1])

    @property
    def position(self) -> NDArray[np.int64]:
        """(num_rows,) int64, ascending."""
        return self._order[0]

    def column(self, name: str) -> NDArray[Any]:
        """The elements of a column, in the order of the rows; of a column of lengths, the lengths."""
        column = next(each for each in self.columns if each.name == name)
        places = self._order[1]
        if len(self.sections) == 1:
            return self.sections[0].read(name)
        if places is None:
            return np.concatenate([column.empty(0), *(section.read(name) for section in self.sections)])
        if column.lengths is not None:
            return self._ragged(column, column.lengths, places)
        rows = column.empty(self.num_rows)
        for section, place in zip(self.sections, places, strict=True):
            rows[place] = section.read(name)
        return rows

    def _ragged(self, column: Column, lengths: str, places: Sequence[NDArray[np.int64]]) -> NDArray[Any]:
        ends = np.cumsum(self.column(lengths))
        elements = column.empty(int(ends[-1]))
        begin = ends - self.column(lengths)
        out = elements.reshape(-1).view(np.uint8)
        for section, place in zip(self.sections, places, strict=True):
            own = section.read(column.name).reshape(-1).view(np.uint8)
            _place(own, section.read(lengths), begin[place], column.num_bytes, out)
        return elements


def in_steps(
    columns: tuple[Column, ...], sections: Sequence[Section], first: int, last: int, most_bytes: int
) -> Iterator[tuple[int, Gathered]]:
    """Cut the rows of several sections with positions from ``first`` to ``last`` into ranges that fit in memory.

    The sections hold the rows of these positions. Rows of one position are not cut.

    Yields:
        The end of each range of positions, and its rows. They exceed ``most_bytes`` only if they have one position.
    """
    step = last - first
    while first < last:
        step = max(1, min(step, last - first))
        chosen = [section.run.section((first, first + step)) for section in sections]
        num_bytes = sum(section.num_bytes + 8 * section.num_rows for section in chosen)
        if num_bytes > most_bytes and step > 1:
            step //= 2
            continue
        first += step
        yield first, Gathered(columns, [section for section in chosen if section.num_rows])
        if num_bytes < most_bytes // 2:
            step *= 2


@njit(cache=True, nogil=True)
def _place(
    elements: NDArray[np.uint8],
    lengths: NDArray[np.int64],
    begin: NDArray[np.int64],
    width: int,
    out: NDArray[np.uint8],
) -> None:
    """Copy the elements of each row to the place where they begin; lengths and places count ``width`` bytes."""
    at = 0
    for row in range(len(lengths)):
        count = lengths[row] * width
        target = begin[row] * width
        out[target : target + count] = elements[at : at + count]
        at += count
