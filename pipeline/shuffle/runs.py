"""Runs: rows sorted by position, as they lie in a lane.

A run holds, one after another:

    header   (4 + num_lengths,) int64  rows, keys, first position, form of the index, sum of each column of lengths
    key      (num_keys,) int64         positions, ascending; left out if they are consecutive
    offset   (num_keys + 1,) int64     first row of each key, and the number of rows; left out if every key has one row
    columns  the elements of each, in the order of the list

Keys are distinct if there are offsets. A column of lengths is stored as the ends of the rows' elements, so that two
reads find the elements of any rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import LaneWriter, OpenLane
from gnnloom.pipeline.shuffle.columns import Column, lengths_of
from gnnloom.storage.matrix.ranges import Span

#: Bits of the form of an index: whether it has keys, and offsets.
_KEYS, _OFFSETS = 1, 2
_HEADER_INTS = 4
#: Bytes that are read at a time, of a run's keys or columns.
BLOCK_BYTES: Final = 4 << 20


@dataclass(frozen=True)
class Index:
    """Location of the rows of each position.

    Attributes:
        num_rows: number of rows.
        first: first position; all are ``first`` or more.
        num_keys: number of ``keys``, or of consecutive positions.
        keys: (num_keys,) int64 positions, ascending; None if they are consecutive.
        offsets: (num_keys + 1,) int64 row at which each begins, and the number of rows; None if each has one row.
    """

    num_rows: int
    first: int
    num_keys: int
    keys: NDArray[np.int64] | None
    offsets: NDArray[np.int64] | None

    @classmethod
    def of_offsets(cls, offsets: NDArray[np.int64], first: int = 0) -> Index:
        """The index of rows where rows ``offsets[k]:offsets[k + 1]`` have position ``first + k``.

        Leaves out the positions without rows, if that takes fewer bytes.
        """
        num_keys = len(offsets) - 1
        filled = np.flatnonzero(np.diff(offsets))
        if 2 * len(filled) < num_keys:
            return cls(int(offsets[-1]), first, len(filled), first + filled, np.append(offsets[filled], offsets[-1]))
        return cls(int(offsets[-1]), first, num_keys, None, offsets)

    @classmethod
    def of_positions(cls, position: NDArray[np.int64]) -> Index:
        """The index of rows with these positions, which ascend."""
        num_rows = len(position)
        if not num_rows:
            return cls(0, 0, 0, None, None)
        is_first = np.empty(num_rows, np.bool_)
        is_first[0] = True
        np.not_equal(position[1:], position[:-1], out=is_first[1:])
        begin = np.flatnonzero(is_first)
        first, last = int(position[0]), int(position[-1])
        is_unique = len(begin) == num_rows
        if len(begin) == last - first + 1:
            return cls(num_rows, first, len(begin), None, None if is_unique else np.append(begin, num_rows))
        keys = position if is_unique else position[begin]
        return cls(num_rows, first, len(keys), keys, None if is_unique else np.append(begin, num_rows))


@dataclass(frozen=True)
class RunLayout:
    """Layout of a run: where its index and columns lie.

    Attributes:
        start: byte of the lane at which the run begins.
        totals: for each column of lengths, the sum of its lengths.
    """

    start: int
    num_rows: int
    num_keys: int
    first: int
    has_keys: bool
    has_offsets: bool
    columns: tuple[Column, ...]
    totals: tuple[int, ...]

    @property
    def header(self) -> NDArray[np.int64]:
        form = _KEYS * self.has_keys | _OFFSETS * self.has_offsets
        return np.array([self.num_rows, self.num_keys, self.first, form, *self.totals], np.int64)

    @classmethod
    def read(cls, lane: OpenLane, start: int, columns: tuple[Column, ...]) -> RunLayout:
        """Read the header of a run.

        Raises:
            DamagedWorkError: the lane is damaged.
        """
        header = np.empty(_HEADER_INTS + len(lengths_of(columns)), np.int64)
        lane.read(start, header)
        num_rows, num_keys, first, form, *totals = header.tolist()
        return cls(start, num_rows, num_keys, first, bool(form & _KEYS), bool(form & _OFFSETS), columns, tuple(totals))

    @property
    def keys_at(self) -> int:
        return self.start + 8 * (_HEADER_INTS + len(self.totals))

    @property
    def offsets_at(self) -> int:
        return self.keys_at + (8 * self.num_keys if self.has_keys else 0)

    @cached_property
    def places(self) -> dict[str, int]:
        """Byte of the lane at which each column begins."""
        at, places = self.offsets_at + (8 * (self.num_keys + 1) if self.has_offsets else 0), {}
        for column in self.columns:
            places[column.name] = at
            at += column.num_bytes * self.count(column)
        places[""] = at
        return places

    @property
    def stop(self) -> int:
        """Byte of the lane after the run."""
        return self.places[""]

    def count(self, column: Column) -> int:
        """Elements of a column."""
        if column.lengths is None:
            return self.num_rows
        return self.totals[lengths_of(self.columns).index(column.lengths)]


class RunWriter:
    """Writes one run, the elements of each column in any number of steps."""

    def __init__(self, lane: LaneWriter, layout: RunLayout) -> None:
        self._lane, self.layout = lane, layout
        self._columns = {column.name: column for column in layout.columns}
        self._lengths = lengths_of(layout.columns)
        self._at = dict(layout.places)
        self._ends = dict.fromkeys(self._lengths, 0)
        self._keys_at, self._offsets_at = layout.keys_at, layout.offsets_at
        lane.write(layout.start, layout.header)

    def put_index(self, keys: NDArray[np.int64] | None, offsets: NDArray[np.int64] | None) -> None:
        """Write the next keys and offsets, as far as the layout has them."""
        if self.layout.has_keys and keys is not None:
            self._keys_at = self._lane.write(self._keys_at, np.ascontiguousarray(keys, np.int64))
        if self.layout.has_offsets and offsets is not None:
            self._offsets_at = self._lane.write(self._offsets_at, np.ascontiguousarray(offsets, np.int64))

    def put(self, name: str, elements: NDArray[Any]) -> None:
        """Write the next elements of a column; lengths as such."""
        if name in self._ends:
            elements = self._ends[name] + np.cumsum(elements, dtype=np.int64)
            self._ends[name] = int(elements[-1]) if len(elements) else self._ends[name]
        self._at[name] = self._lane.write(self._at[name], np.ascontiguousarray(elements, self._columns[name].dtype))


class SortedRun:
    """A run in an open lane."""

    def __init__(self, lane: OpenLane, start: int, columns: tuple[Column, ...]) -> None:
        """Read the header.

        Raises:
            DamagedWorkError: the lane is damaged.
        """
        self.lane = lane
        self.layout = RunLayout.read(lane, start, columns)
        self.columns = {column.name: column for column in columns}
        self._lengths = frozenset(lengths_of(columns))

    def section(self, positions: Span) -> Section:
        """The rows with a position in a range."""
        first, last = (self._key(position) for position in positions)
        if not self.layout.has_offsets:
            return Section(self, first, last, (first, last))
        # One read of both if they are close to each other.
        if last - first < BLOCK_BYTES // 8:
            offsets = self._read_index(self.layout.offsets_at, first, last + 1)
            return Section(self, first, last, (int(offsets[0]), int(offsets[-1])))
        rows = (int(self._read_index(self.layout.offsets_at, at, at + 1)[0]) for at in (first, last))
        return Section(self, first, last, (next(rows), next(rows)))

    def _key(self, position: int) -> int:
        """Number of keys below a position."""
        if not self.layout.has_keys:
            return min(max(0, position - self.layout.first), self.layout.num_keys)
        low, high = 0, self.layout.num_keys
        # Halving until one block is left: a few reads of a block each.
        while high - low > BLOCK_BYTES // 64:
            middle = (low + high) // 2
            if int(self._read_index(self.layout.keys_at, middle, middle + 1)[0]) < position:
                low = middle + 1
            else:
                high = middle
        return low + int(np.searchsorted(self._read_index(self.layout.keys_at, low, high), position))

    def keys(self, first: int, last: int) -> NDArray[np.int64]:
        """Positions of keys ``first`` to ``last``."""
        if not self.layout.has_keys:
            return np.arange(self.layout.first + first, self.layout.first + last, dtype=np.int64)
        return self._read_index(self.layout.keys_at, first, last)

    def offsets(self, first: int, last: int) -> NDArray[np.int64]:
        """(last - first + 1,) first row of keys ``first`` to ``last``, and of the key after them."""
        if not self.layout.has_offsets:
            return np.arange(first, last + 1, dtype=np.int64)
        return self._read_index(self.layout.offsets_at, first, last + 1)

    def _read_index(self, at: int, start: int, stop: int) -> NDArray[np.int64]:
        found = np.empty(stop - start, np.int64)
        self.lane.read(at + 8 * start, found)
        return found

    def extent(self, name: str, rows: Span) -> Span:
        """First and last (exclusive) element of some rows in a column."""
        lengths = self.columns[name].lengths
        if lengths is None:
            return rows
        first = self._elements(lengths, (rows[0] - 1, rows[0]))[0] if rows[0] else 0
        last = self._elements(lengths, (rows[1] - 1, rows[1]))[0] if rows[1] else 0
        return int(first), int(last)

    def read(self, name: str, rows: Span) -> NDArray[Any]:
        """The elements of some rows in a column; of a column of lengths, the lengths."""
        if name not in self._lengths:
            return self._elements(name, self.extent(name, rows))
        before = max(0, rows[0] - 1)
        ends = self._elements(name, (before, rows[1]))
        return np.diff(ends) if rows[0] else np.diff(ends, prepend=0)

    def read_all(self, name: str) -> NDArray[Any]:
        """The elements of all rows in a column."""
        return self.read(name, (0, self.layout.num_rows))

    def _elements(self, name: str, span: Span) -> NDArray[Any]:
        column = self.columns[name]
        elements = column.empty(span[1] - span[0])
        self.lane.read(self.layout.places[name] + column.num_bytes * span[0], elements)
        return elements

    def blocks(self, name: str, rows: Span) -> Iterator[NDArray[Any]]:
        """Rows like :meth:`read`, in pieces of a few MiB; lengths in one piece."""
        if name in self._lengths:
            yield self.read(name, rows)
            return
        first, last = self.extent(name, rows)
        step = max(1, BLOCK_BYTES // max(1, self.columns[name].num_bytes))
        for start in range(first, last, step):
            yield self._elements(name, (start, min(start + step, last)))


@dataclass(frozen=True)
class Section:
    """Rows of a run with positions in a range.

    Attributes:
        first_key, last_key: the keys.
        rows: first and last (exclusive) row.
    """

    run: SortedRun
    first_key: int
    last_key: int
    rows: Span

    @property
    def num_rows(self) -> int:
        return self.rows[1] - self.rows[0]

    @property
    def num_bytes(self) -> int:
        """Bytes of the columns."""
        total = 0
        for column in self.run.layout.columns:
            first, last = self.run.extent(column.name, self.rows)
            total += column.num_bytes * (last - first)
        return total

    def position(self) -> NDArray[np.int64]:
        """(num_rows,) int64 position of each row."""
        keys = self.run.keys(self.first_key, self.last_key)
        if not self.run.layout.has_offsets:
            return keys
        return np.repeat(keys, np.diff(self.run.offsets(self.first_key, self.last_key)))

    def read(self, name: str) -> NDArray[Any]:
        """All elements of a column."""
        return self.run.read(name, self.rows)

    def blocks(self, name: str) -> Iterator[NDArray[Any]]:
        """The same, in steps of a few MiB."""
        return self.run.blocks(name, self.rows)

    def place(self, name: str) -> tuple[OpenLane, int]:
        """The lane, and the byte at which the elements of the section begin, of a column that is not ragged."""
        return self.run.lane, self.run.layout.places[name] + self.run.columns[name].num_bytes * self.rows[0]
