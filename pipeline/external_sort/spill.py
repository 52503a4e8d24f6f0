"""Spill files: entries of a matrix, scattered by row into buckets, on their way from pass 1 to pass 2.

A *run* is one file that one task wrote at once:

    offsets   (num_buckets + 1,) int64    first entry of each bucket of 2^shift rows
    low       (num_entries,) uint32       low 32 bits of the entries
    high      (num_entries,) uint8 to 32  their other bits, if they have more
    weights   (num_entries,) float32      if weighted

An entry is the row within its bucket ``<< column_bits |`` the column.  Entries keep the order of the
source within each bucket.  A row needs few bits beside its bucket's number, so 64 bits are enough for
matrices of up to ``MAX_VERTICES`` rows, and 4 to 6 bytes for most: writing them is what pass 1 costs.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.errors import CorruptError

#: log2 of the most buckets of a run, and of the most row units of a graph.
BUCKET_BITS = 11

#: log2 of the fewest rows of a bucket.
MIN_SHIFT = 12

#: Row within its bucket and column share 64 bits.
MAX_VERTICES = 1 << ((64 + BUCKET_BITS) // 2)


def unit_shift(max_id: int) -> int:
    """log2 of the rows of a bucket, for row numbers up to ``max_id``."""
    return max(MIN_SHIFT, max_id.bit_length() - BUCKET_BITS)


def _high_dtype(bits: int) -> np.dtype[Any] | None:
    return None if bits <= 32 else np.dtype(np.uint8 if bits <= 40 else np.uint16 if bits <= 48 else np.uint32)


def entry_bytes(max_id: int) -> int:
    """Bytes of a spilled entry, for ids up to ``max_id``."""
    high = _high_dtype(unit_shift(max_id) + max_id.bit_length())
    return 4 + (high.itemsize if high else 0)


@dataclass(frozen=True)
class Run:
    """One spill file of pass 1.

    Attributes:
        path: of the file, within the work folder.
        entries: number of entries.
        shift: log2 of the rows of a bucket.
        column_bits: bits of the column in an entry.
        num_buckets: buckets, the highest of which is not empty.
        weighted: whether weights follow the entries.
    """

    path: str
    entries: int
    shift: int
    column_bits: int
    num_buckets: int
    weighted: bool

    @property
    def high_dtype(self) -> np.dtype[Any] | None:
        """Of the entries' bits above the 32nd; None where there are none."""
        return _high_dtype(self.shift + self.column_bits)

    @property
    def low_at(self) -> int:
        return 8 * (self.num_buckets + 1)

    @property
    def high_at(self) -> int:
        return self.low_at + 4 * self.entries

    @property
    def weights_at(self) -> int:
        return self.high_at + (self.high_dtype.itemsize * self.entries if self.high_dtype else 0)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.weights_at + (4 * self.entries if self.weighted else 0)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Run:
        return cls(**content)

    def is_intact(self, work: Path) -> bool:
        """Whether the file is there in its full length."""
        try:
            return (work / self.path).stat().st_size == self.size
        except FileNotFoundError:
            return False


def write_file(path: Path, arrays: Sequence[NDArray[Any]]) -> None:
    """Write arrays one after the other, through a temporary name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("wb", buffering=0) as file:
            written = 0
            for array in arrays:
                write_at(file.fileno(), written, array)
                written += array.nbytes
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_at(descriptor: int, offset: int, array: NDArray[Any]) -> None:
    """Write all of a contiguous array at a byte of a file; the system takes 2 GiB at most at a time."""
    rest = array.reshape(-1).view(np.uint8).data
    while rest:
        count = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[count:], offset + count


def read_bytes(path: Path, offset: int, out: NDArray[Any]) -> None:
    """Fill a contiguous array from a file.

    Raises:
        CorruptError: the file ends before.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        rest = out.reshape(-1).view(np.uint8).data
        while rest:
            count = os.preadv(descriptor, [rest], offset)
            if count == 0:
                raise CorruptError(f"{path}: ends at byte {offset}, expected {len(rest)} bytes more")
            rest, offset = rest[count:], offset + count
    finally:
        os.close(descriptor)


def read_offsets(work: Path, run: Run, first: int, last: int) -> NDArray[np.int64]:
    """Offsets of the buckets ``first`` to ``last`` (at most the run's), with the end of the last."""
    first, last = min(first, run.num_buckets), min(last, run.num_buckets)
    offsets = np.empty(last - first + 1, dtype=np.int64)
    read_bytes(work / run.path, 8 * first, offsets)
    return offsets


@njit(cache=True, nogil=True)
def decode_entries(
    low: NDArray[np.uint32],
    high: NDArray[Any],
    position: int,
    offsets: NDArray[np.int64],
    first_row: int,
    shift: int,
    run_column_bits: int,
    column_bits: int,
    keys: NDArray[np.uint64],
) -> None:
    """Turn entries of consecutive buckets of a run into keys.

    A key is the row, counted from the row block's first one, ``<< column_bits |`` the column.

    Args:
        low: (num_entries,) low bits of the entries ``position`` and following of the run.
        high: (num_entries,) their high bits; of length 0 where there are none.
        offsets: of the buckets that they lie in.
        first_row: of the first of these buckets, counted from the row block's first row.
        keys: (num_entries,) the result.
    """
    bucket = 0
    k = 0
    while k < keys.size:
        while position + k >= offsets[bucket + 1]:
            bucket += 1
        stop = min(keys.size, offsets[bucket + 1] - position)
        row = np.uint64(first_row + (bucket << shift))
        _decode_bucket(low[k:stop], high[k:stop], row, run_column_bits, column_bits, keys[k:stop])
        k = stop


@njit(cache=True, nogil=True)
def place_entries(
    low: NDArray[np.uint32],
    high: NDArray[Any],
    weights: NDArray[np.float32],
    offsets: NDArray[np.int64],
    first_row: int,
    shift: int,
    run_column_bits: int,
    column_bits: int,
    unit_shift: int,
    place: NDArray[np.int64],
    keys: NDArray[np.uint64],
    out_weights: NDArray[np.float32],
) -> None:
    """As :func:`decode_entries` for whole buckets, each bucket's keys going where those of its unit of rows are.

    Args:
        weights: (num_entries,) or of length 0; they go where the keys go, into ``out_weights``.
        unit_shift: log2 of the rows of a unit, at least ``shift``; the first bucket is the first of a unit.
        place: (num_units,) where the next key of each unit goes; moved on.
        keys: the result, and with it ``out_weights``, of all units and runs.
    """
    start = 0
    bucket = 0
    while start < low.size:
        stop = start + offsets[bucket + 1] - offsets[bucket]
        unit = bucket >> (unit_shift - shift)
        first, last = place[unit], place[unit] + stop - start
        row = np.uint64(first_row + (bucket << shift))
        _decode_bucket(low[start:stop], high[start:stop], row, run_column_bits, column_bits, keys[first:last])
        if weights.size:
            out_weights[first:last] = weights[start:stop]
        place[unit] = last
        start = stop
        bucket += 1


@njit(cache=True, nogil=True)
def _decode_bucket(
    low: NDArray[np.uint32],
    high: NDArray[Any],
    first_row: np.uint64,
    run_column_bits: int,
    column_bits: int,
    keys: NDArray[np.uint64],
) -> None:
    column_mask = np.uint64((1 << run_column_bits) - 1)
    for k in range(keys.size):
        entry = np.uint64(low[k])
        if high.size:
            entry |= np.uint64(high[k]) << np.uint64(32)
        row = first_row + (entry >> np.uint64(run_column_bits))
        keys[k] = (row << np.uint64(column_bits)) | (entry & column_mask)
