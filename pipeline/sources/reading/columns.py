"""Text files with one column or a table of numbers, read in blocks of rows that know their lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.label_values import EXPECTED_BINARY, EXPECTED_TARGET, binary_labels, targets
from gnnloom.pipeline.sources.reading.lines import bad_line, whole_lines
from gnnloom.pipeline.sources.reading.numerals import REASONS
from gnnloom.pipeline.sources.reading.parse import parse_ids, parse_table
from gnnloom.storage.artifacts.vertices import NO_LABEL
from gnnloom.storage.errors import InputError

#: Bytes of text parsed at a time.
BLOCK_BYTES = 4 << 20
_MAX_LABEL = np.iinfo(np.int32).max - 1


@dataclass(frozen=True)
class RowStart:
    """Where reading begins: a line's offset in the file's contents, in bytes, and the number of the row in it.

    The offset must be 0 unless the file is seekable.
    """

    offset: int = 0
    row: int = 0


#: The start of a file.
BEGINNING = RowStart()


@dataclass(frozen=True)
class RowBlock:
    """Consecutive rows of a text file.

    Attributes:
        first: number of the first row.
        values: (num_rows,) or (num_rows, num_columns); the dtype depends on the reader.
        line_at: (num_rows,) int64, offset of each row's line in the file's contents, in bytes.
    """

    file: SourceFile
    first: int
    values: NDArray[Any]
    line_at: NDArray[np.int64]

    def error(self, row: int, reason: str) -> InputError:
        """The error for a row of this block."""
        return bad_line(self.file, int(self.line_at[row]), reason)


def read_ids(file: SourceFile, begin: RowStart = BEGINNING, *, block_bytes: int = BLOCK_BYTES) -> Iterator[RowBlock]:
    """Read one id per line.

    Yields:
        Blocks with (num_rows,) int64 values.

    Raises:
        InputError: a line is not an id; the message names the line.
    """
    first = begin.row
    for offset, text in whole_lines(file, begin.offset, block_bytes=block_bytes):
        # A line has at least a digit and a line feed.
        most = len(text) // 2 + 1
        ids, line_at = np.empty(most, np.int64), np.empty(most, np.int64)
        count, at, wrong = parse_ids(text, ids, line_at)
        if wrong:
            raise bad_line(file, offset + at, REASONS[wrong])
        yield RowBlock(file, first, ids[:count], line_at[:count] + offset)
        first += count


def read_table(
    file: SourceFile,
    num_columns: int,
    dtype: type[np.floating[Any]],
    begin: RowStart = BEGINNING,
    *,
    missing: bool = False,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[RowBlock]:
    """Read rows of decimal numbers, parsed as doubles and then rounded to ``dtype``.

    Args:
        missing: whether NaN is allowed.

    Yields:
        Blocks with (num_rows, num_columns) values of ``dtype``.

    Raises:
        InputError: a row has a different width, or a value is not a finite number; the message names the line.
    """
    first = begin.row
    for offset, text in whole_lines(file, begin.offset, block_bytes=block_bytes):
        # A number takes at least a digit and a separator or line feed.
        most = len(text) // (2 * num_columns) + 1
        values, line_at = np.empty((most, num_columns), dtype), np.empty(most, np.int64)
        count, at, wrong = parse_table(text, missing, values, line_at)
        if wrong:
            raise bad_line(file, offset + at, f"{REASONS[wrong]} (row {first + count:,} of {num_columns} columns)")
        yield RowBlock(file, first, values[:count], line_at[:count] + offset)
        first += count


def read_labels(file: SourceFile, begin: RowStart = BEGINNING) -> Iterator[RowBlock]:
    """Read one class per line: an integer, a float without a fraction, or NaN or -1 for no label.

    Yields:
        Blocks with (num_rows,) int32 values; -1 for no label.

    Raises:
        InputError: a label is not a class or is out of range; the message names the line.
    """
    for block in read_table(file, 1, np.float64, begin, missing=True):
        labels = np.where(np.isnan(block.values[:, 0]), NO_LABEL, block.values[:, 0])
        wrong = (labels != np.floor(labels)) | (labels < NO_LABEL) | (labels > _MAX_LABEL)
        if wrong.any():
            reason = f"expected a class from 0 to {_MAX_LABEL:,}, or -1 or nan for no label"
            if bool((labels != np.floor(labels)).any()):
                reason += "; give numbers to predict as the target"
            raise block.error(int(np.argmax(wrong)), reason)
        yield RowBlock(file, block.first, labels.astype(np.int32), block.line_at)


def read_multilabels(file: SourceFile, num_columns: int, begin: RowStart = BEGINNING) -> Iterator[RowBlock]:
    """Read rows of zeros and ones, with -1 or NaN for unknown labels.

    Yields:
        Blocks with (num_rows, num_columns) int8 values; -1 for unknown.

    Raises:
        InputError: a row has a different width or another value; the message names the line.
    """
    for block in read_table(file, num_columns, np.float32, begin, missing=True):
        rows, wrong = binary_labels(block.values)
        if wrong >= 0:
            raise block.error(wrong, EXPECTED_BINARY)
        yield RowBlock(file, block.first, rows, block.line_at)


def read_targets(file: SourceFile, num_columns: int, begin: RowStart = BEGINNING) -> Iterator[RowBlock]:
    """Read rows of numbers to predict, with NaN for unknown.

    Yields:
        Blocks with (num_rows, num_columns) float32 values.

    Raises:
        InputError: a row has a different width, or a number is infinite; the message names the line.
    """
    for block in read_table(file, num_columns, np.float64, begin, missing=True):
        rows, wrong = targets(block.values)
        if wrong >= 0:
            raise block.error(wrong, EXPECTED_TARGET)
        yield RowBlock(file, block.first, rows, block.line_at)


def count_columns(file: SourceFile) -> int:
    """Number of columns of the first line that is not blank; 0 if all lines are."""
    with file.open() as stream:
        for line in stream:
            text = line.replace(b",", b" , ").split()
            if text:
                return sum(field != b"," for field in text)
    return 0


def read_count(file: SourceFile) -> int:
    """Read the only number in a file.

    Raises:
        InputError: the file has no number, or several (a dataset of many graphs).
    """
    found = np.concatenate([np.empty(0, np.int64), *(block.values for block in read_ids(file))])
    if len(found) != 1:
        raise InputError(f"{file.location}: expected one number for one graph, found {len(found):,}")
    return int(found[0])
