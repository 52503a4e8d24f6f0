"""Spill files: the entries of a matrix, scattered by row into buckets, between pass 1 and pass 2 of a sort.

A task writes its spill files one after another to its lane (:mod:`gnnloom.pipeline.external_sort.lanes`):

    header    (5,) int64                  entries, log2 of the rows of a bucket, bits of a column, buckets, value bytes
    offsets   (num_buckets + 1,) int64    first entry of each bucket of 2^shift rows
    low       (num_entries,) uint32       low 32 bits of the entries
    high      (num_entries,) uint8 to 32  the remaining bits of the entries, if they have more than 32
    values    (num_entries,) float32      weights; or float64 times; or none

An entry is the row within its bucket ``<< column_bits |`` the column. Entries keep the order of the source within each
bucket. The bucket's number implies most bits of the row, so 64 bits are enough for matrices of up to ``MAX_VERTICES``
rows, and most matrices need 4 to 6 bytes per entry. The time of pass 1 is mostly spent writing these bytes.

If entries are *marked*, the column has one more bit, its lowest: 1 for the reverse of an edge of the source. The two
directions of an undirected edge then have neighboring keys, each with the values that the source gives it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import LaneWriter, OpenLane
from gnnloom.storage.kernels import copy_elements, kernel

#: log2 of the most buckets in a spill file, and of the most row units of a graph. Pass 1 writes to that many positions
#: at a time; with many more, most writes would miss the caches.
BUCKET_BITS = 11

#: log2 of the fewest rows in a bucket: smaller buckets are not worth their offsets.
MIN_SHIFT = 12

#: Maximum number of rows of a matrix, 2^37: the row within its bucket (26 bits) and the column (37 bits) then take 63
#: bits, so an entry or a key without a mark is never negative as int64.
MAX_VERTICES = 1 << ((64 + BUCKET_BITS) // 2)

_HEADER_INTS: Final = 5


def value_dtype(num_bytes: int) -> np.dtype[Any]:
    """The dtype of weights or times, by the bytes of one; the dtype of weights if there are none."""
    return np.dtype(f"f{num_bytes}" if num_bytes else np.float32)


def unit_shift(max_id: int, least: int = MIN_SHIFT) -> int:
    """log2 of the rows of a bucket, for row numbers up to ``max_id``; at least ``least``."""
    return max(least, max_id.bit_length() - BUCKET_BITS)


def _high_dtype(bits: int) -> np.dtype[Any] | None:
    return None if bits <= 32 else np.dtype(np.uint8 if bits <= 40 else np.uint16 if bits <= 48 else np.uint32)


@dataclass(frozen=True)
class KeyForm:
    """Form of the keys that the entries of a matrix become.

    Attributes:
        num_rows: rows of the matrix, at least one.
        marked: whether the lowest bit of a key says that its entry is the reverse of an edge of the source.
        other_columns: number of columns; None for a square matrix.
    """

    num_rows: int
    marked: bool = False
    other_columns: int | None = None

    @property
    def num_columns(self) -> int:
        """Columns of the matrix, at least one."""
        return self.num_rows if self.other_columns is None else self.other_columns

    @property
    def shift(self) -> int:
        """log2 of the rows of a unit."""
        # All edges of a relation may end in a few vertices, such as countries: its blocks are cut between any rows.
        return unit_shift(self.num_rows - 1, MIN_SHIFT if self.other_columns is None else 0)

    @property
    def column_bits(self) -> int:
        """Number of bits of the column, with its mark."""
        return (self.num_columns - 1).bit_length() + self.marked

    @property
    def entry_bytes(self) -> int:
        """Bytes of a spilled entry without its value, in a file with the highest ids."""
        high = _high_dtype(self.shift + self.column_bits)
        return 4 + (high.itemsize if high else 0)


@dataclass(frozen=True)
class SpillFile:
    """Describes one spill file.

    Attributes:
        start: byte of the lane at which it begins.
        entries: number of entries.
        shift: log2 of the rows of a bucket.
        column_bits: bits of the column in an entry, with its mark.
        num_buckets: number of buckets up to the last one that is not empty.
        value_bytes: bytes of the value of an entry; 0 if there are none.
    """

    start: int
    entries: int
    shift: int
    column_bits: int
    num_buckets: int
    value_bytes: int

    @classmethod
    def read(cls, lane: OpenLane, start: int) -> SpillFile:
        """Read the header of a file.

        Raises:
            DamagedWorkError: the lane is damaged.
        """
        header = np.empty(_HEADER_INTS, np.int64)
        lane.read(start, header)
        return cls(start, *header.tolist())

    @classmethod
    def read_all(cls, lane: OpenLane, num_bytes: int) -> Iterator[SpillFile]:
        """Read the headers of all files in the first bytes of a lane."""
        start = 0
        while start < num_bytes:
            file = cls.read(lane, start)
            yield file
            start = file.stop

    def begin(self, lane: LaneWriter, offsets: NDArray[np.int64]) -> None:
        """Write the header and the offsets, (num_buckets + 1,) int64."""
        numbers = (self.entries, self.shift, self.column_bits, self.num_buckets, self.value_bytes)
        lane.write(lane.write(self.start, np.array(numbers, np.int64)), offsets)

    @property
    def high_dtype(self) -> np.dtype[Any] | None:
        """Type of the entries' bits above the 32nd; None if there are none."""
        return _high_dtype(self.shift + self.column_bits)

    @property
    def _offsets_at(self) -> int:
        return self.start + 8 * _HEADER_INTS

    @property
    def low_at(self) -> int:
        """Byte of the lane at which the low bits begin."""
        return self._offsets_at + 8 * (self.num_buckets + 1)

    @property
    def high_at(self) -> int:
        """Byte of the lane at which the high bits begin, if there are any."""
        return self.low_at + 4 * self.entries

    @property
    def values_at(self) -> int:
        """Byte of the lane at which the values begin, if there are any."""
        return self.high_at + (self.high_dtype.itemsize * self.entries if self.high_dtype else 0)

    @property
    def stop(self) -> int:
        """Byte of the lane after the last one."""
        return self.values_at + self.value_bytes * self.entries

    def offsets(self, lane: OpenLane, first: int, last: int) -> NDArray[np.int64]:
        """Read the offsets of buckets ``first`` to ``last`` (as far as there are any), and the end of the last one."""
        first, last = min(first, self.num_buckets), min(last, self.num_buckets)
        offsets = np.empty(last - first + 1, dtype=np.int64)
        lane.read(self._offsets_at + 8 * first, offsets)
        return offsets


@kernel
def decode_entries(
    low: NDArray[np.uint32],
    high: NDArray[Any],
    position: int,
    offsets: NDArray[np.int64],
    first_row: int,
    shift: int,
    entry_column_bits: int,
    column_bits: int,
    keys: NDArray[np.uint64],
) -> None:
    """Decode consecutive entries of a spill file into keys.

    A key is the row, counted from the first row of the row block, ``<< column_bits |`` the column.

    Args:
        low: (num_entries,) low bits of the entries, from entry ``position`` of the file on.
        high: (num_entries,) their high bits; empty if entries have 32 bits.
        position: number of the first entry in the file.
        offsets: (num_buckets + 1,) first entry of each bucket of these entries.
        first_row: first row of the first bucket, counted from the first row of the row block.
        shift: log2 of the rows of a bucket.
        entry_column_bits: bits of the column in an entry.
        column_bits: bits of the column in a key.
        keys: (num_entries,) receives the result.
    """
    bucket = 0
    k = 0
    # Bucket by bucket: within one the row's high bits are constant, and the inner loop has no branch on them.
    while k < keys.size:
        # A loop rather than a condition, because buckets may be empty.
        while position + k >= offsets[bucket + 1]:
            bucket += 1
        stop = min(keys.size, offsets[bucket + 1] - position)
        row = np.uint64(first_row + (bucket << shift))
        _decode_bucket(low[k:stop], high[k:stop], row, entry_column_bits, column_bits, keys[k:stop])
        k = stop


@kernel
def gather_units(
    low: NDArray[np.uint32],
    high: NDArray[Any],
    weights: NDArray[np.floating[Any]],
    offsets: NDArray[np.int64],
    first_row: int,
    shift: int,
    entry_column_bits: int,
    column_bits: int,
    unit_shift: int,
    position: NDArray[np.int64],
    keys: NDArray[np.uint64],
    out_weights: NDArray[np.floating[Any]],
) -> None:
    """Decode whole buckets like :func:`decode_entries`, and append each bucket's keys to the keys of its unit of rows.

    Args:
        low: (num_entries,) low bits of the entries.
        high: (num_entries,) their high bits; empty if entries have 32 bits.
        weights: (num_entries,) weights, which follow their keys into ``out_weights``; or empty.
        offsets: (num_buckets + 1,) first entry of each bucket.
        first_row: first row of the first bucket, counted from the first row of the row block.
        shift: log2 of the rows of a bucket.
        entry_column_bits: bits of the column in an entry.
        column_bits: bits of the column in a key.
        unit_shift: log2 of the rows of a unit, at least ``shift``; a unit begins with the first bucket.
        position: (num_units,) where the next key of each unit goes; advanced.
        keys: (num_keys,) receives the keys of all units and, call by call, of all files.
        out_weights: (num_keys,) receives the weights; or empty.
    """
    start = 0
    bucket = 0
    while start < low.size:
        stop = start + offsets[bucket + 1] - offsets[bucket]
        # Buckets of a unit follow each other in the file, and files come in the order of the source: appending keeps
        # the entries of equal edges in that order.
        unit = bucket >> (unit_shift - shift)
        first, last = position[unit], position[unit] + stop - start
        row = np.uint64(first_row + (bucket << shift))
        _decode_bucket(low[start:stop], high[start:stop], row, entry_column_bits, column_bits, keys[first:last])
        if weights.size:
            copy_elements(weights[start:stop], out_weights[first:last])
        position[unit] = last
        start = stop
        bucket += 1


@kernel
def _decode_bucket(
    low: NDArray[np.uint32],
    high: NDArray[Any],
    first_row: np.uint64,
    entry_column_bits: int,
    column_bits: int,
    keys: NDArray[np.uint64],
) -> None:
    column_mask = np.uint64((1 << entry_column_bits) - 1)
    # Columns of a file have the bits of the highest id in the file; columns of a key, of the highest id in the graph.
    for k in range(keys.size):
        entry = np.uint64(low[k])
        if high.size:
            entry |= np.uint64(high[k]) << np.uint64(32)
        # No overflow: a block's rows and the columns are limited so that a key takes at most 63 bits, 64 with a mark.
        row = first_row + (entry >> np.uint64(entry_column_bits))
        keys[k] = (row << np.uint64(column_bits)) | (entry & column_mask)
