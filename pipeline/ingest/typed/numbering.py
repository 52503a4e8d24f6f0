"""Numbers the vertices of every type, from its lists and from all relations that mention it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from gnnloom.pipeline.external_sort.lanes import LaneSet
from gnnloom.pipeline.ingest.keys.collect import CollectKeysTask, check_values, collect_range
from gnnloom.pipeline.ingest.keys.merge import KeyLanes, KeyRanges
from gnnloom.pipeline.ingest.keys.numbered import NumberedKeys, merge_keys
from gnnloom.pipeline.ingest.typed.tables import RelationTable, TypedTables, VertexTable
from gnnloom.pipeline.matrix_sort.scatter import range_name
from gnnloom.pipeline.sources.source import EdgeSource, SourceRange
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Needs, Phase, records_of, run
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord


@dataclass(frozen=True)
class KeyInput:
    """A table whose keys are collected.

    Attributes:
        name: what the names of its tasks begin with.
        source: the table.
        types: type of both ends, or type of the sources and type of the targets.
        location: the table, for messages.
        is_list: the table lists vertices.
    """

    name: str
    source: EdgeSource
    types: tuple[str, ...]
    location: str
    is_list: bool

    @classmethod
    def of_relation(cls, table: RelationTable) -> KeyInput:
        return cls(f"relation/{table.name}", table.edges, table.types, table.location, is_list=False)

    @classmethod
    def of_vertices(cls, table: VertexTable, number: int) -> KeyInput:
        return cls(f"type/{table.type}/{number}", table.rows, (table.type,), table.location, is_list=True)


@dataclass(frozen=True)
class NumberedType:
    """The vertices of a type, numbered.

    Attributes:
        name: of the type.
        count: number of vertices.
        keys: the numbers of the keys of each table, by the name of its input.
        repeated: rows of lists with an id that an earlier row has.
        added: distinct ids that no list has, and that were added.
        dropped: distinct ids that no list has, and that were dropped.
    """

    name: str
    count: int
    keys: Mapping[str, NumberedKeys]
    repeated: int = 0
    added: int = 0
    dropped: int = 0

    def to_facts(self, first: int) -> dict[str, Any]:
        """What the manifest says about the type, whose first vertex has a number."""
        found = {"repeated": self.repeated, "added": self.added, "dropped": self.dropped}
        counts = {name: value for name, value in found.items() if value}
        return {"name": self.name, "first": first, "count": self.count, **counts}


@dataclass(frozen=True)
class Collected:
    """The keys of all tables: the inputs, and the records of the ranges of each."""

    inputs: Sequence[KeyInput]
    records: Sequence[Sequence[TaskRecord]]

    def of_type(self, name: str) -> Iterator[tuple[KeyInput, list[tuple[TaskRecord, int]]]]:
        """The tables that mention a type, lists first, with their records and the number of the type among theirs."""
        both = zip(self.inputs, self.records, strict=True)
        for table, records in sorted(both, key=lambda each: not each[0].is_list):
            if name in table.types:
                yield table, [(record, table.types.index(name)) for record in records]


def collect_phase(writer: ArtifactWriter, inputs: Sequence[KeyInput], ids: Mapping[str, str], memory: int) -> Phase:
    """The phase that sorts the keys of all tables, each in pieces.

    Args:
        ids: type of the keys, by type of vertices.
        memory: bytes that a worker may use.
    """
    spans = [(table, number, span) for table in inputs for number, span in enumerate(table.source.ranges())]
    lanes = LaneSet.named("keys/collected", len(spans))
    tasks = [
        CollectKeysTask(
            writer,
            f"{table.name}/collect/{range_name(number, span)}",
            Needs(max(0, span.stop - span.start)),
            table.source,
            span,
            tuple(ids[each] for each in table.types),
            memory,
            lanes.lane(place),
            table.is_list,
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
    return Collected(inputs, records)


def number_types(
    writer: ArtifactWriter, collected: Collected, ids: Mapping[str, str], unknown: str, cluster: Cluster
) -> list[NumberedType]:
    """Number the keys of each type in ascending order, except for what an earlier run has done.

    Args:
        ids: type of the keys, by type of vertices.
        unknown: what becomes of keys that are in none of the lists of their type, if there are lists.

    Raises:
        InputError: there is such a key, and it is an error.
    """
    return [_number_type(writer, collected, name, ids[name], unknown, cluster) for name in sorted(ids)]


def _number_type(
    writer: ArtifactWriter, collected: Collected, name: str, ids: str, unknown: str, cluster: Cluster
) -> NumberedType:
    tables = list(collected.of_type(name))
    lists = [records for table, records in tables if table.is_list]
    records = [record for _, each in tables for record in each]
    ranges = KeyRanges.of(records, ids, sum(map(len, lists)), adds=unknown == "add" or not lists)
    numbered, merged = merge_keys(writer, ranges, cluster)
    keys: dict[str, NumberedKeys] = {}
    first = 0
    for table, each in tables:
        keys[table.name] = NumberedKeys(numbered.ranges_path, len(each), first)
        first += len(each)
    count = sum(record.facts.get("unknown", 0) for record in merged)
    if count and unknown == "error":
        at, key = next(found for record in merged if (found := record.facts["first_unknown"]) is not None)
        raise _unknown_key(name, key, count, *_range_of(tables, ranges, at))
    added, total = count if ranges.adds else 0, numbered.num_keys()
    rows = sum(record.facts["rows"] for each in lists for record, _ in each)
    return NumberedType(name, total, keys, rows - (total - added) if lists else 0, added, count - added)


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
    more = "" if count == 1 else f", and {count - 1:,} more ids"
    reason = (
        f"no table of type {name} has {key!r}{more}; add the vertices to a table, or choose what becomes of these edges"
        " with `--unknown add` or `--unknown drop`"
    )
    ends = (0, 1) if len(table.types) == 1 else (table.types.index(name),)
    found = table.source.id_error(span, key, ends, reason) if isinstance(table.source, TextEdges) else None
    return found or InputError(f"{table.location}: {reason}")
