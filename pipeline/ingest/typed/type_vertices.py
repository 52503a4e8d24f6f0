"""Features, labels and splits of the vertices of a type, from further columns of the table that lists them.

The vertices of each type have an artifact of their own, as the vertices of a graph without types have. Its arrays have
the width that the type needs, and a reader of one type opens nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gnnloom.pipeline.ingest.typed.table import BY_ROW, VERTEX_ROLES, Table
from gnnloom.pipeline.ingest.vertex_options import VertexOptions
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.sources.reading.files import open_files
from gnnloom.pipeline.sources.source import VertexSource
from gnnloom.pipeline.sources.understood import Legible, Understood
from gnnloom.pipeline.sources.vertex_data.kind import DECIMAL, DELIMITER, HEADER, vertex_kinds
from gnnloom.pipeline.sources.vertex_data.table_columns import ELSE, column_list, split_location
from gnnloom.pipeline.sources.vertex_data.vertex_files import JoinedVertices
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError

#: The kind of vertex data that reads tables with ids.
_KEYED: Final = "keyed"
#: The kind of vertex data that reads files with a row for each vertex.
_FILES: Final = "files"


@dataclass(frozen=True)
class TypeVertices:
    """The vertex data of a type, which tables have next to the ids of the vertices, or an array in their order.

    Attributes:
        type: name of the type.
        options: options of the kind of vertex data, for each table.
        kind: name of this kind.
        tables: numbers of the tables, if each row has its own type; the type is then ``*``.
        opened: the data, if the reader of the description has opened them; a row for each vertex, in the order of ids.
    """

    type: str
    options: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    kind: str = _KEYED
    tables: tuple[int, ...] = ()
    opened: VertexSource | None = field(default=None, hash=False)

    @classmethod
    def of_files(cls, name: str, **files: str) -> TypeVertices:
        """The vertex data of a type in files with a row for each vertex, in the order of ids.

        Args:
            files: location of each file by the option that names it.
        """
        return cls(name, (files,), _FILES)

    @classmethod
    def of_source(cls, name: str, source: VertexSource) -> TypeVertices:
        """The vertex data of a type that are open, with a row for each vertex in the order of ids."""
        return cls(name, kind=_FILES, opened=source)

    @classmethod
    def of_tables(cls, vertices: Sequence[tuple[str, Table]], options: Mapping[str, Any]) -> tuple[TypeVertices, ...]:
        """The vertex data of all types that have some, and of tables whose rows have several types.

        Args:
            vertices: the tables of vertices with their types, in the order of the tables of the graph.
            options: of all tables.

        Raises:
            InputError: two tables with different columns have the same role, or a column is missing.
        """
        parts: dict[tuple[Any, ...], list[int]] = {}
        for number, (name, table) in enumerate(vertices):
            if not table.others:
                continue
            if len(table.columns) != 1:
                first = table.others[0]
                raise InputError(
                    f"{table.location}, vertices {name}: name the column of ids too, before {first.name!r} as"
                    f" {first.role}"
                )
            # Tables with the same columns are the parts of one.
            of_type = (BY_ROW, table.space) if table.kinds else (name, "")
            parts.setdefault((*of_type, table.columns, table.others, table.options), []).append(number)
        found = []
        for (name, *_), numbers in parts.items():
            one = cls(name, (_options([vertices[number][1] for number in numbers], options),))
            # Columns that are not there are found before the graph is stored.
            one.open(None)
            found.append(replace(one, tables=tuple(numbers)) if name == BY_ROW else one)
        return (*_by_type(each for each in found if not each.tables), *(each for each in found if each.tables))

    @property
    def has_ids(self) -> bool:
        """Whether rows have the ids of their vertices, and are not in the order of the vertices."""
        return self.kind == _KEYED

    @property
    def roles(self) -> dict[str, str]:
        """The file and the columns of each array."""
        return {role: each[role] for each in self.options for role in VERTEX_ROLES if role in each}

    def joined(self, other: TypeVertices) -> TypeVertices:
        """The data of one type from the tables of both.

        Raises:
            InputError: both have the same array.
        """
        if both := [role for role in self.roles if role in other.roles]:
            first, second = (split_location(each.roles[both[0]])[0] for each in (self, other))
            raise InputError(
                f"{second}, vertices {self.type}: {first} has other columns with {both[0]}; join the tables, or name"
                " the same columns of both"
            )
        return replace(self, options=(*self.options, *other.options))

    def open(self, ids: SourceIds | None) -> VertexSource:
        """Open the columns; for the errors see :func:`~gnnloom.pipeline.sources.format.open_vertices`.

        Args:
            ids: of the vertices of the type; None for a source that can only say how it is read.
        """
        if self.opened is not None:
            return self.opened
        opened = [vertex_kinds()[self.kind].open(ids, **each) for each in self.options]
        return opened[0] if len(opened) == 1 else JoinedVertices(tuple(opened))

    def understood(self) -> list[Understood]:
        """Describes how the columns are read."""
        source = self.open(None)
        return list(source.understood()) if isinstance(source, Legible) else []


def _options(tables: Sequence[Table], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that read the data of some tables with the same columns, which are the parts of one table."""
    first = tables[0]
    given = {**options, **dict(first.options)}
    header = given.get(HEADER.name)
    files = [(file.address, header) for each in tables if each.locations for file in open_files(each.locations)]
    files += [(file.address, False) for each in tables if each.headless for file in open_files(each.headless)]
    (location, has_header), *others = files
    named = dict[str, list[str]]()
    for column in first.others:
        filled = "" if column.fill is None else f"{ELSE}{column.fill}"
        named.setdefault(column.role, []).append(f"{column.name}{filled}")
    chosen: dict[str, Any] = {role: f"{location}:{column_list(columns)}" for role, columns in named.items()}
    chosen |= {name: given[name] for name in (DECIMAL.name, DELIMITER.name) if given.get(name) is not None}
    chosen |= {HEADER.name: has_header} if has_header is not None else {}
    chosen |= {"parts": tuple(others)} if others else {}
    return {**chosen, "ids_file": f"{location}:{column_list(first.columns)}"}


def _by_type(found: Iterable[TypeVertices]) -> list[TypeVertices]:
    """The vertex data of each type, from all of its tables."""
    known: dict[str, TypeVertices] = {}
    for each in found:
        known[each.type] = known[each.type].joined(each) if each.type in known else each
    return list(known.values())


def of_each_type(found: Sequence[TypeVertices], graph: TypedGraph) -> list[TypeVertices]:
    """The vertex data of each type of a graph, also from tables whose rows have several types.

    Raises:
        InputError: two tables have the same array of a type.
    """
    types = [(facts["name"], set(facts.get("tables", ()))) for facts in graph.artifact.facts["types"]]
    counts = {each.name: each.count for each in graph.types}
    several = [
        replace(each, type=name, tables=())
        for each in found
        for name, tables in types
        if counts[name] and tables.intersection(each.tables)
    ]
    return _by_type([*(each for each in found if not each.tables), *several])


def ingest_type_vertices(
    dataset: Dataset,
    graph: TypedGraph,
    found: Sequence[TypeVertices],
    cluster: Cluster,
    options: VertexOptions,
    *,
    allow_others: bool = False,
) -> list[Vertices]:
    """Store the vertex data of the types of a graph; for the errors see :func:`ingest_vertices`."""
    stored = []
    by_row = {facts["name"] for facts in graph.artifact.facts["types"] if facts.get("tables")}
    for each in of_each_type(found, graph):
        source, ids = each.open(graph.ids(each.type)), graph.ids(each.type)
        how: Any = {"options": options, "allow_others": allow_others, "has_other_rows": each.type in by_row}
        stored.append(ingest_vertices(dataset, source, cluster, ids, **how))
    return stored
