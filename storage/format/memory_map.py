"""Arrays in temporary files without a name, for random access without holding them in memory; and part vectors.

The part vector is a plain memory-mapped file: tasks look up the part of any vertex, and all tasks map one file.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from weakref import finalize

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.disk.numpy_files import create_array_file, map_array
from gnnloom.storage.errors import DamagedWorkError
from gnnloom.storage.faults import fault_point
from gnnloom.storage.format.arrays import ArrayReader
from gnnloom.storage.system_errors import naming

#: Rows that are copied at a time: few enough to hold in memory, enough to write long runs.
_COPY_ROWS = 1 << 20
#: Bytes that a checksum covers at most: few enough that they are still in the cache when they are written or compared.
_PIECE_BYTES: Final = 1 << 18

#: Advice for a temporary file that has changed.
AGAIN: Final = "run the command again; if that happens again, look for faults of the disk and of the memory"

Rows = slice | NDArray[np.int64]


class UnnamedFile:
    """A temporary file for which the disk has room: writing to a mapped file on a full disk would end the process.

    It is closed, and its space freed, by :meth:`close`, or when nothing refers to it or maps it.
    """

    def __init__(self, folder: Path, num_bytes: int) -> None:
        """Take the space.

        Raises:
            OSError: the disk is full.
        """
        with naming(folder), tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            fault_point("columns.reserve", folder)
            os.posix_fallocate(file.fileno(), 0, num_bytes)
            self.descriptor = os.dup(file.fileno())
        self.close = finalize(self, os.close, self.descriptor)

    def map(self, dtype: np.dtype[Any], shape: tuple[int, ...], *, writes: bool = False) -> NDArray[Any]:
        """The file as an array. Unless it ``writes``, what is written to the array never reaches the file."""
        with os.fdopen(os.dup(self.descriptor), "r+b" if writes else "rb", buffering=0) as file:
            return np.memmap(file, dtype, "r+" if writes else "c", shape=shape)


class _Piece(NamedTuple):
    """Values that were written at once, and their checksum."""

    rows: Rows
    columns: slice
    checksum: int


class RecordedArray:
    """An array in a temporary file, and the checksums of the values that were meant to be in it.

    Checksums are taken of values in memory, before they are written, and stay in memory. So :meth:`check` finds any
    change of the file after the values were handed over. Its user calls it when the array has been read, before any
    result that depends on it is kept.
    """

    def __init__(self, folder: Path, what: str, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        """Take the space on disk; the array holds zeros.

        Args:
            what: the values, for messages.

        Raises:
            OSError: the disk is full.
        """
        self._folder, self._what, self._pieces = folder, what, list[_Piece]()
        shape = tuple(shape)
        # An empty file cannot be mapped.
        self._file = UnnamedFile(folder, math.prod(shape) * dtype.itemsize) if math.prod(shape) else None
        self._written = np.zeros(shape, dtype) if self._file is None else self._file.map(dtype, shape, writes=True)

    def write(self, rows: Rows, values: NDArray[Any], columns: slice = slice(None)) -> None:
        """Write rows, or columns of rows, each number once.

        Args:
            rows: (num_rows,) int64 distinct rows, which the caller does not change later; or a range of rows.
            values: (num_rows, ...).
        """
        given = np.ascontiguousarray(values, self._written.dtype)
        first, numbers = (rows.start or 0, None) if isinstance(rows, slice) else (0, rows)
        if numbers is not None and len(numbers) and (numbers[1:] - numbers[:-1] == 1).all():
            # Nothing has to be kept of rows that follow each other.
            first, numbers = int(numbers[0]), None
        step = max(1, _PIECE_BYTES // max(1, given[:1].nbytes))
        for start in range(0, len(given), step):
            some = given[start : start + step]
            places: Rows = slice(first + start, first + start + len(some))
            if numbers is not None:
                places = numbers[start : start + len(some)]
            self._pieces.append(_Piece(places, columns, _checksum(some)))
            self._written[_index(places, columns)] = some

    @property
    def values(self) -> NDArray[Any]:
        """The array, to be read; whatever is written to it never reaches the file."""
        found = self._written if self._file is None else self._file.map(self._written.dtype, self._written.shape)
        if isinstance(found, np.memmap):
            # It can be checked for as long as it is used.
            found.recorded = self  # type: ignore[attr-defined]
        return found

    def check(self, rows: NDArray[np.int64] | None = None) -> None:
        """Compare the file with the checksums of the written rows.

        Args:
            rows: (num_rows,) int64 ascending; the rows that were read, if they were written in ranges. None for all.

        Raises:
            DamagedWorkError: a value has changed.
        """
        for piece in self._pieces if rows is None else self._pieces_of(rows):
            if _checksum(np.ascontiguousarray(self._written[_index(piece.rows, piece.columns)])) != piece.checksum:
                start = piece.rows.start if isinstance(piece.rows, slice) else int(piece.rows[0])
                raise DamagedWorkError(
                    self._folder,
                    f"a temporary file has changed since it was written: {self._what}, from row {start} on; {AGAIN}",
                )

    def _pieces_of(self, rows: NDArray[np.int64]) -> Iterator[_Piece]:
        for piece in self._pieces:
            if isinstance(piece.rows, slice):
                first, last = np.searchsorted(rows, [piece.rows.start, piece.rows.stop])
                if first < last:
                    yield piece


def _index(rows: Rows, columns: slice) -> Any:
    return rows if columns == slice(None) else (rows, columns)


def _checksum(values: NDArray[Any]) -> int:
    return int(google_crc32c.value(values.reshape(-1).view(np.uint8)))


def map_copy(array: ArrayReader, folder: Path, spans: Sequence[tuple[int, int]] | None = None) -> RecordedArray:
    """Copy a stored array to a temporary file.

    Args:
        folder: of the file, which is gone once nothing refers to the copy.
        spans: ranges of rows to copy, one after the other; None for all rows.

    Returns:
        An array with the shape and dtype of the rows.
    """
    spans = [(0, len(array))] if spans is None else spans
    copy = RecordedArray(
        folder, array.where, (sum(stop - start for start, stop in spans), *array.shape[1:]), array.dtype
    )
    before = 0
    for first, last in spans:
        for start in range(first, last, _COPY_ROWS):
            stop = min(start + _COPY_ROWS, last)
            copy.write(slice(before, before + stop - start), array.read(start, stop))
            before += stop - start
    return copy


def create_part_vector(path: Path, num_vertices: int) -> np.memmap[Any, np.dtype[np.int32]]:
    """Create a file in NumPy's format and map it as a writable (num_vertices,) int32 array."""
    return create_array_file(path, np.int32, (num_vertices,))


def map_part_vector(path: Path) -> NDArray[np.int32]:
    """Map the file of a part vector as a (num_vertices,) int32 array; pages are read on access."""
    return map_array(path)
