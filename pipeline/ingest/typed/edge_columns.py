"""Stores the columns of each edge, besides its ends, in the order of the entries of the relation's matrix.

The sort moves the number of an edge's row in the table along with the edge. The places of the entries are then routed
to the rows of the table, and the values of the rows to the places of the entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.ingest.keys.numbered import NumberedEdges, NumberedKeys
from gnnloom.pipeline.ingest.typed.column_values import ColumnsTable
from gnnloom.pipeline.matrix_sort.bucket_sort import SortedMatrix
from gnnloom.pipeline.matrix_sort.scatter import range_name
from gnnloom.pipeline.shuffle.columns import Column, row_bytes
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.sources.source import EdgeChunk, SourceRange
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Needs, Phase, Task, run
from gnnloom.storage.errors import DamagedWorkError, InputError
from gnnloom.storage.format.arrays import CHUNK_BYTES, ArrayReader, ArrayRecord, create_array, write_rows
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.matrix.ticks import floats_of_ticks

#: Chunks of an array that one task writes.
_TASK_CHUNKS: Final = 4
#: Arrays that one task writes, at most: each has a record.
_TASK_ARRAYS: Final = 256
#: Bytes that a task of values holds: a block of cells with the text, and the places of its rows.
_VALUE_MEMORY: Final = 96 << 20
#: Bytes of a place; and bytes that a task holds per entry whose place is routed.
_PLACE_BYTES, _PLACE_MEMORY = 8, 64
#: Bytes that a task that writes arrays holds besides values: metadata and records.
_SMALL: Final = 1 << 20
#: Writer of plans that are counted.
_NOWHERE: Final = ArtifactWriter(Path(), "", "")


@dataclass(frozen=True)
class RowEdges:
    """Edges whose values are the numbers of their rows in the table; implements :class:`EdgeSource`.

    Attributes:
        edges: the table, with numbered ends; edges with an end without a number are left out.
        firsts: number of the first row of each range.
    """

    edges: NumberedEdges
    firsts: tuple[int, ...]

    @classmethod
    def of(cls, edges: NumberedEdges) -> RowEdges:
        return cls(edges, tuple(accumulate((span.stop for span in edges.ranges()), initial=0)))

    @property
    def ends(self) -> tuple[NumberedKeys, ...]:
        """Numbers of the keys of the ends."""
        return self.edges.ends

    def identity(self) -> dict[str, Any]:
        return {"format": "rows"}

    def num_vertices(self) -> int | None:
        return None

    def ranges(self) -> Sequence[SourceRange]:
        return self.edges.ranges()

    def read_kinds(self, span: SourceRange) -> Iterator[tuple[EdgeChunk, NDArray[np.int32]]]:
        """Read one range, with the (num_edges,) int32 kind of each edge and with edges that are left out."""
        first = self.firsts[span.file]
        for chunk, kinds in self.edges.read_kinds(span):
            rows = np.arange(first, first + len(chunk.source), dtype=np.int64)
            first += len(rows)
            yield EdgeChunk(chunk.source, chunk.target, None, floats_of_ticks(rows)), kinds

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        """Read one range."""
        for chunk, _ in self.read_kinds(span):
            is_known = (chunk.source >= 0) & (chunk.target >= 0)
            if is_known.any() and chunk.time is not None:
                yield EdgeChunk(chunk.source[is_known], chunk.target[is_known], None, chunk.time[is_known])


@dataclass(frozen=True)
class TableRows:
    """The columns of a table, and the numbers of its rows.

    Attributes:
        name: beginning of the names of the tasks.
        table: the columns.
        firsts: number of the first row of each range, and the number of rows.
        relation: the only relation of the table; empty if its edges are divided among several.
    """

    name: str
    table: ColumnsTable
    firsts: tuple[int, ...]
    relation: str = ""

    @property
    def num_rows(self) -> int:
        return self.firsts[-1]

    def facts(self) -> dict[str, Any]:
        """Facts about the columns of a relation for the manifest."""
        return self.table.facts() | ({} if self.relation else {"table_rows": self.num_rows})


@dataclass(frozen=True)
class PlaceTask(Task):
    """Routes the places of the entries of a block to the rows of the table.

    Places count the entries of all relations of the table.

    Attributes:
        path: of the block's numbers of rows.
        first: place of the first entry.
        count: number of entries.
    """

    path: str
    first: int
    count: int
    shuffle: Shuffle
    lane: Lane


@dataclass(frozen=True)
class ValueTask(Task):
    """Routes the values of range ``number`` of the table to the places of their entries.

    Attributes:
        rows: the table; None if the task is only counted.
    """

    rows: TableRows | None
    number: int
    places: Shuffle
    values: Shuffle
    lane: Lane


@dataclass(frozen=True)
class Piece:
    """Elements ``start`` to ``stop`` of an array, and the place of the first one."""

    path: str
    start: int
    stop: int
    place: int


@dataclass(frozen=True)
class ArrayTask(Task):
    """Writes elements of the arrays of one column, which follow one another."""

    values: Shuffle
    column: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, eq=False)
class ColumnsPlan:
    """The phases that store the columns of a table: to be run, or counted for stated numbers of edges.

    Attributes:
        name: beginning of the names of the tasks.
        columns: the columns of an edge.
        spans: names and numbers of rows of the ranges of the table.
        blocks: paths and numbers of entries of the blocks of all relations of the table.
        relations: beginning of the paths of each relation's arrays, and its number of entries.
        rows: the table; None for plans that are counted.
    """

    name: str
    columns: tuple[Column, ...]
    spans: Sequence[tuple[str, int]]
    blocks: Sequence[tuple[str, int]]
    relations: Sequence[tuple[str, int]]
    writer: ArtifactWriter = _NOWHERE
    rows: TableRows | None = None

    @classmethod
    def stated(
        cls, rows: int, entries: int, ranges: int, blocks: int, columns: Iterable[Column], relations: int = 1
    ) -> ColumnsPlan:
        """The plan for a number of rows in even ranges, and of entries in even blocks and relations."""
        spans = [(str(number), count) for number, count in enumerate(_even(rows, ranges))]
        in_blocks = [(str(number), count) for number, count in enumerate(_even(entries, blocks))]
        of_relations = [(f"{number}/", count) for number, count in enumerate(_even(entries, relations))]
        return cls("stated", tuple(columns), spans, in_blocks, of_relations)

    @cached_property
    def num_rows(self) -> int:
        return sum(count for _, count in self.spans)

    @cached_property
    def nnz(self) -> int:
        """Entries of all relations."""
        return sum(count for _, count in self.blocks)

    @cached_property
    def _digest(self) -> str:
        return "-".join(map(str, (self.num_rows, self.nnz, len(self.spans), len(self.blocks))))

    @cached_property
    def _places(self) -> Shuffle:
        column = Column("place", "int64")
        return Shuffle(f"{self.name}/places/{self._digest}", max(1, self.num_rows), (column,), len(self.spans))

    @cached_property
    def _values(self) -> Shuffle:
        tasks = max(1, -(-self.nnz * row_bytes(self.columns) // (_TASK_CHUNKS * CHUNK_BYTES)))
        return Shuffle(f"{self.name}/values/{self._digest}", max(1, self.nnz), self.columns, tasks)

    @cached_property
    def _to_rows(self) -> ShufflePlan:
        return ShufflePlan(self.writer, self._places, len(self.blocks), _PLACE_BYTES * self.nnz, self.nnz)

    @cached_property
    def _to_places(self) -> ShufflePlan:
        return ShufflePlan(self.writer, self._values, len(self.spans), self.nnz * row_bytes(self.columns), self.nnz)

    @property
    def phases(self) -> list[Phase]:
        """All phases."""
        to_rows, to_places = self._to_rows, self._to_places
        read, made = (to_rows.read_files,), (to_places.files,)
        return [
            Phase("place edges", route_places, self._place_tasks(), files=(to_rows.files,)),
            *to_rows.merges("merge places"),
            Phase("route columns", route_values, self._value_tasks(), reads=read, files=made),
            *to_places.merges("merge columns"),
            Phase("write columns", write_arrays, self._array_tasks(), reads=(to_places.read_files,), makes_arrays=True),
        ]

    def _place_tasks(self) -> list[PlaceTask]:
        tasks, first = [], 0
        for number, (block, count) in enumerate(self.blocks):
            # An entry has a position and a place.
            needs = Needs(
                8 * count,
                (8 + _PLACE_BYTES) * count,
                memory=_PLACE_MEMORY * min(count, self.writer.scratch.step_entries),
            )
            at = f"{self.name}/place/{number:05d}-{self._digest}"
            how = f"{block}/row", first, count, self._places, self._to_rows.lane(number)
            tasks.append(PlaceTask(self.writer, at, needs, *how))
            first += count
        return tasks

    def _value_tasks(self) -> list[ValueTask]:
        tasks, first, size = [], 0, row_bytes(self.columns)
        for number, (span, count) in enumerate(self.spans):
            # Rows without an edge are read, and not written.
            written = self.nnz * count // max(1, self.num_rows) * (8 + size)
            opens = self._to_rows.opens((first, max(first + count, 1)))
            needs = Needs(count * size + self._place_bytes(count), written, opens, _VALUE_MEMORY)
            at = f"{self.name}/value/{span}-{self._digest}"
            how = self.rows, number, self._places, self._values, self._to_places.lane(number)
            tasks.append(ValueTask(self.writer, at, needs, *how))
            first += count
        return tasks

    def _place_bytes(self, rows: int) -> int:
        """Bytes of the places of the entries of some rows."""
        return self.nnz * rows // max(1, self.num_rows) * (8 + _PLACE_BYTES)

    def _array_tasks(self) -> list[ArrayTask]:
        folders, counts = [folder for folder, _ in self.relations], [count for _, count in self.relations]
        tasks = []
        for column in self.columns:
            step = entries_of_task(column)
            for pieces in _shared(_pieces(column.name, folders, counts, step), step):
                first, count = pieces[0].place, sum(each.stop - each.start for each in pieces)
                size, opens = count * column.num_bytes, self._to_places.opens((first, max(first + count, 1)))
                at = f"{self.name}/{column.name}/{first:015d}-{len(pieces)}-{self._digest}"
                # The values twice, their positions with what compares them, and a chunk while it is encoded.
                needs = Needs(size + 8 * count, size, opens, 2 * size + 10 * count + 2 * CHUNK_BYTES + _SMALL)
                tasks.append(ArrayTask(self.writer, at, needs, self._values, column.name, pieces))
        return tasks


def _even(total: int, shares: int) -> list[int]:
    """Almost equal shares of a number, at least one."""
    bounds = [total * number // max(1, shares) for number in range(max(1, shares) + 1)]
    return [stop - start for start, stop in pairwise(bounds)]


def entries_of_task(column: Column) -> int:
    """Entries of a column that one task writes, at most."""
    return _TASK_CHUNKS * max(1, CHUNK_BYTES // column.num_bytes)


def store_columns(
    writer: ArtifactWriter,
    rows: TableRows,
    matrices: Sequence[tuple[str, SortedMatrix]],
    codec: str,
    cluster: Cluster,
) -> list[str]:
    """Store the columns of the relations of a table, except for what an earlier run has done.

    Args:
        matrices: beginning of the paths of each relation's arrays, and its sorted edges, whose values are the
            numbers of their rows.

    Returns:
        Names of the tasks that write arrays.
    """
    recorded = writer.recorded_of([name for _, matrix in matrices for name in matrix.blocks])
    counts = {name: int(record.facts["nnz"]) for name, record in recorded.items()}
    blocks = [(name, counts[name]) for _, matrix in matrices for name in matrix.blocks]
    relations = [(folder, sum(counts[name] for name in matrix.blocks)) for folder, matrix in matrices]
    held = [stop - start for start, stop in pairwise(rows.firsts)]
    spans = [
        (range_name(number, span), count)
        for number, (span, count) in enumerate(zip(rows.table.spans, held, strict=True))
    ]
    columns = tuple(rows.table.arrays.values())
    for column in columns:
        dims = ("edge", *(["value"] if column.trailing else []))
        chunk = entries_of_task(column) // _TASK_CHUNKS
        for folder, count in relations:
            path = f"{folder}{column.name}"
            create_array(writer.path, path, (count, *column.trailing), column.dtype, dims, chunk, codec)
    return run(ColumnsPlan(rows.name, columns, spans, blocks, relations, writer, rows).phases, cluster, writer)


def _pieces(name: str, folders: Sequence[str], counts: Sequence[int], step: int) -> Iterator[Piece]:
    """The pieces of the arrays of a column, of at most ``step`` elements; an empty array has one."""
    for folder, first, count in zip(folders, accumulate(counts, initial=0), counts, strict=False):
        for start in range(0, max(1, count), step):
            yield Piece(f"{folder}{name}", start, min(start + step, count), first + start)


def _shared(pieces: Iterator[Piece], step: int) -> Iterator[tuple[Piece, ...]]:
    """Groups of consecutive pieces of at most ``step`` elements: small relations share a task."""
    group: list[Piece] = []
    count = 0
    for piece in pieces:
        more = piece.stop - piece.start
        if group and (count + more > step or len(group) == _TASK_ARRAYS):
            yield tuple(group)
            group, count = [], 0
        group.append(piece)
        count += more
    if group:
        yield tuple(group)


def route_places(task: PlaceTask) -> int:
    """Route the places of the entries of a block; returns their number."""
    record = ArrayRecord(task.path, (task.count,), "int64", ("nonzero",), ())
    step = task.writer.scratch.step_entries
    with task.writer.task(task.name) as output, task.shuffle.routed(output, task.lane) as runs:
        for start in range(0, task.count, step):
            # Opened here: a block without edges has no such array.
            rows = ArrayReader(task.writer.path, record).read(start, min(start + step, task.count))
            order = np.argsort(rows)
            runs.add(Index.of_positions(rows[order]), {"place": order + (task.first + start)})
    return task.count


def route_values(task: ValueTask) -> int:
    """Route the values of the rows of a range that are entries; returns how many rows the range has.

    Raises:
        InputError: a column cannot be read, or there are more or fewer rows than edges.
    """
    if task.rows is None:
        raise ValueError("a plan that is only counted")
    table, span = task.rows.table, task.rows.table.spans[task.number]
    first, stop = task.rows.firsts[task.number], task.rows.firsts[task.number + 1]
    at, step = first, task.writer.scratch.step_entries
    with (
        OpenFiles(task.writer.work) as files,
        task.writer.task(task.name) as output,
        task.values.routed(output, task.lane) as runs,
    ):
        places = task.places.rows(task.writer.work, files)
        for values in table.read(span):
            count = len(next(iter(values.values())))
            if at + count > stop:
                raise _unequal(table, f"more rows than {stop - first:,} edges")
            for start in range(0, count, step):
                end = min(start + step, count)
                found = places.read(at + start, at + end)
                # Each row is one entry at most. Places ascend within a run, as the entries are found in their order.
                place, rows = found.column("place"), found.position - at
                order = np.argsort(place)
                if len(order):
                    chosen = rows[order]
                    runs.add(Index.of_positions(place[order]), {name: each[chosen] for name, each in values.items()})
            at += count
        if at != stop:
            raise _unequal(table, f"{at - first:,} rows, and {stop - first:,} edges")
    return stop - first


def _unequal(table: ColumnsTable, found: str) -> InputError:
    return InputError(
        f"{table.location}: {found}; a line between the rows may be a comment: say so with `--comment '#'`, or"
        " `--comment none` if it is a row"
    )


def write_arrays(task: ArrayTask) -> int:
    """Write elements of the arrays of a column; returns their number.

    Raises:
        DamagedWorkError: an entry has no row.
    """
    work, count = task.writer.work, 0
    with OpenFiles(work) as files, task.writer.task(task.name) as output:
        rows = task.values.rows(work, files)
        for each in task.pieces:
            stop = each.place + each.stop - each.start
            found = rows.read(each.place, stop)
            if not _are_all(found.position, each.place, stop):
                raise DamagedWorkError(work / task.values.folder, "not every edge has one row")
            output.add(write_rows(task.writer.path, each.path, each.start, found.column(task.column)))
            count += each.stop - each.start
    return count


def _are_all(positions: NDArray[np.int64], first: int, stop: int) -> bool:
    """Whether positions that ascend are all from ``first`` to ``stop``."""
    if len(positions) != stop - first:
        return False
    in_range = not len(positions) or (int(positions[0]) == first and int(positions[-1]) == stop - 1)
    return in_range and bool((positions[1:] > positions[:-1]).all())


def value_facts(facts: Mapping[str, Any], rows: TableRows) -> dict[str, Any]:
    """The facts of a matrix whose values are row numbers, changed to the facts of a relation with columns."""
    own = {name: value for name, value in facts.items() if name not in {"weighted", "has_times", "time_unit"}}
    return own | rows.facts()
