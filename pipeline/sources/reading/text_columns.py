"""Text files with one column or a table of numbers, read in blocks of rows that know their lines."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.parsers.numerals import NO_NUMBER, REASONS, word_numbers
from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.lines import bad_line, count_data_lines, whole_lines
from gnnloom.pipeline.sources.reading.parse import parse_ids, parse_table
from gnnloom.pipeline.sources.reading.text_layout import Sample, Stated, has_names, row_blocks
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import VertexArray
from gnnloom.storage.wording import counted

#: Bytes of text parsed at a time.
BLOCK_BYTES = 4 << 20
#: Bytes of a local, uncompressed file after which the number of the row is kept, and threads that count rows.
_INDEX_BYTES, _THREADS = 32 << 20, 4


@dataclass(frozen=True)
class RowStart:
    """Start of reading: a line's offset in the file's contents, in bytes, and the number of the row there.

    The offset must be 0 unless the file is seekable.
    """

    offset: int = 0
    row: int = 0


#: The start of a file.
BEGINNING = RowStart()


@dataclass(frozen=True)
class RowIndex:
    """Places to start reading in a file with a row in every line that is not blank.

    Attributes:
        starts: ascending; the first is the beginning of the file, and a compressed or remote file has only that one.
        num_rows: rows of the file; None if they were not counted.
    """

    starts: tuple[RowStart, ...] = (BEGINNING,)
    num_rows: int | None = None

    def before(self, row: int) -> RowStart:
        """The last place to begin at for reading a row."""
        after = bisect_right(self.starts, row, key=lambda start: start.row)
        return self.starts[max(0, after - 1)]


def index_rows(file: SourceFile, first_row: int = 0) -> RowIndex:
    """Count the rows of a local, uncompressed file in ranges, as fast as the disk reads it; others are not counted.

    Args:
        first_row: offset of the first row in the file's contents, in bytes.
    """
    if not file.is_seekable:
        return RowIndex()
    bounds = [*range(0, file.size or 0, _INDEX_BYTES), file.size or 0]
    with ThreadPoolExecutor(_THREADS) as threads:
        counted = threads.map(lambda span: count_rows(file, *span, first_row=first_row), pairwise(bounds))
        counts = list(counted)
    rows = list(accumulate(counts, initial=0))
    # A line belongs to the range in which it begins, so reading at a bound begins with the first line after it.
    starts = tuple(RowStart(*start) for start in zip(bounds, rows, strict=True))[:-1]
    return RowIndex(starts or (BEGINNING,), rows[-1])


def count_rows(file: SourceFile, start: int = 0, stop: int | None = None, *, first_row: int = 0) -> int:
    """Count the rows that begin in a range of bytes; by default, all rows."""
    return count_data_lines(row_blocks(file, first_row, start, stop), has_comments=False)


@dataclass(frozen=True)
class TextRows:
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


def read_ids(file: SourceFile, *, block_bytes: int = BLOCK_BYTES) -> Iterator[TextRows]:
    """Read one id per line.

    Yields:
        Blocks with (num_rows,) int64 values.

    Raises:
        InputError: a line is not an id; the message names the line.
    """
    first = 0
    for offset, text in whole_lines(file, block_bytes=block_bytes):
        # A line has at least a digit and a line feed.
        most = len(text) // 2 + 1
        ids, line_at = np.empty(most, np.int64), np.empty(most, np.int64)
        count, at, wrong = parse_ids(text, ids, line_at)
        if wrong:
            raise bad_line(file, offset + at, REASONS[wrong])
        yield TextRows(file, first, ids[:count], line_at[:count] + offset)
        first += count


def read_table(
    file: SourceFile,
    num_columns: int,
    dtype: type[np.floating[Any]],
    begin: RowStart = BEGINNING,
    *,
    first_row: int = 0,
    missing: bool = False,
    words: Mapping[str, int] | None = None,
    hint: str = "",
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[TextRows]:
    """Read rows of decimal numbers, parsed as doubles and then rounded to ``dtype``.

    Args:
        first_row: offset of the first row in the file's contents, in bytes.
        missing: whether NaN is allowed, and stands for an empty cell between commas.
        words: words that cells may hold instead of numbers, and their values.
        hint: remedy for a cell that is not a number.

    Yields:
        Blocks with (num_rows, num_columns) values of ``dtype``.

    Raises:
        InputError: a row has a different width, or a value is not a finite number; the message names the line.
    """
    first, known = begin.row, words or {}
    of_words = word_numbers(known), np.array(list(known.values()), np.float64)
    for offset, text in row_blocks(file, first_row, begin.offset, block_bytes=block_bytes):
        # A number takes at least a digit and a separator or line feed.
        most = len(text) // (2 * num_columns) + 1
        values, line_at = np.empty((most, num_columns), dtype), np.empty(most, np.int64)
        count, at, wrong = parse_table(text, missing, *of_words, values, line_at)
        if wrong:
            reason = f"{REASONS[wrong]} (row {first + count:,} of {counted(num_columns, 'column')})"
            raise bad_line(file, offset + at, reason + (hint if wrong == NO_NUMBER else ""))
        yield TextRows(file, first, values[:count], line_at[:count] + offset)
        first += count


def read_array(
    file: SourceFile, array: VertexArray, num_columns: int, begin: RowStart = BEGINNING, *, first_row: int = 0
) -> Iterator[TextRows]:
    """Read rows of an array of vertex data.

    Args:
        first_row: offset of the first row in the file's contents, in bytes.

    Yields:
        Blocks with values as :meth:`VertexArray.convert` returns them.

    Raises:
        InputError: a row has a different width, or the array cannot hold a value; the message names the line.
    """
    dtype = np.float32 if array.dtype == np.float32 else np.float64
    hint = "; number the classes from 0" if array.below else ""
    hint += f", or one of {', '.join(array.words)}" if array.words else ""
    cells: dict[str, Any] = {"missing": array.takes_nan, "words": array.words, "hint": hint}
    for block in read_table(file, num_columns, dtype, begin, first_row=first_row, **cells):
        rows, wrong = array.convert(block.values)
        if wrong is not None:
            raise block.error(wrong[0], f"expected {array.expected}")
        yield TextRows(file, block.first, rows, block.line_at)


def read_sample(file: SourceFile, header: bool | None = None) -> Sample:
    """The first lines that are not blank of a file of numbers.

    Raises:
        InputError: the file cannot be read.
    """
    return Sample.of(file, Stated(header, separator=b",", comment="none"))


def count_columns(file: SourceFile) -> int:
    """Number of columns of the first line that is not blank; 0 if all lines are."""
    return next((len(cells_of(row.text)) for row in read_sample(file).rows), 0)


def cells_of(line: str) -> list[str]:
    """The cells of a line that is not blank; those between two commas may be empty."""
    parts = [part.split() or [""] for part in line.removesuffix(",").split(",")]
    return [cell.strip('"') for part in parts for cell in part]


def names_columns(sample: Sample, array: VertexArray) -> bool:
    """Whether the first line that is not blank names columns: it, and not the next, has a cell that the array has not.

    Where the next line has one as well, the first is read like all others, and reported.
    """
    first, second = (*(cells_of(row.text) for row in sample.rows[:2]), [], [])[:2]
    # A comment is not a header: such files have none, so it is an error.
    is_comment = "".join(first[:1]).startswith(("#", "%"))
    return not is_comment and has_names(first, array) and not has_names(second, array)


def first_row_below(sample: Sample) -> int:
    """Offset of the row below a header, which comments may precede."""
    ends = [row.stop for row in sample.rows if row.text[0] not in "#%"]
    return ends[0] if ends else max((row.stop for row in sample.rows), default=0)


def read_count(file: SourceFile) -> int:
    """Read the only number in a file.

    Raises:
        InputError: the file has no number, or several (a dataset of many graphs).
    """
    found = np.concatenate([np.empty(0, np.int64), *(block.values for block in read_ids(file))])
    if len(found) != 1:
        raise InputError(f"{file.location}: expected one number for one graph, found {len(found):,}")
    return int(found[0])
