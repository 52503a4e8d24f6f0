"""The rows of a range in the order of their local numbers, and their entries: with columns of the rank, and of others.

A range is as large as a task can hold. Where its rows have more entries than that, which the transpose of a directed
graph may have, they are read some rows at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.external_sort.radix import sort_keys
from gnnloom.pipeline.shards.relation_entries import INDICES
from gnnloom.pipeline.shards.rows.row_routed import DATA, RoutedMatrix, RoutedRank, gather_ranges
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.distinct import distinct
from gnnloom.storage.matrix.ranges import Span


class RowBatch(NamedTuple):
    """Some rows of a range, in the order of their local numbers.

    Attributes:
        begin, length: (num_rows,) int64 where the entries of each row begin, and how many it has.
        indices: (nnz,) global column ids, ascending within a row.
        data: (nnz,) values, or positions of the entries in the batch if edges have columns; empty for a pattern.
        is_in_order: whether the entries of each row come directly after the entries of the row before.
    """

    begin: NDArray[np.int64]
    length: NDArray[np.int64]
    indices: NDArray[Any]
    data: NDArray[Any]
    is_in_order: bool


class SplitRows(NamedTuple):
    """The entries of some rows in one of the two matrices of a rank.

    Attributes:
        end: (num_rows,) int64 number of entries up to each row.
        column: (count,) local columns, or slots, ascending within a row.
        data: (count,) values, or positions of the entries in the batch; empty for a pattern.
    """

    end: NDArray[np.int64]
    column: NDArray[Any]
    data: NDArray[Any]

    def first(self, count: int) -> SplitRows:
        """The same rows, cut to the first ``count`` entries."""
        return self._replace(column=self.column[:count], data=self.data[:count])


class RankColumns:
    """The columns that a rank owns, and the numbers of all columns; maps these once for all rows of a range.

    If the vertices of the rank have consecutive ids, and local numbers in the same order, its columns are those between
    two ids, and nothing is looked up: in a graph that exceeds the cache, nearly every look-up waits for memory.
    """

    def __init__(self, task: RoutedRank, row: NDArray[np.int64]) -> None:
        """Map the numbers.

        Args:
            row: (num_rows,) int64 ids of some vertices of the rank.
        """
        numbers = task.numbers
        self._slots, self._dtype = task.slots, numbers.dtype
        self.by_number = numbers.by_number
        self._by_id = numbers.by_id if numbers.is_reordered else self.by_number
        self._is_reordered = numbers.is_reordered
        #: First and last (exclusive) id of the vertices of the rank; None if these are not consecutive.
        self._ids = None if numbers.is_reordered or not len(row) else self._consecutive(int(row[0]))

    def _consecutive(self, vertex: int) -> Span | None:
        """First and last (exclusive) id of the vertices of the rank that has ``vertex``, if the ids are consecutive."""
        first = vertex - (int(self._by_id[vertex]) - self._slots[0])
        last = first + self._slots[1] - self._slots[0]
        if first < 0 or last > len(self._by_id):
            return None
        # Slots ascend with the ids of a rank. So if these two are its first and its last vertex, the others lie between
        # them, and there is room for no more.
        ends = (int(self._by_id[first]), int(self._by_id[last - 1]) + 1)
        return (first, last) if ends == self._slots else None

    @property
    def _owns_all(self) -> bool:
        """Whether this rank has all vertices, and their ids are their local numbers."""
        return self._ids == (0, len(self._by_id))

    def foreign(self, columns: NDArray[Any]) -> NDArray[Any]:
        """(num_foreign,) the columns that other ranks own, of some columns."""
        if self._owns_all:
            return columns[:0]
        foreign = np.empty_like(columns)
        if self._ids is None:
            count = _select_foreign(columns, self.by_number, *self._slots, foreign)
        else:
            count = _select_outside(columns, *self._ids, foreign)
        return foreign[:count]

    def split(self, batch: RowBatch, rows: Span) -> tuple[SplitRows, SplitRows]:
        """Split some rows of a batch.

        Args:
            rows: first and last (exclusive) row.

        Returns:
            The entries with columns of the rank, by local number, and those with columns of others, by slot in the
            order of their ids. The arrays are valid while the batch is.
        """
        begin, length = (each[slice(*rows)] for each in (batch.begin, batch.length))
        some, count = batch._replace(begin=begin, length=length), int(length.sum())
        if self._owns_all and batch.is_in_order:
            entries = slice(int(begin[0]), int(begin[0]) + count) if len(begin) else slice(0)
            none = SplitRows(np.zeros(len(begin), np.int64), batch.indices[:0], batch.data[:0])
            return SplitRows(np.cumsum(length), batch.indices[entries], batch.data[entries]), none
        own, halo = self._room(some, count), self._room(some, count)
        if self._ids is None:
            num_own = _split(some, self.by_number, self._by_id, *self._slots, own, halo)
        else:
            num_own = _split_outside(some, self._by_id, *self._ids, own, halo)
        own, halo = own.first(num_own), halo.first(count - num_own)
        # Ids ascend in a row. Local numbers do unless they follow the degree, and halos follow the owners.
        if self._is_reordered:
            _sort_rows(own, self._slots[1] - self._slots[0])
        _sort_rows(halo, len(self._by_id))
        return own, halo

    def whole(self, batch: RowBatch, rows: Span) -> SplitRows:
        """All entries of some rows of a batch, by global column id; the arrays are valid while the batch is.

        Args:
            rows: first and last (exclusive) row.
        """
        begin, length = (each[slice(*rows)] for each in (batch.begin, batch.length))
        count, end = int(length.sum()), np.cumsum(length)
        if batch.is_in_order:
            entries = slice(int(begin[0]), int(begin[0]) + count) if len(begin) else slice(0)
            return SplitRows(end, batch.indices[entries], batch.data[entries])
        indices, data = (
            gather_ranges(each, begin, length, count) if len(each) else each for each in (batch.indices, batch.data)
        )
        return SplitRows(end, indices, data)

    def _room(self, rows: RowBatch, count: int) -> SplitRows:
        """Arrays for the entries of some rows, which a kernel fills."""
        data = np.empty(count if len(rows.data) else 0, rows.data.dtype)
        return SplitRows(np.empty(len(rows.begin), np.int64), np.empty(count, self._dtype), data)


class RangeRows:
    """The rows of one range of a rank, as they were routed.

    Attributes:
        order: (num_rows,) int64 which of the routed rows is next by local number; None if they ascend.
        columns: of the rank.
    """

    def __init__(self, task: RoutedRank, files: OpenFiles, matrix: RoutedMatrix, position: int) -> None:
        """Read which rows there are, and how many entries they have.

        Args:
            files: files of the work folder, which stay open while the rows are read.
            position: of the range.
        """
        self._matrix, self._steps = matrix, task.steps
        #: First and last (exclusive) vertex of the columns, if every rank holds their rows.
        self.replicated = matrix.replicated
        self._sections = matrix.rows.rows(task.writer.work, files).sections(position, position + 1)
        empty = np.empty(0, np.int64)
        self._row = np.concatenate([empty, *(each.read("row") for each in self._sections)])
        self._nonzeros = np.concatenate([empty, *(each.read("nonzeros") for each in self._sections)])
        self.columns = RankColumns(task, self._row)
        slot = self.columns.by_number[self._row]
        self.order = None if (slot[1:] > slot[:-1]).all() else np.argsort(slot)
        self._whole: RowBatch | None = None
        #: Routed rows of the batch that was read last; None for all.
        self._chosen: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self._row)

    @property
    def num_nonzeros(self) -> int:
        return int(self._nonzeros.sum())

    @property
    def vertex(self) -> NDArray[np.int64]:
        """(num_rows,) int64 global ids by local number."""
        return self._row if self.order is None else self._row[self.order]

    def batches(self) -> Iterator[RowBatch]:
        """All rows, in one batch if it fits ``RowSteps.batch_bytes``; that batch is kept."""
        columns = (column for column in self._matrix.rows.columns if column.lengths is not None)
        most = self._steps.batch_bytes // sum(column.num_bytes for column in columns)
        if self._whole is None and self.num_nonzeros <= most:
            self._whole = self._read_whole()
        if self._whole is not None:
            yield self._whole
            return
        order = np.arange(len(self)) if self.order is None else self.order
        for start, stop in row_spans(self._nonzeros[order], most):
            self._chosen = order[start:stop]
            yield self._gather(self._chosen)

    def values(self, name: str) -> NDArray[Any]:
        """(nnz, ...) values of a column of edges, in the order of the entries of the batch that was read last."""
        return self._column(name) if self._chosen is None else self._gathered(name, self._chosen)

    def _read_whole(self) -> RowBatch:
        begin, length = np.cumsum(self._nonzeros) - self._nonzeros, self._nonzeros
        if self.order is not None:
            begin, length = begin[self.order], length[self.order]
        return RowBatch(begin, length, self._column(INDICES), self._data(None), self.order is None)

    def _data(self, chosen: NDArray[np.int64] | None) -> NDArray[Any]:
        """Values of the entries of a batch, or their positions if edges have columns.

        Args:
            chosen: (num_chosen,) int64 numbers of the routed rows of the batch; None for all.
        """
        if self._matrix.edge_columns:
            return np.arange(int((self._nonzeros if chosen is None else self._nonzeros[chosen]).sum()))
        if self._matrix.data_dtype is None:
            return np.empty(0, np.float32)
        return self._column(DATA) if chosen is None else self._gathered(DATA, chosen)

    def _column(self, name: str) -> NDArray[Any]:
        elements, done = self._empty(name, self.num_nonzeros), 0
        for section in self._sections:
            for block in section.blocks(name):
                elements[done : done + len(block)] = block
                done += len(block)
        return elements

    def _empty(self, name: str, count: int) -> NDArray[Any]:
        """Room for the elements of a column."""
        return next(column for column in self._matrix.rows.columns if column.name == name).empty(count)

    def _gather(self, chosen: NDArray[np.int64]) -> RowBatch:
        """Read some rows.

        Args:
            chosen: (num_chosen,) int64 numbers of routed rows.
        """
        length = self._nonzeros[chosen]
        begin = np.cumsum(length) - length
        return RowBatch(begin, length, self._gathered(INDICES, chosen), self._data(chosen), is_in_order=True)

    def _gathered(self, name: str, chosen: NDArray[np.int64]) -> NDArray[Any]:
        """Read a column of some rows; for the argument see :meth:`_gather`."""
        length = self._nonzeros[chosen]
        target = np.full(len(self), -1)
        target[chosen] = np.cumsum(length) - length
        found = self._empty(name, int(length.sum()))
        if len(found):
            self._fill(name, target, found)
        return found

    def _fill(self, name: str, target: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Read the elements of the rows with a target, and those between them, to where they belong."""
        before = 0
        for section in self._sections:
            wanted = np.flatnonzero(target[before : before + section.num_rows] >= 0)
            if len(wanted):
                first, last = before + int(wanted[0]), before + int(wanted[-1]) + 1
                for start, stop in row_spans(self._nonzeros[first:last], self._steps.segment_nonzeros):
                    rows = slice(first + start, first + stop)
                    at = section.rows[0] - before
                    elements = section.run.read(name, (at + rows.start, at + rows.stop))
                    place_rows(elements, self._nonzeros[rows], target[rows], out)
            before += section.num_rows


def row_spans(nonzeros: NDArray[np.int64], most: int) -> Iterator[Span]:
    """Cut rows into ranges of at most ``most`` nonzeros, or a single row.

    Args:
        nonzeros: (num_rows,) int64 nonzeros of each row.
    """
    end = np.cumsum(nonzeros)
    start = before = 0
    while start < len(end):
        stop = max(start + 1, int(np.searchsorted(end, before + most, side="right")))
        yield start, stop
        start, before = stop, int(end[stop - 1])


@kernel
def place_rows(
    elements: NDArray[Any], nonzeros: NDArray[np.int64], target: NDArray[np.int64], out: NDArray[Any]
) -> None:
    """Copy the elements of rows that follow each other to where each begins in ``out``; leave out rows at -1.

    Args:
        nonzeros: (num_rows,) int64 elements of each row.
        target: (num_rows,) int64 where each row begins.
    """
    at = 0
    for row in range(len(nonzeros)):
        if target[row] >= 0:
            for k in range(nonzeros[row]):
                out[target[row] + k] = elements[at + k]
        at += nonzeros[row]


def foreign_columns(
    matrices: Sequence[RangeRows], task: RoutedRank, nonzeros: list[int], most: int = sys.maxsize
) -> Iterator[NDArray[Any]]:
    """List the columns of some matrices that other ranks own, in one list by default.

    Args:
        matrices: rows of the same range in each matrix.
        nonzeros: gets the number of nonzeros with such columns, for each matrix.
        most: columns of a list, about; those in several lists are repeated.

    Yields:
        (num_columns,) distinct ids, ascending.
    """
    nonzeros[:] = [0] * len(matrices)
    merged = empty = np.empty(0, index_dtype(task.numbers.num_vertices))
    # Nothing is foreign to a rank that owns all vertices.
    if task.num_own == task.numbers.num_vertices:
        yield empty
        return
    waiting: list[NDArray[Any]] = []
    waited = ((k, rows) for k, rows in enumerate(matrices) if rows.replicated is None)
    of_all = ((k, rows, batch) for k, rows in waited for batch in rows.batches())
    for number, matrix, batch in of_all:
        for start in range(0, len(batch.indices), task.steps.segment_nonzeros):
            foreign = matrix.columns.foreign(batch.indices[start : start + task.steps.segment_nonzeros])
            nonzeros[number] += len(foreign)
            # Rows share many columns; dropping repeats at once keeps the list short.
            waiting.append(distinct(foreign, overwrite=True))
            # Merging only when the waiting ids are as numerous as the merged ids sorts each id a few times at most.
            if sum(map(len, waiting)) > max(task.steps.pending_ids, len(merged)):
                merged, waiting = distinct(np.concatenate([merged, *waiting]), overwrite=True), []
                if len(merged) > most:
                    yield merged
                    merged = empty
    yield distinct(np.concatenate([merged, *waiting]), overwrite=True)


@kernel
def _select_foreign(columns: NDArray[Any], slot: NDArray[Any], first: int, stop: int, foreign: NDArray[Any]) -> int:
    """List the columns whose slots are not in a range; returns how many."""
    count = 0
    for column in columns:
        # Written in any case, and kept if it counts: no branch has to be predicted.
        foreign[count] = column
        count += not first <= slot[column] < stop
    return count


@kernel
def _select_outside(columns: NDArray[Any], first: int, stop: int, foreign: NDArray[Any]) -> int:
    """List the columns that are not in a range; returns how many."""
    count = 0
    for column in columns:
        foreign[count] = column
        count += not first <= column < stop
    return count


# The arrays are taken from their tuples once: in the loops, each would be counted as one more reference.
@kernel
def _split(
    given: RowBatch,
    by_number: NDArray[Any],
    by_id: NDArray[Any],
    first: int,
    stop: int,
    own: SplitRows,
    halo: SplitRows,
) -> int:
    """Split rows by the slots of the columns; returns the number of entries of the rank, whose slots are a range."""
    begin, length, indices, data, _ = given
    (own_end, own_column, own_data), (halo_end, halo_column, halo_data) = own, halo
    num_own = num_halo = 0
    has_data = len(data) > 0
    for row in range(len(begin)):
        for k in range(begin[row], begin[row] + length[row]):
            column = indices[k]
            slot = by_number[column]
            if first <= slot < stop:
                own_column[num_own] = slot - first
                if has_data:
                    own_data[num_own] = data[k]
                num_own += 1
            else:
                halo_column[num_halo] = by_id[column]
                if has_data:
                    halo_data[num_halo] = data[k]
                num_halo += 1
        own_end[row] = num_own
        halo_end[row] = num_halo
    return num_own


@kernel
def _split_outside(given: RowBatch, by_id: NDArray[Any], first: int, stop: int, own: SplitRows, halo: SplitRows) -> int:
    """The same as :func:`_split` of a rank whose vertices are ``first`` to ``stop`` (exclusive)."""
    begin, length, indices, data, _ = given
    (own_end, own_column, own_data), (halo_end, halo_column, halo_data) = own, halo
    num_own = num_halo = 0
    has_data = len(data) > 0
    for row in range(len(begin)):
        k, last = begin[row], begin[row] + length[row]
        # Columns ascend, so columns of other ranks come before and after the columns of this one.
        for is_after in (False, True):
            while k < last and (is_after or indices[k] < first):
                halo_column[num_halo] = by_id[indices[k]]
                if has_data:
                    halo_data[num_halo] = data[k]
                num_halo += 1
                k += 1
            while k < last and indices[k] < stop:
                own_column[num_own] = indices[k] - first
                if has_data:
                    own_data[num_own] = data[k]
                num_own += 1
                k += 1
        own_end[row] = num_own
        halo_end[row] = num_halo
    return num_own


def _sort_rows(rows: SplitRows, num_columns: int) -> None:
    """Sort the entries of each row by column, which differ; columns are less than ``num_columns``."""
    if _are_sorted(rows.end, rows.column):
        return
    # All rows at once, digit by digit: an entry takes the same time in rows of any length.
    bits = (num_columns - 1).bit_length()
    keys = np.empty(len(rows.column), np.uint64)
    num_rows = _make_keys(rows.end, rows.column, bits, keys)
    sort_keys(keys, rows.data, np.empty_like(keys), np.empty_like(rows.data), bits + num_rows.bit_length())
    _take_columns(keys, bits, rows.column)


@kernel
def _are_sorted(end: NDArray[np.int64], column: NDArray[Any]) -> bool:
    begin = 0
    for stop in end:
        for k in range(begin + 1, stop):
            if column[k] < column[k - 1]:
                return False
        begin = stop
    return True


@kernel
def _make_keys(end: NDArray[np.int64], column: NDArray[Any], bits: int, keys: NDArray[np.uint64]) -> int:
    """Join each column, in the lowest ``bits`` bits, with the number of its row above them; returns the rows."""
    begin = num_rows = 0
    for stop in end:
        for k in range(begin, stop):
            keys[k] = (np.uint64(num_rows) << np.uint64(bits)) | np.uint64(column[k])
        # Only rows with entries count, so that the number has few bits.
        num_rows += begin < stop
        begin = stop
    return num_rows


@kernel
def _take_columns(keys: NDArray[np.uint64], bits: int, column: NDArray[Any]) -> None:
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    for k in range(keys.size):
        column[k] = keys[k] & mask


class Places:
    """Finds the places of numbers in an ascending list, many at a time.

    The list is cut into ranges of equal width, one for every four of its numbers or more, and where each range begins
    is in a table. A binary search in all of the list would miss the caches again and again; a table of all numbers
    would grow with n.
    """

    def __init__(self, ascending: NDArray[Any], num_ranges: int) -> None:
        """Make the table.

        Args:
            ascending: (num_listed,) distinct numbers.
            num_ranges: maximum number of ranges of the table.
        """
        self._ascending = ascending
        self._first, last = (int(ascending[0]), int(ascending[-1])) if len(ascending) else (0, 0)
        width = max(4 * (last - self._first + 1) // max(1, len(ascending)), (last - self._first) // num_ranges)
        self._shift = max(0, width.bit_length() - 1)
        count = ((last - self._first) >> self._shift) + 1
        bounds = self._first + (np.arange(count + 1, dtype=np.int64) << self._shift)
        # Of the type of the list, which NumPy would otherwise copy.
        bounds = np.minimum(bounds, np.iinfo(ascending.dtype).max).astype(ascending.dtype)
        self._start = np.searchsorted(ascending, bounds)

    def of(self, numbers: NDArray[Any]) -> NDArray[np.int64]:
        """(count,) int64 positions of numbers in the list; every number must be in the list."""
        found = np.empty(len(numbers), np.int64)
        _find_places(self._ascending, self._first, self._shift, self._start, numbers, found)
        return found


@kernel
def _find_places(
    ascending: NDArray[Any],
    first: int,
    shift: int,
    start: NDArray[np.int64],
    numbers: NDArray[Any],
    found: NDArray[np.int64],
) -> None:
    for k in range(numbers.size):
        number = np.int64(numbers[k])
        place = (number - first) >> shift
        low, high = start[place], start[place + 1]
        # Numbers may lie densely in a few ranges.
        while high - low > 8:
            middle = (low + high) // 2
            if ascending[middle] <= number:
                low = middle
            else:
                high = middle
        while ascending[low] < number:
            low += 1
        found[k] = low
