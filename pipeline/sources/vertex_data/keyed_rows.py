"""Tables with a vertex id in the first column, as in the source of the edges, and numbers in the others.

:mod:`gnnloom.pipeline.sources.parsers.name_parser` defines how lines are split. If the first line has fields after the
id that are not numbers, it names the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.binary.edge_columns import rebatch
from gnnloom.pipeline.sources.binary.parquet_table import ParquetTable
from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray, Unpacked, unpacked_array
from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.sources.parsers import name_parser
from gnnloom.pipeline.sources.parsers.numerals import OPEN_COMMENT, REASONS, TAB, word_numbers
from gnnloom.pipeline.sources.reading.fields import PLAIN, TextBlock, chosen_fields
from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.lines import bad_line
from gnnloom.pipeline.sources.reading.others.other_rows import refuse_drawn
from gnnloom.pipeline.sources.reading.text_layout import (
    PANDAS_INDEX,
    Sample,
    Stated,
    has_names,
    names_ids,
    numbers_rows,
    row_blocks,
)
from gnnloom.pipeline.sources.reading.text_table import is_short_header, lacks_first_name, names_question, spelled
from gnnloom.pipeline.sources.source import SourceRange, even_ranges
from gnnloom.pipeline.sources.understood import columns_in_words, header_in_words
from gnnloom.pipeline.sources.vertex_data.class_names import NamedLabels
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import by_rows
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import VERTEX_ARRAYS
from gnnloom.storage.wording import counted

#: Advice about a line that may be a comment: names of vertices may begin with the sign.
_COMMENT: Final = "the line begins as comments do, after the first row; remove it, or put the id in double quotes"
#: Number of bytes of text, and of Parquet values, read at a time.
_BLOCK_BYTES, _BLOCK_VALUES = 4 << 20, 1 << 18
#: Target number of ranges into which a table is cut for tasks, and the minimum and maximum bytes of a range.
_RANGES, _LEAST_BYTES, _MOST_BYTES = 64, 64 << 20, 512 << 20


@dataclass(frozen=True)
class KeyedBlock:
    """Consecutive rows.

    Attributes:
        values: (num_rows, num_columns) float64; may contain NaN and infinity. Or text, if the array has words.
        at: (num_rows,) int64 places of the rows in the table, as :meth:`KeyedRows.error` expects them.
    """

    ids: Names
    values: NDArray[Any]
    at: NDArray[np.int64]


class KeyedRows(Protocol):
    """A table in some format."""

    @property
    def file(self) -> SourceFile: ...

    @property
    def ids(self) -> SourceFile | None:
        """The file with the ids; None if they are in the table itself."""
        ...

    @property
    def num_columns(self) -> int:
        """Number of columns, not counting the ids."""
        ...

    def in_words(self) -> tuple[str, str, str]:
        """Sentences for display: the reading of the table, the columns of the array, and the column of the ids."""
        ...

    def ranges(self) -> Sequence[SourceRange]:
        """Non-overlapping ranges that cover the table, one after another; tasks read them independently."""
        ...

    def error(self, at: int, reason: str) -> InputError:
        """The error for the row at a place, which the row's block states."""
        ...

    def blocks(self, span: SourceRange) -> Iterator[KeyedBlock]:
        """Read the rows of a range.

        Raises:
            InputError: an id is empty, too long or not UTF-8, a row has a different width, or a value is not a number.
        """
        ...


@dataclass(frozen=True)
class KeyedText:
    """A text file; implements :class:`KeyedRows`.

    Attributes:
        separator: text between fields; a space stands for runs of blanks.
        fields: numbers of the fields with the id and the values, from 0; none for all.
        first_row: offset of the first row in the file's contents, in bytes.
        named: where labels are names of classes; None if values are numbers.
        names: names of the columns, with the name of the ids; none without a header.
        question: a question that the first lines leave open; empty if there is none.
    """

    file: SourceFile
    num_columns: int
    separator: bytes
    fields: tuple[int, ...]
    first_row: int
    array: str
    named: NamedLabels | None = None
    names: tuple[str, ...] = ()
    question: str = ""

    ids = None

    @classmethod
    def open(cls, file: SourceFile, array: str, header: bool | None = None) -> KeyedText:
        """Detect the separator, the columns and a header from the first lines.

        Args:
            header: whether the first line names the columns; None if the user did not say.

        Raises:
            InputError: the first line has no second column, or may be a header.
        """
        sample, question = Sample.of(file, Stated(header)), ""
        refuse_drawn(file, sample)
        first = list(sample.rows[0].fields) if sample.rows else []
        # A separator may end each line.
        is_ended = len(first) > 2 and not first[-1]
        if is_ended:
            first.pop()
        if len(first) < 2:
            shown = sample.rows[0].text[:60] if sample.rows else ""
            raise InputError(f"{file.location}: expected an id and at least one number per line, found {shown!r}")
        # A column of row numbers, whose name is empty, before the ids. R leaves its name out altogether.
        is_short = not is_ended and header is not False and is_short_header(sample)
        if is_short:
            unnamed = lacks_first_name(sample) is False
            question, first = names_question(file, sample), [*first, ""] if unnamed else ["", *first]
        is_index = len(first) > 2 and numbers_rows(first[0]) and names_ids(first[1])
        skipped = int(header is not False and is_index)
        width = len(first) - 1 - skipped
        is_named = array == "label" and (width == 1 or sample.separator == b" ")
        named = NamedLabels.of(file, sample, (skipped, skipped + 1), header) if is_named else None
        chooses = skipped or (is_ended and sample.separator not in PLAIN)
        fields = tuple(range(skipped, skipped + 1 + width)) if chooses else ()
        names = tuple(first)
        if named is not None:
            names = names if named.header else ()
            return cls(file, 1, sample.separator, fields, named.first_row, array, named, names, question)
        begins = header or skipped or is_short or (header is None and has_names(first[1:], VERTEX_ARRAYS[array]))
        first_row = sample.rows[0].stop if begins else sample.rows[0].start
        return cls(
            file,
            width,
            sample.separator,
            fields,
            first_row,
            array,
            None,
            names if begins else (),
            question,
        )

    def in_words(self) -> tuple[str, str, str]:
        """Sentences like :meth:`KeyedRows.in_words`."""
        how = f"text, fields between {spelled(self.separator)}; {header_in_words(bool(self.names))}"
        names = f", names of {len(self.named.names):,} classes" if self.named else ""
        skipped = "; the first column numbers the rows and is skipped" if self.fields[:1] == (1,) else ""
        first = "the second column" if skipped else "the first column"
        return how + skipped, f"{counted(self.num_columns, 'column')}{names}", first

    def ranges(self) -> Sequence[SourceRange]:
        if not self.file.is_seekable or self.file.size is None:
            return [SourceRange(0, 0, -1)]
        return table_ranges(self.file.size, self.file.size)

    def error(self, at: int, reason: str) -> InputError:
        return bad_line(self.file, at, reason)

    def blocks(self, span: SourceRange) -> Iterator[KeyedBlock]:
        stop, array = None if span.stop < 0 else span.stop, VERTEX_ARRAYS[self.array]
        if self.named is not None:
            for labels in self.named.blocks(span.start, stop):
                ids = Names.of_values(np.array([words[0] for words in labels.words], object))
                codes = labels.codes(self.named.names).astype(np.float64)[:, None]
                yield checked_ids(self, KeyedBlock(ids, codes, labels.line_at))
            return
        cells = array.takes_nan, word_numbers(array.words), np.array(list(array.words.values()), np.float64)
        is_plain = not self.fields and self.separator in PLAIN
        for block in self._text(span.start, stop, is_plain=is_plain):
            text = block.text
            most = len(text) // (2 * self.num_columns + 2) + 1
            names, ends = np.empty(len(text), np.uint8), np.empty(most + 1, np.int64)
            values, line_at = np.empty((most, self.num_columns)), np.empty(most, np.int64)
            separator = self.separator[0] if is_plain else TAB
            count, at, wrong = name_parser.parse_keyed(text, separator, *cells, names, ends, values, line_at)
            if wrong:
                reason = _COMMENT if wrong == OPEN_COMMENT else name_parser.REASONS.get(wrong) or REASONS[wrong]
                raise bad_line(self.file, block.place(at), reason)
            places = block.places(line_at[:count])
            yield checked_ids(self, KeyedBlock(Names(ends[: count + 1], names), values[:count], places))

    def _text(self, start: int, stop: int | None, *, is_plain: bool) -> Iterator[TextBlock]:
        """Rows of a range of bytes, in the form that the parser reads."""
        blocks = row_blocks(self.file, self.first_row, start, stop, _BLOCK_BYTES)
        if is_plain:
            return (TextBlock(text, offset) for offset, text in blocks)
        return chosen_fields(self.file, blocks, self.separator, self.fields, comments=b"")


@dataclass(frozen=True)
class KeyedParquet:
    """A Parquet file; implements :class:`KeyedRows`."""

    table: ParquetTable

    ids = None

    @classmethod
    def open(cls, file: SourceFile) -> KeyedParquet:
        """Read the footer.

        Raises:
            InputError: the file is not a Parquet file, or lacks the columns.
        """
        table = ParquetTable.open(file)
        if len(table.names) < 2:
            raise InputError(f"{file.location}: expected a column of ids and at least one of numbers")
        table.check_columns(table.names[:1], "ius")
        table.check_columns(tuple(name for name in table.names[1:] if name != PANDAS_INDEX), "iufb")
        return cls(table)

    def in_words(self) -> tuple[str, str, str]:
        """Sentences like :meth:`KeyedRows.in_words`."""
        return "Parquet", columns_in_words(self.columns[1:]), f"column {self.columns[0]}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are read: without the row numbers of a data frame."""
        return tuple(name for number, name in enumerate(self.table.names) if not number or name != PANDAS_INDEX)

    @property
    def file(self) -> SourceFile:
        return self.table.file

    @property
    def num_columns(self) -> int:
        return len(self.columns) - 1

    def ranges(self) -> Sequence[SourceRange]:
        """Ranges of row groups."""
        return table_ranges(len(self.table.group_rows), self.table.num_rows * len(self.table.names) * 8)

    def error(self, at: int, reason: str) -> InputError:
        return self.table.error(self.table.names[0], at, reason)

    def blocks(self, span: SourceRange) -> Iterator[KeyedBlock]:
        groups, rows = range(span.start, span.stop), max(1, _BLOCK_VALUES // len(self.columns))
        for first, columns in self.table.read_arrow(self.columns, groups, rows):
            values = [column.to_numpy(zero_copy_only=False).astype(np.float64) for column in columns[1:]]
            at = np.arange(first, first + len(values[0]))
            yield checked_ids(self, KeyedBlock(Names.of_values(columns[0]), np.stack(values, axis=1), at))


@dataclass(frozen=True)
class KeyedNumpy:
    """Rows and their ids; implements :class:`~gnnloom.pipeline.sources.vertex_data.keyed_rows.KeyedRows`.

    Attributes:
        values: (n,) or (n, num_columns) numbers.
        row_ids: (n,) integers or text.
    """

    values: StoredArray
    row_ids: StoredArray

    @classmethod
    def open(cls, values: StoredArray, row_ids: StoredArray) -> KeyedNumpy:
        """Check that the arrays belong together.

        Raises:
            InputError: an array has the wrong shape, dtype or order, or the numbers of ids and rows differ.
        """
        if len(row_ids.shape) != 1 or row_ids.dtype.kind not in "iuUS":
            raise InputError(
                f"{row_ids}: expected ids, integers or text of shape (n,), found {row_ids.dtype} of shape"
                f" {row_ids.shape}"
            )
        if len(values.shape) not in {1, 2} or values.dtype.kind not in "iufb":
            raise InputError(
                f"{values}: expected numbers of shape (n,) or (n, columns), found {values.dtype} of shape"
                f" {values.shape}"
            )
        by_rows(values)
        if values.shape[0] != row_ids.shape[0]:
            raise InputError(
                f"{values}: {counted(values.shape[0], 'row')}, {row_ids} has {counted(row_ids.shape[0], 'id')}"
            )
        return cls(values, row_ids)

    def in_words(self) -> tuple[str, str, str]:
        """Sentences like :meth:`KeyedRows.in_words`."""
        return "NumPy", f"{self.values.dtype} of shape {self.values.shape}", self.row_ids.file.location

    @property
    def file(self) -> SourceFile:
        return self.values.file

    @property
    def ids(self) -> SourceFile | None:
        return self.row_ids.file

    @property
    def num_columns(self) -> int:
        return self.values.shape[1] if len(self.values.shape) == 2 else 1

    def ranges(self) -> Sequence[SourceRange]:
        num_rows = self.values.shape[0]
        # A range of a compressed array can only be read after what precedes it.
        if not (self.values.is_mapped and self.row_ids.is_mapped):
            return [SourceRange(0, 0, num_rows)]
        row_bytes = self.num_columns * self.values.dtype.itemsize + self.row_ids.dtype.itemsize
        return table_ranges(num_rows, num_rows * row_bytes)

    def error(self, at: int, reason: str) -> InputError:
        return InputError(f"{self.values}, row {at:,}: {reason}")

    def blocks(self, span: SourceRange) -> Iterator[KeyedBlock]:
        rows = max(1, _BLOCK_VALUES // self.num_columns)
        columns = self.num_columns
        flat = rebatch(self.values.read_flat(span.start * columns, span.stop * columns), rows * columns)
        ids = rebatch(self.row_ids.read_flat(span.start, span.stop), rows)
        first = span.start
        for values, names in zip(flat, ids, strict=True):
            table, at = values.reshape(-1, columns).astype(np.float64), np.arange(first, first + len(names))
            yield checked_ids(self, KeyedBlock(Names.of_values(np.ascontiguousarray(names)), table, at))
            first += len(names)

    def stored_arrays(self) -> tuple[StoredArray, ...]:
        """Both arrays; implements :class:`~gnnloom.pipeline.sources.binary.stored_arrays.PackedSource`."""
        return self.values, self.row_ids

    def with_unpacked(self, unpacked: Unpacked) -> KeyedNumpy:
        return KeyedNumpy(unpacked_array(self.values, unpacked), unpacked_array(self.row_ids, unpacked))


def checked_ids(rows: KeyedRows, block: KeyedBlock) -> KeyedBlock:
    """Check the ids of a block.

    Raises:
        InputError: an id is empty, too long or not UTF-8.
    """
    row, reason = block.ids.first_wrong()
    if row >= 0:
        raise rows.error(int(block.at[row]), reason)
    return block


def table_ranges(count: int, num_bytes: int) -> list[SourceRange]:
    """Cut a table of ``count`` bytes, rows or row groups into ranges of about equal size.

    Args:
        num_bytes: size of the whole table.
    """
    each = max(_LEAST_BYTES, min(_MOST_BYTES, num_bytes // _RANGES))
    return even_ranges(0, count, max(1, count * each // max(1, num_bytes)))
