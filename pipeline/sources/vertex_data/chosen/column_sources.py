"""Vertex data from some columns of a table, as sources: a row per vertex, or rows with ids."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from numpy.typing import NDArray

from gnnloom.pipeline.sources.binary.parquet_table import ParquetTable
from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray, Unpacked, open_array
from gnnloom.pipeline.sources.reading.fields import PLAIN
from gnnloom.pipeline.sources.reading.files import SourceFile, open_file
from gnnloom.pipeline.sources.reading.text_layout import PANDAS_INDEX, UNSTATED, Sample, Stated
from gnnloom.pipeline.sources.source import OneArray, SourceRange
from gnnloom.pipeline.sources.understood import Understood
from gnnloom.pipeline.sources.vertex_data.cells import LOOKED_AT
from gnnloom.pipeline.sources.vertex_data.chosen.chosen_columns import ChosenColumns
from gnnloom.pipeline.sources.vertex_data.chosen.surveys import ERROR, Filling
from gnnloom.pipeline.sources.vertex_data.keyed_rows import KeyedBlock, checked_ids
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import open_one_array
from gnnloom.pipeline.sources.vertex_data.table_columns import TRUTH, is_numpy, is_parquet, is_value, list_width
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import VERTEX_ARRAYS, array_in_file, split_part

#: A field in quotes at the beginning of a line.
_QUOTED: Final = re.compile(r'^\s*"(?:[^"]|"")*"')


@dataclass(frozen=True)
class ColumnVertices(OneArray):
    """One array from columns, a row per vertex; implements :class:`~gnnloom.pipeline.sources.source.VertexSource`.

    Attributes:
        chosen: the columns.
        stated_vertices: rows of the table.
    """

    chosen: ChosenColumns
    stated_vertices: int

    @classmethod
    def of(cls, chosen: ChosenColumns) -> ColumnVertices:
        """Count the rows."""
        return cls(chosen, chosen.table.num_rows())

    @property
    def array(self) -> str:  # type: ignore[override]
        return self.chosen.array

    @property
    def random_access(self) -> bool:
        return self.chosen.table.is_shared

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes; none if labels are numbers."""
        return self.chosen.class_names

    @property
    def feature_columns(self) -> list[dict[str, Any]]:
        """Records of the stored features."""
        return self.chosen.layout if self.array == "feature" else []

    def identity(self) -> dict[str, Any]:
        return {"format": "columns", **self.chosen.identity()}

    def understood(self) -> list[Understood]:
        """Describes how the table is read."""
        return self.chosen.understood()

    def num_vertices(self) -> int:
        return self.stated_vertices

    def num_columns(self, array: str) -> int:
        return self.chosen.num_columns if array == self.array else 0

    def read_rows(self, array: str, start: int, stop: int) -> Iterator[NDArray[Any]]:
        spec = VERTEX_ARRAYS[array]
        for block in self.chosen.rows(self.chosen.table.read_rows(start, stop, self.chosen.numbers)):
            low, high = max(0, start - block.first), max(0, stop - block.first)
            if low >= len(block.at) or not high:
                continue
            values, wrong = spec.convert(self.chosen.values(block))
            if wrong is not None:
                raise self.chosen.value_error(int(block.at[wrong[0]]), wrong[1])
            yield values[low:high]

    def surveys(self) -> Sequence[SourceRange]:
        return self.chosen.surveys()

    def survey(self, span: SourceRange) -> list[Any]:
        return self.chosen.survey(span)

    def with_surveys(self, found: Sequence[Sequence[Any]]) -> ColumnVertices:
        return replace(self, chosen=self.chosen.with_surveys(found))

    def stored_arrays(self) -> tuple[StoredArray, ...]:
        return self.chosen.stored_arrays()

    def with_unpacked(self, unpacked: Unpacked) -> ColumnVertices:
        return replace(self, chosen=self.chosen.with_unpacked(unpacked))


@dataclass(frozen=True)
class KeyedColumns:
    """Columns with the ids of their rows; implements ``KeyedRows``.

    Attributes:
        chosen: the columns.
    """

    chosen: ChosenColumns

    @property
    def file(self) -> SourceFile:
        return self.chosen.file

    @property
    def ids(self) -> SourceFile | None:
        arrays = self.chosen.stored_arrays()
        return arrays[1].file if len(arrays) > 1 else None

    @property
    def num_columns(self) -> int:
        return self.chosen.num_columns

    def in_words(self) -> tuple[str, str, str]:
        return self.chosen.in_words()

    def ranges(self) -> Sequence[SourceRange]:
        return self.chosen.table.ranges()

    def error(self, at: int, reason: str) -> InputError:
        return self.chosen.table.error(at, -1, reason)

    def blocks(self, span: SourceRange) -> Iterator[KeyedBlock]:
        for block in self.chosen.rows(self.chosen.table.read(span, self.chosen.numbers)):
            yield checked_ids(self, KeyedBlock(block.columns[-1].words(), self.chosen.values(block), block.at))


def ids_array(location: str, columns: Sequence[str]) -> StoredArray | None:
    """The array of ids that a location names; None for any other location."""
    if not is_numpy(location):
        return None
    return open_array(open_file(location), columns[0] if columns and location.endswith("npz") else None)


def only_column(location: str, option: str) -> tuple[str, ...]:
    """The column of a Parquet file with the name of an option, if the table has it."""
    return (option,) if option in ParquetTable.open(open_file(location)).names else ()


def reads_cells(location: str, option: str, filling: Filling | None, *, by_id: bool, text: Stated = UNSTATED) -> bool:
    """Whether only the reader of columns can read a table whose columns were not chosen.

    Such tables have lists, True and False, numbers in quotes or with decimal commas, words of labels and splits in
    columns of other files than text, and missing features that are filled.

    Args:
        by_id: whether the table has ids of its rows.
        text: header, separator and decimals of text files.
    """
    if option == "feature" and filling is not None and filling.missing != ERROR:
        return True
    array = VERTEX_ARRAYS[option]
    if is_numpy(location):
        names_classes = option == "label" and open_one_array(location, option).dtype.kind in "US"
        return names_classes or (by_id and open_one_array(location, option).dtype.kind in "US")
    if is_parquet(location):
        table = ParquetTable.open(open_file(location))
        masks = [name for name in table.names[by_id:] if name != PANDAS_INDEX]
        if option == "split" and len(masks) > 1 and all(map(split_part, masks)):
            return True
        if by_id:
            return any(not table.holds(name, "iufb") for name in table.names[1:])
        kinds = array.kinds + ("s" if array.words else "")
        if not VERTEX_ARRAYS[array_in_file(option, len(table.names))].dims and option not in table.names:
            # Several columns without one of this name: the reader lists them.
            return len(table.names) == 1 and not table.holds(table.names[0], kinds)
        names = (option,) if option in table.names and not array.dims else table.names
        return any(not table.holds(name, kinds) for name in names)
    return bool(text.decimal != "." or text.separator) or _has_cells(open_file(location), option, text, by_id=by_id)


def _has_cells(file: SourceFile, option: str, text: Stated, *, by_id: bool) -> bool:
    """Whether the first rows of a text have lists, True and False, or numbers in quotes."""
    try:
        sample = Sample.of(file, text)
    except InputError:
        # The reader of the rows reports it.
        return False
    rows = sample.rows[1:] if text.header is not False and len(sample.rows) > 1 else sample.rows
    if not by_id and sample.separator not in PLAIN and rows:
        return True
    for row in rows[:LOOKED_AT]:
        # An id in quotes is read anyway.
        line = _QUOTED.sub("", row.text, count=1) if by_id else row.text
        cells = row.fields[1:] if by_id else row.fields
        has_quotes = '"' in line and option != "split" and all(map(is_value, cells))
        has_lists = any(sign in line for sign in '"[(') and any(list_width(cell) is not None for cell in cells)
        if has_quotes or has_lists or (option != "label" and any(cell.lower() in TRUTH for cell in cells)):
            return True
    return False
