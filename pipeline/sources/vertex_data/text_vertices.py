"""Features, labels or split codes from text: a line per vertex, with numbers separated by commas or blanks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from gnnloom.pipeline.sources.reading.files import SourceFile, open_file
from gnnloom.pipeline.sources.reading.others.other_rows import refuse_drawn
from gnnloom.pipeline.sources.reading.text_columns import (
    RowIndex,
    RowStart,
    TextRows,
    cells_of,
    count_rows,
    first_row_below,
    index_rows,
    names_columns,
    read_array,
    read_sample,
)
from gnnloom.pipeline.sources.reading.text_layout import Sample, has_names, is_number, names_ids, numbers_rows
from gnnloom.pipeline.sources.source import OneArray
from gnnloom.pipeline.sources.understood import Understood, header_in_words, ids_question, of_vertices
from gnnloom.pipeline.sources.vertex_data.class_names import NamedLabels
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import VERTEX_ARRAYS, array_in_file
from gnnloom.storage.wording import counted

#: Lines inspected to tell ids from labels.
_LINES = 100
#: Binary labels and unknown ones, as text.
_BINARY = {"0", "1", "-1", "0.0", "1.0", "-1.0", "nan"}


@dataclass(frozen=True)
class TextVertices(OneArray):
    """One array of vertex data; implements :class:`~gnnloom.pipeline.sources.source.VertexSource`.

    Attributes:
        file: the file.
        array: name of the array.
        width: columns of the file.
        stated_vertices: rows of the file.
        index: positions of rows at which reading can start.
        header: whether the first line names the columns.
        first_row: offset of the first row in the file's contents, in bytes.
        first_name: name of the first column; empty without a header.
        named: where labels are names of classes; None if they are numbers.
        stated: whether the first line names the columns, if the user said so.
    """

    file: SourceFile
    array: str
    width: int
    stated_vertices: int
    index: RowIndex
    header: bool = False
    first_row: int = 0
    first_name: str = ""
    named: NamedLabels | None = None
    stated: bool | None = None

    @classmethod
    def open(cls, location: str, array: str, header: bool | None = None) -> TextVertices:
        """Find the file and count its columns and rows.

        Args:
            array: the option that names the file; several columns of labels are zeros and ones, one per class.
            header: whether the first line names the columns; None if the user did not say.

        Raises:
            NotFoundError: the file does not exist.
            InputError: the file is empty, or has several columns for an array with one dimension.
        """
        file = open_file(location)
        sample = read_sample(file, header)
        refuse_drawn(file, sample)
        first, second = (*(cells_of(row.text) for row in sample.rows[:2]), [], [])[:2]
        columns = 1 if array == "label" and _are_names(sample) else len(first)
        names = columns > 1 and header is not False and has_names(first, VERTEX_ARRAYS[array])
        if names and (numbers_rows(first[0]) or len(second) == columns + 1):
            raise InputError(
                f"{file.location}: the first column has no name: it numbers the rows, or has ids; add `--by-id` if it"
                " has ids, or write the table without it (in pandas, index=False)"
            )
        stated, named = header, None
        if array == "label" and columns == 1:
            named = NamedLabels.of(file, sample, (0,), header)
        if header is None:
            header = names_columns(sample, VERTEX_ARRAYS[array]) if named is None else named.header
        first_row = first_row_below(sample) if header else 0
        index = index_rows(file, first_row)
        rows = count_rows(file, first_row=first_row) if index.num_rows is None else index.num_rows
        if not rows:
            raise InputError(f"{file.location}: the file is empty; expected a line per vertex")
        name = array_in_file(array, columns)
        if not VERTEX_ARRAYS[array].dims and columns > 1 and _begins_with_ids(sample, header):
            wide = ", or zeros and ones with a column per class" if name != array else ""
            raise InputError(
                f"{file.location}: the first of the {columns} columns of this {array} file looks like vertex ids; if it"
                f" is, add `--by-id`; otherwise, expected one {array} per line{wide}"
            )
        if not VERTEX_ARRAYS[name].dims and columns != 1:
            raise InputError(f"{file.location}: expected one column of {array}s, found {columns}")
        first_name = first[0] if header else ""
        return cls(file, name, columns, rows, index, header, first_row, first_name, named, stated)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes; none if labels are numbers."""
        return self.named.names if self.named else ()

    @property
    def random_access(self) -> bool:
        """Rows of a local, uncompressed file can be read from a position at most a few MiB before them."""
        return self.file.is_seekable

    def identity(self) -> dict[str, Any]:
        stated = {} if self.stated is None else {"header": self.stated}
        named = {} if self.named is None else self.named.stated
        return {"format": "text", "array": self.array, "file": self.file.identity(), **stated, **named}

    def understood(self) -> list[Understood]:
        """Describes how the file is read."""
        how = f"text, cells between commas or blanks; {header_in_words(self.header)}"
        what = counted(self.width, "column") + (f", names of {len(self.class_names):,} classes" if self.named else "")
        found = of_vertices(self.file.location, "text", how, VERTEX_ARRAYS[self.array].option, what)
        is_id = self.array == "feature" and self.width > 1 and names_ids(self.first_name)
        return [replace(found, question=ids_question(self.first_name) if is_id else "")]

    def num_vertices(self) -> int:
        return self.stated_vertices

    def read_rows(self, array: str, start: int, stop: int) -> Iterator[NDArray[Any]]:
        for block in self._blocks(array, self.index.before(start)):
            if block.first >= stop:
                break
            rows = block.values[max(0, start - block.first) : max(0, stop - block.first)]
            if len(rows):
                yield rows

    def _blocks(self, array: str, begin: RowStart) -> Iterator[TextRows]:
        if self.named is not None:
            return self._named_blocks(self.named, begin)
        return read_array(self.file, VERTEX_ARRAYS[array], self.width, begin, first_row=self.first_row)

    def _named_blocks(self, named: NamedLabels, begin: RowStart) -> Iterator[TextRows]:
        first = begin.row
        for block in named.blocks(begin.offset):
            yield TextRows(self.file, first, block.codes(named.names), block.line_at)
            first += len(block.words)


def _are_names(sample: Sample) -> bool:
    """Whether each of the first lines is a name, perhaps of several words: no cell is a number, and first words repeat.

    The ids of vertices do not repeat.
    """
    lines = [cells_of(row.text) for row in sample.rows if len(row.fields) == 1]
    firsts = {cells[0] for cells in lines}
    return len(lines) == len(sample.rows) > len(firsts) and not any(is_number(cell) for each in lines for cell in each)


def _begins_with_ids(sample: Sample, header: bool) -> bool:
    """Whether the first column has the name of ids, or values in the first lines that are not binary labels."""
    if header and names_ids(cells_of(sample.rows[0].text)[0]):
        return True
    lines = [row.text for row in sample.rows[:_LINES]][header:]
    firsts = {line.replace(",", " ").split()[0].lower() for line in lines if line.strip(" \t\r\n,")}
    return not firsts <= _BINARY
