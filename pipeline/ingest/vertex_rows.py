"""The plan that writes the arrays of vertices, and its tasks.

Every array is cut into ranges of whole pieces (a piece is a fixed number of chunks). If the source can be read from
anywhere, each range is a task; if not, each array is one. A task reads blocks and writes pieces, so it needs memory for
one piece and one block, whatever the number of vertices. The rows of a table that names their vertices are routed to
these tasks first (:mod:`gnnloom.pipeline.ingest.tables.routing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.ingest.tables.lookup import VertexBuckets
from gnnloom.pipeline.ingest.tables.routed_table import RoutedTable, RowCounts
from gnnloom.pipeline.ingest.tables.routing import TablePlan
from gnnloom.pipeline.ingest.vertex_notes import RowNotes
from gnnloom.pipeline.ingest.vertex_options import beyond_range, narrowed
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.sources.binary.edge_columns import rebatch
from gnnloom.pipeline.sources.source import VertexSource
from gnnloom.pipeline.sources.vertex_data.keyed_rows import table_ranges
from gnnloom.pipeline.tasks.phase import Needs, Phase, Task
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.disk.work_folder import BESIDE, Scratch
from gnnloom.storage.errors import FormatError, InputError
from gnnloom.storage.format.arrays import default_chunk_rows, write_rows
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.format.vertex_arrays import VERTEX_ARRAYS
from gnnloom.storage.meters import Done
from gnnloom.storage.wording import counted

#: Chunks that are written and digested together.
PIECE_CHUNKS = 4
#: Bytes of an id in a table, as a number.
_ID_BYTES = 8


@dataclass(frozen=True)
class VertexArrayTask(Task):
    """Writes rows ``start`` to ``stop`` of one array.

    Attributes:
        piece_rows: rows of a piece.
        dtype: of the stored array.
        compacted: folder of the original ids, if the source's rows must be chosen by them.
    """

    source: VertexSource | RoutedTable
    array: str
    start: int
    stop: int
    piece_rows: int
    dtype: np.dtype[Any]
    compacted: Path | None


def task_rows(shape: tuple[int, ...], dtype: np.dtype[Any], scratch: Scratch) -> int:
    """Rows that one task writes, if tasks share an array: whole chunks, so no two tasks write to one."""
    return scratch.task_pieces * _piece_rows(shape, dtype)


def _piece_rows(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return PIECE_CHUNKS * default_chunk_rows(shape, dtype)


@dataclass(frozen=True, eq=False)
class ArrayPlan:
    """Plan for writing the rows of one array.

    Attributes:
        array: name of the array.
        shape, dtype: of the whole array, as it is stored.
        table: plan that routes rows to their tasks, if they come from a table that names the vertices.
        source: a :class:`~gnnloom.pipeline.sources.source.VertexSource` of other rows; None for plans that are counted.
        compacted: folder of the original ids, if the source's rows must be chosen by them.
        is_shared: whether tasks share the array.
    """

    array: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    table: TablePlan | None = None
    writer: ArtifactWriter = field(default_factory=lambda: ArtifactWriter(Path(), "vertices", ""))
    source: Any = None
    compacted: Path | None = None
    is_shared: bool = True

    def tasks(self) -> Iterator[VertexArrayTask]:
        """The tasks that write the array."""
        num_rows, piece = self.shape[0], _piece_rows(self.shape, self.dtype)
        step = task_rows(self.shape, self.dtype, self.writer.scratch) if self.is_shared else max(1, num_rows)
        source = self.table.routed if self.table is not None else self.source
        for start in range(0, max(1, num_rows), step):
            stop = min(start + step, num_rows)
            needs, name = self._needs(start, stop, min(piece, stop - start)), f"{self.array}/{start:012d}"
            rows = (start, stop, piece, self.dtype)
            yield VertexArrayTask(self.writer, name, needs, source, self.array, *rows, self.compacted)

    def _needs(self, start: int, stop: int, piece: int) -> Needs:
        width = int(np.prod(self.shape[1:]))
        given_bytes, row_bytes = VERTEX_ARRAYS[self.array].dtype.itemsize * width, self.dtype.itemsize * width
        written, held = (stop - start) * row_bytes, 2 * piece * given_bytes
        if given_bytes != row_bytes:
            # The piece as it is stored.
            held += piece * row_bytes
        if self.table is None:
            return Needs((stop - start) * given_bytes, written, 0, held)
        read = self.table.row_bytes * self.table.num_rows * (stop - start) // max(1, self.shape[0])
        return Needs(read, written, self.table.opens(start, stop), held + self.table.buckets.memory)


def vertex_phases(arrays: Sequence[ArrayPlan]) -> list[Phase]:
    """The phases that write the arrays.

    The rows of a table get to the vertices and are written before the next table is read, so that temporary files hold
    one table at a time.
    """
    plain = [task for each in arrays if each.table is None for task in each.tasks()]
    phases = [Phase("write rows", write_vertex_rows, plain, "rows", makes_arrays=True)] if plain else []
    for each in arrays:
        if each.table is not None:
            reads, columns = (each.table.shuffled.read_files,), len(each.table.shuffled.shuffle.columns) + 1
            tasks = list(each.tasks())
            write = Phase("write rows", write_vertex_rows, tasks, "rows", reads, makes_arrays=True, arrays=columns)
            phases += [*each.table.phases(), write]
    return phases


def stated_vertex_phases(
    num_vertices: int, types: Mapping[str, tuple[str, tuple[int, ...]]], memory: int, *, by_id: bool
) -> list[Phase]:
    """The phases that store vertex data, if tasks can share every array.

    Args:
        num_vertices: vertices of the graph.
        types: stored dtype and trailing shape of each array.
        memory: bytes that a worker may use.
        by_id: whether the arrays come from tables that name the vertex of each row, as binary numbers.
    """
    plans = []
    for array, (dtype, trailing) in types.items():
        shape, kind, table = (num_vertices, *trailing), np.dtype(dtype), None
        if by_id:
            values = Column("value", VERTEX_ARRAYS[array].dtype.name, trailing)
            buckets = VertexBuckets(num_vertices, task_rows(shape, kind, BESIDE), values, _ID_BYTES)
            num_bytes = num_vertices * (_ID_BYTES + values.num_bytes)
            ranges = table_ranges(num_vertices, num_bytes)
            table = TablePlan(array, buckets, ranges, num_vertices, num_bytes, memory)
        plans.append(ArrayPlan(array, shape, kind, table))
    return vertex_phases(plans)


def write_vertex_rows(task: VertexArrayTask) -> Done:
    """Write the rows of one task; returns their number.

    Raises:
        InputError: the source has too few rows, or a row cannot be used.
    """
    with task.writer.task(task.name) as output:
        start, counts, notes = task.start, RowCounts(), RowNotes(task.array)
        for given in rebatch(_rows(task, counts), task.piece_rows):
            piece = _as_stored(task, start, given)
            output.add(write_rows(task.writer.path, task.array, start, np.ascontiguousarray(piece)))
            output.facts.update(add_facts(output.facts, VERTEX_ARRAYS[task.array].facts_of(piece)))
            notes.add(start, piece)
            start += len(piece)
        output.facts.update(notes.to_facts())
        if isinstance(task.source, RoutedTable):
            output.facts.update(counts.to_facts())
        if start != task.stop:
            raise InputError(
                f"{task.array}: the source ended after {counted(start - task.start, 'row')}, expected"
                f" {task.stop - task.start:,}"
            )
    return Done(task.stop - task.start)


def _as_stored(task: VertexArrayTask, start: int, given: NDArray[Any]) -> NDArray[Any]:
    """The rows of vertices from ``start`` on, of the stored type.

    Raises:
        InputError: a number is beyond its range.
    """
    rows, wrong = narrowed(given, task.dtype)
    if wrong is not None:
        raise beyond_range(task.array, _original(task, start + wrong[0]), float(given[wrong]), task.dtype)
    return rows


def _original(task: VertexArrayTask, vertex: int) -> object:
    """Id of a vertex in the source of the edges."""
    folder = task.source.ids if isinstance(task.source, RoutedTable) else task.compacted
    if folder is None:
        return vertex
    ids = SourceIds.at(folder)
    return (ids.original_name if ids.has_names else ids.original_id)(vertex, vertex + 1)[0]


def _rows(task: VertexArrayTask, counts: RowCounts) -> Iterator[NDArray[Any]]:
    if isinstance(task.source, RoutedTable):
        yield from task.source.read(task.array, task.start, task.stop, counts)
        return
    if task.compacted is None or task.start == task.stop:
        yield from task.source.read_rows(task.array, task.start, task.stop)
        return
    ids_of = SourceIds.at(task.compacted)
    # A source that reads files from their start checks them as a whole only if all of their rows are read.
    if task.source.random_access:
        row = int(ids_of.original_id(task.start, task.start + 1)[0])
        end = int(ids_of.original_id(task.stop - 1, task.stop)[0]) + 1
    else:
        row, end = 0, task.source.num_vertices()
    wanted = _AscendingIds(ids_of, task.start, task.stop, task.writer.scratch.step_entries)
    for block in task.source.read_rows(task.array, row, end):
        # Both the rows and the original ids ascend, so one pass over each selects the rows.
        ids = wanted.below(row + len(block))
        yield block[ids - row]
        row += len(block)


class _AscendingIds:
    """The original ids of vertices ``start`` to ``stop``, one block in memory at a time."""

    def __init__(self, ids: SourceIds, start: int, stop: int, step: int) -> None:
        """Read ``step`` ids at a time."""
        self._blocks = (ids.original_id(first, min(first + step, stop)) for first in range(start, stop, step))
        self._pending = np.empty(0, np.int64)
        self._path = ids.folder / "original_id"

    def below(self, limit: int) -> NDArray[np.int64]:
        """The next ids that are below ``limit``, (num_ids,) int64, ascending.

        Raises:
            FormatError: the stored ids do not ascend.
        """
        taken = []
        block: NDArray[np.int64] | None = self._pending
        while block is not None:
            if np.any(np.diff(block) <= 0):
                raise FormatError(f"{self._path}: the ids do not ascend")
            count = int(np.searchsorted(block, limit))
            taken.append(block[:count])
            self._pending = block[count:]
            block = next(self._blocks, None) if count == len(block) else None
        return np.concatenate(taken)


def add_facts(before: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    """Add counts up; numbers of classes and of targets are the maximum instead."""
    both = {
        name: max(before.get(name, 0), count) if name.startswith("num_") else before.get(name, 0) + count
        for name, count in more.items()
    }
    return {**before, **both}
