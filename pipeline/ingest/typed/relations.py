"""The relations of a graph with types, once the ends of all edges have numbers: one of a table, or several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gnnloom.pipeline.ingest.keys.numbered import KnownEdges, NumberedEdges
from gnnloom.pipeline.ingest.typed.divide import Division, divide_edges
from gnnloom.pipeline.ingest.typed.edge_columns import RowEdges, TableRows
from gnnloom.pipeline.ingest.typed.numbering import Collected, KeyInput, NumberedSpace, NumberedType
from gnnloom.pipeline.ingest.typed.tables import RelationTable, TypedTables
from gnnloom.pipeline.sources.source import EdgeSource
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.artifacts.typed.typed_names import check_relation_names, distinct_names
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.matrix.csr import TIME_BYTES
from gnnloom.storage.wording import counted

#: Relations of a table that there may be: tasks count the edges of each.
_MOST_POSITIONS: Final = 1 << 21


@dataclass(frozen=True)
class NumberedRelation:
    """A relation whose edges are numbered within the types of their ends.

    Attributes:
        name: of the relation; empty until all words are known.
        word: its name in the table.
        edges: edges of the relation.
        edges_in: number of edges in the table, including edges that are dropped because an end is in no list.
        spill_bytes: bytes of temporary files.
        time_unit: unit of times that are whole numbers; empty for others.
        location: the table, for messages.
        columns: columns that are stored next to the edges; None if there are none, or the sort moves them.
    """

    name: str
    word: str
    source: NumberedType
    target: NumberedType
    edges: EdgeSource
    edges_in: int
    spill_bytes: int
    time_unit: str
    location: str
    columns: TableRows | None = None


@dataclass(frozen=True)
class NumberedRelations:
    """All relations.

    Attributes:
        relations: in the order of their names.
        left_out: number of edges, in tables of several relations, that are dropped because an end is in no list.
    """

    relations: tuple[NumberedRelation, ...]
    left_out: int


def number_relations(
    writer: ArtifactWriter,
    collected: Collected,
    tables: TypedTables,
    spaces: Mapping[str, NumberedSpace],
    cluster: Cluster,
) -> NumberedRelations:
    """Find the relations of all tables; divides the edges of tables that have several.

    Raises:
        InputError: two tables have the same relation, or all edges of a table are left out.
    """
    found: list[NumberedRelation] = []
    left_out = 0
    for table in tables.relations:
        ends = spaces[table.source], spaces[table.target]
        if table.kinds is None and all(len(each.types) == 1 for each in ends):
            found.append(_whole(writer, table, spaces))
        else:
            divided, lost = _divided(writer, collected, table, spaces, cluster)
            found += divided
            left_out += lost
    return NumberedRelations(tuple(_named(found)), left_out)


def _numbered(
    writer: ArtifactWriter, table: RelationTable, spaces: Mapping[str, NumberedSpace], *, drops: bool
) -> NumberedEdges:
    name = KeyInput.of_relation(table).name
    ends = tuple(spaces[each].keys[name] for each in table.spaces)
    return (KnownEdges if drops else NumberedEdges)(writer.work, ends, writer.scratch.read_edges)


def _whole(writer: ArtifactWriter, table: RelationTable, spaces: Mapping[str, NumberedSpace]) -> NumberedRelation:
    """The relation of a table that has one."""
    edges = _numbered(writer, table, spaces, drops=any(spaces[each].drops for each in table.spaces))
    (source,), (target,) = spaces[table.source].types, spaces[table.target].types
    read, unit = sum(span.stop for span in edges.ranges()), getattr(table.edges, "time_unit", "")
    if table.columns is None:
        how = edges, read, edges.spill_bytes(), unit, table.location
        return NumberedRelation(table.name, table.name, source, target, *how)
    rows = RowEdges.of(edges)
    columns = TableRows(KeyInput.of_relation(table).name, table.columns, rows.firsts, table.name)
    with_rows = rows, read, edges.spill_bytes(), "", table.location
    return NumberedRelation(table.name, table.name, source, target, *with_rows, columns)


def _divided(
    writer: ArtifactWriter,
    collected: Collected,
    table: RelationTable,
    spaces: Mapping[str, NumberedSpace],
    cluster: Cluster,
) -> tuple[list[NumberedRelation], int]:
    """The relations of a table that has several, and how many of its edges are left out."""
    edges, name = _numbered(writer, table, spaces, drops=False), KeyInput.of_relation(table).name
    sources, targets = spaces[table.source].types, spaces[table.target].types
    words = [table.name] if table.kinds is None else list(table.kinds.names or ())
    division = Division(len(words), len(sources), len(targets))
    if division.num_positions > _MOST_POSITIONS:
        raise InputError(
            f"{table.location}: {len(words):,} words for relations between {len(sources):,} and {len(targets):,} types"
            f" are more than {_MOST_POSITIONS:,} relations that there may be; give fewer words or types"
        )
    rows = None if table.columns is None else RowEdges.of(edges)
    columns = None if table.columns is None or rows is None else TableRows(name, table.columns, rows.firsts)
    value_bytes = collected.value_bytes(name) if rows is None else TIME_BYTES
    divided = divide_edges(writer, name, rows or edges, division, value_bytes, cluster)
    lost = sum(divided.left_out.values())
    if not divided.counts:
        raise InputError(f"{table.location}: no table of vertices lists both ends of any of {counted(lost, 'edge')}")
    unit, found = getattr(table.edges, "time_unit", ""), []
    # Each relation has its share of the temporary files of the table.
    spilled = edges.spill_bytes() + divided.spill_bytes
    total = sum(divided.counts.values())
    for position, count in divided.counts.items():
        kind, source, target = division.parts(position)
        how = divided.edges(position), count, spilled * count // total, unit, table.location
        found.append(NumberedRelation("", words[kind], sources[source], targets[target], *how, columns))
    if columns is not None and len(found) * len(columns.table.classes) > _MOST_POSITIONS:
        raise InputError(
            f"{table.location}: {len(found):,} relations with {len(columns.table.classes):,} words as labels; number"
            " the labels, or leave them out"
        )
    return found, lost


def _named(found: Sequence[NumberedRelation]) -> Iterator[NumberedRelation]:
    """The relations with names of their own, in the order of their names."""
    own = [each.name for each in found if each.name]
    names = distinct_names([*own, *sorted({each.word for each in found} - set(own))])
    ends: dict[str, dict[tuple[str, str], str]] = {}
    for each in found:
        known = ends.setdefault(each.word, {})
        pair = each.source.name, each.target.name
        if pair in known:
            raise InputError(
                f"{known[pair]} and {each.location}: both have edges of the relation {each.word!r} from {pair[0]} to"
                f" {pair[1]}; give them as the files of one table"
            )
        known[pair] = each.location
    renamed = []
    for each in found:
        name = names[each.word]
        if not each.name and len(ends[each.word]) > 1:
            name = f"{each.source.name}_{name}_{each.target.name}"
        renamed.append(replace(each, name=name))
    check_relation_names(each.name for each in renamed)
    return iter(sorted(renamed, key=lambda each: each.name))
