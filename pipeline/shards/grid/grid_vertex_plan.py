"""How vertex data reach a permuted order: ranges of vertices, levels of routed files, and buckets of positions.

Each range of vertices is sorted by position into one *routed* file, a lane of a file that several tasks write. Each
bucket of positions is then written by one task, which reads a section of every routed file. With many ranges, these
sections would be short, so levels lie in between: a task merges the files of several ranges for one *span* of
positions, so that the next level has fewer sources and more spans. Every level reads and writes all rows once.

Ranges and levels follow from the memory of a worker, and leave no trace in the artifact. Buckets decide how arrays are
divided into pieces, so they depend on the arrays only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gnnloom.pipeline.external_sort.lanes import num_shared_files
from gnnloom.pipeline.external_sort.merge_levels import Level, Merge, count_merges, merge_levels, merges
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.phase_counts import PhaseCount
from gnnloom.storage.artifacts.grid_shards import crop_chunk_rows
from gnnloom.storage.format.arrays import CHUNK_BYTES
from gnnloom.storage.matrix.ranges import Span, range_of, split_range

#: Most routed files that one task reads for a span of positions.
FAN_IN = 32
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
#: Bytes of a position in a routed file.
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
    """Ranges, levels and buckets of one order.

    Attributes:
        grid_rows: number of ranges of positions that are stored as separate arrays.
        types: name to dtype and trailing shape of each array.
        range_rows: vertices of a range.
        is_identity: positions are ids, so nothing is routed.
        fan_in: most files that one task reads for a span.
    """

    num_vertices: int
    grid_rows: int
    types: Types
    range_rows: int
    is_identity: bool = False
    fan_in: int = FAN_IN

    @classmethod
    def of(cls, num_vertices: int, grid_rows: int, types: Types, memory: int, *, is_identity: bool) -> VertexPlan:
        """Plan an order for workers that may use ``memory`` bytes each.

        Raises:
            BudgetError: a worker's memory is too small for any buffer.
        """
        widest = max(row_bytes(types, name) for name in types)
        fitting = working_memory(memory) // (2 * widest + _ROUTE_BYTES)
        rows = min(fitting, RANGE_BYTES // (POSITION_BYTES + sum(row_bytes(types, name) for name in types)))
        # Whole chunks of the widest array: a chunk that two ranges share would be decompressed twice.
        chunk_rows = max(1, CHUNK_BYTES // max(1, widest))
        rows = max(1, rows // chunk_rows * chunk_rows or rows)
        return cls(num_vertices, grid_rows, types, rows, is_identity, FAN_IN)

    @property
    def routed_row_bytes(self) -> int:
        """Bytes of a vertex in a routed file."""
        return POSITION_BYTES + sum(row_bytes(self.types, name) for name in self.types)

    @property
    def num_ranges(self) -> int:
        return 0 if self.is_identity else -(-self.num_vertices // self.range_rows)

    def vertices_of(self, number: int) -> Span:
        """First and last (exclusive) vertex of a range."""
        return number * self.range_rows, min((number + 1) * self.range_rows, self.num_vertices)

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """All levels; the first has a file per range, and the last at most ``fan_in`` files per span."""
        return merge_levels(self.num_ranges, self.fan_in)

    def merges(self, level: Level) -> Iterator[Merge]:
        """The merges that make the files of a level."""
        return merges(self.levels, level, self.num_vertices)

    def spans(self, level: Level, positions: Span) -> list[int]:
        """Numbers of a level's spans that overlap a range of positions."""
        first, last = positions
        if first == last:
            return []
        start, stop = (range_of(self.num_vertices, level.spans, at) for at in (first, last - 1))
        return list(range(start, stop + 1))

    @cached_property
    def _widest(self) -> int:
        return max(row_bytes(self.types, name) for name in self.types)

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
        first, last = split_range(self.num_vertices, self.grid_rows, bucket.row)
        chunk = crop_chunk_rows(last - first, row_bytes(self.types, name))
        start, stop = (
            first + min(-(-(at - first) // chunk) * chunk, last - first) for at in (bucket.start, bucket.stop)
        )
        return start, stop

    def spans_of(self, bucket: Bucket) -> list[int]:
        """Numbers of the last level's spans that hold what the bucket's task writes."""
        if self.is_identity:
            return []
        written = (self.written(bucket, name) for name in self.types)
        return sorted({span for positions in written for span in self.spans(self.levels[-1], positions)})

    def num_buckets(self) -> int:
        return sum(1 for _ in self.buckets())

    def peak_memory(self) -> int:
        """Bytes that the largest task holds."""
        rows = 0 if self.is_identity else min(self.range_rows, self.num_vertices)
        bucket = max((self.bucket_rows(row) for row in range(self.grid_rows)), default=0)
        bucket = min(bucket, -(-self.num_vertices // self.grid_rows))
        return max(rows * (2 * self._widest + _ROUTE_BYTES), bucket * (self._widest + _PLACE_BYTES) + 2 * CHUNK_BYTES)

    def counts(self) -> list[PhaseCount]:
        """What the phases will do, for one order."""
        total = self.num_vertices * self.routed_row_bytes
        arrays = len(self.types) + 1
        phases = []
        if not self.is_identity:
            largest = min(self.range_rows, self.num_vertices) * self.routed_row_bytes
            phases.append(PhaseCount("route vertices", self.num_ranges, 0, 0, 1, total, total, largest))
        shared = num_shared_files(self.num_ranges)
        for level in self.levels[1:]:
            count = count_merges(self.levels, level, self.num_vertices)
            # Positions of a permutation are spread evenly.
            largest = total * count.most_sources // count.sources
            opens, most = count.opens(shared), min(count.most_sources, shared)
            phases.append(PhaseCount("merge vertices", count.tasks, opens, most, arrays, total, total, largest))
            shared = num_shared_files(count.tasks)
        phases.append(self._write_count(arrays, shared))
        return phases

    def _write_count(self, arrays: int, shared: int) -> PhaseCount:
        """The phase that writes the buckets, from lanes of so many files."""
        last = self.levels[-1]
        tasks = opens = most = read = largest = 0
        for bucket in self.buckets():
            files = min(last.sources * len(self.spans_of(bucket)), shared)
            spans = {name: self.written(bucket, name) for name in self.types}
            own = sum((stop - start) * row_bytes(self.types, name) for name, (start, stop) in spans.items())
            own += POSITION_BYTES * sum(stop - start for start, stop in set(spans.values()))
            tasks, opens, read = tasks + 1, opens + files, read + own
            most, largest = max(most, files), max(largest, own)
        written = self.num_vertices * (self.routed_row_bytes - POSITION_BYTES)
        return PhaseCount("write vertices", tasks, opens, most, arrays, read, written, largest)
