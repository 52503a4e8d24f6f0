"""Stores what a table says about each edge, besides its ends, in the order of the entries of the relation's matrix.

The sort moves the number of an edge's row in the table along with the edge. The places of the entries are then routed
to the rows of the table, and the values of the rows to the places of the entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.ingest.keys.key_types import read_chunks
from gnnloom.pipeline.ingest.keys.kinds import KindColumn
from gnnloom.pipeline.ingest.keys.numbered import NumberedEdges
from gnnloom.pipeline.matrix_sort.bucket_sort import SortedMatrix
from gnnloom.pipeline.matrix_sort.scatter import range_name
from gnnloom.pipeline.shuffle.columns import Column, row_bytes
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import RunsWriter, Shuffle
from gnnloom.pipeline.sources.source import EdgeChunk, EdgeSource, SourceRange
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Needs, Phase, Task, run
from gnnloom.storage.errors import DamagedWorkError, InputError
from gnnloom.storage.format.arrays import CHUNK_BYTES, ArrayReader, ArrayRecord, create_array, write_rows
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.matrix.ticks import floats_of_ticks, ticks_of_floats

#: Entries whose places, or rows whose values, are routed at a time.
_STEP: Final = 1 << 20
#: Chunks of an array that one task writes.
_TASK_CHUNKS: Final = 4
#: Dimensions of the arrays after the first.
_FEATURE: Final = "feature"


@dataclass(frozen=True)
class EdgeColumn:
    """A column of the table of a relation.

    Attributes:
        role: ``weight``, ``time``, ``feature`` or ``label``; several columns may have features.
        name: of the column.
        source: the values, as weights or times of the edges; or words, of a label.
    """

    role: str
    name: str
    source: EdgeSource | KindColumn

    @property
    def has_ticks(self) -> bool:
        """Whether the values are times that are whole numbers."""
        return self.role == "time" and bool(getattr(self.source, "time_unit", ""))

    @property
    def dtype(self) -> str:
        """Of the values, as they are stored."""
        if self.role == "label":
            return "int64"
        return "float32" if self.role != "time" else "int64" if self.has_ticks else "float64"

    @property
    def classes(self) -> list[str]:
        """The words of a label, in the order of their numbers; none if they are numbers themselves."""
        names = self.source.names or () if isinstance(self.source, KindColumn) else ()
        return [] if all(map(_is_number, names)) else list(names)

    def read(self, span: SourceRange, ids: Sequence[str]) -> Iterator[NDArray[Any]]:
        """The (num_rows,) values of some rows of a range at a time."""
        if isinstance(self.source, KindColumn):
            names = self.source.names or ()
            numbers = np.arange(len(names)) if self.classes else np.array(list(map(int, names)), np.int64)
            for kinds in self.source.read(span):
                yield numbers[kinds]
            return
        for chunk in read_chunks(self.source, span, ids):
            if chunk.time is not None:
                yield ticks_of_floats(chunk.time.astype(np.float64, copy=False)) if self.has_ticks else chunk.time
            elif chunk.weight is not None:
                yield chunk.weight


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) < 19


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

    def identity(self) -> dict[str, Any]:
        return {"format": "rows"}

    def num_vertices(self) -> int | None:
        return None

    def ranges(self) -> Sequence[SourceRange]:
        return self.edges.ranges()

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        """Read one range."""
        first = self.firsts[span.file]
        for chunk, _ in self.edges.read_kinds(span):
            rows = np.arange(first, first + len(chunk.source), dtype=np.int64)
            first += len(rows)
            is_known = (chunk.source >= 0) & (chunk.target >= 0)
            if is_known.any():
                ends = chunk.source[is_known], chunk.target[is_known]
                yield EdgeChunk(*ends, None, floats_of_ticks(rows[is_known]))


@dataclass(frozen=True)
class ColumnsTable:
    """The columns of a table, and the rows that have them.

    Attributes:
        location: the table, for messages.
        columns: what is stored.
        ids: type of the keys of the ends.
        spans: ranges of the table.
        firsts: number of the first row of each range, and the number of rows.
    """

    location: str
    columns: tuple[EdgeColumn, ...]
    ids: tuple[str, ...]
    spans: tuple[SourceRange, ...]
    firsts: tuple[int, ...]

    @property
    def arrays(self) -> dict[str, Column]:
        """What is stored, by the name of the array."""
        found = {each.role: Column(each.role, each.dtype) for each in self.columns if each.role != _FEATURE}
        if width := sum(each.role == _FEATURE for each in self.columns):
            found[_FEATURE] = Column(_FEATURE, "float32", (width,))
        return dict(sorted(found.items()))

    def facts(self) -> dict[str, Any]:
        """What the manifest says of the columns."""
        names = {role: [each.name for each in self.columns if each.role == role] for role in self.arrays}
        classes = next((each.classes for each in self.columns if each.role == "label"), [])
        unit = next((getattr(each.source, "time_unit", "") for each in self.columns if each.role == "time"), "")
        return {
            "columns": names,
            "weighted": "weight" in names,
            **({"has_times": True} if "time" in names else {}),
            **({"time_unit": unit} if unit else {}),
            **({"classes": classes} if classes else {}),
        }


@dataclass(frozen=True)
class PlaceTask(Task):
    """Routes the places of the entries of a block to the rows of the table.

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
    """Routes the values of range ``number`` of the table to the places of their entries."""

    table: ColumnsTable
    number: int
    places: Shuffle
    values: Shuffle
    lane: Lane


@dataclass(frozen=True)
class ArrayTask(Task):
    """Writes elements ``start`` to ``stop`` of an array."""

    values: Shuffle
    column: str
    path: str
    start: int
    stop: int


def store_columns(
    writer: ArtifactWriter, folder: str, table: ColumnsTable, matrix: SortedMatrix, codec: str, cluster: Cluster
) -> list[str]:
    """Store the columns of a relation, except for what an earlier run has done; returns the names of the tasks.

    Args:
        folder: what the paths of the relation's arrays begin with.
        matrix: the sorted edges, whose values are the numbers of their rows.
    """
    recorded = writer.recorded_of(matrix.blocks)
    counts = [int(recorded[name].facts["nnz"]) for name in matrix.blocks]
    starts, nnz, rows = list(accumulate(counts, initial=0)), sum(counts), table.firsts[-1]
    arrays, digest = table.arrays, "-".join(map(str, (rows, nnz, len(table.spans))))
    places = Shuffle(f"{folder}places/{digest}", max(1, rows), (Column("place", "int64"),), len(table.spans))
    columns = tuple(arrays.values())
    tasks_of_arrays = max(1, -(-nnz * row_bytes(columns) // (_TASK_CHUNKS * CHUNK_BYTES)))
    values = Shuffle(f"{folder}values/{digest}", max(1, nnz), columns, tasks_of_arrays)
    to_rows = ShufflePlan(writer, places, len(counts), 8 * nnz, nnz)
    to_places = ShufflePlan(writer, values, len(table.spans), nnz * row_bytes(columns), nnz)
    place = [
        PlaceTask(
            writer,
            f"{folder}place/{number:05d}-{digest}",
            Needs(8 * count, 8 * count, memory=32 * min(count, _STEP)),
            f"{name}/row",
            first,
            count,
            places,
            to_rows.lane(number),
        )
        for number, (name, first, count) in enumerate(zip(matrix.blocks, starts, counts, strict=False))
    ]
    value = []
    for number, span in enumerate(table.spans):
        held = table.firsts[number + 1] - table.firsts[number]
        needs = Needs(held * row_bytes(columns), held * row_bytes(columns), memory=24 * held)
        name = f"{folder}value/{range_name(number, span)}-{digest}"
        value.append(ValueTask(writer, name, needs, table, number, places, values, to_places.lane(number)))
    write = []
    for column in columns:
        path, step = f"{folder}{column.name}", _TASK_CHUNKS * max(1, CHUNK_BYTES // column.num_bytes)
        dims = ("edge", *(["value"] if column.trailing else []))
        create_array(writer.path, path, (nnz, *column.trailing), column.dtype, dims, step // _TASK_CHUNKS, codec)
        # An array without edges has a task as well, which records it.
        for start in range(0, max(1, nnz), step):
            stop = min(start + step, nnz)
            size = (stop - start) * column.num_bytes
            needs = Needs(size, size, to_places.opens((start, stop)), 3 * size)
            write.append(ArrayTask(writer, f"{path}/{start:015d}", needs, values, column.name, path, start, stop))
    phases = [
        Phase("place edges", route_places, place, files=(to_rows.files,)),
        *to_rows.merges("merge places"),
        Phase("route columns", route_values, value, reads=(to_rows.read_files,), files=(to_places.files,)),
        *to_places.merges("merge columns"),
        Phase("write columns", write_array, write, "edges", (to_places.read_files,), makes_arrays=True),
    ]
    return run(phases, cluster, writer)


def route_places(task: PlaceTask) -> int:
    """Route the places of the entries of a block; returns their number."""
    record = ArrayRecord(task.path, (task.count,), "int64", ("nonzero",), ())
    with task.writer.task(task.name) as output, task.shuffle.routed(output, task.lane) as runs:
        for start in range(0, task.count, _STEP):
            # Opened here: a block without edges has no such array.
            rows = ArrayReader(task.writer.path, record).read(start, min(start + _STEP, task.count))
            order = np.argsort(rows)
            runs.add(Index.of_positions(rows[order]), {"place": order + (task.first + start)})
    return task.count


def route_values(task: ValueTask) -> int:
    """Route the values of the rows of a range that are entries; returns how many rows the range has.

    Raises:
        InputError: a column cannot be read, or has another number of rows.
    """
    table, span = task.table, task.table.spans[task.number]
    first, stop = table.firsts[task.number], table.firsts[task.number + 1]
    with OpenFiles(task.writer.work) as files:
        found = task.places.rows(task.writer.work, files).read(first, stop)
        place = np.full(stop - first, -1, np.int64)
        place[found.position - first] = found.column("place")
    at = 0
    with task.writer.task(task.name) as output, task.values.routed(output, task.lane) as runs:
        for values in _aligned([each.read(span, table.ids) for each in table.columns], table.location):
            count = len(values[0])
            _route(runs, table, values, place[at : at + count], count)
            at += count
        if at != stop - first:
            raise InputError(f"{table.location}: columns of {at:,} rows, and {stop - first:,} edges")
    return stop - first


def _route(
    runs: RunsWriter, table: ColumnsTable, values: Sequence[NDArray[Any]], place: NDArray[np.int64], count: int
) -> None:
    if len(place) != count:
        raise InputError(f"{table.location}: a column has more rows than there are edges")
    rows = np.flatnonzero(place >= 0)
    if not len(rows):
        return
    rows = rows[np.argsort(place[rows])]
    found: dict[str, NDArray[Any]] = {}
    features = []
    for column, each in zip(table.columns, values, strict=True):
        if column.role == _FEATURE:
            features.append(each[rows])
        else:
            found[column.role] = each[rows].astype(column.dtype, copy=False)
    if features:
        found[_FEATURE] = np.stack(features, axis=1).astype(np.float32, copy=False)
    runs.add(Index.of_positions(place[rows]), found)


def _aligned(readers: Sequence[Iterator[NDArray[Any]]], location: str) -> Iterator[list[NDArray[Any]]]:
    """Values of the same rows, from readers whose chunks differ.

    Raises:
        InputError: a reader has fewer rows than another one.
    """
    left: list[NDArray[Any]] = [np.empty(0) for _ in readers]
    while True:
        for number, reader in enumerate(readers):
            while not len(left[number]) and (chunk := next(reader, None)) is not None:
                left[number] = chunk
        step = min(map(len, left))
        if not step:
            if any(map(len, left)):
                raise InputError(f"{location}: columns have different numbers of rows; a line may be a comment")
            return
        yield [each[:step] for each in left]
        left = [each[step:] for each in left]


def write_array(task: ArrayTask) -> int:
    """Write some elements of one array; returns their number.

    Raises:
        DamagedWorkError: an entry has no row.
    """
    work = task.writer.work
    with OpenFiles(work) as files, task.writer.task(task.name) as output:
        found = task.values.rows(work, files).read(task.start, task.stop)
        if not np.array_equal(found.position, np.arange(task.start, task.stop)):
            raise DamagedWorkError(work / task.values.folder, "not every edge has one row")
        output.add(write_rows(task.writer.path, task.path, task.start, found.column(task.column)))
    return task.stop - task.start


def value_facts(facts: Mapping[str, Any], table: ColumnsTable) -> dict[str, Any]:
    """The facts of a matrix whose values are numbers of rows, as those of a relation with columns."""
    own = {name: value for name, value in facts.items() if name not in {"weighted", "has_times", "time_unit"}}
    return own | table.facts()
