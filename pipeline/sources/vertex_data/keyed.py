"""Vertex data from tables that name the vertex of each row, in any order.

Text and Parquet files have the id in their first column. The ids of a NumPy array are in a separate file; without this
file, row k of the array belongs to vertex k.

Rows whose ids are not vertices of the graph are ignored. A vertex without a row has no label and is in no split, but
every vertex must have features. :mod:`gnnloom.pipeline.ingest.tables` brings the rows into the order of the vertices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray, Unpacked
from gnnloom.pipeline.sources.reading.files import open_files, shown_location
from gnnloom.pipeline.sources.reading.text_layout import UNSTATED, Stated, separator_of
from gnnloom.pipeline.sources.source import OneArray, SourceRange, TableBlock, VertexSource
from gnnloom.pipeline.sources.understood import Understood, of_vertices
from gnnloom.pipeline.sources.vertex_data.chosen.chosen_columns import ChosenColumns, Parts
from gnnloom.pipeline.sources.vertex_data.chosen.column_sources import KeyedColumns, ids_array, reads_cells
from gnnloom.pipeline.sources.vertex_data.chosen.surveys import CATEGORIES, ERROR, Filling
from gnnloom.pipeline.sources.vertex_data.keyed_rows import KeyedNumpy, KeyedParquet, KeyedRows, KeyedText
from gnnloom.pipeline.sources.vertex_data.kind import (
    DECIMAL,
    DELIMITER,
    FILE_OPTIONS,
    FILLING,
    HEADER,
    IDS_FILE,
    VertexKind,
)
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import open_one_array
from gnnloom.pipeline.sources.vertex_data.splits import SPLIT_INDEX
from gnnloom.pipeline.sources.vertex_data.table_columns import is_numpy, is_parquet, other_ids, split_location
from gnnloom.pipeline.sources.vertex_data.vertex_files import JoinedVertices, open_arrays
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import VERTEX_ARRAYS, array_in_file


def open_keyed_vertices(
    graph: SourceIds | None,
    ids_file: str | None = None,
    header: bool | None = None,
    split_index: int | None = None,
    missing: str = ERROR,
    missing_indicator: bool = False,
    categories: int = CATEGORIES,
    decimal: str = ".",
    delimiter: str | None = None,
    parts: Parts = (),
    **files: str | None,
) -> VertexSource:
    """Open tables of arrays, each in its own format.

    Args:
        graph: the graph, or the type, whose vertices the ids name; None for a source that can only state its identity.
        ids_file: location of an ``.npy`` with the ids of the rows of all NumPy arrays; or of the table, with the column
            of the ids.
        header: whether the first line of text files names the columns; None if the user did not say.
        split_index: as for :func:`~gnnloom.pipeline.sources.vertex_data.vertex_files.open_vertex_files`, if the
            split is a NumPy file without ids.
        missing, missing_indicator, categories: fields of
            :class:`~gnnloom.pipeline.sources.vertex_data.chosen.surveys.Filling`.
        decimal: the character before the decimals in text files.
        delimiter: one or more characters between the fields of text files, or ``tab``; None to detect them.
        parts: further files of the only table.
        files: location of each table by the option that names it, perhaps with columns; None for no table.

    Raises:
        NotFoundError: a file does not exist.
        InputError: no file is given, or a file has the wrong format or number of columns.
    """
    given = {array: location for array, location in files.items() if location}
    filling = Filling(missing, missing_indicator, categories)
    text = Stated(header, decimal=decimal, separator=separator_of(delimiter or ""))
    numpy = {array: location for array, location in given.items() if is_numpy(split_location(location)[0])}
    if ids_file:
        _check_ids_file(ids_file, given.values(), has_arrays=bool(numpy))
    if ids_file or not numpy:
        _refuse_index(split_index)
        sources = [
            KeyedVertices.open(graph, location, array, ids_file, text, filling, parts)
            for array, location in given.items()
        ]
        return JoinedVertices(tuple(sources))
    if numpy == given:
        raise InputError(
            f"{next(iter(numpy.values()))}: an array has no column of ids; give the ids of its rows with `--ids-file`"
        )
    tables = [
        KeyedVertices.open(graph, given[array], array, None, text, filling) for array in given if array not in numpy
    ]
    by_row = open_arrays(1 if graph is None else _num_rows(graph), numpy, split_index, filling)
    return JoinedVertices((*tables, *by_row))


def _check_ids_file(ids_file: str, tables: Collection[str], *, has_arrays: bool) -> None:
    """Check that the ids belong to one of the tables.

    Raises:
        InputError: they do not.
    """
    location, columns = split_location(ids_file)
    shown = shown_location(ids_file)
    if is_numpy(location):
        if not has_arrays:
            raise InputError(f"{shown}: ids of the rows of .npy and .npz files, but no such file was given")
        return
    if len(columns) != 1:
        raise InputError(f"{shown}: expected a .npy file of ids, or a table and its column of ids, as in t.csv:id")
    if location not in {split_location(table)[0] for table in tables}:
        names = ", ".join(map(shown_location, tables))
        raise InputError(f"{shown}: expected the column of ids of one of the tables: {names}")


def _refuse_index(split_index: int | None) -> None:
    if split_index is not None:
        raise InputError(f"--split-index {split_index}: chooses between masks in NumPy files without ids of their rows")


def _num_rows(graph: SourceIds) -> int:
    """Number of rows of an array whose row k belongs to the vertex with the id k in the source of the edges."""
    if not graph.has_numbers or not graph.num_vertices:
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
        graph: SourceIds | None,
        location: str,
        array: str,
        ids_file: str | None = None,
        text: Stated = UNSTATED,
        filling: Filling | None = None,
        parts: Parts = (),
    ) -> KeyedVertices:
        """Find the file and its columns.

        Args:
            graph: as for :func:`open_keyed_vertices`.
            array: the option that names the file; several columns of labels are zeros and ones, one per class.
            ids_file: ids of the rows, if the file is a NumPy array; or the column of this table with the ids.
            text: header, separator and decimals of text files.
            filling: options for missing features and for words.
            parts: further files of the table.

        Raises:
            NotFoundError: the file does not exist.
            InputError: the file has the wrong format or number of columns.
        """
        rows = _open_rows(location, array, ids_file, text, filling, parts)
        array = array_in_file(array, rows.num_columns)
        if not VERTEX_ARRAYS[array].dims and rows.num_columns != 1:
            raise InputError(
                f"{shown_location(location)}: expected one column of {array}s after the ids, found {rows.num_columns}"
            )
        return cls(0 if graph is None else graph.num_vertices, rows, array, text.header)

    def identity(self) -> dict[str, Any]:
        if isinstance(self.rows, KeyedColumns):
            return {"format": "keyed columns", **self.rows.chosen.identity()}
        ids = {"ids": self.rows.ids.identity()} if self.rows.ids is not None else {}
        stated: dict[str, Any] = {} if self.header is None else {"header": self.header}
        named = self.rows.named if isinstance(self.rows, KeyedText) else None
        like = {} if named is None else named.stated
        return {"format": "keyed", "array": self.array, "file": self.rows.file.identity(), **ids, **stated, **like}

    @property
    def location(self) -> str:
        return self.rows.file.location

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes; none if labels are numbers."""
        if isinstance(self.rows, KeyedColumns):
            return self.rows.chosen.class_names
        named = self.rows.named if isinstance(self.rows, KeyedText) else None
        return named.names if named else ()

    @property
    def feature_columns(self) -> list[dict[str, Any]]:
        """Records of the stored features, if columns were chosen."""
        chosen = self.rows.chosen if isinstance(self.rows, KeyedColumns) else None
        return chosen.layout if chosen is not None and self.array == "feature" else []

    def understood(self) -> list[Understood]:
        """Describes how the table is read."""
        location, option = self.location, VERTEX_ARRAYS[self.array].option
        kind = "npy" if is_numpy(location) else "parquet" if is_parquet(location) else "text"
        how, what, ids = self.rows.in_words()
        question = ""
        if isinstance(self.rows, KeyedColumns):
            question = self.rows.chosen.question
        elif isinstance(self.rows, KeyedParquet):
            question = other_ids(location, self.rows.table.names, 0)
        elif isinstance(self.rows, KeyedText) and self.rows.question:
            question = self.rows.question
        elif isinstance(self.rows, KeyedText) and not self.rows.fields:
            question = other_ids(location, self.rows.names, 0)
        return [replace(of_vertices(location, kind, how, option, what, ids), question=question)]

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
            if wrong is not None and isinstance(self.rows, KeyedColumns):
                raise self.rows.chosen.value_error(int(block.at[wrong[0]]), wrong[1])
            if wrong is not None:
                raise self.row_error(int(block.at[wrong[0]]), f"expected {array.expected}")
            yield TableBlock(block.ids.offset, block.ids.text, values, block.at)

    def row_error(self, at: int, reason: str) -> InputError:
        return self.rows.error(at, reason)

    def stored_arrays(self) -> tuple[StoredArray, ...]:
        """Arrays that may be compressed, as of a ``PackedSource``."""
        if isinstance(self.rows, KeyedColumns):
            return self.rows.chosen.stored_arrays()
        return self.rows.stored_arrays() if isinstance(self.rows, KeyedNumpy) else ()

    def with_unpacked(self, unpacked: Unpacked) -> KeyedVertices:
        if isinstance(self.rows, KeyedColumns):
            return replace(self, rows=KeyedColumns(self.rows.chosen.with_unpacked(unpacked)))
        rows = self.rows.with_unpacked(unpacked) if isinstance(self.rows, KeyedNumpy) else self.rows
        return replace(self, rows=rows)

    def surveys(self) -> Sequence[SourceRange]:
        """The ranges to survey; implements :class:`~gnnloom.pipeline.sources.source.Surveyed`."""
        return self.rows.chosen.surveys() if isinstance(self.rows, KeyedColumns) else ()

    def survey(self, span: SourceRange) -> list[Any]:
        return self.rows.chosen.survey(span) if isinstance(self.rows, KeyedColumns) else []

    def with_surveys(self, found: Sequence[Sequence[Any]]) -> KeyedVertices:
        if not isinstance(self.rows, KeyedColumns):
            return self
        return replace(self, rows=KeyedColumns(self.rows.chosen.with_surveys(found)))


def _open_rows(
    location: str,
    array: str,
    ids_file: str | None,
    text: Stated,
    filling: Filling | None,
    parts: Parts,
) -> KeyedRows:
    table, columns = split_location(location)
    ids_table, id_columns = split_location(ids_file) if ids_file else ("", ())
    row_ids = ids_array(ids_table, id_columns) if ids_file and is_numpy(table) else None
    if ids_file and is_numpy(table) and row_ids is None:
        raise InputError(
            f"{shown_location(ids_file)}: expected a .npy file with the ids of the rows of {shown_location(table)}"
        )
    ids = id_columns[0] if id_columns and ids_table == table else None
    if columns or ids is not None or reads_cells(table, array, filling, by_id=True, text=text):
        chosen = ChosenColumns.open(
            table, columns, array, ids=row_ids if row_ids is not None else ids, by_id=True, text=text,
            filling=filling, parts=parts,
        )  # fmt: skip
        return KeyedColumns(chosen)
    if is_numpy(location) and row_ids is not None:
        return KeyedNumpy.open(open_one_array(location, array), row_ids)
    files = open_files([location])
    if len(files) != 1 or is_numpy(location):
        raise InputError(f"{shown_location(location)}: expected one text or Parquet file with a column of ids")
    if is_parquet(location):
        return KeyedParquet.open(files[0])
    return KeyedText.open(files[0], array, text.header)


VERTEX_KIND = VertexKind(
    name="keyed",
    order=20,
    help="one table per array, with the id of the vertex in its first column",
    open=open_keyed_vertices,
    options=(*FILE_OPTIONS, IDS_FILE, HEADER, SPLIT_INDEX, *FILLING, DECIMAL, DELIMITER),
)
