"""Tables with a vertex id in the first column, as in the source of the edges, and numbers in the others.

:mod:`gnnloom.pipeline.sources.reading.name_parser` defines how lines are split. If the first line has fields after the
id that are not numbers, it names the columns.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.binary.edge_columns import rebatch
from gnnloom.pipeline.sources.binary.parquet_table import ParquetTable
from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray, Unpacked, unpacked_array
from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.sources.reading import name_parser
from gnnloom.pipeline.sources.reading.class_names import NamedLabels
from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.lines import bad_line
from gnnloom.pipeline.sources.reading.numerals import REASONS, SPACE, word_numbers
from gnnloom.pipeline.sources.reading.text_layout import data_blocks, first_data_line, has_names, separator_of
from gnnloom.pipeline.sources.source import SourceRange, even_ranges
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import by_rows
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import VERTEX_ARRAYS
from gnnloom.storage.wording import counted

#: Number of bytes of text, and of Parquet values, read at a time.
_BLOCK_BYTES, _BLOCK_VALUES = 4 << 20, 1 << 18
#: A table is cut into about this many ranges, which tasks read, of at least and at most so many bytes.
_RANGES, _LEAST_BYTES, _MOST_BYTES = 64, 64 << 20, 512 << 20


@dataclass(frozen=True)
class KeyedBlock:
    """Consecutive rows.

    Attributes:
        values: (num_rows, num_columns) float64; may contain NaN and infinity.
        at: (num_rows,) int64 places of the rows in the table, as :meth:`KeyedRows.error` expects them.
    """

    ids: Names
    values: NDArray[np.float64]
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
    """A text file; implements :class:`KeyedRows`."""

    file: SourceFile
    num_columns: int
    separator: int
    header: bool
    array: str
    named: NamedLabels | None = None

    ids = None

    @classmethod
    def open(cls, file: SourceFile, array: str) -> KeyedText:
        """Detect the separator, the number of columns and a header from the first line.

        Raises:
            InputError: the first line has no second column.
        """
        separator = separator_of(file)
        line = first_data_line(file).decode("utf-8", "replace")
        fields = next(csv.reader([line.strip()], delimiter=chr(separator), skipinitialspace=True), [])
        # A separator may end each line.
        if len(fields) > 2 and not fields[-1]:
            fields.pop()
        if len(fields) < 2:
            raise InputError(
                f"{file.location}: expected an id and at least one number per line, found {line.strip()[:60]!r}"
            )
        may_name = array == "label" and (len(fields) == 2 or separator == SPACE)
        named = NamedLabels.of(file, separator, (0, 1)) if may_name else None
        if named is not None:
            return cls(file, 1, separator, named.header, array, named)
        return cls(file, len(fields) - 1, separator, has_names(fields[1:], VERTEX_ARRAYS[array]), array)

    def ranges(self) -> Sequence[SourceRange]:
        if not self.file.is_seekable or self.file.size is None:
            return [SourceRange(0, 0, -1)]
        return table_ranges(self.file.size, self.file.size)

    def error(self, at: int, reason: str) -> InputError:
        return bad_line(self.file, at, reason)

    def blocks(self, span: SourceRange) -> Iterator[KeyedBlock]:
        stop, array = None if span.stop < 0 else span.stop, VERTEX_ARRAYS[self.array]
        if self.named is not None:
            for block in self.named.blocks(span.start, stop):
                ids = Names.of_values(np.array([words[0] for words in block.words], object))
                codes = block.codes(self.named.names).astype(np.float64)[:, None]
                yield _checked(self, KeyedBlock(ids, codes, block.line_at))
            return
        cells = array.takes_nan, word_numbers(array.words), np.array(list(array.words.values()), np.float64)
        for offset, text in data_blocks(self.file, self.header, span.start, stop, _BLOCK_BYTES):
            most = len(text) // (2 * self.num_columns + 2) + 1
            names, ends = np.empty(len(text), np.uint8), np.empty(most + 1, np.int64)
            values, line_at = np.empty((most, self.num_columns)), np.empty(most, np.int64)
            count, at, wrong = name_parser.parse_keyed(text, self.separator, *cells, names, ends, values, line_at)
            if wrong:
                raise bad_line(self.file, offset + at, name_parser.REASONS.get(wrong) or REASONS[wrong])
            line_at = line_at[:count] + offset
            yield _checked(self, KeyedBlock(Names(ends[: count + 1], names), values[:count], line_at))


@dataclass(frozen=True)
class KeyedParquet:
    """A Parquet file; implements :class:`KeyedRows`."""

    table: ParquetTable

    ids = None

    @classmethod
    def open(cls, file: SourceFile) -> KeyedParquet:
        """Read the footer.

        Raises:
            InputError: the file is not a Parquet file, or does not have such columns.
        """
        table = ParquetTable.open(file)
        if len(table.names) < 2:
            raise InputError(f"{file.location}: expected a column of ids and at least one of numbers")
        table.check_columns(table.names[:1], "ius")
        table.check_columns(table.names[1:], "iufb")
        return cls(table)

    @property
    def file(self) -> SourceFile:
        return self.table.file

    @property
    def num_columns(self) -> int:
        return len(self.table.names) - 1

    def ranges(self) -> Sequence[SourceRange]:
        """Ranges of row groups."""
        return table_ranges(len(self.table.group_rows), self.table.num_rows * len(self.table.names) * 8)

    def error(self, at: int, reason: str) -> InputError:
        return self.table.error(self.table.names[0], at, reason)

    def blocks(self, span: SourceRange) -> Iterator[KeyedBlock]:
        groups, rows = range(span.start, span.stop), max(1, _BLOCK_VALUES // len(self.table.names))
        for first, columns in self.table.read_arrow(self.table.names, groups, rows):
            values = [column.to_numpy(zero_copy_only=False).astype(np.float64) for column in columns[1:]]
            at = np.arange(first, first + len(values[0]))
            yield _checked(self, KeyedBlock(Names.of_values(columns[0]), np.stack(values, axis=1), at))


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
            InputError: an array has the wrong shape, dtype or order, or there are not as many ids as rows.
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
            yield _checked(self, KeyedBlock(Names.of_values(np.ascontiguousarray(names)), table, at))
            first += len(names)

    def stored_arrays(self) -> tuple[StoredArray, ...]:
        """Both arrays; implements :class:`~gnnloom.pipeline.sources.binary.stored_arrays.PackedSource`."""
        return self.values, self.row_ids

    def with_unpacked(self, unpacked: Unpacked) -> KeyedNumpy:
        return KeyedNumpy(unpacked_array(self.values, unpacked), unpacked_array(self.row_ids, unpacked))


def _checked(rows: KeyedRows, block: KeyedBlock) -> KeyedBlock:
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
        num_bytes: of the whole table.
    """
    each = max(_LEAST_BYTES, min(_MOST_BYTES, num_bytes // _RANGES))
    return even_ranges(0, count, max(1, count * each // max(1, num_bytes)))
