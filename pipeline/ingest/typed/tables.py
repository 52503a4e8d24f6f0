"""The tables of a graph with types: one per relation, and any number of vertices of each type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from gnnloom.pipeline.ingest.keys.kinds import KindColumn
from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.ingest.typed.column_values import ColumnsTable
from gnnloom.pipeline.ingest.typed.joined_ids import JoinedIds
from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.typed.table import BY_ROW, END_TYPES, ROLES, Ends, Table, ValueColumn
from gnnloom.pipeline.ingest.typed.type_vertices import TypeVertices
from gnnloom.pipeline.sources.binary.parquet_table import ParquetTable
from gnnloom.pipeline.sources.format import COLUMNS, Format, OneColumn, formats, guess_format, open_edges
from gnnloom.pipeline.sources.names import NamedEdgeSource
from gnnloom.pipeline.sources.numpy_edges import NumpyEdges
from gnnloom.pipeline.sources.parquet_edges import ParquetEdges
from gnnloom.pipeline.sources.reading.files import open_files
from gnnloom.pipeline.sources.reading.text_layout import declared_names
from gnnloom.pipeline.sources.source import (
    CHUNK_EDGES,
    EdgeChunk,
    EdgeSource,
    OfTwoTypes,
    SourceRange,
    even_ranges,
)
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.pipeline.sources.understood import Understood, understood_of
from gnnloom.storage.artifacts.typed.typed_names import (
    check_distinct,
    check_relation_names,
    check_type_name,
    distinct_names,
    valid_name,
)
from gnnloom.storage.errors import InputError

#: Largest stated number of vertices of a type: more than any graph has, and few enough to be divided into ranges.
_MOST_STATED: Final = 1 << 40
#: Options for the columns of a table, which each table states itself.
_OF_COLUMNS: Final = ("columns", *ROLES.values())


@dataclass(frozen=True)
class RelationTable:
    """The edges of a relation, or of several that have their ends in the same id spaces.

    Attributes:
        source, target: id spaces of the sources and of the targets, which have the names of their types unless these
            have several.
        name: of the relation; of several, a name that no relation has.
        edges: the table, open.
        are_names: whether the ids of the sources, and of the targets, are names.
        location: the table, for messages.
        kinds: the name of the relation of each row; None if all rows have the same.
        end_types: columns with the types of the ends of each row.
        columns: columns that are stored next to the edges; None if there are none.
        counts: number of rows that each file states; empty if the files state none.
    """

    source: str
    name: str
    target: str
    edges: EdgeSource
    are_names: tuple[bool, bool]
    location: str
    kinds: KindColumn | None = None
    columns: ColumnsTable | None = None
    counts: tuple[int, ...] = ()
    end_types: tuple[ValueColumn, ...] = ()

    @property
    def spaces(self) -> tuple[str, ...]:
        """The id spaces of the ends: one if both are the same."""
        return (self.source,) if self.source == self.target else (self.source, self.target)


@dataclass(frozen=True)
class NumberedVertices:
    """Vertices with ids from 0, as edges from each to itself.

    Implements :class:`~gnnloom.pipeline.sources.source.EdgeSource`.
    """

    num_edges: int

    def identity(self) -> dict[str, Any]:
        return {"format": "numbered", "vertices": self.num_edges}

    def num_vertices(self) -> int | None:
        return self.num_edges

    def ranges(self) -> Sequence[SourceRange]:
        return even_ranges(0, self.num_edges, 4 * CHUNK_EDGES)

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        """Read vertices ``start`` to ``stop``."""
        for start in range(span.start, span.stop, CHUNK_EDGES):
            ids = np.arange(start, min(start + CHUNK_EDGES, span.stop), dtype=np.int64)
            yield EdgeChunk(ids, ids)


@dataclass(frozen=True)
class VertexTable:
    """A list of vertices of a type, or of several types.

    Attributes:
        type: the type; empty if each row has one.
        rows: the ids, as edges from each vertex to itself.
        are_names: whether the ids are names.
        location: the table, for messages.
        space: the space of the ids.
        kinds: the type of each row; None if all rows have the same.
        data: columns with features, labels and split.
        of_edges: the table has edges, and lists their ends.
    """

    type: str
    rows: EdgeSource
    are_names: bool
    location: str
    space: str
    kinds: KindColumn | None = None
    data: tuple[str, ...] = ()
    of_edges: bool = False

    def types(self) -> list[str]:
        """Names of the types of the rows: of each kind, or the only one."""
        if self.kinds is None:
            return [self.type]
        return list(distinct_names(self.kinds.names or ()).values())


@dataclass(frozen=True)
class TypedTables:
    """All tables of a graph with types.

    Attributes:
        relations: by name.
        vertices: by type.
        data: features, labels and splits, which are stored after the graph.
    """

    relations: tuple[RelationTable, ...]
    vertices: tuple[VertexTable, ...]
    data: tuple[TypeVertices, ...] = ()

    @classmethod
    def open(
        cls,
        relations: Mapping[Ends, Table],
        vertices: Mapping[str, Sequence[Table]],
        options: Mapping[str, Any],
        format_name: str | None = None,
        *,
        any_name: bool = False,
    ) -> TypedTables:
        """Open all tables.

        Args:
            relations: table by source type, name and target type; the name is ``*`` if each row has one, and a type is
                ``*`` if the rows of tables of vertices have several.
            vertices: tables by type, which is ``*`` if each row has one.
            options: options of the formats of the tables, for all tables whose format has them.
            format_name: format of all tables; by default guessed for each.
            any_name: whether all ids are names, whatever they look like.

        Raises:
            InputError: a name cannot be used, two relations have one name, two types look like one, or a table cannot
                be read.
            NotFoundError: a file does not exist.
        """
        for _, name, _ in relations:
            if name != BY_ROW:
                check_type_name(name, "relation")
        for name in {each for source, _, target in relations for each in (source, target)} | set(vertices):
            if name != BY_ROW:
                check_type_name(name, "type")
        listed = [(name, table) for name, tables in sorted(vertices.items()) for table in tables]
        ordered = sorted(relations.items(), key=lambda item: item[0][1])
        return cls.of(ordered, listed, options, format_name, any_name=any_name)

    @classmethod
    def of(
        cls,
        relations: Sequence[tuple[Ends, Table]],
        vertices: Sequence[tuple[str, Table]],
        options: Mapping[str, Any],
        format_name: str | None = None,
        *,
        any_name: bool = False,
        sizes: Mapping[str, int] | None = None,
    ) -> TypedTables:
        """Open all tables; several tables may have the same ends. Arguments and errors as for :meth:`open`.

        Args:
            sizes: number of the vertices of types that have ids from 0.
        """
        if not relations:
            raise InputError("a graph with types needs a relation, as in `--relation user,buys,item=clicks.csv`")
        vertices = [*vertices, *(each for ends, table in relations for each in table.vertex_lists(ends))]
        check_relation_names(name for (_, name, _), table in relations if not table.kinds)
        spaces = dict.fromkeys(each for (source, _, target), _ in relations for each in (source, target))
        spaces |= dict.fromkeys(table.space or name for name, table in vertices)
        check_distinct([each for each in spaces if each != BY_ROW], "type")
        tables = [table for _, table in (*relations, *vertices)]
        _refuse_columns(tables, options, format_name)
        given = _by_table(tables, options, format_name)
        how = format_name, any_name
        opened = [
            _open_relation((source, f"{BY_ROW}{number}" if table.kinds else name, target), table, given[table], *how)
            for number, ((source, name, target), table) in enumerate(relations)
        ]
        listed = [_open_vertices(name, table, given[table], *how) for name, table in vertices]
        data = TypeVertices.of_tables(vertices, options)
        return cls(tuple(opened), (*listed, *_counted(opened, sizes or {})), data)

    @property
    def spaces(self) -> list[str]:
        """Names of all id spaces, ascending."""
        names = {each for relation in self.relations for each in relation.spaces}
        return sorted(names | {table.space for table in self.vertices})

    def types_of(self, space: str) -> list[str]:
        """Names of the types of the vertices of a space, ascending, once the kinds of all rows are known."""
        found = {name for table in self.vertices if table.space == space for name in table.types()}
        return sorted(found) or ["vertex" if space == BY_ROW else valid_name(space)]

    @cached_property
    def ids(self) -> Mapping[str, str]:
        """By id space, whether the keys of its vertices are ``compact`` numbers or ``names``.

        Raises:
            InputError: one table of a type has numbers and another one has names.
        """
        found: dict[str, str] = {}
        where: dict[str, str] = {}
        for each, are_names, location in self._ends():
            ids = "names" if are_names else "compact"
            if found.setdefault(each, ids) != ids:
                numbers, names = (location, where[each]) if ids == "compact" else (where[each], location)
                raise InputError(
                    f"{_called(each)}: its ids are numbers in {numbers} and names in {names}; write them alike or, if"
                    " all of them are names, add `--ids names`"
                )
            where.setdefault(each, location)
        return found

    def _ends(self) -> Iterator[tuple[str, bool, str]]:
        """Id space, whether ids are names, and the table, of each column of ids."""
        for table in self.vertices:
            yield table.space, table.are_names, table.location
        for relation in self.relations:
            yield relation.source, relation.are_names[0], relation.location
            yield relation.target, relation.are_names[1], relation.location

    def understood(self) -> list[Understood]:
        """Describes how each file is read."""
        found = []
        for relation in self.relations:
            columns = () if relation.columns is None else relation.columns.columns
            read = [each.name for each in columns]
            read += [relation.kinds.column] if relation.kinds is not None else []
            read += [each.name for each in relation.end_types]
            values = ", ".join(each.in_words() for each in (*relation.end_types, *columns))
            for each in understood_of(relation.edges, [relation.location], ""):
                first, *others = each.sentences or ("",)
                sentences = (first, _relation_in_words(relation, each), *others, values)
                found.append(_without(replace(each, sentences=sentences), read))
        for table in self.vertices:
            if table.of_edges or isinstance(table.rows, NumberedVertices):
                continue
            kind = "names" if table.are_names else "numbers"
            for each in understood_of(table.rows, [table.location], ""):
                of_type = f"type {table.type}" if table.kinds is None else f"types by {_column(table.kinds, each)},"
                sentence = f"vertices of {of_type} from {each.facts.get('source', '')}; ids are {kind}"
                read = [*table.data, *([] if table.kinds is None else [table.kinds.column])]
                found.append(_without(replace(each, sentences=(*each.sentences[:1], sentence)), read))
        return found + [each for data in self.data for each in data.understood()]

    def parameters(self, options: IngestOptions, typed: TypedOptions) -> dict[str, Any]:
        """Parameters that decide the graph's bytes."""
        vertices: dict[str, list[Any]] = {}
        for table in self.vertices:
            apart: dict[str, Any] = {} if table.space == table.type else {"space": table.space}
            apart |= {} if table.kinds is None else {"kinds": table.kinds.identity()}
            rows = table.rows.identity()
            vertices.setdefault(table.type or BY_ROW, []).append({**apart, "table": rows} if apart else rows)
        relations = {
            each.name: {
                "source": each.source,
                "target": each.target,
                "table": each.edges.identity(),
                **({} if each.kinds is None else {"kinds": each.kinds.identity()}),
                **({"columns": [column.to_json() for column in each.columns.columns]} if each.columns else {}),
            }
            for each in self.relations
        }
        found = asdict(options)
        del found["undirected"]
        # Ids are always numbered, and no loops are added.
        found["ids"] = "names" if options.ids == "names" else "compact"
        found["self_loops"] = "remove" if options.self_loops == "remove" else "keep"
        found["merge"] = options.merge or "sum"
        return {**found, **asdict(typed), "relations": relations, "vertices": vertices}


def _refuse_columns(tables: Sequence[Table], options: Mapping[str, Any], format_name: str | None) -> None:
    """Refuse options that name the columns of all tables alike; tables without columns may have weights.

    Raises:
        InputError: one of them is given.
    """
    have_columns = all(COLUMNS in _format_of(table, format_name).options for table in tables)
    for name in _OF_COLUMNS:
        if options.get(name) and (have_columns or name == COLUMNS.name):
            raise InputError(
                f"--{name}: each table names its own columns, as in `--relation user,buys,item=clicks.csv:user,item` or"
                " `clicks.csv:user,item,amount as weight`"
            )


def _relation_in_words(relation: RelationTable, understood: Understood) -> str:
    """The relation, or the column with the relation of each row, for people."""
    ends = f", from {relation.source} to {relation.target}"
    if relation.kinds is None:
        return f"relation {relation.name}{ends}"
    return f"relations by the words of {_column(relation.kinds, understood)}{'' if relation.source == BY_ROW else ends}"


def _column(kinds: KindColumn, understood: Understood) -> str:
    """A column of words, for people."""
    number = int(kinds.column) - 1 if kinds.column.isdecimal() else len(understood.columns)
    return f"column {understood.columns[number] if number < len(understood.columns) else kinds.column}"


def _without(understood: Understood, read: Sequence[str]) -> Understood:
    """Description of how a file is read, in which further columns, given by name or number, count as read."""
    ignored, titles = understood.facts.get("ignored", ()), understood.columns
    if not read or not ignored:
        return understood
    known = {*read, *(f"column {name}" for name in read)}
    known |= {titles[int(name) - 1] for name in read if name.isdigit() and int(name) <= len(titles)}
    known |= {titles[at] for name in read for at in declared_names(titles, name)}
    left = [name for name in ignored if name not in known]
    return replace(understood, facts={**understood.facts, "ignored": left, "further": list(read)})


def _counted(relations: Sequence[RelationTable], sizes: Mapping[str, int]) -> list[VertexTable]:
    """Lists of the vertices whose number a table states, so that vertices without edges exist too.

    Raises:
        InputError: a number is too large.
    """
    ends = {space for each in relations for space in each.spaces}
    # A type of no vertices is there if a relation has it, whose edges would be between unknown vertices.
    stated_sizes = {space: size for space, size in sizes.items() if size or space in ends}
    counts = {space: (size, f"the vertices of type {space}") for space, size in stated_sizes.items()}
    for each in relations:
        stated = each.edges.type_sizes if isinstance(each.edges, OfTwoTypes) else None
        for space, size in zip((each.source, each.target), stated or (), strict=False):
            counts[space] = max(counts.get(space, (0, "")), (size, each.location))
    for space, (size, location) in counts.items():
        if size > _MOST_STATED:
            raise InputError(f"{location}: {size:,} vertices of type {space}; expected at most {_MOST_STATED:,}")
    return [
        VertexTable(space, NumberedVertices(size), are_names=False, location=location, space=space)
        for space, (size, location) in sorted(counts.items())
    ]


def _called(space: str) -> str:
    """An id space, for messages."""
    return "the vertices of all types" if space == BY_ROW else f"type {space}"


def _by_table(
    tables: Sequence[Table], options: Mapping[str, Any], format_name: str | None
) -> dict[Table, dict[str, Any]]:
    """The options for each table: the options of its format.

    Raises:
        InputError: no format has one of the options.
    """
    has = {table: {option.name for option in _format_of(table, format_name).options} for table in tables}
    # A table with columns says itself which one has weights.
    has = {table: names - set(ROLES.values()) if COLUMNS.name in names else names for table, names in has.items()}
    for name, value in options.items():
        if value is not None and value is not False and not any(name in names for names in has.values()):
            raise InputError(f"no table has a format with the option {name}")
    return {
        table: {name: value for name, value in options.items() if name in has[table]} | dict(table.options)
        for table in tables
    }


def _format_of(table: Table, format_name: str | None) -> Format:
    name = table.format or format_name or guess_format([*table.locations, *table.headless])
    if name not in formats():
        raise InputError(f"format {name!r}: expected one of {', '.join(formats())}")
    found = formats()[name]
    if found.one_location:
        raise InputError(f"{table.location}: a folder of a whole graph; a relation is read from a table")
    return found


def _open(
    table: Table, columns: Sequence[str], options: Mapping[str, Any], format_name: str | None, any_name: bool
) -> EdgeSource:
    if table.opened is not None:
        return table.opened
    chosen = dict(options)
    if columns:
        chosen["columns"] = columns if isinstance(columns, OneColumn) else tuple(columns)
    if table.role:
        chosen[ROLES[table.role]] = True
    name = table.format or format_name
    found: list[Any] = [open_edges(name, table.locations, chosen, two_types=True)] if table.locations else []
    if table.headless:
        headless: Any = open_edges(name, table.headless, chosen | {"header": False}, two_types=True)
        found.append(headless.titled(table.titles))
    edges: EdgeSource = found[0] if len(found) == 1 else found[0].followed_by(found[1])
    edges = edges.of_width(table.width) if table.width and isinstance(edges, TextEdges) else edges
    return edges.as_named() if any_name and isinstance(edges, NamedEdgeSource) else edges


def _open_kinds(table: Table, options: Mapping[str, Any], format_name: str | None) -> KindColumn | None:
    """The column with the kind of each row; None if the table has none."""
    if not table.kinds:
        return None
    if not table.columns:
        raise InputError(f"{table.location}: name the columns of ids too, before {table.kinds!r}")
    # Next to an id, so that a row without a word is no blank line.
    id_column = table.columns[0]
    columns = OneColumn.of(id_column) if id_column == table.kinds else (id_column, table.kinds)
    rows = _open(replace(table, role=""), columns, options, format_name, any_name=True)
    if not isinstance(rows, NamedEdgeSource):
        raise InputError(f"{table.location}: a column of words is read from text or Parquet")
    hint = (
        "; if ids are distinct within a type only, add `joined by ::` after `as source type` and after `as target type`"
        if table.of_edges and not table.before
        else ""
    )
    return KindColumn(rows, table.location, table.kinds, table.several, table.takes_first, table.before, hint)


def _with_header(rows: EdgeSource, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options that read other columns of a text with the same header: the first line alone may say less about them."""
    return {"header": bool(rows.tables[0].header), **options} if isinstance(rows, TextEdges) else options


def _join_types(
    table: Table, edges: EdgeSource, options: Mapping[str, Any], format_name: str | None, columns: Sequence[str]
) -> JoinedIds:
    """The edges of a table with ids that are joined with their types.

    Args:
        columns: columns of the types.
    """
    if not isinstance(edges, TextEdges | ParquetEdges):
        raise InputError(f"{table.location}: ids are joined with their types in text and Parquet")
    types = _open(replace(table, role=""), columns, _with_header(edges, options), format_name, any_name=True)
    if not isinstance(types, NamedEdgeSource):
        raise InputError(f"{table.location}: a column of words is read from text or Parquet")
    separator = next(each.joined for each in table.end_types) if table.end_types else table.joined
    return JoinedIds(edges, types, separator, table.location)


def _open_relation(
    ends: Ends, table: Table, options: Mapping[str, Any], format_name: str | None, any_name: bool
) -> RelationTable:
    (source, name, target), where = ends, table.location
    found = _format_of(table, format_name)
    if name == BY_ROW:
        raise InputError(
            f"{where}: name the column with the names of the relations, as in"
            " `--relation entity,*,entity=facts.tsv:head,tail,relation as relation`"
        )
    if len(table.columns) == 1:
        only = table.columns[0]
        raise InputError(f"{where}, relation {name}: expected the columns of both ends, found {only!r} only")
    edges = _open(table, table.columns, options, format_name, any_name)
    if location := getattr(edges, "says_undirected", ""):
        raise InputError(
            f"{location}, relation {name}: the file says that its edges have no direction, but relations are"
            " directed, and their reverses are derived"
        )
    if any_name and not isinstance(edges, NamedEdgeSource):
        raise InputError(f"{where}: ids are always numbers in this format, not names (`--ids compact`)")
    is_joined = any(each.joined for each in table.end_types)
    are_names = (True, True) if any_name or is_joined else _are_names(edges, table, options, format_name)
    kinds = _open_kinds(table, _with_header(edges, options), format_name)
    columns = _open_columns(table, edges, are_names=any(are_names), has_columns=COLUMNS in found.options)
    if is_joined:
        by_role = {each.role: each.name for each in table.end_types}
        edges = _join_types(table, edges, options, format_name, [by_role[role] for role in END_TYPES])
    return RelationTable(source, name, target, edges, are_names, where, kinds, columns, table.counts, table.end_types)


def _open_columns(table: Table, edges: EdgeSource, *, are_names: bool, has_columns: bool) -> ColumnsTable | None:
    """The columns that are stored next to the edges; None if there are none."""
    if not table.others:
        return None
    if isinstance(edges, NumpyEdges) and edges.values:
        return ColumnsTable.open(edges, table.others, table.location, are_names=are_names)
    if len(table.columns) != 2 or not (has_columns and isinstance(edges, TextEdges | ParquetEdges)):
        raise InputError(f"{table.location}: name the columns of both ends, before those with {table.others[0].role}")
    return ColumnsTable.open(edges, table.others, table.location, are_names=are_names)


def _open_vertices(
    name: str, table: Table, options: Mapping[str, Any], format_name: str | None, any_name: bool
) -> VertexTable:
    where = table.location
    if name == BY_ROW and not table.kinds:
        raise InputError(f"{where}: name the column with the types, as in `--vertices *=vertices.csv:id,kind as type`")
    if len(table.columns) > 1:
        raise InputError(f"{where}, type {name}: expected the column of ids alone, found {', '.join(table.columns)}")
    if COLUMNS not in _format_of(table, format_name).options:
        raise InputError(f"{where}, type {name}: a list of vertices is a text or Parquet table")
    rows = _open_column(table, 0, options, format_name, any_name)
    if table.joined:
        rows = _join_types(table, rows, options, format_name, OneColumn.of(table.kinds))
        types = KindColumn(rows, where, table.kinds, before=table.joined)
        return VertexTable("", rows, True, where, table.space, types, of_edges=True)
    try:
        are_names = any_name or (isinstance(rows, NamedEdgeSource) and rows.begins_with_names())
    except InputError as error:
        named = "" if table.columns else f"; name the column of ids, as in {table.location}:id"
        raise InputError(f"{error} (type {name}{named})") from error
    kinds = _open_kinds(table, _with_header(rows, options), format_name)
    data = tuple(each.name for each in table.others)
    space, of_edges = table.space or name, table.of_edges
    return VertexTable("" if kinds else name, rows, are_names, where, space, kinds, data, of_edges)


def _open_column(
    table: Table, end: int, options: Mapping[str, Any], format_name: str | None, any_name: bool
) -> EdgeSource:
    """One column of a table, as edges from each id to itself."""
    column = table.columns[end] if table.columns else ""
    if not column:
        # The first columns: columns of text have numbers, columns of Parquet have names.
        is_text = _format_of(table, format_name).is_fallback
        column = str(end + 1) if is_text else ParquetTable.open(open_files(table.locations)[0]).names[end]
    return _open(replace(table, role=""), OneColumn.of(column), options, format_name, any_name)


def _are_names(
    edges: EdgeSource, table: Table, options: Mapping[str, Any], format_name: str | None
) -> tuple[bool, bool]:
    """Whether the ids of the sources, and of the targets, are names."""
    if not isinstance(edges, NamedEdgeSource) or not edges.begins_with_names():
        return False, False
    if not isinstance(edges, TextEdges | ParquetEdges):
        return True, True
    given = _with_header(edges, options)
    columns = [_open_column(table, end, given, format_name, any_name=False) for end in (0, 1)]
    found = [isinstance(each, NamedEdgeSource) and each.begins_with_names() for each in columns]
    return found[0], found[1]
