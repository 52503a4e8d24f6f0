"""Spill files: entries of a matrix, scattered by row into buckets, on their way from pass 1 to pass 2.

A *run* is one file that one task wrote at once:

    offsets   (num_buckets + 1,) int64    first entry of each bucket of 2^shift rows
    entries   (num_entries,) uint64       row within the bucket << column_bits | column
    weights   (num_entries,) float32      if weighted

Entries keep the order of the source within each bucket.  A row needs few bits beside its bucket's
number, so 64 bits are enough for matrices of up to ``MAX_VERTICES`` rows.
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
    def entries_at(self) -> int:
        return 8 * (self.num_buckets + 1)

    @property
    def weights_at(self) -> int:
        return self.entries_at + 8 * self.entries

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
    keys: NDArray[np.uint64],
    position: int,
    offsets: NDArray[np.int64],
    first_row: int,
    shift: int,
    run_column_bits: int,
    column_bits: int,
) -> None:
    """Turn entries of consecutive buckets of a run into keys, in place.

    A key is the row, counted from the row block's first one, ``<< column_bits |`` the column.

    Args:
        keys: entries ``position`` and following of the run.
        offsets: of the buckets that they lie in.
        first_row: of the first of these buckets, counted from the row block's first row.
    """
    column_mask = np.uint64((1 << run_column_bits) - 1)
    bucket = 0
    row_offset = np.uint64(first_row)
    for k in range(keys.size):
        while position + k >= offsets[bucket + 1]:
            bucket += 1
            row_offset = np.uint64(first_row + (bucket << shift))
        row = row_offset + (keys[k] >> np.uint64(run_column_bits))
        keys[k] = (row << np.uint64(column_bits)) | (keys[k] & column_mask)
