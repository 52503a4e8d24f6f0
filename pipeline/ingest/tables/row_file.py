"""Files of a table's rows, grouped by bucket, between the tasks that read the table and those that write the array.

    row       (num_buckets + 1,) int64    first row of each bucket
    text      (num_buckets + 1,) int64    first byte of the ids of each bucket
    length    (num_rows,) uint32          bytes of each row's id
    at        (num_rows,) int64           place of each row in the table
    value     (num_rows, ...)             its values
    id        (num_bytes,) uint8          the ids, one after another

Rows of a bucket keep the order of the table. No entry refers to another row, so merging copies ranges of bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.byte_ranges import ByteRange, copy_ranges
from gnnloom.pipeline.external_sort.lanes import Lane, LaneWriter, OpenLane, writable
from gnnloom.pipeline.ingest.tables.plan import GATHERED_ROW_BYTES, ROW_BYTES
from gnnloom.pipeline.sources.names import Names
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.matrix.ranges import Span

#: Bytes that are decoded at a time.
_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True)
class RowType:
    """Type of the values of a row.

    Attributes:
        trailing: shape of one row's values.
    """

    dtype: str
    trailing: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        return int(np.prod(self.trailing, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    def empty(self, num_rows: int) -> NDArray[Any]:
        """(num_rows, ...) values, not initialized."""
        return np.empty((num_rows, *self.trailing), self.dtype)


@dataclass(frozen=True)
class RowLayout:
    """Where the columns of a file lie.

    Attributes:
        row_offsets: (num_buckets + 1,) int64 first row of each bucket.
        text_offsets: (num_buckets + 1,) int64 first byte of the ids of each bucket.
        value_bytes: bytes of the values of a row.
    """

    row_offsets: NDArray[np.int64]
    text_offsets: NDArray[np.int64]
    value_bytes: int

    @cached_property
    def columns(self) -> dict[str, tuple[int, int]]:
        """Offset and bytes of a row, for ``length``, ``at`` and ``value``; and of a byte, for ``id``."""
        num_rows, begin = int(self.row_offsets[-1]), 16 * len(self.row_offsets)
        places = {}
        for name, width in (("length", 4), ("at", 8), ("value", self.value_bytes)):
            places[name] = (begin, width)
            begin += num_rows * width
        return {**places, "id": (begin, 1)}

    @property
    def size(self) -> int:
        """Bytes of the file."""
        begin, _ = self.columns["id"]
        return begin + int(self.text_offsets[-1])

    def extent(self, column: str, bucket: int) -> Span:
        """First and last (exclusive) byte of a bucket in a column."""
        begin, width = self.columns[column]
        offsets = self.text_offsets if column == "id" else self.row_offsets
        return begin + int(offsets[bucket]) * width, begin + int(offsets[bucket + 1]) * width


class RowFile:
    """A file of rows, opened once."""

    def __init__(self, path: Path, values: RowType, num_buckets: int) -> None:
        """Open a file of ``num_buckets`` buckets.

        Raises:
            CorruptError: the file does not exist, or is damaged.
        """
        self._path, self._values = path, values
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError as error:
            raise CorruptError(f"{path}: missing; remove the unfinished artifact and start again") from error
        self._lane = OpenLane(Lane(path.name), self._descriptor, path)
        try:
            self.layout = self._read_layout(num_buckets)
        except CorruptError:
            self.close()
            raise

    def _read_layout(self, num_buckets: int) -> RowLayout:
        offsets = np.empty((2, num_buckets + 1), np.int64)
        self._lane.read(0, offsets)
        return RowLayout(offsets[0], offsets[1], self._values.num_bytes)

    def close(self) -> None:
        os.close(self._descriptor)

    def bytes_of(self, column: str, bucket: int) -> ByteRange:
        """The bytes of a bucket in a column."""
        return ByteRange(self._lane, *self.layout.extent(column, bucket))

    def blocks(self, bucket: int) -> Iterator[tuple[Names, NDArray[np.int64], NDArray[Any]]]:
        """Ids, places and values of a bucket's rows, a few MiB at a time."""
        columns = self.layout.columns
        first, last = (int(self.layout.row_offsets[number]) for number in (bucket, bucket + 1))
        text_at = self.layout.extent("id", bucket)[0]
        step = max(1, _BLOCK_BYTES // (ROW_BYTES + self._values.num_bytes))
        for start in range(first, last, step):
            count = min(step, last - start)
            length, at, values = np.empty(count, np.uint32), np.empty(count, np.int64), self._values.empty(count)
            for name, column in (("length", length), ("at", at), ("value", values)):
                begin, width = columns[name]
                self._lane.read(begin + start * width, column)
            offset = np.zeros(count + 1, np.int64)
            np.cumsum(length, out=offset[1:])
            text = np.empty(int(offset[-1]), np.uint8)
            self._lane.read(text_at, text)
            text_at += len(text)
            yield Names(offset, text), at, values


@contextmanager
def opened(paths: Sequence[Path], values: RowType, num_buckets: int) -> Iterator[list[RowFile]]:
    """Open several files, and close them at the end."""
    with ExitStack() as stack:
        files = []
        for path in paths:
            files.append(RowFile(path, values, num_buckets))
            stack.callback(files[-1].close)
        yield files


def merge_files(paths: Sequence[Path], values: RowType, num_buckets: int, span: Span, merged: Path) -> int:
    """Write the rows of some buckets of several files to one file; returns their number.

    Args:
        paths: the files, in the order of the table.
        num_buckets: buckets of each file.
        span: first and last (exclusive) of these buckets.
    """
    buckets = range(*span)
    with opened(paths, values, num_buckets) as files, _written(merged) as lane:
        rows, text = np.zeros((2, len(buckets)), np.int64)
        for file in files:
            rows += np.diff(file.layout.row_offsets[span[0] : span[1] + 1])
            text += np.diff(file.layout.text_offsets[span[0] : span[1] + 1])
        layout = RowLayout(_offsets(rows), _offsets(text), values.num_bytes)
        lane.write(0, np.concatenate([layout.row_offsets, layout.text_offsets]))
        # Columns follow each other, so one copy serves all.
        ranges = (file.bytes_of(name, bucket) for name in layout.columns for bucket in buckets for file in files)
        copy_ranges(ranges, lane, 16 * len(layout.row_offsets))
    return int(layout.row_offsets[-1])


@contextmanager
def _written(path: Path) -> Iterator[LaneWriter]:
    """Write a file that is a single lane."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    with writable(path.parent, Lane(path.name)) as lane:
        yield lane


def _offsets(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


class RowGroup:
    """Rows that are gathered in memory until they are written as a file."""

    def __init__(self, values: RowType, num_buckets: int) -> None:
        self._values, self._num_buckets = values, num_buckets
        self._buckets: list[NDArray[np.int64]] = []
        self._names: list[Names] = []
        self._at: list[NDArray[np.int64]] = []
        self._rows: list[NDArray[Any]] = []
        #: Bytes of what was added; sorting it takes as many again.
        self.num_bytes = 0

    def add(self, buckets: NDArray[np.int64], names: Names, at: NDArray[np.int64], rows: NDArray[Any]) -> None:
        """Add rows.

        Args:
            buckets: (num_rows,) int64; rows with -1 are left out.
            names: their ids.
            at: (num_rows,) int64 places in the table.
            rows: (num_rows, ...) values.
        """
        kept = buckets >= 0
        if not kept.all():
            buckets, names, at, rows = buckets[kept], _taken(names, np.flatnonzero(kept)), at[kept], rows[kept]
        # A copy of the text, which may be the beginning of a longer buffer.
        names = Names(names.offset, names.text[: names.offset[-1]].copy())
        for column, block in ((self._buckets, buckets), (self._at, at), (self._rows, rows)):
            column.append(block)
        self._names.append(names)
        self.num_bytes += rows.nbytes + len(names.text) + GATHERED_ROW_BYTES * len(rows)

    def write(self, path: Path) -> None:
        """Write the rows, grouped by bucket; some must have been added. The group cannot be used afterwards."""
        buckets = np.concatenate(self._buckets)
        # Stable: rows of a bucket keep their order.
        order = np.argsort(buckets, kind="stable")
        ids = _taken(self._joined_names(), order)
        length = np.diff(ids.offset)
        rows = np.bincount(buckets, minlength=self._num_buckets)
        row_offsets = _offsets(rows)
        layout = RowLayout(row_offsets, ids.offset[row_offsets], self._values.num_bytes)
        with _written(path) as lane:
            lane.write(0, np.concatenate([layout.row_offsets, layout.text_offsets]))
            places = {name: begin for name, (begin, _) in layout.columns.items()}
            lane.write(places["length"], length.astype(np.uint32))
            lane.write(places["at"], np.concatenate(self._at)[order])
            lane.write(places["id"], ids.text)
            lane.write(places["value"], self._sorted_rows(order))

    def _joined_names(self) -> Names:
        """The ids of all rows; drops their blocks, so that at most two copies of the text are in memory."""
        offset = _offsets(np.concatenate([np.diff(names.offset) for names in self._names]))
        text = np.concatenate([names.text for names in self._names])
        self._names.clear()
        return Names(offset, text)

    def _sorted_rows(self, order: NDArray[np.int64]) -> NDArray[Any]:
        """(num_rows, ...) values in another order; twice the values are in memory."""
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        rows, first = self._values.empty(len(order)), 0
        for block in self._rows:
            rows[place[first : first + len(block)]] = block
            first += len(block)
        return rows


def _taken(names: Names, order: NDArray[np.int64]) -> Names:
    """The names with these numbers, in this order."""
    return Names.from_arrow(names.to_arrow().take(order))
