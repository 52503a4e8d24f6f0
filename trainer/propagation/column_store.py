"""A rank's rows of a dense matrix in temporary files, one for each block of columns.

Rows are written once, in order, and columns are read once: the file is written and read in large pieces. What is read
is compared with checksums that stayed in memory.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from weakref import finalize

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.propagated import COLUMNS, DTYPE
from gnnloom.storage.errors import BudgetError, DamagedWorkError
from gnnloom.storage.faults import fault_point
from gnnloom.storage.system_errors import FULL, check_is_of_content, naming

#: Bytes of the rows that are written at a time, of all columns.
_TILE_BYTES: Final = 8 << 20
#: Fewest and most rows of them: a write of one block should be long, and a checksum cover little.
_FEWEST_ROWS, _MOST_ROWS = 1 << 10, 1 << 17

Floats = NDArray[np.float32]


def columns_of(blocks: Sequence[int], num_columns: int, width: int = COLUMNS) -> slice:
    """The columns of consecutive blocks of a width."""
    return slice(blocks[0] * width, min((blocks[-1] + 1) * width, num_columns))


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
    """(num_rows, num_columns) numbers in files of a folder. One process writes and reads it.

    Memory: a checksum for every few thousand rows of a block, and the rows that are being written or read.

    Attributes:
        tile_rows: rows are written in multiples of it.
        bytes_read, bytes_written: so far.
    """

    def __init__(
        self,
        folder: Path,
        num_rows: int,
        num_columns: int,
        multiple: int = 1,
        *,
        dtype: np.dtype[Any] = DTYPE,
        width: int = COLUMNS,
        tile_rows: int | None = None,
        is_unnamed: bool = False,
        keeps_pages: bool = False,
    ) -> None:
        """Write nothing yet; files of an earlier process are overwritten.

        Args:
            multiple: the rows that are written at a time are a multiple of it.
            width: columns of a block.
            tile_rows: rows that are written at a time; by default as many as make up some megabytes.
            is_unnamed: the files have no names and their whole size from the beginning: nothing is left of them after
                a kill, and they can be mapped.
            keeps_pages: there is memory for the pages of all files.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self.num_rows, self.num_columns = folder, num_rows, num_columns
        self._dtype, self._block_width = dtype, width
        self._unnamed: dict[int, _UnnamedFile] | None = {} if is_unnamed else None
        self._keeps_pages = keeps_pages
        wanted = min(max(_TILE_BYTES // (dtype.itemsize * max(1, num_columns)), _FEWEST_ROWS), _MOST_ROWS)
        self.tile_rows = tile_rows or max(1, round(wanted / multiple)) * multiple
        self._checksums: dict[int, list[int]] = {}
        self.bytes_read = self.bytes_written = 0

    @property
    def num_blocks(self) -> int:
        return -(-self.num_columns // self._block_width)

    def tiles(self) -> Iterator[tuple[int, int]]:
        """Ranges of rows in the order in which :meth:`write_rows` takes them."""
        for start in range(0, self.num_rows, self.tile_rows):
            yield start, min(start + self.tile_rows, self.num_rows)

    def write_rows(self, start: int, rows: NDArray[Any], blocks: Sequence[int]) -> None:
        """Write one of the ranges of :meth:`tiles`, of some blocks of columns.

        Args:
            rows: (tile_rows, num_columns), or fewer rows at the end.
        """
        for block in blocks:
            self._write(block, start, rows[:, self._columns(block)])

    def write_columns(self, blocks: Sequence[int], values: NDArray[Any]) -> None:
        """Write consecutive blocks of columns.

        Args:
            values: (num_rows, columns of the blocks).
        """
        first = blocks[0] * self._block_width
        for block in blocks:
            columns = self._columns(block)
            for start, stop in self.tiles():
                self._write(block, start, values[start:stop, columns.start - first : columns.stop - first])

    def read_columns(self, blocks: Sequence[int], out: NDArray[Any]) -> None:
        """Read consecutive blocks of columns.

        Args:
            out: (num_rows, columns of the blocks), to be filled.

        Raises:
            DamagedWorkError: the file does not hold what was written.
        """
        first = blocks[0] * self._block_width
        for block in blocks:
            columns = self._columns(block)
            target = out[:, columns.start - first : columns.stop - first]
            for number, (start, stop) in enumerate(self.tiles()):
                target[start:stop] = self._read(block, number, stop - start)

    def read_rows(self, number: int, out: NDArray[Any]) -> None:
        """Read the range of rows of this number, of all columns.

        Args:
            out: (rows of the range, num_columns), to be filled.

        Raises:
            DamagedWorkError: the file does not hold what was written.
        """
        for block in range(self.num_blocks):
            out[:, self._columns(block)] = self._read(block, number, len(out))

    def drop(self, blocks: Sequence[int]) -> None:
        """Remove blocks that are not needed any more, and free their space."""
        for block in blocks:
            if self._unnamed is None:
                self._file(block).unlink(missing_ok=True)
            else:
                # The system frees the space when the file is closed, and not mapped any more.
                self._unnamed.pop(block).close()
            self._checksums.pop(block, None)

    def mapped(self, block: int) -> NDArray[Any]:
        """(num_rows, width) a block of columns in a file without a name, for whoever writes it at random.

        Call :meth:`seal` afterwards, before the block is read.

        Raises:
            BudgetError: the disk has no room for it.
        """
        with self._opened(block) as descriptor, os.fdopen(os.dup(descriptor), "r+b", buffering=0) as file:
            return np.memmap(file, self._dtype, "r+", shape=(self.num_rows, self._width(block)))

    def seal(self, block: int, values: NDArray[Any]) -> None:
        """Take the checksums of a block that was written through :meth:`mapped`.

        Args:
            values: what that returned.
        """
        self._checksums[block] = [
            google_crc32c.value(values[start:stop].reshape(-1).view(np.uint8)) for start, stop in self.tiles()
        ]
        with self._opened(block) as descriptor:
            self._give_back(descriptor)
        self.bytes_written += values.nbytes

    def _give_back(self, descriptor: int, offset: int = 0, length: int = 0) -> None:
        """Let the system drop pages of a file, or begin to write them; a length of 0 for all."""
        if not self._keeps_pages:
            # It does not wait: pages that have to be written can be dropped when memory is needed.
            os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)

    def _columns(self, block: int) -> slice:
        return columns_of([block], self.num_columns, self._block_width)

    @contextmanager
    def _opened(self, block: int, mode: str = "rb") -> Iterator[int]:
        """The descriptor of a block's file."""
        if self._unnamed is None:
            with naming(self._file(block)), self._file(block).open(mode, buffering=0) as file:
                yield file.fileno()
            return
        if block not in self._unnamed:
            num_bytes = self.num_rows * self._width(block) * self._dtype.itemsize
            self._unnamed[block] = _UnnamedFile(self._folder, num_bytes)
        yield self._unnamed[block].descriptor

    def _file(self, block: int) -> Path:
        return self._folder / f"{block:05d}.columns"

    def _width(self, block: int) -> int:
        return min(self._block_width, self.num_columns - block * self._block_width)

    def _write(self, block: int, start: int, values: NDArray[Any]) -> None:
        """Write some rows of a block behind those before."""
        number = start // self.tile_rows
        checksums = self._checksums.setdefault(block, [])
        if number == 0:
            checksums.clear()
        if start % self.tile_rows or number != len(checksums):
            raise ValueError(f"rows from {start} of a block with {len(checksums)} ranges of {self.tile_rows}")
        data = np.ascontiguousarray(values, self._dtype).reshape(-1).view(np.uint8)
        checksums.append(google_crc32c.value(data))
        with self._opened(block, "ab" if number else "wb") as descriptor:
            fault_point("columns.write", self._file(block))
            rest, offset = data.data, start * self._width(block) * self._dtype.itemsize
            # One call writes at most 2 GiB.
            while rest:
                count = os.pwrite(descriptor, rest, offset)
                rest, offset = rest[count:], offset + count
            self._give_back(descriptor)
        self.bytes_written += len(data)

    def _read(self, block: int, number: int, num_rows: int) -> NDArray[Any]:
        """Some rows of a block, compared with their checksum."""
        path, width = self._file(block), self._width(block)
        values = np.empty((num_rows, width), self._dtype)
        data, offset = values.reshape(-1).view(np.uint8), self._dtype.itemsize * number * self.tile_rows * width
        try:
            with self._opened(block) as descriptor:
                found = _read_into(descriptor, data, offset)
                self._give_back(descriptor, offset, len(data))
        except FileNotFoundError as error:
            raise DamagedWorkError(path, "not there") from error
        if found != len(data) or google_crc32c.value(data) != self._checksums[block][number]:
            raise DamagedWorkError(path, f"rows from {number * self.tile_rows} are not those that were written")
        self.bytes_read += len(data)
        return values


class _UnnamedFile:
    """A temporary file for which the disk has room: writing to a mapped file on a full disk would end the process.

    It is closed, and its space freed, by :meth:`close`, or when nothing refers to it.
    """

    def __init__(self, folder: Path, num_bytes: int) -> None:
        try:
            with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
                fault_point("columns.reserve", folder)
                os.posix_fallocate(file.fileno(), 0, num_bytes)
                self.descriptor = os.dup(file.fileno())
        except OSError as error:
            check_is_of_content(error, folder, FULL)
            raise BudgetError(
                f"{folder}: no room for {num_bytes:,} bytes of temporary files ({error.strerror}); free disk space"
            ) from error
        self.close = finalize(self, os.close, self.descriptor)


def _read_into(descriptor: int, data: NDArray[np.uint8], offset: int) -> int:
    """Fill an array from a file; returns the bytes that were there."""
    filled = 0
    while filled < len(data):
        count = os.preadv(descriptor, [data.data[filled:]], offset + filled)
        if not count:
            break
        filled += count
    return filled
