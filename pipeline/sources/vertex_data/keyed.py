"""Vertex data from tables that name the vertex of each row, in any order.

Text and Parquet files have the id in their first column. The ids of a NumPy array are in a file of their own; without
it, row k of the array belongs to vertex k, as if it were given alone.

Rows whose ids are not vertices of the graph are ignored. A vertex without a row has no label and is in no split, but
every vertex must have features. :mod:`gnnloom.pipeline.ingest.tables` brings the rows into the order of the vertices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray, Unpacked
from gnnloom.pipeline.sources.reading.files import open_files
from gnnloom.pipeline.sources.source import OneArray, SourceRange, TableBlock, VertexSource
from gnnloom.pipeline.sources.vertex_data.keyed_rows import KeyedNumpy, KeyedParquet, KeyedRows, KeyedText
from gnnloom.pipeline.sources.vertex_data.kind import FILE_OPTIONS, HEADER, IDS_FILE, VertexKind
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import NumpyVertices, open_one_array
from gnnloom.pipeline.sources.vertex_data.vertex_files import JoinedVertices
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import VERTEX_ARRAYS, array_in_file


def open_keyed_vertices(
    graph: Graph | None, ids_file: str | None = None, header: bool | None = None, **files: str | None
) -> VertexSource:
    """Open tables of arrays, each in its own format.

    Args:
        graph: the graph whose vertices the ids name; None for a source that can only state its identity.
        ids_file: location of an ``.npy`` with the ids of the rows of all NumPy arrays.
        header: whether the first line of text files names the columns; None if the user did not say.
        files: location of each table by the option that names it; None for no table.

    Raises:
        NotFoundError: a file does not exist.
        InputError: no file is given, or a file has the wrong format or number of columns.
    """
    given = {array: location for array, location in files.items() if location}
    numpy = {array: location for array, location in given.items() if location.endswith((".npy", ".npz"))}
    if ids_file and not numpy:
        raise InputError(f"{ids_file}: ids of the rows of .npy and .npz files, none of which was given")
    if ids_file or not numpy:
        sources = [KeyedVertices.open(graph, location, array, ids_file, header) for array, location in given.items()]
        return JoinedVertices(tuple(sources))
    if numpy == given:
        raise InputError(
            f"{next(iter(numpy.values()))}: an array has no column of ids; give the ids of its rows with `--ids-file`"
        )
    tables = [KeyedVertices.open(graph, given[array], array, None, header) for array in given if array not in numpy]
    by_row = NumpyVertices.open(1 if graph is None else _num_rows(graph), **numpy)
    return JoinedVertices((*tables, by_row))


def _num_rows(graph: Graph) -> int:
    """Rows of an array whose row k belongs to the vertex with the id k in the source of the edges."""
    if "original_id" not in graph.artifact or not graph.num_vertices:
        return graph.num_vertices
    return int(graph.original_id(graph.num_vertices - 1)[0]) + 1


@dataclass(frozen=True)
class KeyedVertices(OneArray):
    """One array of vertex data; implements :class:`~gnnloom.pipeline.sources.source.KeyedSource`.

    Attributes:
        stated_vertices: number of vertices of the graph.
        rows: the table.
        array: name of the array.
        header: whether the first line names the columns, as the user says.
    """

    stated_vertices: int
    rows: KeyedRows
    array: str
    header: bool | None = None

    in_graph_order = True

    @classmethod
    def open(
        cls,
        graph: Graph | None,
        location: str,
        array: str,
        ids_file: str | None = None,
        header: bool | None = None,
    ) -> KeyedVertices:
        """Find the file and its columns.

        Args:
            graph: as for :func:`open_keyed_vertices`.
            array: the option that names the file; several columns of labels are zeros and ones, one per class.
            ids_file: ids of the rows, if the file is a NumPy array.
            header: whether the first line of a text file names the columns; None if the user did not say.

        Raises:
            NotFoundError: the file does not exist.
            InputError: the file has the wrong format or number of columns.
        """
        rows = _open_rows(location, array, ids_file, header)
        array = array_in_file(array, rows.num_columns)
        if not VERTEX_ARRAYS[array].dims and rows.num_columns != 1:
            raise InputError(f"{location}: expected one column of {array}s after the ids, found {rows.num_columns}")
        return cls(0 if graph is None else graph.num_vertices, rows, array, header)

    def identity(self) -> dict[str, Any]:
        ids = {"ids": self.rows.ids.identity()} if self.rows.ids is not None else {}
        stated = {} if self.header is None else {"header": self.header}
        return {"format": "keyed", "array": self.array, "file": self.rows.file.identity(), **ids, **stated}

    @property
    def location(self) -> str:
        return self.rows.file.location

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes; none if labels are numbers."""
        named = self.rows.named if isinstance(self.rows, KeyedText) else None
        return named.names if named else ()

    def num_vertices(self) -> int:
        return self.stated_vertices

    def num_columns(self, array: str) -> int:
        return self.rows.num_columns if array == self.array else 0

    def ranges(self) -> Sequence[SourceRange]:
        return self.rows.ranges()

    def read_table(self, span: SourceRange) -> Iterator[TableBlock]:
        array = VERTEX_ARRAYS[self.array]
        for block in self.rows.blocks(span):
            values, wrong = array.convert(block.values)
            if wrong is not None:
                raise self.row_error(int(block.at[wrong[0]]), f"expected {array.expected}")
            yield TableBlock(block.ids.offset, block.ids.text, values, block.at)

    def row_error(self, at: int, reason: str) -> InputError:
        return self.rows.error(at, reason)

    def stored_arrays(self) -> tuple[StoredArray, ...]:
        """Arrays that may be compressed, as of a ``PackedSource``."""
        return self.rows.stored_arrays() if isinstance(self.rows, KeyedNumpy) else ()

    def with_unpacked(self, unpacked: Unpacked) -> KeyedVertices:
        rows = self.rows.with_unpacked(unpacked) if isinstance(self.rows, KeyedNumpy) else self.rows
        return replace(self, rows=rows)


def _open_rows(location: str, array: str, ids_file: str | None, header: bool | None) -> KeyedRows:
    if location.endswith((".npy", ".npz")) and ids_file:
        return KeyedNumpy.open(open_one_array(location, array), open_one_array(ids_file, "ids"))
    files = open_files([location])
    if len(files) != 1 or location.endswith((".npy", ".npz")):
        raise InputError(f"{location}: expected one text or Parquet file with a column of ids")
    if location.endswith((".parquet", ".pq")):
        return KeyedParquet.open(files[0])
    return KeyedText.open(files[0], array, header)


VERTEX_KIND = VertexKind(
    name="keyed",
    order=20,
    help="one table per array, with the id of the vertex in its first column",
    open=open_keyed_vertices,
    options=(*FILE_OPTIONS, IDS_FILE, HEADER),
)
