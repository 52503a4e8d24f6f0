"""The tables of a graph with types: one per relation, and any number of vertices of each type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Final

from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.typed.table import ROLES, Ends, Table
from gnnloom.pipeline.sources.binary.parquet_table import ParquetTable
from gnnloom.pipeline.sources.format import COLUMNS, Format, OneColumn, formats, guess_format, open_edges
from gnnloom.pipeline.sources.names import NamedEdgeSource
from gnnloom.pipeline.sources.parquet_edges import ParquetEdges
from gnnloom.pipeline.sources.reading.files import open_files
from gnnloom.pipeline.sources.source import EdgeSource
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.pipeline.sources.understood import Understood, understood_of
from gnnloom.storage.artifacts.typed.typed_names import check_distinct, check_relation_names, check_type_name
from gnnloom.storage.errors import InputError

#: Options that say which columns a table has, which each table says for itself.
_OF_COLUMNS: Final = ("columns", *ROLES.values())


@dataclass(frozen=True)
class RelationTable:
    """The edges of a relation.

    Attributes:
        source, name, target: type of the sources, name of the relation, and type of the targets.
        edges: the table, open.
        are_names: whether the ids of the sources, and of the targets, are names.
        location: the table, for messages.
    """

    source: str
    name: str
    target: str
    edges: EdgeSource
    are_names: tuple[bool, bool]
    location: str

    @property
    def types(self) -> tuple[str, ...]:
        """The types of the ends: one if both are the same."""
        return (self.source,) if self.source == self.target else (self.source, self.target)


@dataclass(frozen=True)
class VertexTable:
    """A list of vertices of a type.

    Attributes:
        type: the type.
        rows: the ids, as edges from each vertex to itself.
        are_names: whether the ids are names.
        location: the table, for messages.
    """

    type: str
    rows: EdgeSource
    are_names: bool
    location: str


@dataclass(frozen=True)
class TypedTables:
    """All tables of a graph with types.

    Attributes:
        relations: by name.
        vertices: by type.
    """

    relations: tuple[RelationTable, ...]
    vertices: tuple[VertexTable, ...]

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
            relations: table by source type, name and target type.
            vertices: tables by type.
            options: options of the formats of the tables, for all tables whose format has them.
            format_name: format of all tables; by default guessed for each.
            any_name: whether all ids are names, whatever they look like.

        Raises:
            InputError: a name cannot be used, two relations have one name, two types look like one, or a table cannot
                be read.
            NotFoundError: a file does not exist.
        """
        if not relations:
            raise InputError("a graph with types needs a relation, as in `--relation user,buys,item=clicks.csv`")
        for source, name, target in relations:
            for each in (source, target):
                check_type_name(each, "type")
            check_type_name(name, "relation")
        check_relation_names(name for _, name, _ in relations)
        types = dict.fromkeys(each for source, _, target in relations for each in (source, target))
        types |= dict.fromkeys(check_type_name(each, "type") for each in vertices)
        check_distinct(list(types), "type")
        refuse_columns(options)
        tables = list(relations.values()) + [table for each in vertices.values() for table in each]
        given = _by_table(tables, options, format_name)
        how = format_name, any_name
        opened = [
            _open_relation(*ends, table, given[table], *how)
            for ends, table in sorted(relations.items(), key=lambda item: item[0][1])
        ]
        listed = [
            _open_vertices(each, table, given[table], *how)
            for each, found in sorted(vertices.items())
            for table in found
        ]
        return cls(tuple(opened), tuple(listed))

    @property
    def types(self) -> list[str]:
        """Names of all types, ascending, which is the order of their vertices."""
        names = {each for relation in self.relations for each in relation.types}
        return sorted(names | {table.type for table in self.vertices})

    @cached_property
    def ids(self) -> Mapping[str, str]:
        """By type, whether the keys of its vertices are ``compact`` numbers or ``names``.

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
                    f"type {each}: its ids are numbers in {numbers} and names in {names}; write them alike or, if all"
                    " of them are names, add `--ids names`"
                )
            where.setdefault(each, location)
        return found

    def _ends(self) -> Iterator[tuple[str, bool, str]]:
        """Type, whether ids are names, and the table, of each column of ids."""
        for table in self.vertices:
            yield table.type, table.are_names, table.location
        for relation in self.relations:
            yield relation.source, relation.are_names[0], relation.location
            yield relation.target, relation.are_names[1], relation.location

    def understood(self) -> list[Understood]:
        """How each file is read."""
        found = []
        for relation in self.relations:
            what = f"relation {relation.name}, from {relation.source} to {relation.target}"
            found += [_about(each, what) for each in understood_of(relation.edges, [relation.location], "")]
        for table in self.vertices:
            kind = "names" if table.are_names else "numbers"
            for each in understood_of(table.rows, [table.location], ""):
                column = each.facts.get("source", "")
                first, sentence = each.sentences[:1], f"vertices of type {table.type} from {column}; ids are {kind}"
                found.append(replace(each, sentences=(*first, sentence)))
        return found

    def parameters(self, options: IngestOptions, typed: TypedOptions) -> dict[str, Any]:
        """What decides the graph's bytes."""
        vertices: dict[str, list[Any]] = {}
        for table in self.vertices:
            vertices.setdefault(table.type, []).append(table.rows.identity())
        relations = {
            each.name: {"source": each.source, "target": each.target, "table": each.edges.identity()}
            for each in self.relations
        }
        found = asdict(options)
        del found["undirected"]
        # Ids are always numbered, and no loops are added.
        found["ids"] = "names" if options.ids == "names" else "compact"
        found["self_loops"] = "remove" if options.self_loops == "remove" else "keep"
        found["merge"] = options.merge or "sum"
        return {**found, **asdict(typed), "relations": relations, "vertices": vertices}


def refuse_columns(options: Mapping[str, Any]) -> None:
    """Refuse options that name the columns of all tables alike.

    Raises:
        InputError: one of them is given.
    """
    for name in _OF_COLUMNS:
        if options.get(name):
            raise InputError(
                f"--{name}: each table names its own columns, as in `--relation user,buys,item=clicks.csv:user,item` or"
                " `clicks.csv:user,item,amount as weight`"
            )


def _about(understood: Understood, what: str) -> Understood:
    """How a file is read, with what it is read as."""
    first, *others = understood.sentences or ("",)
    return replace(understood, sentences=(first, what, *others))


def _by_table(
    tables: Sequence[Table], options: Mapping[str, Any], format_name: str | None
) -> dict[Table, dict[str, Any]]:
    """The options for each table, which are those that its format has.

    Raises:
        InputError: no format has one of the options.
    """
    has = {table: {option.name for option in _format_of(table, format_name).options} for table in tables}
    for name, value in options.items():
        if value is not None and value is not False and not any(name in names for names in has.values()):
            raise InputError(f"no table has a format with the option {name}")
    return {table: {name: value for name, value in options.items() if name in has[table]} for table in tables}


def _format_of(table: Table, format_name: str | None) -> Format:
    name = format_name or guess_format([table.location])
    if name not in formats():
        raise InputError(f"format {name!r}: expected one of {', '.join(formats())}")
    found = formats()[name]
    if found.one_location:
        raise InputError(f"{table.location}: a folder of a whole graph; a relation is read from a table")
    return found


def _open(
    table: Table, columns: Sequence[str], options: Mapping[str, Any], format_name: str | None, any_name: bool
) -> EdgeSource:
    chosen = dict(options)
    if columns:
        chosen["columns"] = columns if isinstance(columns, OneColumn) else tuple(columns)
    if table.role:
        chosen[ROLES[table.role]] = True
    found = open_edges(format_name, [table.location], chosen)
    return found.as_named() if any_name and isinstance(found, NamedEdgeSource) else found


def _open_relation(
    source: str,
    name: str,
    target: str,
    table: Table,
    options: Mapping[str, Any],
    format_name: str | None,
    any_name: bool,
) -> RelationTable:
    where = table.shown or table.location
    if len(table.columns) == 1:
        only = table.columns[0]
        raise InputError(f"{where}, relation {name}: expected the columns of both ends, found {only!r} only")
    edges = _open(table, table.columns, options, format_name, any_name)
    if location := getattr(edges, "says_undirected", ""):
        raise InputError(
            f"{location}, relation {name}: says that its edges have no direction; relations have one, and their"
            " reverses are derived"
        )
    if any_name and not isinstance(edges, NamedEdgeSource):
        raise InputError(f"{where}: ids are always numbers in this format, not names (`--ids compact`)")
    are_names = (True, True) if any_name else _are_names(edges, table, options, format_name)
    return RelationTable(source, name, target, edges, are_names, where)


def _open_vertices(
    name: str, table: Table, options: Mapping[str, Any], format_name: str | None, any_name: bool
) -> VertexTable:
    where = table.shown or table.location
    if len(table.columns) > 1:
        raise InputError(f"{where}, type {name}: expected the column of ids alone, found {', '.join(table.columns)}")
    if COLUMNS not in _format_of(table, format_name).options:
        raise InputError(f"{where}, type {name}: a list of vertices is a text or Parquet table")
    rows = _open_column(table, 0, options, format_name, any_name)
    try:
        are_names = any_name or (isinstance(rows, NamedEdgeSource) and rows.begins_with_names())
    except InputError as error:
        named = "" if table.columns else f"; name the column of ids, as in {table.location}:id"
        raise InputError(f"{error} (type {name}{named})") from error
    return VertexTable(name, rows, are_names, where)


def _open_column(
    table: Table, end: int, options: Mapping[str, Any], format_name: str | None, any_name: bool
) -> EdgeSource:
    """One column of a table, as edges from each id to itself."""
    column = table.columns[end] if table.columns else ""
    if not column:
        # The first columns: those of text have numbers, and those of Parquet have names.
        is_text = _format_of(table, format_name).is_fallback
        column = str(end + 1) if is_text else ParquetTable.open(open_files([table.location])[0]).names[end]
    return _open(replace(table, role=""), OneColumn.of(column), options, format_name, any_name)


def _are_names(
    edges: EdgeSource, table: Table, options: Mapping[str, Any], format_name: str | None
) -> tuple[bool, bool]:
    """Whether the ids of the sources, and of the targets, are names."""
    if not isinstance(edges, NamedEdgeSource) or not edges.begins_with_names():
        return False, False
    if not isinstance(edges, TextEdges | ParquetEdges):
        return True, True
    given = dict(options)
    if isinstance(edges, TextEdges):
        given.setdefault("header", bool(edges.tables[0].header))
    columns = [_open_column(table, end, given, format_name, any_name=False) for end in (0, 1)]
    found = [isinstance(each, NamedEdgeSource) and each.begins_with_names() for each in columns]
    return found[0], found[1]
