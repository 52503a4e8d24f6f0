"""Tables with a vertex id in the first column, as in the source of the edges, and numbers in the others.

:mod:`gnnloom.pipeline.sources.reading.name_parser` defines how lines are split. If the first line has fields after the
id that are not numbers, it names the columns.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.sources.reading import name_parser
from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.lines import bad_line
from gnnloom.pipeline.sources.reading.numerals import REASONS
from gnnloom.pipeline.sources.reading.parquet_table import ParquetTable
from gnnloom.pipeline.sources.reading.text_layout import data_blocks, first_data_line, is_number, separator_of
from gnnloom.storage.errors import InputError

#: Number of bytes of text, and of Parquet values, read at a time.
_BLOCK_BYTES, _BLOCK_VALUES = 4 << 20, 1 << 18


@dataclass(frozen=True)
class KeyedBlock:
    """Consecutive rows.

    Attributes:
        values: (num_rows, num_columns) float64; may contain NaN and infinity.
        error: creates the error for a row of this block and a reason.
    """

    ids: Names
    values: NDArray[np.float64]
    error: Callable[[int, str], InputError]


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

    def blocks(self) -> Iterator[KeyedBlock]:
        """Read all rows.

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

    ids = None

    @classmethod
    def open(cls, file: SourceFile) -> KeyedText:
        """Detect the separator, the number of columns and a header from the first line.

        Raises:
            InputError: the first line has no second column.
        """
        separator = separator_of(file)
        line = first_data_line(file).decode("utf-8", "replace")
        whole = line.strip().removesuffix(chr(separator))
        fields = next(csv.reader([whole], delimiter=chr(separator), skipinitialspace=True), [])
        if len(fields) < 2:
            raise InputError(
                f"{file.location}: expected an id and at least one number per line, found {line.strip()[:60]!r}"
            )
        return cls(file, len(fields) - 1, separator, not all(is_number(field) for field in fields[1:]))

    def blocks(self) -> Iterator[KeyedBlock]:
        for offset, text in data_blocks(self.file, self.header, block_bytes=_BLOCK_BYTES):
            most = len(text) // (2 * self.num_columns + 2) + 1
            names, ends = np.empty(len(text), np.uint8), np.empty(most + 1, np.int64)
            values, line_at = np.empty((most, self.num_columns)), np.empty(most, np.int64)
            count, at, wrong = name_parser.parse_keyed(text, self.separator, names, ends, values, line_at)
            if wrong:
                raise bad_line(self.file, offset + at, name_parser.REASONS.get(wrong) or REASONS[wrong])
            error = partial(_line_error, self.file, line_at[:count] + offset)
            yield checked_block(KeyedBlock(Names(ends[: count + 1], names), values[:count], error))


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

    def blocks(self) -> Iterator[KeyedBlock]:
        groups, rows = range(len(self.table.group_rows)), max(1, _BLOCK_VALUES // len(self.table.names))
        for first, columns in self.table.read_arrow(self.table.names, groups, rows):
            values = [column.to_numpy(zero_copy_only=False).astype(np.float64) for column in columns[1:]]
            error = partial(self._error, first)
            yield checked_block(KeyedBlock(Names.of_values(columns[0]), np.stack(values, axis=1), error))

    def _error(self, first: int, row: int, reason: str) -> InputError:
        return self.table.error(self.table.names[0], first + row, reason)


def checked_block(block: KeyedBlock) -> KeyedBlock:
    """Check the ids of a block.

    Raises:
        InputError: an id is empty, too long or not UTF-8.
    """
    row, reason = block.ids.first_wrong()
    if row >= 0:
        raise block.error(row, reason)
    return block


def _line_error(file: SourceFile, line_at: NDArray[Any], row: int, reason: str) -> InputError:
    return bad_line(file, int(line_at[row]), reason)
