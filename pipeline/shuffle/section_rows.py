"""The rows of several runs within a range of positions, in one order: by position, and then by run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.runs import Section
from gnnloom.storage.kernels import copy_elements, kernel
from gnnloom.storage.matrix.ranges import Span


@dataclass(frozen=True)
class SectionRows:
    """Rows of some sections; each column is read when it is asked for.

    Attributes:
        columns: of the rows.
        sections: in the order in which rows of one position follow each other.
        positions: first and last (exclusive) position.
    """

    columns: tuple[Column, ...]
    sections: Sequence[Section]
    positions: Span

    @property
    def num_rows(self) -> int:
        return sum(section.num_rows for section in self.sections)

    @cached_property
    def _order(self) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        """Positions, ascending, and the place of each row of all sections; None if these follow each other."""
        found = np.concatenate([np.empty(0, np.int64), *(section.position() for section in self.sections)])
        if len(found) < 2 or (found[1:] >= found[:-1]).all():
            return found, None
        first, last = int(found.min()), int(found.max()) + 1
        # As of a permutation: counting takes no more memory than sorting, and less time.
        if last - first <= 2 * len(found):
            place = _counted_places(found, first, last)
        else:
            # Each section ascends, which a stable sort uses.
            order = np.argsort(found, kind="stable")
            place = np.empty_like(order)
            place[order] = np.arange(len(order))
        position = np.empty_like(found)
        position[place] = found
        return position, place

    @property
    def position(self) -> NDArray[np.int64]:
        """(num_rows,) int64, ascending."""
        return self._order[0]

    def column(self, name: str) -> NDArray[Any]:
        """The elements of a column, in the order of the rows; of a column of lengths, the lengths.

        Needs memory for the elements, two numbers for each row, and a few MiB.
        """
        column = next(each for each in self.columns if each.name == name)
        if len(self.sections) == 1:
            return self.sections[0].read(name)
        # Rows of one position are in their order already, and nothing has to be read to find it.
        place = None if self.positions[1] - self.positions[0] == 1 else self._order[1]
        if place is not None and column.lengths is not None:
            return self._ragged(column, column.lengths, place)
        extents = (section.run.extent(column.name, section.rows) for section in self.sections)
        rows, done = column.empty(sum(stop - start for start, stop in extents)), 0
        for section in self.sections:
            for block in section.blocks(name):
                stop = done + len(block)
                rows[slice(done, stop) if place is None else place[done:stop]] = block
                done = stop
        return rows

    def _ragged(self, column: Column, lengths: str, place: NDArray[np.int64]) -> NDArray[Any]:
        ends = np.cumsum(self.column(lengths))
        elements, done = column.empty(int(ends[-1])), 0
        begin = ends - self.column(lengths)
        out = elements.reshape(-1).view(np.uint8)
        for section in self.sections:
            own = section.read(column.name).reshape(-1).view(np.uint8)
            stop = done + section.num_rows
            place_elements(own, section.read(lengths), begin[place[done:stop]], column.num_bytes, out)
            done = stop
        return elements


def in_steps(
    columns: tuple[Column, ...], sections: Sequence[Section], first: int, last: int, most_bytes: int
) -> Iterator[tuple[int, SectionRows]]:
    """Cut the rows of several sections with positions from ``first`` to ``last`` into ranges that fit in memory.

    The sections hold the rows of the positions. Rows of one position are not cut.

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
        span = (first, first + step)
        first += step
        yield first, SectionRows(columns, [section for section in chosen if section.num_rows], span)
        if num_bytes < most_bytes // 2:
            step *= 2


@kernel
def _counted_places(position: NDArray[np.int64], first: int, last: int) -> NDArray[np.int64]:
    """The place of each row in a stable sort by position; positions are ``first`` to ``last`` (exclusive)."""
    start = np.zeros(last - first + 1, np.int64)
    for each in position:
        start[each - first + 1] += 1
    for at in range(1, len(start)):
        start[at] += start[at - 1]
    place = np.empty_like(position)
    for row in range(len(position)):
        at = position[row] - first
        place[row] = start[at]
        start[at] += 1
    return place


@kernel
def place_elements(
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
        copy_elements(elements[at : at + count], out[target : target + count])
        at += count
