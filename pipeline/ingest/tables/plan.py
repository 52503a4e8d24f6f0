"""How the rows of a table are cut into buckets of vertices, and their files into levels of merges.

A *bucket* is a range of vertices whose values and ids one task holds in memory. Tasks read ranges of the table and
leave files of rows, grouped by bucket; levels of merges follow until few files hold each bucket; the tasks that write
the array then read bucket after bucket. Buckets depend on the array and the graph alone, so a run with a different
memory limit can continue an earlier one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gnnloom.pipeline.external_sort.merge_levels import Level, count_merges, merge_levels
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.phase_counts import PhaseCount
from gnnloom.storage.matrix.ranges import Span, range_of, split_range

#: Most files of rows that one task opens.
FAN_IN = 16
#: Bytes of a bucket's values and of the ids of its vertices.
BUCKET_BYTES = 24 << 20
#: Most bytes of the rows that a task gathers for a file, unless the memory of a worker is smaller.
FILE_BYTES = 512 << 20
#: Buckets whose first ids one task looks up: a chunk of the stored ids is decompressed for each.
BOUNDS_PER_TASK = 256
#: Bytes of a row in a file, in addition to its values and the text of its id: the length of the id, and the place of
#: the row in the table.
ROW_BYTES = 12
#: Bytes of a row while its file is gathered and sorted by bucket, in addition to its values and the text of its id: its
#: bucket, its place in the table, the offset of its id in both orders and in Arrow's, and the order and its inverse.
GATHERED_ROW_BYTES = 64
#: Bytes of a vertex while its bucket is filled, in addition to its values and its id: whether it has a row, and where
#: its id begins.
_VERTEX_BYTES = 9
#: Columns of a file of rows: offsets, lengths, places, values and ids.
_COLUMNS = 5


@dataclass(frozen=True)
class TablePlan:
    """Buckets of one array.

    Attributes:
        num_vertices: vertices of the graph.
        task_rows: vertices whose rows one task writes.
        value_bytes: bytes of the values of a row.
        id_bytes: mean bytes of a vertex's id.
    """

    num_vertices: int
    task_rows: int
    value_bytes: int
    id_bytes: int

    @cached_property
    def bucket_rows(self) -> int:
        """Vertices of a bucket: a task writes whole buckets of about equal size."""
        task_rows = max(1, min(self.task_rows, self.num_vertices))
        task_bytes = task_rows * (self.value_bytes + self.id_bytes + _VERTEX_BYTES)
        return -(-task_rows // -(-task_bytes // BUCKET_BYTES))

    @property
    def _per_task(self) -> int:
        return -(-min(self.task_rows, max(1, self.num_vertices)) // self.bucket_rows)

    @property
    def num_buckets(self) -> int:
        tasks, rest = divmod(self.num_vertices, self.task_rows)
        return tasks * self._per_task + -(-rest // self.bucket_rows)

    def vertices_of(self, bucket: int) -> Span:
        """First and last (exclusive) vertex of a bucket."""
        task, number = divmod(bucket, self._per_task)
        end = min((task + 1) * self.task_rows, self.num_vertices)
        start = task * self.task_rows + number * self.bucket_rows
        return start, min(start + self.bucket_rows, end)

    def buckets_of(self, start: int, stop: int) -> range:
        """The buckets of the task that writes rows ``start`` to ``stop``."""
        first = start // self.task_rows * self._per_task
        return range(first, first + -(-(stop - start) // self.bucket_rows))

    def span(self, level: Level, number: int) -> Span:
        """First and last (exclusive) bucket of a span."""
        return split_range(self.num_buckets, level.spans, number)

    def span_of(self, level: Level, bucket: int) -> int:
        """Number of the span that holds a bucket."""
        return range_of(self.num_buckets, level.spans, bucket)

    def counts(self, num_rows: int, table_bytes: int, num_ranges: int, memory: int) -> list[PhaseCount]:
        """What the phases will do for a table whose ids are spread evenly over the buckets.

        Args:
            num_rows: rows of the table.
            table_bytes: bytes of the table.
            num_ranges: tasks that read the table.
            memory: bytes that a worker may use.
        """
        total = num_rows * (self.value_bytes + self.id_bytes + ROW_BYTES)
        gathered = -(-num_rows * (self.value_bytes + self.id_bytes + GATHERED_ROW_BYTES) // max(1, num_ranges))
        files = num_ranges * -(-gathered // file_bytes(memory))
        header = 16 * (self.num_buckets + 1)
        bounds = -(-self.num_buckets // BOUNDS_PER_TASK)
        range_bytes = -(-table_bytes // max(1, num_ranges))
        phases = [
            PhaseCount("cut ids", bounds),
            PhaseCount("route rows", num_ranges, num_ranges, 1, 1, table_bytes, total + files * header, range_bytes),
        ]
        levels = merge_levels(files, FAN_IN)
        for level in levels[1:]:
            count = count_merges(levels, level, self.num_buckets)
            # Every span of a file is read along with the offsets of all of the file's buckets.
            spans_before = min(levels[level.number - 1].spans, self.num_buckets)
            read = total + count.sources * (header // spans_before + 16)
            largest = -(-read * count.most_sources // count.sources)
            phases.append(
                PhaseCount("merge rows", count.tasks, count.sources, count.most_sources, _COLUMNS, read, total, largest)
            )
        phases.append(self._write_count(total, levels[-1]))
        return phases

    def _write_count(self, total: int, last: Level) -> PhaseCount:
        """The phase that writes the array.

        Args:
            total: bytes of all rows in files.
            last: the last level.
        """
        tasks = opens = most = 0
        for start in range(0, self.num_vertices, self.task_rows):
            buckets = self.buckets_of(start, min(start + self.task_rows, self.num_vertices))
            spans = self.span_of(last, buckets[-1]) - self.span_of(last, buckets[0]) + 1
            tasks, opens, most = tasks + 1, opens + last.sources * spans, max(most, last.sources)
        largest = min(total, -(-total * self.task_rows // self.num_vertices))
        written = self.num_vertices * self.value_bytes
        return PhaseCount("write rows", tasks, opens, most, _COLUMNS, total, written, largest)


def file_bytes(memory: int) -> int:
    """Bytes of the rows that a task gathers, in the order of the table, before it writes them by bucket.

    Both orders are in memory at once; the rest is for the block being read.
    """
    return min(FILE_BYTES, working_memory(memory) // 4)
