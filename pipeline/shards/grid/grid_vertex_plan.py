"""Routes vertex data to a permuted order: ranges of vertices, and buckets of positions.

Each range of vertices is sorted by position by one task, and each bucket of positions is written by one.

Ranges follow from the memory of a worker, and leave no trace in the artifact. Buckets decide how arrays are divided
into pieces, so they depend on the arrays only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.memory import rows_that_fit
from gnnloom.storage.format.arrays import CHUNK_BYTES
from gnnloom.storage.matrix.ranges import Span, split_range
from gnnloom.storage.shards.grid_shards import crop_chunk_rows

#: Bytes of the rows of a range, unless the memory of a worker is smaller.
RANGE_BYTES = 512 << 20
#: Most chunks of the widest array in a bucket.
BUCKET_CHUNKS = 16
#: Bytes of a bucket's rows and positions, except that one chunk always fits.
_BUCKET_BYTES = 96 << 20
#: Bytes of a row while it is routed, in addition to two copies of its widest array: positions, and their sort.
_ROUTE_BYTES = 128
#: Bytes of a row while a bucket is assembled, in addition to the row: positions, and their places.
_PLACE_BYTES = 24
#: Bytes of the position of a row that is routed.
POSITION_BYTES = 8

Types = Mapping[str, tuple[str, tuple[int, ...]]]


def row_bytes(types: Types, name: str) -> int:
    """Bytes of one vertex in an array.

    Args:
        types: name to dtype and trailing shape of each array.
    """
    dtype, trailing = types[name]
    return np.dtype(dtype).itemsize * math.prod(trailing)


@dataclass(frozen=True)
class Bucket:
    """Positions ``start`` to ``stop`` of an order, all in range ``row`` of the grid's rows; one task writes them.

    Attributes:
        number: number of the bucket, in its row of the grid.
    """

    row: int
    number: int
    start: int
    stop: int


@dataclass(frozen=True)
class VertexPlan:
    """Ranges and buckets of one order.

    Attributes:
        grid_rows: number of ranges of positions that are stored as separate arrays.
        types: name to dtype and trailing shape of each array.
        range_rows: vertices of a range.
        is_identity: positions are ids, so nothing is routed.
    """

    num_vertices: int
    grid_rows: int
    types: Types
    range_rows: int
    is_identity: bool = False

    @classmethod
    def of(cls, num_vertices: int, grid_rows: int, types: Types, memory: int, *, is_identity: bool) -> VertexPlan:
        """Plan an order for workers that may use ``memory`` bytes each.

        Raises:
            BudgetError: a worker's memory is too small for any buffer.
        """
        widest = max(row_bytes(types, name) for name in types)
        fitting = rows_that_fit(memory, 2 * widest + _ROUTE_BYTES)
        rows = min(fitting, RANGE_BYTES // (POSITION_BYTES + sum(row_bytes(types, name) for name in types)))
        # Whole chunks of the widest array: a chunk that two ranges share would be decompressed twice.
        chunk_rows = max(1, CHUNK_BYTES // max(1, widest))
        rows = max(1, rows // chunk_rows * chunk_rows or rows)
        return cls(num_vertices, grid_rows, types, rows, is_identity)

    @property
    def routed_row_bytes(self) -> int:
        """Bytes of a vertex that is routed."""
        return POSITION_BYTES + sum(self._row_bytes.values())

    @property
    def num_ranges(self) -> int:
        return 0 if self.is_identity else -(-self.num_vertices // self.range_rows)

    def vertices_of(self, number: int) -> Span:
        """First and last (exclusive) vertex of a range."""
        return number * self.range_rows, min((number + 1) * self.range_rows, self.num_vertices)

    def shuffle(self, order: str, readers: int) -> Shuffle:
        """The shuffle of the rows of an order, by position.

        Args:
            readers: number of buckets.
        """
        columns = tuple(Column(name, dtype, trailing) for name, (dtype, trailing) in self.types.items())
        return Shuffle(f"vertices/{order}", self.num_vertices, columns, readers)

    @property
    def column_bytes(self) -> int:
        """Bytes of all arrays."""
        return self.num_vertices * (self.routed_row_bytes - POSITION_BYTES)

    @cached_property
    def _row_bytes(self) -> dict[str, int]:
        return {name: row_bytes(self.types, name) for name in self.types}

    @cached_property
    def _widest(self) -> int:
        return max(self._row_bytes.values())

    @cached_property
    def _chunk_rows(self) -> dict[int, dict[str, int]]:
        """Rows per chunk of every array, by the length of a range of the grid: there are two lengths at most."""
        lengths = {self.num_vertices // self.grid_rows, -(-self.num_vertices // self.grid_rows)}
        return {each: {name: crop_chunk_rows(each, size) for name, size in self._row_bytes.items()} for each in lengths}

    def bucket_rows(self, row: int) -> int:
        """Positions of a bucket in range ``row`` of the grid: whole chunks of the widest array."""
        first, last = split_range(self.num_vertices, self.grid_rows, row)
        chunk = crop_chunk_rows(last - first, self._widest)
        return chunk * min(BUCKET_CHUNKS, max(1, _BUCKET_BYTES // (chunk * (self._widest + _PLACE_BYTES))))

    def buckets(self) -> Iterator[Bucket]:
        """All buckets, in order; at least one for each row of the grid."""
        for row in range(self.grid_rows):
            first, last = split_range(self.num_vertices, self.grid_rows, row)
            step = self.bucket_rows(row)
            for number, start in enumerate(range(first, max(last, first + 1), step)):
                yield Bucket(row, number, start, min(start + step, last))

    def written(self, bucket: Bucket, name: str) -> Span:
        """The positions of one array that a bucket's task writes: its chunks that begin within the bucket."""
        return self._written(bucket)[name]

    def _written(self, bucket: Bucket) -> dict[str, Span]:
        """The positions of every array that a bucket's task writes."""
        first, last = split_range(self.num_vertices, self.grid_rows, bucket.row)
        start, stop, spans = bucket.start - first, bucket.stop - first, {}
        for name, chunk in self._chunk_rows[last - first].items():
            begin, end = first - -start // chunk * chunk, first - -stop // chunk * chunk
            spans[name] = min(begin, last), min(end, last)
        return spans

    def range_memory(self, rows: int) -> int:
        """Bytes that a task holds while it routes ``rows`` vertices."""
        return rows * (2 * self._widest + _ROUTE_BYTES)

    def bucket_memory(self, bucket: Bucket) -> int:
        """Bytes that the task of a bucket holds."""
        return (bucket.stop - bucket.start) * (self._widest + _PLACE_BYTES) + 2 * CHUNK_BYTES

    def bucket_bytes(self, bucket: Bucket) -> tuple[int, int, int]:
        """Bytes that the task of a bucket reads and writes, and the end of the positions that it reads."""
        spans = self._written(bucket)
        written = sum((stop - start) * self._row_bytes[name] for name, (start, stop) in spans.items())
        positions = sum(stop - start for start, stop in set(spans.values()))
        # Arrays with longer chunks than the widest one are read beyond the end of the bucket.
        last = max((stop for start, stop in spans.values() if start < stop), default=bucket.start)
        return written + POSITION_BYTES * positions, written, last
