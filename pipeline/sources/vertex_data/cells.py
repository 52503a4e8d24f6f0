"""Tables whose columns hold numbers, lists or words: text, Parquet and NumPy arrays, read column by column.

A table is read in blocks of rows. Each column of a block is :class:`TextCells` or :class:`ArrayCells`, which give
numbers with NaN for missing ones, or words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.binary.edge_columns import rebatch
from gnnloom.pipeline.sources.binary.parquet_table import ParquetTable
from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray, Unpacked, unpacked_array
from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.sources.parsers.numerals import COMMA, FEED, POINT, REASONS, TOO_FEW, TOO_MANY
from gnnloom.pipeline.sources.reading.fields import copy_cells, find_cells, parse_cells
from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.lines import bad_line
from gnnloom.pipeline.sources.reading.text_columns import RowIndex, count_rows, index_rows
from gnnloom.pipeline.sources.reading.text_layout import Row, row_blocks
from gnnloom.pipeline.sources.source import SourceRange
from gnnloom.pipeline.sources.vertex_data.keyed_rows import table_ranges
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import by_rows
from gnnloom.storage.errors import InputError

#: Bytes of text, and values of other files, read at a time.
_BLOCK_BYTES: Final = 4 << 20
_BLOCK_VALUES: Final = 1 << 18
#: Characters of the first cells of a column that are looked at, about.
_SHOWN_BYTES: Final = 1 << 20
#: Rows that are looked at when a table is opened.
LOOKED_AT: Final = 1000


class Cells(Protocol):
    """One column of some rows."""

    def numbers(self, width: int, *, is_list: bool) -> tuple[NDArray[np.float64], int, str]:
        """(num_rows, width) numbers, NaN for missing ones; the first row with another value (-1: none), and the reason.

        Args:
            is_list: each cell is a list of ``width`` numbers.
        """
        ...

    def words(self) -> Names:
        """The text of each cell; empty for missing ones."""
        ...

    def __getitem__(self, some: slice) -> Cells: ...


@dataclass(frozen=True)
class TextCells:
    """Cells within a text.

    Attributes:
        text: (num_bytes,) uint8 that ends with a line feed.
        spans: (num_rows, 2) int64 first byte of each cell, and the one after its last.
        has_commas: whether numbers have decimal commas.
    """

    text: NDArray[np.uint8]
    spans: NDArray[np.int64]
    has_commas: bool = False

    @classmethod
    def of_names(cls, names: Names) -> TextCells:
        """The cells with these texts."""
        # A line feed ends each, as the parser of a number stops there.
        text = np.frombuffer(b"\n".join([*names, b""]), np.uint8) if len(names) else np.array([FEED], np.uint8)
        ends = names.offset[1:] + np.arange(len(names))
        return cls(text, np.stack([ends - np.diff(names.offset), ends], axis=1))

    def numbers(self, width: int, *, is_list: bool) -> tuple[NDArray[np.float64], int, str]:
        values = np.empty((len(self.spans), width))
        # Points instead of commas; cells are within their spans, whatever else becomes one.
        text = np.where(self.text == COMMA, POINT, self.text).astype(np.uint8) if self.has_commas else self.text
        row, wrong = parse_cells(text, self.spans, is_list, values)
        if is_list and wrong:
            found = self.text[slice(*self.spans[row])].tobytes().decode("utf-8", "replace")
            return values, row, f"{_list_fault(width, wrong)}, found {found[:60]!r}"
        return values, row, REASONS.get(wrong, "")

    def __getitem__(self, some: slice) -> TextCells:
        return TextCells(self.text, self.spans[some], self.has_commas)

    def words(self) -> Names:
        offset = np.empty(len(self.spans) + 1, np.int64)
        out = np.empty(max(0, int((self.spans[:, 1] - self.spans[:, 0]).sum())), np.uint8)
        return Names(offset, out[: copy_cells(self.text, self.spans, offset, out)])


def _list_fault(width: int, wrong: int) -> str:
    also = {TOO_FEW: "; it has fewer", TOO_MANY: "; it has more"}.get(wrong, "")
    return f"expected a list of {width:,} numbers, as in the first row{also}"


@dataclass(frozen=True)
class ArrayCells:
    """Cells of an Arrow or NumPy array of numbers, or of lists of numbers.

    Attributes:
        values: an Arrow array; or (num_rows,) or (num_rows, width) of NumPy.
    """

    values: Any

    def numbers(self, width: int, *, is_list: bool) -> tuple[NDArray[np.float64], int, str]:
        if isinstance(self.values, np.ndarray):
            return self.values.reshape(len(self.values), -1).astype(np.float64), -1, ""
        import pyarrow as pa  # noqa: PLC0415 - only Parquet files need it
        import pyarrow.compute as pc  # noqa: PLC0415

        column, rows = self.values, np.arange(len(self.values))
        if is_list:
            rows = rows[column.is_valid().to_numpy(zero_copy_only=False)]
            lengths = pc.list_value_length(column).drop_null().to_numpy(zero_copy_only=False)
            if (lengths != width).any():
                at = int(np.argmax(lengths != width))
                wrong = TOO_FEW if lengths[at] < width else TOO_MANY
                return np.empty((0, width)), int(rows[at]), f"{_list_fault(width, wrong)} ({lengths[at]:,})"
            column = column.drop_null().flatten()
        found = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False).astype(np.float64)
        values = np.full((len(self.values), width), np.nan)
        values[rows] = found.reshape(-1, width)
        return values, -1, ""

    def __getitem__(self, some: slice) -> ArrayCells:
        return ArrayCells(self.values[some])

    def words(self) -> Names:
        values = self.values
        return Names.of_values(np.ascontiguousarray(values) if isinstance(values, np.ndarray) else values)


@dataclass(frozen=True)
class CellBlock:
    """Consecutive rows of a table.

    Attributes:
        first: number of the first row, if the reading began with a known one.
        at: (num_rows,) int64 places of the rows, as :meth:`CellTable.error` expects them.
        columns: the columns that were asked for.
    """

    first: int
    at: NDArray[np.int64]
    columns: tuple[Cells, ...]

    def pieces(self, values_per_row: int) -> Iterator[CellBlock]:
        """The block in pieces that have a bounded number of values."""
        rows = max(1, _BLOCK_VALUES // max(1, values_per_row))
        for start in range(0, len(self.at), rows):
            some = slice(start, start + rows)
            yield CellBlock(self.first + start, self.at[some], tuple(each[some] for each in self.columns))


class CellTable(Protocol):
    """A table in some format."""

    @property
    def file(self) -> SourceFile: ...

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns; none if they have numbers only."""
        ...

    @property
    def width(self) -> int:
        """Number of columns."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether any range of rows can be read without reading what precedes it."""
        ...

    def first_cells(self, column: int) -> tuple[str, list[str]]:
        """Kind of a column, ``number``, ``list`` or empty if the cells decide, and the text of its first cells.

        Raises:
            InputError: the type of the column is neither numbers, lists of numbers nor text.
        """
        ...

    def num_rows(self) -> int:
        """Count the rows."""
        ...

    def ranges(self) -> Sequence[SourceRange]:
        """Non-overlapping ranges that cover the table, one after another."""
        ...

    def read(self, span: SourceRange, columns: Sequence[int]) -> Iterator[CellBlock]:
        """Read some columns of a range.

        Raises:
            InputError: a row has another number of columns.
        """
        ...

    def read_rows(self, start: int, stop: int, columns: Sequence[int]) -> Iterator[CellBlock]:
        """Read rows ``start`` to ``stop``, and perhaps some before and after them."""
        ...

    def error(self, at: int, column: int, reason: str) -> InputError:
        """The error for a cell; -1 stands for the whole row."""
        ...


@dataclass(frozen=True)
class TextTableCells:
    """A text file; implements :class:`CellTable`.

    Attributes:
        separator: text between fields.
        names: as in :class:`CellTable`.
        width: fields of every line.
        first_row: offset of the first row in the file's contents, in bytes.
        sample: the first rows.
        index: where rows begin, if rows are counted.
        question: a question that the first lines leave open; empty if there is none.
        has_commas: whether numbers have decimal commas.
        comments: bytes that begin comments between the rows.
        titles: names of the columns in a comment above the rows, which no option can use.
    """

    file: SourceFile
    separator: bytes
    names: tuple[str, ...]
    width: int
    first_row: int
    sample: tuple[Row, ...] = field(repr=False)
    index: RowIndex | None = None
    question: str = ""
    has_commas: bool = False
    comments: bytes = b""
    titles: tuple[str, ...] = ()

    @property
    def is_shared(self) -> bool:
        return self.file.is_seekable

    def first_cells(self, column: int) -> tuple[str, list[str]]:
        return "", [row.fields[column] for row in self.sample if column < len(row.fields)]

    def counted(self) -> TextTableCells:
        """The same table, with an index of its rows."""
        return replace(self, index=index_rows(self.file, first_row=self.first_row))

    def num_rows(self) -> int:
        if self.index is not None and self.index.num_rows is not None:
            return self.index.num_rows
        return count_rows(self.file, first_row=self.first_row)

    def ranges(self) -> Sequence[SourceRange]:
        if not self.file.is_seekable or self.file.size is None:
            return [SourceRange(0, 0, -1)]
        return table_ranges(self.file.size, self.file.size)

    def read(self, span: SourceRange, columns: Sequence[int]) -> Iterator[CellBlock]:
        return self._read(span.start, None if span.stop < 0 else span.stop, 0, columns)

    def read_rows(self, start: int, stop: int, columns: Sequence[int]) -> Iterator[CellBlock]:
        begin = (self.index or RowIndex()).before(start)
        for block in self._read(begin.offset, None, begin.row, columns):
            if block.first >= stop:
                break
            yield block

    def _read(self, start: int, stop: int | None, first: int, columns: Sequence[int]) -> Iterator[CellBlock]:
        wanted = np.array(columns, np.int64)
        separator, comments = (np.frombuffer(each, np.uint8) for each in (self.separator, self.comments))
        for offset, text in row_blocks(self.file, self.first_row, start, stop, _BLOCK_BYTES):
            most = int(np.count_nonzero(text == FEED))
            spans, line_at = np.empty((len(columns), most, 2), np.int64), np.empty(most, np.int64)
            count, at, wrong = find_cells(text, separator, self.width, wanted, comments, spans, line_at)
            if wrong:
                raise bad_line(self.file, offset + at, f"{REASONS[wrong]}; expected {self.width:,} as before")
            cells = tuple(TextCells(text, spans[number, :count], self.has_commas) for number in range(len(columns)))
            yield CellBlock(first, line_at[:count] + offset, cells)
            first += count

    def error(self, at: int, column: int, reason: str) -> InputError:
        return bad_line(self.file, at, f"{_where(self, column)}{reason}")


@dataclass(frozen=True)
class ParquetCells:
    """A Parquet file; implements :class:`CellTable`.

    Attributes:
        row_values: values of a row, with the values of its lists.
    """

    table: ParquetTable
    row_values: int = 1

    is_shared = True

    @property
    def file(self) -> SourceFile:
        return self.table.file

    @property
    def names(self) -> tuple[str, ...]:
        return self.table.names

    @property
    def width(self) -> int:
        return len(self.table.names)

    def first_cells(self, column: int) -> tuple[str, list[str]]:
        name, kind = self.table.names[column], self.table.types[column]
        holds = self.table.holds_numbers(name)
        if not (holds or self.table.holds_text(name)):
            raise InputError(
                f"{self.file.location}, column {name}: {kind}, which is not a number, a list of numbers or text;"
                " convert it, or leave the column out"
            )
        groups = range(min(1, len(self.table.group_rows)))
        blocks = self.table.read_arrow([name], groups, LOOKED_AT, nulls=True)
        values = [values for _, (values,) in islice(blocks, 1)]
        shown, size = list[str](), 0
        for each in values[0].to_pylist() if values else []:
            # Cells of a megabyte need not be many to show what they are.
            if size > _SHOWN_BYTES:
                break
            cell = "" if each is None else str(each)
            # Other types of text than strings are bytes.
            if isinstance(each, bytes):
                cell = each.decode("utf-8", "replace")
            shown.append(cell)
            size += len(cell)
        return holds, shown

    def num_rows(self) -> int:
        return self.table.num_rows

    def ranges(self) -> Sequence[SourceRange]:
        """Ranges of row groups."""
        return table_ranges(len(self.table.group_rows), self.table.num_rows * len(self.table.names) * 8)

    def read(self, span: SourceRange, columns: Sequence[int]) -> Iterator[CellBlock]:
        names = [self.table.names[column] for column in columns]
        # The length of texts is unknown in advance.
        texts = [self.table.holds_text(name) for name in names]
        rows = max(1, _BLOCK_VALUES // max(len(columns), self.row_values) // (8 if any(texts) else 1))
        for first, values in self.table.read_arrow(names, range(span.start, span.stop), rows, nulls=True):
            cells = tuple(_arrow_cells(column, is_text=text) for column, text in zip(values, texts, strict=True))
            yield CellBlock(first, np.arange(first, first + len(values[0])), cells)

    def read_rows(self, start: int, stop: int, columns: Sequence[int]) -> Iterator[CellBlock]:
        ends = self.table.first_rows
        for group, first in enumerate(ends[:-1]):
            if first < stop and ends[group + 1] > start:
                yield from self.read(SourceRange(0, group, group + 1), columns)

    def error(self, at: int, column: int, reason: str) -> InputError:
        return self.table.error(self.table.names[max(0, column)], at, reason)


def _arrow_cells(column: Any, *, is_text: bool) -> Cells:
    import pyarrow as pa  # noqa: PLC0415 - only Parquet files need it

    if not is_text:
        return ArrayCells(column)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return TextCells.of_names(Names.of_values(column.cast(pa.large_binary()).fill_null(b"")))


@dataclass(frozen=True)
class NumpyCells:
    """An array with a row per vertex, with or without ids of its rows; implements :class:`CellTable`.

    Attributes:
        array: (n,) or (n, num_columns) numbers or text.
        row_ids: (n,) integers or text; they are the column after the last one.
    """

    array: StoredArray
    row_ids: StoredArray | None = None

    names = ()

    def __post_init__(self) -> None:
        """Check the array.

        Raises:
            InputError: it has another shape or type.
        """
        if len(self.array.shape) not in {1, 2} or self.array.dtype.kind not in "iufbUS":
            raise InputError(
                f"{self.array}: expected numbers or text of shape (n,) or (n, columns), found {self.array.dtype} of"
                f" shape {self.array.shape}"
            )
        by_rows(self.array)

    @property
    def file(self) -> SourceFile:
        return self.array.file

    @property
    def width(self) -> int:
        return self.array.shape[1] if len(self.array.shape) == 2 else 1

    @property
    def is_shared(self) -> bool:
        return self.array.is_mapped and (self.row_ids is None or self.row_ids.is_mapped)

    def first_cells(self, column: int) -> tuple[str, list[str]]:
        block = next(self.read(SourceRange(0, 0, min(LOOKED_AT, self.num_rows())), [column]), None)
        is_text = self.array.dtype.kind in "US"
        words = [name.decode("utf-8", "replace") for name in block.columns[0].words()] if block and is_text else []
        return "" if is_text else "number", words

    def num_rows(self) -> int:
        return self.array.shape[0]

    def ranges(self) -> Sequence[SourceRange]:
        num_rows = self.num_rows()
        # A range of a compressed array can only be read after what precedes it.
        if not self.is_shared:
            return [SourceRange(0, 0, num_rows)]
        return table_ranges(num_rows, num_rows * self.width * self.array.dtype.itemsize)

    def read(self, span: SourceRange, columns: Sequence[int]) -> Iterator[CellBlock]:
        width, first = self.width, span.start
        rows = max(1, _BLOCK_VALUES // width)
        flat = rebatch(self.array.read_flat(span.start * width, span.stop * width), rows * width)
        ids = None if self.row_ids is None else rebatch(self.row_ids.read_flat(span.start, span.stop), rows)
        is_text = self.array.dtype.kind in "US"
        for values in flat:
            table = values.reshape(-1, width)
            names = None if ids is None else next(ids)
            cells = tuple(
                ArrayCells(names) if column == width
                else TextCells.of_names(Names.of_values(np.ascontiguousarray(table[:, column]))) if is_text
                else ArrayCells(table[:, column])
                for column in columns
            )  # fmt: skip
            yield CellBlock(first, np.arange(first, first + len(table)), cells)
            first += len(table)

    def read_rows(self, start: int, stop: int, columns: Sequence[int]) -> Iterator[CellBlock]:
        return self.read(SourceRange(0, start, stop), columns)

    def error(self, at: int, column: int, reason: str) -> InputError:
        return InputError(f"{self.array}, row {at:,}: {_where(self, column)}{reason}")

    def stored_arrays(self) -> tuple[StoredArray, ...]:
        """The arrays that may be compressed, as of a ``PackedSource``."""
        return (self.array,) if self.row_ids is None else (self.array, self.row_ids)

    def with_unpacked(self, unpacked: Unpacked) -> NumpyCells:
        ids = None if self.row_ids is None else unpacked_array(self.row_ids, unpacked)
        return NumpyCells(unpacked_array(self.array, unpacked), ids)


@dataclass(frozen=True)
class NamedCells:
    """Mapped arrays of numbers with a row for each row of a table; implements :class:`CellTable`.

    Attributes:
        arrays: names and arrays, (n,) or (n, width), in C order; the columns of an array with several are called
            ``NAME_0`` and so on.
    """

    arrays: tuple[tuple[str, StoredArray], ...]

    is_shared = True

    @cached_property
    def _columns(self) -> list[tuple[str, StoredArray, int]]:
        """Name of each column, its array, and its number there."""
        found = []
        for name, array in self.arrays:
            width = array.shape[1] if len(array.shape) > 1 else 1
            found += [(f"{name}_{at}" if width > 1 else name, array, at) for at in range(width)]
        return found

    @property
    def file(self) -> SourceFile:
        return self.arrays[0][1].file

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _, _ in self._columns)

    @property
    def width(self) -> int:
        return len(self._columns)

    def first_cells(self, column: int) -> tuple[str, list[str]]:
        block = next(self.read(SourceRange(0, 0, min(LOOKED_AT, self.num_rows())), [column]), None)
        return "number", [] if block is None else [name.decode() for name in block.columns[0].words()]

    def num_rows(self) -> int:
        return self.arrays[0][1].shape[0]

    def ranges(self) -> Sequence[SourceRange]:
        return table_ranges(self.num_rows(), self.num_rows() * self.width * 8)

    def read(self, span: SourceRange, columns: Sequence[int]) -> Iterator[CellBlock]:
        import pyarrow as pa  # noqa: PLC0415 - only some tables need it

        chosen = [self._columns[column] for column in columns]
        rows = max(1, _BLOCK_VALUES // self.width)
        for start in range(span.start, span.stop, rows):
            stop = min(start + rows, span.stop)
            # An array is read once for all of its columns.
            tables = dict[str, NDArray[Any]]()
            for _, array, _ in chosen:
                width = array.size // max(1, array.shape[0])
                if str(array) not in tables:
                    flat = next(array.read_flat(start * width, stop * width, (stop - start) * width))
                    tables[str(array)] = _plain_numbers(flat).reshape(-1, width)
            cells = tuple(ArrayCells(pa.array(tables[str(array)][:, at])) for _, array, at in chosen)
            yield CellBlock(start, np.arange(start, stop), cells)

    def read_rows(self, start: int, stop: int, columns: Sequence[int]) -> Iterator[CellBlock]:
        return self.read(SourceRange(0, start, stop), columns)

    def error(self, at: int, column: int, reason: str) -> InputError:
        _, array, number = self._columns[max(0, column)]
        where = f", column {number}" if len(array.shape) > 1 else ""
        return InputError(f"{array}, row {at:,}{where}: {reason}")


def _plain_numbers(values: NDArray[Any]) -> NDArray[Any]:
    """Numbers of a type that Arrow converts."""
    plain = {"f2": np.float32, "b1": np.uint8}.get(values.dtype.str[1:])
    return values if plain is None else values.astype(plain)


def _where(table: CellTable, column: int) -> str:
    if column < 0 or table.width == 1:
        return ""
    return f"column {column_name(table, column)}: "


def column_name(table: CellTable, column: int) -> str:
    """Name of a column, or its number from 1."""
    return (table.names[column] if column < len(table.names) else "") or str(column + 1)
