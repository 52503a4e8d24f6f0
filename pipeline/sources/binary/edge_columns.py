"""Columns of edges in NumPy files: sources, targets and weights, each read as a separate stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray
from gnnloom.pipeline.sources.names import HINT, Names
from gnnloom.pipeline.sources.parsers.numerals import INEXACT_TIME
from gnnloom.pipeline.sources.reading.name_ids import RowError, numbers_of
from gnnloom.pipeline.sources.source import CHUNK_EDGES
from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.ticks import MOST_TICKS, WHOLE, floats_of_ticks, have_floats

#: Number of ``indptr`` entries expanded at a time.
_ROWS = 1 << 18


@dataclass(frozen=True)
class IdColumn(ABC):
    """The ids of one end of every edge.

    Attributes:
        array: the array that the ids are read from.
    """

    array: StoredArray

    @abstractmethod
    def read(self, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """Read the ids of edges ``start`` to ``stop``.

        Yields:
            (CHUNK_EDGES,) int64; the last block may be shorter.

        Raises:
            InputError: an id is not a number from 0 to 2^63 - 1.
        """

    def read_any(self, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """Like :meth:`read`, but with the stored dtype, which may be text."""
        return self.read(start, stop)


@dataclass(frozen=True)
class FlatColumn(IdColumn):
    """Ids at elements ``first``, ``first + step``, ... of an array."""

    first: int = 0
    step: int = 1

    def read(self, start: int, stop: int) -> Iterator[NDArray[Any]]:
        for number, block in enumerate(self.read_any(start, stop)):
            yield checked_ids(block, edge_error(self.array, start + number * CHUNK_EDGES))

    def read_any(self, start: int, stop: int) -> Iterator[NDArray[Any]]:
        last = self.first + (stop - 1) * self.step
        blocks = self.array.read_flat(self.first + start * self.step, last + 1, CHUNK_EDGES * self.step)
        return (block[:: self.step] for block in blocks)


def edge_error(array: StoredArray, first: int) -> RowError:
    """The errors of a block of an array that begins with edge ``first``."""
    return lambda row, reason: InputError(f"{array}, edge {first + row:,}: {reason}")


def checked_ids(ids: NDArray[Any], error: RowError) -> NDArray[np.int64]:
    """(num_ids,) integers, or text of integers, as ids.

    Raises:
        InputError: one is not a number from 0 to 2^63 - 1.
    """
    if ids.dtype.kind in "USO":
        return numbers_of(Names.of_values(ids), error)
    if ids.dtype.kind == "i" and (low := int(ids.min(initial=0))) < 0:
        raise error(int(np.argmin(ids)), f"expected a vertex id, found {low}{HINT}")
    # Checked before the cast, which would make it negative. Signed integers have no such numbers.
    if ids.dtype.kind == "u" and (high := int(ids.max(initial=0))) > np.iinfo(np.int64).max:
        raise error(int(np.argmax(ids)), f"expected a vertex id below 2^63, found {high}{HINT}")
    return np.ascontiguousarray(ids, np.int64)


def checked_weights(given: NDArray[Any], error: RowError) -> NDArray[np.float32]:
    """(num_edges,) numbers as weights.

    Raises:
        InputError: one is NaN or does not fit into float32.
    """
    # A value beyond float32 becomes infinite, which the check below reports with its row.
    with np.errstate(over="ignore"):
        weights = given.astype(np.float32)
    finite = np.isfinite(weights)
    if not finite.all():
        row = int(np.argmin(finite))
        raise error(row, f"expected a finite float32 weight, found {given[row]}")
    return weights


def checked_times(given: NDArray[Any], error: RowError, unit: str = "") -> NDArray[np.float64]:
    """(num_edges,) numbers as times.

    Args:
        unit: unit of stored dates or whole numbers, whose floats come from :func:`floats_of_ticks`.

    Raises:
        InputError: one is NaN or infinite, an integer that float64 does not have, a missing date, or one that the unit
            cannot count.
    """
    if unit == WHOLE:
        return _whole_times(given, error)
    if given.dtype.kind == "M":
        ticks = given.astype(f"M8[{unit}]").astype(np.int64)
        wrong = np.isnat(given) | (ticks.view(f"M8[{unit}]").astype(given.dtype) != given) | (abs(ticks) > MOST_TICKS)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise error(row, f"expected a time that {unit} since 1970 can count, found {given[row]}")
        return floats_of_ticks(ticks)
    times = given.astype(np.float64)
    exact = have_floats(given) if given.dtype.kind in "iu" else np.isfinite(times)
    if not exact.all():
        row = int(np.argmin(exact))
        raise error(row, f"{INEXACT_TIME}, found {given[row]}")
    return times


def _whole_times(given: NDArray[Any], error: RowError) -> NDArray[np.float64]:
    """(num_edges,) whole numbers as times, as floats of :func:`floats_of_ticks`.

    Raises:
        InputError: one is not a whole number, or too large.
    """
    if given.dtype.kind in "iu":
        # Compared with limits: the least int64 has no absolute value.
        lowest, highest = (
            max(-MOST_TICKS, int(np.iinfo(given.dtype).min)),
            min(MOST_TICKS, int(np.iinfo(given.dtype).max)),
        )
        right = (given >= lowest) & (given <= highest)
    else:
        right = (np.abs(given) <= float(1 << 53)) & (np.floor(given) == given)
    if not right.all():
        row = int(np.argmin(right))
        raise error(row, f"expected a whole number up to {MOST_TICKS:,}, as the first times are, found {given[row]}")
    return floats_of_ticks(given.astype(np.int64))


@dataclass(frozen=True)
class MajorColumn(IdColumn):
    """Rows of a CSR matrix, or columns of a CSC one, for each stored entry, computed from ``indptr``."""

    num_entries: int

    def read(self, start: int, stop: int) -> Iterator[NDArray[Any]]:
        return rebatch(self._expanded(start, stop), CHUNK_EDGES)

    def _expanded(self, start: int, stop: int) -> Iterator[NDArray[np.int64]]:
        found = 0
        for row, offsets in self._offsets(start):
            rows = np.arange(row, row + len(offsets) - 1)
            for low in range(max(start, int(offsets[0])), min(stop, int(offsets[-1])), CHUNK_EDGES):
                high = min(low + CHUNK_EDGES, stop)
                # Clipping gives the rows outside of the chunk a length of 0 and cuts those at its ends.
                yield np.repeat(rows, np.diff(np.clip(offsets, low, high)).astype(np.int64))
                found += min(high, int(offsets[-1])) - low
            # The first range reads on, to check all offsets.
            if start and int(offsets[-1]) >= stop:
                break
        if found != stop - start:
            raise InputError(f"{self.array}: the offsets near entry {start:,} do not ascend from 0")

    def _offsets(self, start: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield the first row and the checked offsets of consecutive groups of rows, from the row of an entry on."""
        first = self._row_of(start)
        row, before = first, np.zeros(0, np.int64)
        for block in self.array.read_flat(first, self.array.size, _ROWS):
            offsets = np.concatenate([before, block.astype(np.int64)])
            if np.any(np.diff(offsets) < 0) or (row == 0 and not len(before) and offsets[0] != 0):
                raise InputError(f"{self.array}: the offsets near row {row:,} do not ascend from 0")
            yield row, offsets
            # The last offset of a block is the start of a row that ends in the next block.
            row, before = row + len(offsets) - 1, offsets[-1:]
        if not len(before) or before[0] != self.num_entries:
            found = before[0] if len(before) else "nothing"
            raise InputError(f"{self.array}: ends with {found}, expected the {self.num_entries:,} entries of indices")

    def _row_of(self, start: int) -> int:
        """The row of an entry, found by halving if the offsets can be read anywhere; otherwise 0."""
        if not start or not self.array.is_mapped:
            return 0
        low, high = 0, self.array.size - 1
        while low < high:
            middle = (low + high + 1) // 2
            offset = next(self.array.read_flat(middle, middle + 1))[0]
            low, high = (middle, high) if int(offset) <= start else (low, middle - 1)
        return low


def checked_values(given: NDArray[Any], error: RowError, *, times: bool, unit: str = "") -> NDArray[Any]:
    """(num_edges,) numbers as times or weights; raises as :func:`checked_times` and :func:`checked_weights` do."""
    return checked_times(given, error, unit) if times else checked_weights(given, error)


def read_values(array: StoredArray, start: int, stop: int, *, times: bool, unit: str = "") -> Iterator[NDArray[Any]]:
    """Read the weights or times of edges ``start`` to ``stop``.

    Yields:
        (CHUNK_EDGES,) float32 or float64; the last block may be shorter.

    Raises:
        InputError: a weight is NaN or does not fit into float32, or a time is not exact in float64.
    """
    for number, block in enumerate(array.read_flat(start, stop, CHUNK_EDGES)):
        yield checked_values(block, edge_error(array, start + number * CHUNK_EDGES), times=times, unit=unit)


def rebatch(blocks: Iterable[NDArray[Any]], rows: int) -> Iterator[NDArray[Any]]:
    """Regroup (num_rows, ...) arrays of one dtype into blocks of exactly ``rows`` rows; the last may be shorter."""
    pending: list[NDArray[Any]] = []
    count = 0
    for block in blocks:
        begin = 0
        while count + len(block) - begin >= rows:
            taken = begin + rows - count
            pending.append(block[begin:taken])
            yield pending[0] if len(pending) == 1 else np.concatenate(pending)
            pending, count, begin = [], 0, taken
        if begin < len(block):
            pending.append(block[begin:])
            count += len(block) - begin
    if pending:
        yield np.concatenate(pending)
