"""How the vertices of an array are cut into buckets, which are the positions of a table's rows while they are shuffled.

A *bucket* is a range of vertices whose values and ids one task holds in memory. Tasks read ranges of the table and
route rows to buckets; the tasks that write the array then read bucket after bucket. Buckets depend on the array and the
graph alone, so a run with a different memory limit can continue an earlier one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gnnloom.pipeline.shuffle.columns import Column, row_bytes
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.storage.matrix.ranges import Span

#: Bytes of a bucket's values and of the ids of its vertices.
BUCKET_BYTES = 24 << 20
#: Bytes of a vertex while its bucket is filled, in addition to its values and its id: whether it has a row, and where
#: its id begins.
_VERTEX_BYTES = 9


@dataclass(frozen=True)
class VertexBuckets:
    """Buckets of one array.

    Attributes:
        num_vertices: vertices of the graph.
        task_rows: vertices whose rows one task writes.
        values: column with the values of a row.
        id_bytes: mean bytes of a vertex's id.
    """

    num_vertices: int
    task_rows: int
    values: Column
    id_bytes: int

    @cached_property
    def bucket_rows(self) -> int:
        """Vertices of a bucket: a task writes whole buckets of about equal size."""
        task_rows = max(1, min(self.task_rows, self.num_vertices))
        task_bytes = task_rows * (self.values.num_bytes + self.id_bytes + _VERTEX_BYTES)
        return -(-task_rows // -(-task_bytes // BUCKET_BYTES))

    @property
    def memory(self) -> int:
        """Bytes of a bucket while it is filled."""
        return self.bucket_rows * (self.values.num_bytes + self.id_bytes + _VERTEX_BYTES)

    @property
    def _per_task(self) -> int:
        return -(-min(self.task_rows, max(1, self.num_vertices)) // self.bucket_rows)

    @property
    def num_buckets(self) -> int:
        tasks, rest = divmod(self.num_vertices, self.task_rows)
        return tasks * self._per_task + -(-rest // self.bucket_rows)

    @property
    def num_bytes(self) -> int:
        """Bytes of a row of every vertex while it is shuffled."""
        return self.num_vertices * (row_bytes(self.shuffle("any").columns) + self.id_bytes)

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

    def shuffle(self, array: str) -> Shuffle:
        """The shuffle of a table's rows, by bucket: the id of each, its place in the table, and its values."""
        columns = (
            Column("length", "int64"),
            Column("at", "int64"),
            self.values,
            Column("id", "uint8", lengths="length"),
        )
        return Shuffle(f"table/{array}", self.num_buckets, columns, self.num_buckets)
