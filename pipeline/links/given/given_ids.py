"""Brings the ids of given lists to the vertices that they name, in the order of the lists.

Where the graph kept the ids of its source, an id is the number of its vertex. Otherwise ids are routed to buckets of
vertices, as ids of vertex data are (:mod:`gnnloom.pipeline.ingest.tables`), looked up there, and routed back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.ingest.preparation import packed_arrays, prepared_source
from gnnloom.pipeline.ingest.tables.lookup import VertexBuckets, VertexLookup, id_bytes
from gnnloom.pipeline.ingest.tables.routing import TablePlan
from gnnloom.pipeline.links.given.id_lists import IdList, IdRows
from gnnloom.pipeline.links.options import MOST_CLASS
from gnnloom.pipeline.links.pair_arrays import PairArray
from gnnloom.pipeline.matrix_sort.scatter import range_name
from gnnloom.pipeline.shuffle.columns import Column, row_bytes
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.runs import BLOCK_BYTES, Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.sources.binary.stored_arrays import PackedSource, StoredArray, Unpacked
from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.sources.source import SourceRange, TableBlock
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.memory import BASE_MEMORY, MIB, working_memory
from gnnloom.pipeline.tasks.phase import Needs, Phase, Task, WorkFiles, records_of, run
from gnnloom.storage.artifacts.links import CLASS
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.errors import BudgetError, InputError
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.wording import counted

#: Bytes that a task holds of a chunk of ids: as read, as text, and routed.
_READING_BYTES: Final = 96 << 20
#: Vertices whose ids a task looks up together, at most.
_TASK_VERTICES: Final = 1 << 22
_VERTEX: Final = "vertex"
#: Ends of pairs, and the end of the path of a list of targets.
_ENDS: Final = ("source", "target")
_OF_TARGETS: Final = "/negative"


@dataclass(frozen=True)
class ListRange:
    """A range of one of several lists.

    Attributes:
        number: of the list.
        span: of its source.
        first: number of its first row.
    """

    number: int
    span: SourceRange
    first: int = 0


@dataclass(frozen=True)
class GivenLists:
    """Several lists, and the ids of the vertices that they name; small and picklable.

    Attributes:
        ends: folders of the ids of all vertices, or of the possible sources and the possible targets; see
            :meth:`SourceIds.at`.
        lists: the lists.
        names: whether ids are read as names.
    """

    ends: tuple[Path, ...]
    lists: tuple[IdList, ...]
    names: bool

    @classmethod
    def of(cls, ends: Sequence[SourceIds], lists: Sequence[IdList]) -> GivenLists:
        """Lists of the ids of some vertices."""
        return cls(tuple(each.folder for each in ends), tuple(lists), any(each.has_names for each in ends))

    @cached_property
    def ranges(self) -> list[ListRange]:
        """The ranges of all lists, in order."""
        return [ListRange(number, span) for number, each in enumerate(self.lists) for span in each.ranges()]

    def stored_arrays(self) -> tuple[StoredArray, ...]:
        """Arrays that may be compressed, as of a :class:`~gnnloom.pipeline.sources.binary.stored_arrays.PackedSource`.

        Of all lists together, as the files into which they are unpacked are numbered.
        """
        sources = (each.source for each in self.lists)
        return tuple(array for each in sources if isinstance(each, PackedSource) for array in each.stored_arrays())

    def with_unpacked(self, unpacked: Unpacked) -> GivenLists:
        return replace(self, lists=tuple(each.with_unpacked(unpacked) for each in self.lists))

    def rows(self, some: ListRange) -> Iterator[tuple[int, IdRows]]:
        """The rows of a range in pieces, each with the number of its first row."""
        given, first = self.lists[some.number], some.first
        for rows in given.read(some.span, names=self.names):
            yield first, rows
            first += len(rows.ids) // given.width

    def where(self, number: int, at: int) -> str:
        """The row of a list that has an id, for errors.

        Args:
            at: number of the id in the list.
        """
        given = self.lists[number]
        return f"{given.location}, row {at // given.width:,}"

    def header_hint(self, number: int, at: int) -> str:
        """Suggestion for an error about an id of a list, if its row may name the columns; empty for other rows."""
        given = self.lists[number]
        return "" if at // given.width else given.header_hint


@dataclass(frozen=True)
class CountRowsTask(Task):
    """Counts the rows of a range."""

    given: GivenLists
    range: ListRange


def count_rows(task: CountRowsTask) -> int:
    """Record how many rows a range has."""
    with task.writer.task(task.name) as output:
        count = task.given.lists[task.range.number].count(task.range.span, names=task.given.names)
        output.facts["rows"] = count
    return count


@dataclass(frozen=True)
class PlaceIdsTask(Task):
    """Routes the ids of a range, which are numbers of vertices, to their positions, and the values of its rows.

    Attributes:
        vertices, values: where they go, and the lanes; no values for a list that has none.
        kind: of the values.
    """

    given: GivenLists
    range: ListRange
    vertices: tuple[Shuffle, Lane] | None
    values: tuple[Shuffle, Lane] | None
    kind: str


def place_ids(task: PlaceIdsTask) -> int:
    """Route the ids of a range; returns the number of rows.

    Raises:
        InputError: an id is not a vertex, or a value is not of its kind.
    """
    given, count, highest = task.given.lists[task.range.number], 0, -1
    num_vertices = SourceIds.at(task.given.ends[0]).num_vertices
    with task.writer.task(task.name) as output:
        for ways, check in ((task.vertices, num_vertices), (task.values, 0)):
            if ways is None:
                continue
            shuffle, lane = ways
            with shuffle.routed(output, lane) as out:
                for first, rows in task.given.rows(task.range):
                    if check:
                        ids = _checked_ids(task, rows, first * given.width, num_vertices)
                        out.add(_consecutive(first * given.width, len(ids)), {_VERTEX: ids})
                        count += len(ids) // given.width
                    elif rows.values is not None:
                        values = _checked_values(task, rows.values, first)
                        highest = max(highest, int(values.max(initial=-1)) if task.kind == CLASS else -1)
                        out.add(_consecutive(first, len(values)), {"value": values})
        output.facts["highest"] = highest
    return count


def _consecutive(first: int, count: int) -> Index:
    return Index(count, first, count, None, None)


def _checked_ids(task: PlaceIdsTask, rows: IdRows, first: int, num_vertices: int) -> NDArray[np.int64]:
    ids = rows.ids
    if isinstance(ids, Names):
        raise InputError(f"{task.given.lists[task.range.number].location}: names, and the graph has numbers as ids")
    wrong = np.flatnonzero(ids >= num_vertices)
    if len(wrong):
        where = task.given.where(task.range.number, first + int(wrong[0]))
        raise InputError(f"{where}: {ids[wrong[0]]} is not one of the {num_vertices:,} vertices of the graph")
    return ids


def _checked_values(task: PlaceIdsTask, values: NDArray[np.float32], first: int) -> NDArray[np.float32]:
    is_class = task.kind == CLASS
    fits = (values >= 0) & (values < MOST_CLASS) & (values == np.floor(values)) if is_class else np.isfinite(values)
    if not fits.all():
        row = int(np.argmin(fits))
        where = f"{task.given.lists[task.range.number].location}, row {first + row:,}"
        expected = f"a class from 0 to {MOST_CLASS - 1:,}" if is_class else "a number"
        raise InputError(f"{where}: expected {expected}, found {values[row]}")
    return values


@dataclass(frozen=True)
class IdTable:
    """The ids of several lists as one table; what a :class:`~gnnloom.pipeline.ingest.tables.routing.TablePlan` reads.

    The value of a row is the number of its list, and its place the number of the id in that.

    Attributes:
        end: the end of pairs whose ids are in the table, 0 for sources; None for all ids.
    """

    given: GivenLists
    parts: tuple[ListRange, ...]
    end: int | None = None

    def ranges(self) -> list[SourceRange]:
        return [SourceRange(part.number, number, number + 1) for number, part in enumerate(self.parts)]

    def read_table(self, span: SourceRange) -> Iterator[TableBlock]:
        """Read one range."""
        part = self.parts[span.start]
        given = self.given.lists[part.number]
        for first, rows in self.given.rows(part):
            ids = rows.as_names()
            at = np.arange(first * given.width, first * given.width + len(ids))
            if self.end is not None and not given.path.endswith(_OF_TARGETS):
                ids, at = Names.from_arrow(ids.to_arrow().take(np.arange(self.end, len(ids), 2))), at[self.end :: 2]
            yield TableBlock(ids.offset, ids.text, np.full(len(ids), part.number, np.uint8), at)

    def row_error(self, at: int, reason: str) -> InputError:
        """The error about an id; the table does not say which list has it."""
        places = ", ".join(dict.fromkeys(given.location for given in self.given.lists))
        return InputError(f"{places}, id {at:,}: {reason}")


@dataclass(frozen=True)
class ResolveTask(Task):
    """Looks up the ids of a bucket of vertices, and routes the vertices back to the places of the ids.

    Attributes:
        vertex_ids: folder of the ids of the vertices.
        buckets: of the vertices.
        ids: the ids, by bucket.
        vertices: where the vertices go, for each list, and the lanes.
    """

    vertex_ids: Path
    buckets: VertexBuckets
    bucket: int
    ids: Shuffle
    vertices: tuple[tuple[Shuffle, Lane], ...]


def resolve_ids(task: ResolveTask) -> int:
    """Look up the ids of a bucket; returns their number. Records the number of unknown ids, and the first such id."""
    first_vertex, stop_vertex = task.buckets.vertices_of(task.bucket)
    lookup = VertexLookup(SourceIds.at(task.vertex_ids), first_vertex, stop_vertex)
    unknown, first, count = 0, None, 0
    with task.writer.task(task.name) as output:
        # One list after the other: each has a lane of its own.
        for number, (shuffle, lane) in enumerate(task.vertices):
            with shuffle.routed(output, lane) as out, OpenFiles(task.writer.work) as files:
                for names, at in _ids_of(task, files, number):
                    found = lookup.find(names)
                    wrong = np.flatnonzero(found < 0)
                    if len(wrong):
                        here = wrong[np.argmin(at[wrong])]
                        unknown += len(wrong)
                        if first is None or (number, int(at[here])) < tuple(first[:2]):
                            first = [number, int(at[here]), names.name(int(here)).decode("utf-8", "replace")]
                    order = np.argsort(at, kind="stable")
                    out.add(Index.of_positions(at[order]), {_VERTEX: first_vertex + found[order]})
                    count += len(at)
        output.facts |= {"unknown": unknown, "first": first}
    return count


def _ids_of(task: ResolveTask, files: OpenFiles, number: int) -> Iterator[tuple[Names, NDArray[np.int64]]]:
    """The ids of a bucket that belong to a list, with their places; some at a time."""
    for section in task.ids.rows(task.writer.work, files).sections(task.bucket, task.bucket + 1):
        step = max(1, BLOCK_BYTES // row_bytes(section.run.layout.columns))
        for start in range(*section.rows, step):
            rows = (start, min(start + step, section.rows[1]))
            own = np.flatnonzero(section.run.read("value", rows) == number)
            if not len(own):
                continue
            ends = np.append(0, np.cumsum(section.run.read("length", rows)))
            names = Names(ends, section.run.read("id", rows))
            yield Names.from_arrow(names.to_arrow().take(own)), section.run.read("at", rows)[own]


@dataclass(frozen=True, eq=False)
class GivenPlan:
    """The phases that bring lists to their vertices and their values, once their rows are counted.

    Attributes:
        parts: the ranges of all lists, with the numbers of their rows.
        num_rows: rows of each list.
        kind: of the values.
        ends: the ids of all vertices, or of the possible sources and the possible targets.
    """

    writer: ArtifactWriter
    given: GivenLists
    parts: tuple[ListRange, ...]
    num_rows: tuple[int, ...]
    kind: str
    memory: int
    ends: tuple[SourceIds, ...] = field(repr=False)

    @property
    def num_pairs(self) -> dict[str, int]:
        """Number of pairs of each split that has a list of pairs."""
        by_path = zip((given.path for given in self.given.lists), self.num_rows, strict=True)
        return {path.partition("/")[0]: rows for path, rows in by_path if path.endswith("/pair")}

    @property
    def kept_ids(self) -> bool:
        """Whether an id is the number of its vertex."""
        return len(self.ends) == 1 and not self.ends[0].has_numbers and not self.ends[0].has_names

    @cached_property
    def vertices(self) -> tuple[ShufflePlan, ...]:
        """Plans that bring the vertices of each list to their places."""
        plans = []
        for number, (given, rows) in enumerate(zip(self.given.lists, self.num_rows, strict=True)):
            total = rows * given.width
            tasks = sum(part.number == number for part in self.parts) if self.kept_ids else self._num_buckets
            readers = max(1, total // (1 << 19))
            shuffle = Shuffle(f"vertices/{given.path}", max(1, total), (Column(_VERTEX, "int64"),), readers)
            plans.append(ShufflePlan(self.writer, shuffle, tasks, 8 * total, 0 if self.kept_ids else total))
        return tuple(plans)

    @cached_property
    def values(self) -> Mapping[int, ShufflePlan]:
        """Plans that bring the values of lists to their places, by number of the list, for lists with values."""
        plans = {}
        for number, (given, rows) in enumerate(zip(self.given.lists, self.num_rows, strict=True)):
            if given.has_values:
                tasks = sum(part.number == number for part in self.parts)
                shuffle = Shuffle(f"values/{given.path}", max(1, rows), (Column("value", "float32"),), 1)
                plans[number] = ShufflePlan.unmerged(self.writer, shuffle, tasks)
        return plans

    @cached_property
    def _buckets(self) -> list[VertexBuckets]:
        """Buckets of the vertices of each end."""
        value = Column("value", "uint8")
        size = self.writer.scratch.bucket_bytes
        return [VertexBuckets(ids.num_vertices, _TASK_VERTICES, value, id_bytes(ids), size) for ids in self.ends]

    @property
    def _num_buckets(self) -> int:
        return sum(each.num_buckets for each in self._buckets)

    @cached_property
    def _tables(self) -> list[TablePlan]:
        """The ids of each end as a table."""
        tables = []
        for end, (ids, buckets) in enumerate(zip(self.ends, self._buckets, strict=True)):
            own = [self._num_ids(number, end) for number in range(len(self.given.lists))]
            parts = tuple(part for part in self.parts if own[part.number] or len(self.ends) == 1)
            table = IdTable(self.given, parts, end if len(self.ends) > 1 else None)
            name, num_bytes = "ids" if len(self.ends) == 1 else f"{_ENDS[end]}-ids", sum(own) * (buckets.id_bytes + 8)
            how = table.ranges(), sum(own), num_bytes, self.memory, self.writer, ids.folder, table
            tables.append(TablePlan(name, buckets, *how))
        return tables

    def _num_ids(self, number: int, end: int) -> int:
        """Number of ids of a list that are ids of an end."""
        given, rows = self.given.lists[number], self.num_rows[number]
        if len(self.ends) == 1:
            return rows * given.width
        return rows * given.width * (end == 1) if given.path.endswith(_OF_TARGETS) else rows

    def phases(self) -> list[Phase]:
        """All phases."""
        if self.kept_ids:
            return [self._placing(vertices=True), *self._merges()]
        placing = [self._placing(vertices=False)] if self.values else []
        routed = [phase for table in self._tables for phase in table.phases()]
        return [*placing, *routed, self.resolving, *self._merges()]

    def _merges(self) -> Iterator[Phase]:
        for plan in self.vertices:
            yield from plan.merges("merge vertices")

    def _placing(self, *, vertices: bool) -> Phase:
        tasks, numbers = [], dict.fromkeys(range(len(self.given.lists)), 0)
        for at, part in enumerate(self.parts):
            number, own = part.number, numbers[part.number]
            numbers[number] += 1
            plan, values = self.vertices[number], self.values.get(number)
            ways = (plan.shuffle, plan.lane(own)) if vertices else None
            ways_of_values = None if values is None else (values.shuffle, values.lane(own))
            if ways is None and ways_of_values is None:
                continue
            written = 8 * self.num_rows[number] * self.given.lists[number].width // max(1, self._num_parts(number))
            name = f"place/{range_name(at, part.span)}"
            needs = Needs(written, written, memory=_READING_BYTES)
            tasks.append(PlaceIdsTask(self.writer, name, needs, self.given, part, ways, ways_of_values, self.kind))
        files = [
            *((plan.files for plan in self.vertices) if vertices else ()),
            *(p.files for p in self.values.values()),
        ]
        return Phase("place ids", place_ids, tasks, "pairs", files=tuple(files))

    def _num_parts(self, number: int) -> int:
        return sum(part.number == number for part in self.parts)

    @cached_property
    def resolving(self) -> Phase:
        """The phase that looks ids up."""
        tasks = list[ResolveTask]()
        for ids, buckets, table in zip(self.ends, self._buckets, self._tables, strict=True):
            for bucket in range(buckets.num_buckets):
                ways = tuple((plan.shuffle, plan.lane(len(tasks))) for plan in self.vertices)
                opens = table.shuffled.opens((bucket, bucket + 1))
                needs = Needs(memory=buckets.memory + 16 * BLOCK_BYTES, opens=opens)
                how = ids.folder, buckets, bucket, table.shuffled.shuffle, ways
                tasks.append(ResolveTask(self.writer, f"resolve/{len(tasks):06d}", needs, *how))
        reads = tuple(table.shuffled.read_files for table in self._tables)
        return Phase("look up ids", resolve_ids, tasks, "ids", reads, tuple(plan.files for plan in self.vertices))

    def check_known(self) -> None:
        """Check that all ids are vertices, after the phases.

        Raises:
            InputError: some are not.
        """
        if self.kept_ids:
            return
        found, begin = [record.facts for record in records_of(self.resolving, self.writer)], 0
        for ids, buckets, table in zip(self.ends, self._buckets, self._tables, strict=True):
            own, begin = found[begin : begin + buckets.num_buckets], begin + buckets.num_buckets
            unknown = sum(each["unknown"] for each in own) + table.num_unknown()
            if unknown:
                firsts = sorted(each["first"] for each in own if each["first"] is not None)
                shown = ""
                if firsts:
                    number, at, name = firsts[0]
                    shown = f"; the first is {name!r} ({self.given.where(number, at)})"
                    shown += self.given.header_hint(number, at)
                places = ", ".join(dict.fromkeys(given.location for given in self.given.lists))
                what = "not in the graph" if not ids.type else f"not among the vertices of type {ids.type}"
                raise InputError(f"{places}: {counted(unknown, 'id')} {what}{shown}")

    def num_classes(self) -> int:
        """One more than the largest class; 0 if the values are no classes."""
        if self.kind != CLASS:
            return 0
        names = {task.name for task in self._placing(vertices=self.kept_ids).tasks}
        return 1 + max(int(record.facts["highest"]) for record in self.writer.recorded_of(names).values())

    def arrays(self, *, symmetric: bool) -> list[PairArray]:
        """The arrays of all lists.

        Args:
            symmetric: the ends of a pair have no order, unless there are negatives for its source.
        """
        with_negatives = {
            given.path.partition("/")[0] for given in self.given.lists if given.path.endswith("/negative")
        }
        arrays = []
        for number, (given, rows) in enumerate(zip(self.given.lists, self.num_rows, strict=True)):
            split, _, name = given.path.partition("/")
            dims = {"pair": ("pair", "end"), "pool": ("pooled", "end"), "negative": ("pair", "negative")}[name]
            is_sorted = symmetric and name == "pair" and split not in with_negatives
            how = self.vertices[number], (_VERTEX,), 0
            array = PairArray(given.path, (rows, given.width), "int64", dims, *how, True, is_sorted)
            arrays.append(array)
            if number in self.values:
                dtype = "int64" if self.kind == CLASS else "float32"
                of_values = self.values[number], ("value",), 0
                arrays.append(PairArray(f"{split}/value", (rows,), dtype, ("pair",), *of_values, True))
        return arrays


def plan_lists(
    writer: ArtifactWriter, ends: Sequence[SourceIds], lists: Sequence[IdList], kind: str, cluster: Cluster
) -> GivenPlan:
    """Prepare lists and count their rows, unless an earlier command did.

    Args:
        ends: the ids of all vertices, or of the possible sources and the possible targets.

    Raises:
        InputError: a file cannot be read, or a list has no rows, or not one of negatives for each pair.
        BudgetError: the memory per worker is too small.
    """
    given = GivenLists.of(ends, lists)
    needed = max((array.unpack_memory for array in packed_arrays(given)), default=0)
    if needed > working_memory(cluster.memory):
        raise BudgetError(
            f"the arrays of a file can only be read together, which takes {(needed + BASE_MEMORY) // MIB:,} MiB, and"
            f" {cluster.memory // MIB:,} MiB per worker are allowed; increase --memory"
        )
    given = prepared_source(writer, given, cluster)
    counting = counting_phase(writer, given)
    run([counting], cluster, writer)
    found = [record.facts["rows"] for record in records_of(counting, writer)]
    totals, parts = [0] * len(lists), []
    for part, rows in zip(given.ranges, found, strict=True):
        parts.append(ListRange(part.number, part.span, totals[part.number]))
        totals[part.number] += rows
    _check_rows(given.lists, totals)
    return GivenPlan(writer, given, tuple(parts), tuple(totals), kind, cluster.memory, tuple(ends))


def counting_phase(writer: ArtifactWriter, given: GivenLists) -> Phase:
    """The phase that counts the rows of all lists."""
    tasks = []
    for number, part in enumerate(given.ranges):
        name = f"count/{range_name(number, part.span)}"
        tasks.append(CountRowsTask(writer, name, Needs(memory=_READING_BYTES), given, part))
    return Phase("count pairs", count_rows, tasks, "pairs", files=(WorkFiles(),))


def _check_rows(lists: Sequence[IdList], num_rows: Sequence[int]) -> None:
    by_path = {given.path: rows for given, rows in zip(lists, num_rows, strict=True)}
    for given in lists:
        if not by_path[given.path]:
            raise InputError(f"{given.location}: no pairs")
        split, _, name = given.path.partition("/")
        if name == "negative" and by_path[given.path] != by_path[f"{split}/pair"]:
            raise InputError(
                f"{given.location}: {counted(by_path[given.path], 'row')} of negatives, expected one for each of the"
                f" {by_path[f'{split}/pair']:,} pairs"
            )
