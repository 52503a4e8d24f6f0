"""Features, labels and splits of the vertices of a type, from further columns of the table that lists them.

The vertices of each type have an artifact of their own, as the vertices of a graph without types have. Its arrays have
the width that the type needs, and a reader of one type opens nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gnnloom.pipeline.ingest.typed.table import BY_ROW, Table
from gnnloom.pipeline.ingest.vertex_options import VertexOptions
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.sources.reading.files import open_files
from gnnloom.pipeline.sources.source import VertexSource
from gnnloom.pipeline.sources.understood import Legible, Understood
from gnnloom.pipeline.sources.vertex_data.kind import DECIMAL, HEADER, vertex_kinds
from gnnloom.pipeline.sources.vertex_data.table_columns import column_list
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
    """

    type: str
    options: tuple[Mapping[str, Any], ...] = field(hash=False)
    kind: str = _KEYED

    @classmethod
    def of_files(cls, name: str, **files: str) -> TypeVertices:
        """The vertex data of a type in files with a row for each vertex, in the order of ids.

        Args:
            files: location of each file by the option that names it.
        """
        return cls(name, (files,), _FILES)

    @classmethod
    def of(cls, name: str, tables: Sequence[Table], options: Mapping[str, Any]) -> TypeVertices | None:
        """The vertex data of a type; None if no table of its vertices has some.

        Args:
            options: of all tables.

        Raises:
            InputError: two tables with different columns have the same role, or each row has its own type, or a column
                is missing.
        """
        parts: dict[tuple[Any, ...], list[Table]] = {}
        roles: dict[str, Table] = {}
        for table in (table for table in tables if table.others):
            what, role = f"{table.location}, vertices {name}", table.others[0].role
            if name == BY_ROW or table.kinds:
                raise InputError(f"{what}: so far, only tables of one type may have a column with {role}")
            if len(table.columns) != 1:
                raise InputError(f"{what}: name the column of ids too, before {table.others[0].name!r} as {role}")
            # Tables with the same columns are the parts of one.
            same = parts.setdefault((table.columns, table.others, table.options), [])
            same.append(table)
            for column in table.others:
                if roles.setdefault(column.role, same[0]) is not same[0]:
                    raise InputError(
                        f"{what}: {roles[column.role].location} has other columns with {column.role}; join the tables,"
                        " or name the same columns of both"
                    )
        if not parts:
            return None
        found = cls(name, tuple(_options(same, options) for same in parts.values()))
        # Columns that are not there are found before the graph is stored.
        found.open(None)
        return found

    def open(self, ids: SourceIds | None) -> VertexSource:
        """Open the columns; for the errors see :func:`~gnnloom.pipeline.sources.format.open_vertices`.

        Args:
            ids: of the vertices of the type; None for a source that can only say how it is read.
        """
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
        named.setdefault(column.role, []).append(column.name)
    chosen: dict[str, Any] = {role: f"{location}:{column_list(columns)}" for role, columns in named.items()}
    chosen |= {DECIMAL.name: given[DECIMAL.name]} if given.get(DECIMAL.name) is not None else {}
    chosen |= {HEADER.name: has_header} if has_header is not None else {}
    chosen |= {"parts": tuple(others)} if others else {}
    return {**chosen, "ids_file": f"{location}:{column_list(first.columns)}"}


def ingest_type_vertices(
    dataset: Dataset,
    graph: TypedGraph,
    found: Sequence[TypeVertices],
    cluster: Cluster,
    options: VertexOptions,
    *,
    allow_others: bool = False,
) -> list[Vertices]:
    """Store the vertex data of some types of a graph; for the errors see :func:`ingest_vertices`."""
    stored = []
    for each in found:
        source, ids = each.open(graph.ids(each.type)), graph.ids(each.type)
        stored.append(ingest_vertices(dataset, source, cluster, ids, options=options, allow_others=allow_others))
    return stored
