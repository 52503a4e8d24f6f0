"""Parquet files as tables: columns by name, read by row groups, with every value checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.storage.errors import InputError
from gnnloom.storage.system_errors import check_is_of_content

#: Number of bytes of a column read at a time, if row groups are large.
_BUFFER = 1 << 20
#: Most bytes of the text of a cell: of a list with 50,000 numbers, or of a name that is too long.
_LONGEST_CELL = 1 << 20
#: Most bytes of a row group for each byte of its file, if cells are long.
_MOST_EXPANSION = 16
#: Most bytes of a row group whose columns are read as a whole.
_SMALL_GROUP = 16 << 20
#: Prefixes of Arrow's type names by kind: signed, unsigned, float, bool, text.
_PREFIXES = {
    "i": ("int",),
    "u": ("uint",),
    "f": ("float", "double", "halffloat"),
    "b": ("bool",),
    "t": ("timestamp", "date"),
    "s": ("string", "large_string", "binary", "large_binary", "dictionary<values=string"),
}


#: Rows of text that are decoded at once, and bytes of text from which on rows are not joined to larger blocks.
_TEXT_ROWS: Final = 1024
_TEXT_BYTES: Final = 16 << 20

#: Advice for ids with decimals, which pandas makes of integers in columns with missing values.
_INTEGERS: Final = "; write ids as integers, in pandas with .dropna() and .astype('int64')"


@dataclass(frozen=True)
class ParquetTable:
    """The contents of a file's footer.

    Attributes:
        names: names of the columns, in order.
        types: Arrow's names of the columns' types.
        group_rows: number of rows of each row group.
    """

    file: SourceFile
    names: tuple[str, ...]
    types: tuple[str, ...]
    group_rows: tuple[int, ...]

    @classmethod
    def open(cls, file: SourceFile) -> ParquetTable:
        """Read the footer.

        Raises:
            InputError: the file is not a Parquet file, or is damaged.
        """
        with _opened(file) as parquet:
            schema, metadata = parquet.schema_arrow, parquet.metadata
            rows = tuple(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
            return cls(file, tuple(schema.names), tuple(str(kind) for kind in schema.types), rows)

    @property
    def num_rows(self) -> int:
        return sum(self.group_rows)

    @cached_property
    def first_rows(self) -> tuple[int, ...]:
        """First row of each row group, and at the end the number of rows."""
        return tuple(accumulate(self.group_rows, initial=0))

    def check_columns(self, names: Sequence[str], kinds: str) -> None:
        """Check that columns exist and have suitable types.

        Args:
            kinds: ``iu`` allows integers, ``iuf`` also floats, ``iufb`` also booleans, ``iuft`` also dates, ``ius``
                integers and text.

        Raises:
            InputError: a column is missing or has another type; the message names the file, the column and its type.
        """
        for name in names:
            if self.names.count(name) != 1:
                there = ", ".join(self.names)
                raise InputError(f"{self.file.location}: expected one column {name!r}; the columns are {there}")
            found = self.types[self.names.index(name)]
            if not any(found.startswith(_PREFIXES[kind]) for kind in kinds):
                what = {"iu": "integers", "ius": "integers or text"}.get(kinds, "numbers")
                hint = _INTEGERS if kinds == "ius" and found.startswith((*_PREFIXES["f"], "decimal")) else ""
                raise InputError(f"{self.file.location}, column {name}: expected {what}, found {found}{hint}")

    def holds(self, name: str, kinds: str) -> bool:
        """Whether :meth:`check_columns` allows the type of a column."""
        return self.types[self.names.index(name)].startswith(tuple(each for kind in kinds for each in _PREFIXES[kind]))

    def holds_text(self, name: str) -> bool:
        """Whether a column contains strings or bytes."""
        return self.types[self.names.index(name)].startswith(_PREFIXES["s"])

    def holds_numbers(self, name: str) -> str:
        """``number`` or ``list`` if a column contains numbers or lists of numbers; empty for anything else."""
        found = self.types[self.names.index(name)]
        numbers = tuple(prefix for kind in "iufb" for prefix in _PREFIXES[kind])
        item = re.fullmatch(r"(?:large_list|fixed_size_list|list)<\w+: (.*?)(?: not null)?>(?:\[\d+\])?", found)
        if item is not None:
            return "list" if item[1].startswith(numbers) else ""
        return "number" if found.startswith((*numbers, "decimal", "null")) else ""

    def read(
        self, columns: Sequence[str], groups: Sequence[int], rows: int
    ) -> Iterator[tuple[int, tuple[NDArray[Any], ...]]]:
        """Like :meth:`read_arrow`, but with NumPy arrays of shape (num_rows,)."""
        for first, values in self.read_arrow(columns, groups, rows):
            yield first, tuple(column.to_numpy(zero_copy_only=False) for column in values)

    def read_arrow(
        self, columns: Sequence[str], groups: Sequence[int], rows: int, *, nulls: bool = False
    ) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Read columns of consecutive row groups as Arrow arrays.

        Args:
            nulls: whether values may be null.

        Yields:
            The first row of a block of at most ``rows`` rows, and its columns, (num_rows,) each.

        Raises:
            InputError: the data is damaged, or a value is null and must not be; the message names the column and the
                row.
        """
        first = self.first_rows[groups[0]] if groups else 0
        with _opened(self.file) as parquet:
            self._check_text(parquet.metadata, columns, groups)
            # A dictionary of a few bytes may stand for gigabytes of text, which is seen only when it is decoded.
            has_text = any(name in self.names and self.holds_text(name) for name in columns)
            step = min(rows, _TEXT_ROWS) if has_text else rows
            found_batches = parquet.iter_batches(batch_size=step, row_groups=list(groups), columns=list(columns))
            batches = _joined(found_batches, rows, step) if has_text else found_batches
            while (batch := _next(batches, self.file)) is not None:
                found = tuple(batch.column(name) for name in columns)
                if not nulls:
                    found = tuple(map(self._checked, columns, found, [first] * len(columns)))
                yield first, found
                first += batch.num_rows

    def _check_text(self, metadata: Any, columns: Sequence[str], groups: Sequence[int]) -> None:
        """Refuse text that Arrow would need far more memory for than the file has: cells are read as a whole."""
        texts = [name for name in columns if name in self.names and self.holds_text(name)]
        for group in groups if texts else ():
            # All columns count, because Arrow's metadata of a column ends the process if the column's statistics are
            # damaged. Other columns may have long cells, such as pictures, which hardly shrink when they are stored.
            cells, size = self.group_rows[group] * metadata.num_columns, metadata.row_group(group).total_byte_size
            if size > cells * _LONGEST_CELL + _BUFFER and size > _MOST_EXPANSION * (self.file.size or 0):
                raise self.error(texts[0], self.first_rows[group], "expected text of at most 1 MiB, found more")

    def _checked(self, name: str, column: Any, first: int) -> Any:
        if column.null_count:
            row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise self.error(name, first + row, "expected a value, found null")
        return column

    def error(self, column: str, row: int, reason: str) -> InputError:
        """The error for one value."""
        return InputError(f"{self.file.location}, column {column}, row {row:,}: {reason}")


@contextmanager
def _opened(file: SourceFile) -> Iterator[Any]:
    import pyarrow as pa  # noqa: PLC0415 - only Parquet files need it
    import pyarrow.parquet as pq  # noqa: PLC0415

    with file.open_stored() as stored:
        try:
            metadata = pq.read_metadata(stored)
            # Prebuffering would load whole row groups, whose size the writer of the file chose. A buffer grows to the
            # size of each page, which a damaged page may state as 2 GiB, so that small groups are read without one.
            size = _BUFFER if _largest_group(metadata, stored) > _SMALL_GROUP else 0
            parquet = pq.ParquetFile(stored, metadata=metadata, buffer_size=size, pre_buffer=False)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _damaged(file, error) from error
        with parquet:
            yield parquet


def _largest_group(metadata: Any, stored: Any) -> int:
    """Bytes of the largest row group before compression; at least the stored bytes of an average row group."""
    groups = range(metadata.num_row_groups)
    # Some writers state a size of 0.
    average = stored.seek(0, 2) // max(1, len(groups))
    largest: int = max([average, *(metadata.row_group(group).total_byte_size for group in groups)])
    return largest


def _joined(batches: Iterator[Any], rows: int, step: int) -> Iterator[Any]:
    """Batches of at most ``rows`` rows, from batches of ``step`` rows, with text instead of dictionaries of text."""
    import pyarrow as pa  # noqa: PLC0415

    held: list[Any] = []
    count = size = 0
    for batch in batches:
        plain = pa.RecordBatch.from_arrays([_decoded(column) for column in batch.columns], names=batch.schema.names)
        held.append(plain)
        count, size = count + plain.num_rows, size + plain.nbytes
        if count + step > rows or size > _TEXT_BYTES:
            yield pa.Table.from_batches(held).combine_chunks().to_batches()[0]
            held, count, size = [], 0, 0
    if count:
        yield pa.Table.from_batches(held).combine_chunks().to_batches()[0]


def _decoded(column: Any) -> Any:
    """The text of a column of a dictionary of text; other columns as they are."""
    import pyarrow as pa  # noqa: PLC0415

    if not (pa.types.is_dictionary(column.type) and not pa.types.is_integer(column.type.value_type)):
        return column
    # Offsets of 64 bits hold any text.
    return column.dictionary.cast(pa.large_binary()).take(column.indices)


def _next(batches: Iterator[Any], file: SourceFile) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    try:
        return next(batches, None)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(file, error) from error


def _damaged(file: SourceFile, error: Exception) -> InputError:
    check_is_of_content(error, file.location)
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return InputError(
        f"{file.location}: not a Parquet file, truncated, damaged, or on a server that cannot send ranges of bytes"
        f" ({reason})"
    )
