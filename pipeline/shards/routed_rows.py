"""Routed files: rows of vertex data, sorted by position, between the passes that bring them into a permuted order.

    position   (num_rows,) int64, ascending
    then the (num_rows, ...) rows of every array, in the order of the plan's types

The number of rows follows from the size of the file. A section is found by binary search, so files need no offsets, and
readers may cut them anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.raw_files import read_open_file, write_at
from gnnloom.pipeline.shards.grid_vertex_plan import POSITION_BYTES, Types, row_bytes
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.files import written_aside
from gnnloom.storage.matrix.ranges import Span

#: Bytes of rows that are read at a time from one file.
_BLOCK_BYTES = 4 << 20


class RoutedWriter:
    """Writes the columns of a routed file, each in any number of steps."""

    def __init__(self, descriptor: int, types: Types, num_rows: int) -> None:
        self._descriptor, self._types = descriptor, types
        self._columns = _columns(types, num_rows)

    def put(self, name: str, start: int, rows: NDArray[Any]) -> None:
        """Write rows of ``position`` or an array, from row ``start`` of the file on."""
        offset, width = self._columns[name]
        write_at(self._descriptor, offset + start * width, np.ascontiguousarray(rows))


@contextmanager
def written_rows(path: Path, types: Types, num_rows: int) -> Iterator[RoutedWriter]:
    """Write a routed file of ``num_rows`` rows; it gets its name at the end of the block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside, aside.open("wb", buffering=0) as file:
        yield RoutedWriter(file.fileno(), types, num_rows)


class RoutedFile:
    """A routed file, opened once."""

    def __init__(self, path: Path, types: Types) -> None:
        """Open the file.

        Raises:
            CorruptError: the file does not exist, or its size is not that of whole rows.
        """
        self._path, self._types = path, types
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError as error:
            raise CorruptError(f"{path}: missing; remove the unfinished artifact and start again") from error
        size, width = os.fstat(self._descriptor).st_size, sum(row_bytes(types, name) for name in types)
        self.num_rows, rest = divmod(size, width + POSITION_BYTES)
        if rest:
            self.close()
            raise CorruptError(f"{path}: {size:,} bytes are not whole rows of {width + POSITION_BYTES} bytes")
        self._columns = _columns(types, self.num_rows)

    def close(self) -> None:
        os.close(self._descriptor)

    def section(self, positions: Span) -> Span:
        """First and last (exclusive) row of the file with a position in the range."""
        first, last = (self._search(position) for position in positions)
        return first, last

    def _search(self, position: int) -> int:
        """Number of rows below a position."""
        low, high = 0, self.num_rows
        # Halving until one block is left: a few reads of a page each.
        while high - low > _BLOCK_BYTES // (8 * POSITION_BYTES):
            middle = (low + high) // 2
            if int(self.read("position", middle, middle + 1)[0]) < position:
                low = middle + 1
            else:
                high = middle
        return low + int(np.searchsorted(self.read("position", low, high), position))

    def read(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Rows ``start`` to ``stop`` of ``position`` or an array.

        Raises:
            CorruptError: the file is too short.
        """
        offset, width = self._columns[name]
        dtype, trailing = ("int64", ()) if name == "position" else self._types[name]
        rows = np.empty((stop - start, *trailing), dtype)
        read_open_file(self._descriptor, self._path, offset + start * width, rows)
        return rows

    def blocks(self, name: str, section: Span) -> Iterator[tuple[int, NDArray[Any]]]:
        """Rows of a section in steps of a few MiB, each with its place in the section."""
        step = max(1, _BLOCK_BYTES // max(1, self._columns[name][1]))
        for start in range(*section, step):
            yield start - section[0], self.read(name, start, min(start + step, section[1]))


@contextmanager
def opened(paths: Sequence[Path], types: Types) -> Iterator[list[RoutedFile]]:
    """Open several files, and close them at the end."""
    with ExitStack() as stack:
        files = []
        for path in paths:
            files.append(RoutedFile(path, types))
            stack.callback(files[-1].close)
        yield files


@dataclass(frozen=True)
class Gathered:
    """The rows of several files within a range of positions.

    Attributes:
        position: (num_rows,) int64, ascending.
        sections: rows of each file.
        places: for each file, (section,) int64 places of its rows among all rows.
    """

    files: Sequence[RoutedFile]
    types: Types
    position: NDArray[np.int64]
    sections: Sequence[Span]
    places: Sequence[NDArray[np.int64]]

    @classmethod
    def of(cls, files: Sequence[RoutedFile], types: Types, positions: Span) -> Gathered:
        """Find the rows of a range of positions in all files."""
        sections = [file.section(positions) for file in files]
        found = [file.read("position", *section) for file, section in zip(files, sections, strict=True)]
        position = np.concatenate([np.empty(0, np.int64), *found])
        if len(position) == positions[1] - positions[0]:
            # No two rows have the same position, so as many rows as positions are one for each.
            return cls(files, types, np.arange(*positions), sections, [each - positions[0] for each in found])
        position.sort()
        return cls(files, types, position, sections, [np.searchsorted(position, each) for each in found])

    def rows(self, name: str) -> NDArray[Any]:
        """(num_rows, ...) rows of an array, in the order of the positions."""
        dtype, trailing = self.types[name]
        rows = np.empty((len(self.position), *trailing), dtype)
        for file, section, places in zip(self.files, self.sections, self.places, strict=True):
            for first, block in file.blocks(name, section):
                rows[places[first : first + len(block)]] = block
        return rows


def _columns(types: Types, num_rows: int) -> dict[str, tuple[int, int]]:
    """Offset and bytes of a row, for the positions and every array."""
    columns, offset = {"position": (0, POSITION_BYTES)}, num_rows * POSITION_BYTES
    for name in types:
        width = row_bytes(types, name)
        columns[name], offset = (offset, width), offset + num_rows * width
    return columns
