"""Numbers the vertices of every type, from its lists and from all relations that mention it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from gnnloom.pipeline.external_sort.lanes import LaneSet
from gnnloom.pipeline.ingest.keys.collect import CollectKeysTask, check_values, collect_range
from gnnloom.pipeline.ingest.keys.kinds import KindColumn
from gnnloom.pipeline.ingest.keys.merge import ConflictingKindsError, KeyLanes, KeyRanges
from gnnloom.pipeline.ingest.keys.numbered import NumberedKeys, merge_keys
from gnnloom.pipeline.ingest.typed.table import BY_ROW
from gnnloom.pipeline.ingest.typed.tables import RelationTable, TypedTables, VertexTable
from gnnloom.pipeline.matrix_sort.scatter import range_name
from gnnloom.pipeline.sources.source import EdgeSource, SourceRange
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Needs, Phase, records_of, run
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord
from gnnloom.storage.wording import counted


@dataclass(frozen=True)
class KeyInput:
    """A table whose keys are collected.

    Attributes:
        name: beginning of the names of its tasks.
        source: the table.
        spaces: id space of both ends, or of the sources and of the targets.
        location: the table, for messages.
        is_list: the table lists vertices.
        kinds: the kind of each row; None if all rows have the same.
        counts: number of rows that each file states; empty if the files state none.
    """

    name: str
    source: EdgeSource
    spaces: tuple[str, ...]
    location: str
    is_list: bool
    kinds: KindColumn | None
    counts: tuple[int, ...] = ()

    @classmethod
    def of_relation(cls, table: RelationTable) -> KeyInput:
        # No relation has the name of a table of several relations, whose parts need names for files.
        name = f"table/{table.name.removeprefix(BY_ROW)}" if table.kinds else f"relation/{table.name}"
        how = name, table.edges, table.spaces, table.location
        return cls(*how, is_list=False, kinds=table.kinds, counts=table.counts)

    @classmethod
    def of_vertices(cls, table: VertexTable, number: int) -> KeyInput:
        name = f"type/{table.type or 'all'}/{number}"
        return cls(name, table.rows, (table.space,), table.location, is_list=True, kinds=table.kinds)

    def check_counts(self, records: Sequence[TaskRecord]) -> None:
        """Compare the numbers of rows that files state with the rows that were read.

        Args:
            records: of all ranges of the table.

        Raises:
            InputError: a file has more or fewer rows, as a file that was cut off has.
        """
        found = [0] * len(self.counts)
        for span, record in zip(self.source.ranges(), records, strict=True) if found else ():
            # The number of edges is the third entry of a file.
            found[span.file] += sum(int(file[2]) for file in record.facts["files"])
        for number, (stated, rows) in enumerate(zip(self.counts, found, strict=True)):
            if stated != rows:
                where = self.source.files[number].location if isinstance(self.source, TextEdges) else self.location
                raise InputError(f"{where}: expected the stated {counted(stated, 'row')}, found {rows:,}")


@dataclass(frozen=True)
class NumberedType:
    """The vertices of a type, numbered.

    Attributes:
        name: of the type.
        count: number of vertices.
        table: file of the table of their keys.
        repeated: rows of lists with an id that an earlier row has.
        added: distinct ids that no list has, and that were added.
        dropped: distinct ids that no list has, and that were dropped.
        tables: numbers of the tables that list the vertices, if rows of a table have several types.
    """

    name: str
    count: int
    table: Path
    repeated: int = 0
    added: int = 0
    dropped: int = 0
    tables: tuple[int, ...] = ()

    def to_facts(self, first: int) -> dict[str, Any]:
        """Facts about the type for the manifest; ``first`` is the number of the type's first vertex."""
        found = {"repeated": self.repeated, "added": self.added, "dropped": self.dropped}
        counts = {name: value for name, value in found.items() if value}
        tables = {"tables": list(self.tables)} if self.tables else {}
        return {"name": self.name, "first": first, "count": self.count, **counts, **tables}


@dataclass(frozen=True)
class NumberedSpace:
    """The vertices of an id space, numbered.

    Attributes:
        types: in the order of the kinds of their keys.
        keys: the numbers of the keys of each table, by the name of its input.
        drops: whether keys were dropped that no list has.
    """

    types: tuple[NumberedType, ...]
    keys: Mapping[str, NumberedKeys]
    drops: bool


@dataclass(frozen=True)
class Collected:
    """The keys of all tables: the inputs, and the records of the ranges of each."""

    inputs: Sequence[KeyInput]
    records: Sequence[Sequence[TaskRecord]]

    def of_space(self, name: str) -> Iterator[tuple[KeyInput, list[tuple[TaskRecord, int]]]]:
        """The tables that mention a space, lists first, with their records and the number of the space among theirs."""
        both = zip(self.inputs, self.records, strict=True)
        for table, records in sorted(both, key=lambda each: not each[0].is_list):
            if name in table.spaces:
                yield table, [(record, table.spaces.index(name)) for record in records]

    def value_bytes(self, name: str) -> int:
        """Bytes of the weight or time of an edge of a table, by the name of its input."""
        records = next(each for table, each in zip(self.inputs, self.records, strict=True) if table.name == name)
        # The bytes of a value are the fourth entry of a file.
        return next((int(file[3]) for record in records for file in record.facts["files"]), 0)


def collect_phase(writer: ArtifactWriter, inputs: Sequence[KeyInput], ids: Mapping[str, str], memory: int) -> Phase:
    """The phase that sorts the keys of all tables, each in pieces.

    Args:
        ids: type of the keys, by id space.
        memory: bytes that a worker may use.
    """
    spans = [(table, number, span) for table in inputs for number, span in enumerate(table.source.ranges())]
    lanes = LaneSet.named("keys/collected", len(spans), writer.scratch)
    tasks = [
        CollectKeysTask(
            writer,
            f"{table.name}/collect/{range_name(number, span)}",
            Needs(max(0, span.stop - span.start)),
            table.source,
            span,
            tuple(ids[each] for each in table.spaces),
            memory,
            lanes.lane(place),
            table.is_list,
            table.kinds,
        )
        for place, (table, number, span) in enumerate(spans)
    ]
    return Phase("collect", collect_range, tasks, files=(KeyLanes(writer.work, lanes),))


def inputs_of(tables: TypedTables) -> list[KeyInput]:
    """All tables, as their keys are collected."""
    lists = [KeyInput.of_vertices(table, number) for number, table in enumerate(tables.vertices)]
    return lists + [KeyInput.of_relation(table) for table in tables.relations]


def collect_keys(writer: ArtifactWriter, tables: TypedTables, ids: Mapping[str, str], cluster: Cluster) -> Collected:
    """Collect the keys of all tables, except for what an earlier run has done.

    Raises:
        InputError: a table cannot be read, has no rows or a negative id, or only some of its edges have a weight.
    """
    inputs = inputs_of(tables)
    phase = collect_phase(writer, inputs, ids, cluster.memory)
    run([phase], cluster, writer)
    found = iter(records_of(phase, writer))
    records = [[next(found) for _ in table.source.ranges()] for table in inputs]
    for table, each in zip(inputs, records, strict=True):
        files = list(chain.from_iterable(record.facts["files"] for record in each))
        if not files:
            raise InputError(f"{table.location}: no {'vertices' if table.is_list else 'edges'}")
        # The bytes of a value are the fourth entry of a file.
        check_values([file[3] for file in files])
        table.check_counts(each)
    return Collected(inputs, records)


def number_spaces(
    writer: ArtifactWriter, collected: Collected, tables: TypedTables, unknown: str, cluster: Cluster
) -> dict[str, NumberedSpace]:
    """Number the keys of each type of each space in ascending order, except for what an earlier run has done.

    Args:
        tables: the tables, with the kinds of their rows.
        unknown: treatment of keys that are in none of the lists of their space, if there are lists.

    Raises:
        InputError: there is such a key, and it is an error; or a vertex has two types.
    """
    return {name: _number_space(writer, collected, tables, name, unknown, cluster) for name in tables.spaces}


def _number_space(
    writer: ArtifactWriter, collected: Collected, tables: TypedTables, name: str, unknown: str, cluster: Cluster
) -> NumberedSpace:
    found, ids, types = list(collected.of_space(name)), tables.ids[name], tables.types_of(name)
    lists = [records for table, records in found if table.is_list]
    records = [record for _, each in found for record in each]
    kinds = _kinds_of_files(collected, tables, name, types) if len(types) > 1 else []
    of_space = [table for table in tables.vertices if table.space == name]
    ranges = KeyRanges.of(
        records,
        ids,
        writer.scratch,
        sum(map(len, lists)),
        adds=unknown == "add" or not lists,
        kinds=kinds,
        num_kinds=len(types),
        takes_first=any(table.kinds is not None and table.kinds.takes_first for table in of_space),
    )
    try:
        numbered, merged = merge_keys(writer, ranges, cluster)
    except ConflictingKindsError as error:
        of_lists = [table.location for table, _ in found if table.is_list]
        hint = next((getattr(table.source, "several_hint", "") for table, _ in found), "")
        hint = hint or next((table.kinds.hint for table, _ in found if table.kinds is not None), "")
        raise InputError(
            f"{', '.join(of_lists)}: vertex {error.key!r} has the types {types[error.kinds[0]]} and"
            f" {types[error.kinds[1]]}; a vertex has one type{hint}"
        ) from error
    keys: dict[str, NumberedKeys] = {}
    first = 0
    for table, each in found:
        keys[table.name] = replace(numbered, num_ranges=len(each), first_range=first)
        first += len(each)
    count = sum(record.facts.get("unknown", 0) for record in merged)
    if count and unknown == "error":
        at, key = next(first for record in merged if (first := record.facts["first_unknown"]) is not None)
        raise _unknown_key(name, key, count, *_range_of(found, ranges, at))
    if count and kinds and unknown == "add":
        raise InputError(
            f"--unknown add: the type of {counted(count, 'id')} without a row in a table of vertices is not known: it"
            f" may be {' or '.join(types)}; add the rows, or use --unknown drop"
        )
    listed = _tables_of(tables, name) if any(table.kinds is not None for table in of_space) else {}
    if kinds:
        made = [
            NumberedType(each, numbered.num_keys(kind), numbered.tables[kind], tables=listed.get(each, ()))
            for kind, each in enumerate(types)
        ]
        return NumberedSpace(tuple(made), keys, drops=count > 0)
    added, total = count if ranges.adds else 0, numbered.num_keys()
    rows = sum(record.facts["rows"] for each in lists for record, _ in each)
    repeated = rows - (total - added) if lists else 0
    only = NumberedType(types[0], total, numbered.table_path, repeated, added, count - added)
    only = replace(only, tables=listed.get(types[0], ()))
    return NumberedSpace((only,), keys, drops=count > added)


def _tables_of(tables: TypedTables, space: str) -> dict[str, tuple[int, ...]]:
    """Numbers of the tables of vertices that list the vertices of each type of a space."""
    found: dict[str, tuple[int, ...]] = {}
    for number, table in enumerate(tables.vertices):
        for name in table.types() if table.space == space else ():
            found[name] = (*found.get(name, ()), number)
    return found


def _kinds_of_files(collected: Collected, tables: TypedTables, space: str, types: Sequence[str]) -> list[int]:
    """The number of the type of each file of keys of the lists of a space, in the order in which they are merged."""
    by_name = dict(zip((each.name for each in collected.inputs if each.is_list), tables.vertices, strict=True))
    found = []
    for table, records in collected.of_space(space):
        if table.is_list:
            numbers = [types.index(each) for each in by_name[table.name].types()]
            for record, _ in records:
                kinds = record.facts.get("kinds", [0] * len(record.facts["files"]))
                found += [numbers[kind] for kind in kinds]
    return found


def _range_of(
    tables: Sequence[tuple[KeyInput, Sequence[Any]]], ranges: KeyRanges, file: int
) -> tuple[KeyInput, SourceRange]:
    """The table and the range of the table whose keys are in a file."""
    at = 0
    for table, _ in tables:
        for span in table.source.ranges():
            at += 1
            if file < ranges.num_files(at):
                return table, span
    raise ValueError(f"no range has file {file}")


def _unknown_key(name: str, key: str, count: int, table: KeyInput, span: SourceRange) -> InputError:
    """The error for an end that no list has; names its line, if the reader of the table finds it."""
    more, lists = (
        "" if count == 1 else f", and {count - 1:,} more ids",
        f"of type {name}" if name != BY_ROW else "of vertices",
    )
    reason = (
        f"no table {lists} has {key!r}{more}; add the vertices to a table, or give `--unknown add` or `--unknown drop`"
    )
    ends = (0, 1) if len(table.spaces) == 1 else (table.spaces.index(name),)
    finds = getattr(table.source, "id_error", None)
    found: InputError | None = None if finds is None else finds(span, key, ends, reason)
    return found or InputError(f"{table.location}: {reason}")
