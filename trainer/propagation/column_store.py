"""A rank's rows of a dense matrix in temporary files, one for each block of columns.

Rows and columns are written and read in large pieces. Checksums are taken of the rows in memory, before they are
written, and stay in memory. Data are compared with the checksums when they are read.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.propagated import COLUMNS, DTYPE
from gnnloom.storage.errors import BudgetError, DamagedWorkError
from gnnloom.storage.faults import fault_point
from gnnloom.storage.format.memory_map import AGAIN, UnnamedFile
from gnnloom.storage.system_errors import FULL, check_is_of_content, naming

#: Bytes of all columns of the rows that are written at a time.
_TILE_BYTES: Final = 8 << 20
#: Minimum and maximum rows per tile: a write of one block should be long, and a checksum should cover little.
_FEWEST_ROWS, _MOST_ROWS = 1 << 10, 1 << 17

Floats = NDArray[np.float32]


def columns_of(blocks: Sequence[int], num_columns: int, width: int = COLUMNS) -> slice:
    """The columns of consecutive blocks of a width."""
    return slice(blocks[0] * width, min((blocks[-1] + 1) * width, num_columns))


def consecutive(blocks: Sequence[int], most: int) -> Iterator[list[int]]:
    """Runs of at most ``most`` consecutive blocks.

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
        bytes_read, bytes_written: numbers of bytes so far.
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
            multiple: the number of rows that are written at a time is a multiple of it.
            width: number of columns of a block.
            tile_rows: rows per write; by default some megabytes.
            is_unnamed: the files have no names, and their whole size from the beginning: a kill leaves no files behind,
                and they can be mapped.
            keeps_pages: memory suffices for the pages of all files.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self.num_rows, self.num_columns = folder, num_rows, num_columns
        self._dtype, self._block_width = dtype, width
        self._unnamed: dict[int, UnnamedFile] | None = {} if is_unnamed else None
        self._keeps_pages = keeps_pages
        wanted = min(max(_TILE_BYTES // (dtype.itemsize * max(1, num_columns)), _FEWEST_ROWS), _MOST_ROWS)
        self.tile_rows = tile_rows or max(1, round(wanted / multiple)) * multiple
        #: For each block, rows at which checksums begin and end, and the checksums; None for unwritten rows.
        self._bounds: dict[int, list[int]] = {}
        self._checksums: dict[int, list[int | None]] = {}
        self.bytes_read = self.bytes_written = 0

    @property
    def num_blocks(self) -> int:
        return -(-self.num_columns // self._block_width)

    def tiles(self) -> Iterator[tuple[int, int]]:
        """Ranges of rows in the order in which :meth:`write_rows` takes them."""
        for start in range(0, self.num_rows, self.tile_rows):
            yield start, min(start + self.tile_rows, self.num_rows)

    def write_rows(self, start: int, rows: NDArray[Any], blocks: Sequence[int]) -> None:
        """Write one of the ranges of :meth:`tiles`, for some blocks of columns.

        Args:
            rows: (tile_rows, num_columns), or fewer rows at the end.
        """
        for block in blocks:
            self._write(block, start, rows[:, self._columns(block)])

    def read_columns(self, blocks: Sequence[int], out: NDArray[Any]) -> None:
        """Read consecutive blocks of columns.

        Args:
            out: (num_rows, columns of the blocks), to be filled.

        Raises:
            DamagedWorkError: the file differs from the written data.
        """
        first = blocks[0] * self._block_width
        for block in blocks:
            columns = self._columns(block)
            target = out[:, columns.start - first : columns.stop - first]
            for start, stop in self.tiles():
                target[start:stop] = self._read(block, start, stop)

    def read_rows(self, number: int, out: NDArray[Any]) -> None:
        """Read the range of rows with this number, with all columns.

        Args:
            out: (rows of the range, num_columns), to be filled.

        Raises:
            DamagedWorkError: the file differs from the written data.
        """
        for block in range(self.num_blocks):
            start = number * self.tile_rows
            out[:, self._columns(block)] = self._read(block, start, start + len(out))

    def drop(self, blocks: Sequence[int]) -> None:
        """Remove blocks that are no longer needed, and free their space."""
        for block in blocks:
            if self._unnamed is None:
                self._file(block).unlink(missing_ok=True)
            else:
                # The system frees the space when the file is closed and no longer mapped.
                self._unnamed.pop(block).close()
            self._bounds.pop(block, None)
            self._checksums.pop(block, None)

    def begin(self, block: int, cuts: Iterable[int]) -> None:
        """Begin a block whose rows are written and read in other ranges than the ranges of :meth:`tiles`.

        Args:
            cuts: rows at which these ranges begin and end.

        Raises:
            BudgetError: the disk has no room for it.
        """
        tiles = range(0, self.num_rows, self.tile_rows)
        self._bounds[block] = sorted({0, self.num_rows, *tiles, *cuts})
        self._checksums[block] = [None] * (len(self._bounds[block]) - 1)
        with self._opened(block, "wb"):
            pass

    def write_range(self, block: int, start: int, values: NDArray[Any]) -> None:
        """Write a range of rows of a block; several threads may write ranges that do not overlap.

        Args:
            values: (num_rows, columns of the block).
        """
        rows = np.ascontiguousarray(values, self._dtype)
        bounds, checksums = self._bounds[block], self._checksums[block]
        for cell in self._cells(block, start, start + len(rows)):
            some = rows[bounds[cell] - start : bounds[cell + 1] - start]
            checksums[cell] = google_crc32c.value(some.reshape(-1).view(np.uint8))
        data = rows.reshape(-1).view(np.uint8)
        with self._opened(block, "ab" if start else "wb") as descriptor:
            fault_point("columns.write", self._file(block))
            rest, offset = data.data, start * self._width(block) * self._dtype.itemsize
            # One call writes at most 2 GiB.
            while rest:
                count = os.pwrite(descriptor, rest, offset)
                rest, offset = rest[count:], offset + count

    def read_range(self, block: int, start: int, out: NDArray[Any]) -> None:
        """Read a range of rows of a block that was written; for threads see :meth:`write_range`.

        Args:
            out: (num_rows, columns of the block), contiguous, to be filled.

        Raises:
            DamagedWorkError: the file differs from the written data.
        """
        data = out.reshape(-1).view(np.uint8)
        try:
            with self._opened(block) as descriptor:
                found = _read_into(descriptor, data, start * self._width(block) * self._dtype.itemsize)
        except FileNotFoundError as error:
            raise DamagedWorkError(self._file(block), "not there") from error
        bounds, checksums = self._bounds[block], self._checksums[block]
        for cell in self._cells(block, start, start + len(out)):
            some = out[bounds[cell] - start : bounds[cell + 1] - start]
            if found != len(data) or google_crc32c.value(some.reshape(-1).view(np.uint8)) != checksums[cell]:
                what = f"rows from {bounds[cell]} are not the rows that were written; {AGAIN}"
                raise DamagedWorkError(self._file(block), what)

    def end(self, block: int) -> None:
        """Mark a block as complete after all its rows have been written by :meth:`write_range`."""
        with self._opened(block) as descriptor:
            self._give_back(descriptor)
        self.bytes_written += self.num_rows * self._width(block) * self._dtype.itemsize

    def check(self, block: int) -> None:
        """Compare a block with the checksums of the written rows.

        Raises:
            DamagedWorkError: the block differs from the written rows.
        """
        for start, stop in self.tiles():
            self._read(block, start, stop)

    def mapped(self, block: int) -> NDArray[Any]:
        """(num_rows, width) a block of columns that has been written, in a file without a name.

        The pages are not compared with their checksums: call :meth:`check` after reading them.
        """
        return self._unnamed_file(block).map(self._dtype, (self.num_rows, self._width(block)))

    def _give_back(self, descriptor: int, offset: int = 0, length: int = 0) -> None:
        """Let the system drop pages of a file, or begin to write them; a length of 0 for all."""
        if not self._keeps_pages:
            # It does not wait: pages that must be written can be dropped when memory is needed.
            os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)

    def _columns(self, block: int) -> slice:
        return columns_of([block], self.num_columns, self._block_width)

    @contextmanager
    def _opened(self, block: int, mode: str = "rb") -> Iterator[int]:
        """The descriptor of a block's file."""
        if self._unnamed is not None:
            yield self._unnamed_file(block).descriptor
            return
        with naming(self._file(block)), self._file(block).open(mode, buffering=0) as file:
            yield file.fileno()

    def _unnamed_file(self, block: int) -> UnnamedFile:
        """The file of a block, which is made when it is first used.

        Raises:
            BudgetError: the disk has no room for it.
        """
        if self._unnamed is None:
            raise ValueError(f"{self._file(block)} has a name")
        if block not in self._unnamed:
            num_bytes = self.num_rows * self._width(block) * self._dtype.itemsize
            try:
                self._unnamed[block] = UnnamedFile(self._folder, num_bytes)
            except OSError as error:
                check_is_of_content(error, self._folder, FULL)
                raise BudgetError(
                    f"{self._folder}: no room for {num_bytes:,} bytes of temporary files ({error.strerror}); free disk"
                    " space"
                ) from error
        return self._unnamed[block]

    def _file(self, block: int) -> Path:
        return self._folder / f"{block:05d}.columns"

    def _width(self, block: int) -> int:
        return min(self._block_width, self.num_columns - block * self._block_width)

    def _cells(self, block: int, start: int, stop: int) -> range:
        """The checksums of a range of rows."""
        bounds = self._bounds[block]
        first, last = bisect_left(bounds, start), bisect_left(bounds, stop)
        if start < stop and (bounds[first] != start or last == len(bounds) or bounds[last] != stop):
            raise ValueError(f"rows {start}:{stop} do not begin and end where checksums do")
        return range(first, last)

    def _write(self, block: int, start: int, values: NDArray[Any]) -> None:
        """Write some rows of a block behind those before."""
        if start == 0:
            self.begin(block, ())
        number, checksums = start // self.tile_rows, self._checksums.get(block, [])
        written = len(checksums) - checksums.count(None)
        if start % self.tile_rows or number != written:
            raise ValueError(f"rows from {start} of a block with {written} ranges of {self.tile_rows}")
        self.write_range(block, start, values)
        with self._opened(block, "ab") as descriptor:
            self._give_back(descriptor)
        self.bytes_written += values.size * self._dtype.itemsize

    def _read(self, block: int, start: int, stop: int) -> NDArray[Any]:
        """Some rows of a block, compared with their checksums."""
        values = np.empty((stop - start, self._width(block)), self._dtype)
        self.read_range(block, start, values)
        row_bytes = self._width(block) * self._dtype.itemsize
        with self._opened(block) as descriptor:
            self._give_back(descriptor, start * row_bytes, values.nbytes)
        self.bytes_read += values.nbytes
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
