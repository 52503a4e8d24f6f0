"""Finds the vertices of a stored graph by their ids in the source of its edges: first the bucket, then the vertex.

A *bucket* is a range of vertices whose values and ids one task holds in memory. Tasks read ranges of the table and
route rows to buckets; the tasks that write the array then read bucket after bucket. Buckets depend on the array and the
graph alone, so a run with a different memory limit can continue an earlier one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.ingest.tables.id_numbers import first_fault, read_numbers
from gnnloom.pipeline.shuffle.columns import Column, row_bytes
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.sources.parsers.numerals import PADDED, REASONS
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.disk.files import read_json, write_json
from gnnloom.storage.disk.work_folder import BESIDE
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.ranges import Span

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
        bucket_bytes: bytes of a bucket's values and of the ids of its vertices.
    """

    num_vertices: int
    task_rows: int
    values: Column
    id_bytes: int
    bucket_bytes: int = BESIDE.bucket_bytes

    @cached_property
    def bucket_rows(self) -> int:
        """Vertices of a bucket: a task writes whole buckets of about equal size."""
        task_rows = max(1, min(self.task_rows, self.num_vertices))
        task_bytes = task_rows * (self.values.num_bytes + self.id_bytes + _VERTEX_BYTES)
        return -(-task_rows // -(-task_bytes // self.bucket_bytes))

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


#: Advice about ids that differ in leading zeros only, and about missing ones.
_NAMES_HINT = "; write it as in the edges, or ingest the edges with `--ids names`"
_MISSING = "the id of the vertex is missing; remove the row"


def id_bytes(ids: SourceIds) -> int:
    """Mean bytes of a vertex's id."""
    if not ids.has_names:
        return 8
    return -(-ids.artifact.record(f"{ids.prefix}original_name").shape[0] // max(1, ids.num_vertices))


def first_ids(ids: SourceIds, buckets: VertexBuckets, numbers: range) -> list[Any]:
    """For each of some buckets, a lower bound of its ids that is greater than every id of the buckets before it.

    A text bound is as short as possible, with one character per byte.
    """
    if not ids.has_names:
        starts = (buckets.vertices_of(number)[0] for number in numbers)
        return [int(ids.original_id(start, start + 1)[0]) for start in starts]
    found = []
    for number in numbers:
        start = buckets.vertices_of(number)[0]
        before, *own = (name.encode() for name in ids.original_name(max(0, start - 1), start + 1))
        found.append(_separator(before, own[0]).decode("latin-1") if own else "")
    return found


def _separator(before: bytes, own: bytes) -> bytes:
    """The shortest beginning of ``own`` that is greater than ``before``."""
    common = next((at for at, (one, other) in enumerate(zip(before, own, strict=False)) if one != other), len(before))
    return own[: common + 1]


@dataclass(frozen=True)
class BucketBounds:
    """The ids at which buckets begin.

    Attributes:
        first: (num_buckets,) int64, ascending; or, if ids are names, num_buckets texts, ascending by their bytes.
    """

    first: NDArray[np.int64] | Names

    @classmethod
    def save(cls, path: Path, found: Sequence[Any]) -> None:
        """Store what :func:`first_ids` found for all buckets."""
        write_json(path, {"bounds": list(found)}, durable=False)

    @classmethod
    def load(cls, path: Path) -> BucketBounds:
        content: Mapping[str, Any] = read_json(path)
        found = content["bounds"]
        if found and isinstance(found[0], str):
            return cls(Names.of_values(np.array([text.encode("latin-1") for text in found], object)))
        return cls(np.array(found, np.int64))

    def fault(self, ids: Names) -> tuple[int, str]:
        """The first id that cannot be right, if vertices have numbers, and the reason; -1 if there is none.

        An id with leading zeros would be another spelling of a number.
        """
        if isinstance(self.first, Names):
            return -1, ""
        row, wrong = first_fault(ids.offset, ids.text)
        return row, REASONS[PADDED] + _NAMES_HINT if wrong == PADDED else _MISSING

    def find(self, ids: Names) -> NDArray[np.int64]:
        """(num_ids,) int64 bucket of each id; -1 if the id cannot belong to a vertex."""
        found = np.empty(len(ids), np.int64)
        if isinstance(self.first, Names):
            _count_names(ids.offset, ids.text, self.first.offset, self.first.text, found)
            return found - 1
        read_numbers(ids.offset, ids.text, found)
        return np.searchsorted(self.first, found, side="right") - 1


class VertexLookup:
    """Finds the vertices of a range by id; holds their ids."""

    def __init__(self, ids: SourceIds, start: int, stop: int) -> None:
        self._start, self._stop, self._names, self._numbers = start, stop, None, None
        if ids.has_names:
            self._names = Names(*ids.name_bytes(start, stop))
        elif ids.has_numbers:
            self._numbers = ids.original_id(start, stop)

    def find(self, ids: Names) -> NDArray[np.int64]:
        """(num_ids,) int64 vertices, counted from the start of the range; -1 for ids of no vertex."""
        found = np.empty(len(ids), np.int64)
        if self._names is not None:
            _find_names(ids.offset, ids.text, self._names.offset, self._names.text, found)
            return found
        read_numbers(ids.offset, ids.text, found)
        if self._numbers is None:
            return np.where((found >= self._start) & (found < self._stop), found - self._start, -1)
        # An id above all known ones would be placed after the last; the comparison then refuses it.
        position = np.minimum(np.searchsorted(self._numbers, found), len(self._numbers) - 1)
        return np.where(self._numbers[position] == found, position, -1)


@kernel
def _count_names(
    offset: NDArray[np.int64],
    text: NDArray[np.uint8],
    known_offset: NDArray[np.int64],
    known_text: NDArray[np.uint8],
    count: NDArray[np.int64],
) -> None:
    """For each name, the number of known names that are not greater; known names ascend."""
    for k in range(count.size):
        low, high = 0, known_offset.size - 1
        while low < high:
            middle = (low + high) // 2
            order = _compare(text, offset[k], offset[k + 1], known_text, known_offset[middle], known_offset[middle + 1])
            if order < 0:
                high = middle
            else:
                low = middle + 1
        count[k] = low


@kernel
def _find_names(
    offset: NDArray[np.int64],
    text: NDArray[np.uint8],
    known_offset: NDArray[np.int64],
    known_text: NDArray[np.uint8],
    found: NDArray[np.int64],
) -> None:
    """Search for each name in known names, which ascend; -1 for names that are not among them."""
    _count_names(offset, text, known_offset, known_text, found)
    for k in range(found.size):
        last = found[k] - 1
        found[k] = -1
        # Only the last name that is not greater can be equal.
        if last >= 0 and not _compare(
            text, offset[k], offset[k + 1], known_text, known_offset[last], known_offset[last + 1]
        ):
            found[k] = last


@kernel
def _compare(
    text: NDArray[np.uint8], start: int, stop: int, other: NDArray[np.uint8], other_start: int, other_stop: int
) -> int:
    """Negative, zero or positive if the first name is less than, equal to or greater than the other."""
    for k in range(min(stop - start, other_stop - other_start)):
        difference = np.int64(text[start + k]) - np.int64(other[other_start + k])
        if difference != 0:
            return int(difference)
    return int((stop - start) - (other_stop - other_start))
