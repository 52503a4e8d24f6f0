"""A rank's rows of a dense matrix in temporary files, one for each block of columns.

Rows are written once, in order, and columns are read once: the file is written and read in large pieces. What is read
is compared with checksums that stayed in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.propagated import COLUMNS, num_blocks
from gnnloom.storage.errors import DamagedWorkError
from gnnloom.storage.faults import fault_point

#: Bytes of the rows that are written at a time, of all columns.
_TILE_BYTES: Final = 8 << 20
#: Fewest and most rows of them: a write of one block should be long, and a checksum cover little.
_FEWEST_ROWS, _MOST_ROWS = 1 << 10, 1 << 17

Floats = NDArray[np.float32]


def columns_of(blocks: Sequence[int], num_columns: int) -> slice:
    """The columns of consecutive blocks."""
    return slice(blocks[0] * COLUMNS, min((blocks[-1] + 1) * COLUMNS, num_columns))


def consecutive(blocks: Sequence[int], most: int) -> Iterator[list[int]]:
    """Runs of at most so many blocks that follow each other.

    >>> list(consecutive([0, 1, 2, 4, 5], 2))
    [[0, 1], [2], [4, 5]]
    """
    run: list[int] = []
    for block in blocks:
        if run and (len(run) == most or block != run[-1] + 1):
            yield run
            run = []
        run.append(block)
    if run:
        yield run


class ColumnStore:
    """(num_rows, num_columns) float32 in a folder. One process writes and reads it.

    Memory: a checksum for every few thousand rows of a block, and the rows that are being written or read.

    Attributes:
        tile_rows: rows are written in multiples of it.
        bytes_read, bytes_written: so far.
    """

    def __init__(self, folder: Path, num_rows: int, num_columns: int, multiple: int = 1) -> None:
        """Write nothing yet; files of an earlier process are overwritten.

        Args:
            multiple: the rows that are written at a time are a multiple of it.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self.num_rows, self.num_columns = folder, num_rows, num_columns
        wanted = min(max(_TILE_BYTES // (4 * max(1, num_columns)), _FEWEST_ROWS), _MOST_ROWS)
        self.tile_rows = max(1, round(wanted / multiple)) * multiple
        self._checksums: dict[int, list[int]] = {}
        self.bytes_read = self.bytes_written = 0

    @property
    def num_blocks(self) -> int:
        return num_blocks(self.num_columns)

    def tiles(self) -> Iterator[tuple[int, int]]:
        """Ranges of rows in the order in which :meth:`write_rows` takes them."""
        for start in range(0, self.num_rows, self.tile_rows):
            yield start, min(start + self.tile_rows, self.num_rows)

    def write_rows(self, start: int, rows: Floats, blocks: Sequence[int]) -> None:
        """Write one of the ranges of :meth:`tiles`, of some blocks of columns.

        Args:
            rows: (tile_rows, num_columns), or fewer rows at the end.
        """
        for block in blocks:
            self._write(block, start, rows[:, columns_of([block], self.num_columns)])

    def write_columns(self, blocks: Sequence[int], values: Floats) -> None:
        """Write consecutive blocks of columns.

        Args:
            values: (num_rows, columns of the blocks).
        """
        first = blocks[0] * COLUMNS
        for block in blocks:
            columns = columns_of([block], self.num_columns)
            for start, stop in self.tiles():
                self._write(block, start, values[start:stop, columns.start - first : columns.stop - first])

    def read_columns(self, blocks: Sequence[int], out: Floats) -> None:
        """Read consecutive blocks of columns.

        Args:
            out: (num_rows, columns of the blocks), to be filled.

        Raises:
            DamagedWorkError: the file does not hold what was written.
        """
        first = blocks[0] * COLUMNS
        for block in blocks:
            columns = columns_of([block], self.num_columns)
            target = out[:, columns.start - first : columns.stop - first]
            for number, (start, stop) in enumerate(self.tiles()):
                target[start:stop] = self._read(block, number, stop - start)

    def read_rows(self, number: int, out: Floats) -> None:
        """Read the range of rows of this number, of all columns.

        Args:
            out: (rows of the range, num_columns), to be filled.

        Raises:
            DamagedWorkError: the file does not hold what was written.
        """
        for block in range(self.num_blocks):
            out[:, columns_of([block], self.num_columns)] = self._read(block, number, len(out))

    def drop(self, blocks: Sequence[int]) -> None:
        """Remove blocks that are not needed any more, and free their space."""
        for block in blocks:
            self._file(block).unlink(missing_ok=True)
            self._checksums.pop(block, None)

    def _file(self, block: int) -> Path:
        return self._folder / f"{block:05d}.columns"

    def _width(self, block: int) -> int:
        return min(COLUMNS, self.num_columns - block * COLUMNS)

    def _write(self, block: int, start: int, values: NDArray[Any]) -> None:
        """Write some rows of a block behind those before."""
        number = start // self.tile_rows
        checksums = self._checksums.setdefault(block, [])
        if number == 0:
            checksums.clear()
        if start % self.tile_rows or number != len(checksums):
            raise ValueError(f"rows from {start} of a block with {len(checksums)} ranges of {self.tile_rows}")
        data = np.ascontiguousarray(values, np.float32).reshape(-1).view(np.uint8)
        checksums.append(google_crc32c.value(data))
        with self._file(block).open("ab" if number else "wb", buffering=0) as file:
            fault_point("columns.write", self._file(block))
            rest = data.data
            # One call writes at most 2 GiB.
            while rest:
                rest = rest[os.write(file.fileno(), rest) :]
            # Starts writing without waiting: the pages can then be dropped when memory is needed.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self.bytes_written += len(data)

    def _read(self, block: int, number: int, num_rows: int) -> Floats:
        """Some rows of a block, compared with their checksum."""
        path, width = self._file(block), self._width(block)
        values = np.empty((num_rows, width), np.float32)
        data, offset = values.reshape(-1).view(np.uint8), 4 * number * self.tile_rows * width
        try:
            with path.open("rb", buffering=0) as file:
                found = _read_into(file.fileno(), data, offset)
                os.posix_fadvise(file.fileno(), offset, len(data), os.POSIX_FADV_DONTNEED)
        except FileNotFoundError as error:
            raise DamagedWorkError(path, "not there") from error
        if found != len(data) or google_crc32c.value(data) != self._checksums[block][number]:
            raise DamagedWorkError(path, f"rows from {number * self.tile_rows} are not those that were written")
        self.bytes_read += len(data)
        return values


def _read_into(descriptor: int, data: NDArray[np.uint8], offset: int) -> int:
    """Fill an array from a file; returns the bytes that were there."""
    filled = 0
    while filled < len(data):
        count = os.preadv(descriptor, [data.data[filled:]], offset + filled)
        if not count:
            break
        filled += count
    return filled
