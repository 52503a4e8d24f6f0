"""Text in which other fields than the first ones, or fields between other separators, are ids: put into the usual form.

The chosen fields of each line are copied, with tabs between them, so that the same parsers read them. Cells of vertex
tables, which hold numbers, lists or words, are parsed where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.parsers.name_parser import is_missing
from gnnloom.pipeline.sources.parsers.numerals import (
    BLANK_WITHIN,
    COMMA,
    EXTRA,
    FEED,
    LOWER,
    NO_ID,
    NO_NUMBER,
    POINT,
    QUOTE,
    REASONS,
    SEMICOLON,
    SPACE,
    TAB,
    TOO_FEW,
    TOO_MANY,
    is_blank,
    is_end,
    next_line,
    parse_number,
    parse_value,
    skip_blanks,
)
from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.lines import bad_line
from gnnloom.pipeline.sources.reading.times import TimeForm, parse_time
from gnnloom.storage.kernels import kernel

#: Faults of times are numbered from here on.
_TIME_FAULTS: Final = 200
#: Separators that parsers of lines know; between others, fields are found first.
PLAIN: Final = frozenset({b" ", b"\t", b","})
#: Length of the shortest line: a character and a line feed.
_SHORTEST_LINE = 2
#: Fields of a line that are looked at if all are wanted: more than parsers take.
MOST_FIELDS = 15


@dataclass(frozen=True)
class TextBlock:
    """Whole lines, as parsers read them.

    Attributes:
        text: (num_bytes,) uint8.
        offset: of the block in the file's contents.
        lines: (2, num_lines) int64 where each line begins in the text and in the file's contents; None if the text is
            the text of the file.
        ticks: (num_lines,) int64 times of the lines, whose text has only two fields; None if they have none that are
            dates.
    """

    text: NDArray[np.uint8]
    offset: int
    lines: NDArray[np.int64] | None = None
    ticks: NDArray[np.int64] | None = None

    def place(self, at: int) -> int:
        """Offset, in the file's contents, of the line that begins at a byte of the text."""
        if self.lines is None:
            return self.offset + at
        return int(self.lines[1, np.searchsorted(self.lines[0], at, side="right") - 1])

    def places(self, at: NDArray[np.int64]) -> NDArray[np.int64]:
        """(num_lines,) int64 offsets, in the file's contents, of lines that begin at some bytes of the text."""
        if self.lines is None:
            return at + self.offset
        found: NDArray[np.int64] = self.lines[1, np.searchsorted(self.lines[0], at, side="right") - 1]
        return found


def chosen_fields(
    file: SourceFile,
    blocks: Iterable[tuple[int, NDArray[np.uint8]]],
    separator: bytes,
    fields: Sequence[int],
    *,
    comments: bytes = b"#%",
    decimal: str = ".",
    times: TimeForm | None = None,
    extra_columns: bool = True,
    refused: bytes = b"",
    valued: bool = False,
    width: int = 0,
) -> Iterator[TextBlock]:
    """Copy some fields of each line.

    Args:
        blocks: offset and whole lines of every block.
        separator: separator of fields; a space stands for runs of blanks.
        fields: numbers of the fields, from 0, in the order in which they are wanted; none for all.
        comments: bytes that begin comments.
        decimal: ``,`` for a third field that has decimal commas, which become points.
        times: how the times in the third field are written, if they are dates; they are parsed rather than copied.
        extra_columns: with times, whether lines may have more fields than three.
        refused: bytes that parsers of lines take for separators, and that ids without quotes must not have.
        valued: the third field is a number, which has no blanks.
        width: number of fields of every line; 0 if lines may have others.

    Raises:
        InputError: a line has too few fields or too many, a time that is written in another way, a number with a blank,
            or an id with one of the bytes that it must not have.
    """
    between, begins, within = (np.frombuffer(each, np.uint8) for each in (separator, comments, refused))
    for offset, block in blocks:
        most = len(block) // _SHORTEST_LINE + 1
        out = np.empty(len(block) * max(2, len(fields)) + 1, np.uint8)
        lines, spans = (
            np.empty((2, most), np.int64),
            np.empty((max(max(fields, default=MOST_FIELDS), width) + 1 + (times is not None), 2), np.int64),
        )
        wanted = np.array(fields, np.int64)
        ticks = None if times is None else np.empty(most, np.int64)
        form = (0, False) if times is None else (times.digits, times.has_zone)
        copied = (
            between,
            wanted,
            begins,
            within,
            decimal == ",",
            valued,
            *form,
            extra_columns,
            width,
            spans,
            out,
            lines,
            ticks,
        )
        count, size, at, wrong = _copy_fields(block, *copied)
        if wrong == NO_ID:
            byte = "a tab" if TAB in block[slice(*spans[-1])] else "a comma or a blank"
            raise bad_line(file, offset + at, f"{byte} within an id, between fields that something else separates")
        if wrong in {TOO_FEW, EXTRA, BLANK_WITHIN}:
            hint = f"; expected {width}: name the columns to read with `--columns`" if width and wrong == EXTRA else ""
            raise bad_line(file, offset + at, REASONS[wrong] + hint)
        if wrong and times is not None:
            cell = block[slice(*spans[wanted[2]])].tobytes().decode("utf-8", "replace").strip('"')
            raise bad_line(file, offset + at, times.reason(wrong - _TIME_FAULTS, cell))
        lines[1, :count] += offset
        yield TextBlock(out[:size], offset, lines[:, :count], None if ticks is None else ticks[:count])


@kernel
def _is_separator(text: Any, at: int, separator: Any) -> bool:
    """Whether a separator begins here; the line feed at the end of a buffer is part of none."""
    if separator.size == 1 and separator[0] == SPACE:
        return is_blank(text[at])
    same = 0
    while same < separator.size and text[at + same] == separator[same]:
        same += 1
    return bool(same == separator.size)


@kernel
def _has_any(text: Any, first: int, stop: int, refused: Any) -> bool:
    """Whether a field without quotes has one of some bytes."""
    if refused.size and text[first] != QUOTE:
        for k in range(first, stop):
            for byte in refused:
                if text[k] == byte:
                    return True
    return False


@kernel
def _is_one_of(byte: int, signs: Any) -> bool:
    """Whether a byte is one of some signs."""
    found = False
    for sign in signs:
        found |= byte == sign
    return found


@kernel
def _find_fields(text: Any, at: int, separator: Any, spans: Any) -> int:
    """Find where the first fields of a line begin and end, without blanks around them; returns how many there are."""
    count, by_blanks = 0, separator.size == 1 and separator[0] == SPACE
    while count < len(spans):
        # A tab before an empty field separates it.
        while is_blank(text[at]) and (by_blanks or not _is_separator(text, at, separator)):
            at += 1
        first = at
        if text[at] == QUOTE:
            at += 1
            # Two quotes within a field stand for one.
            while not is_end(text, at) and not (text[at] == QUOTE and text[at + 1] != QUOTE):
                at += 2 if text[at] == QUOTE else 1
        while not is_end(text, at) and not _is_separator(text, at, separator):
            at += 1
        stop = at
        while stop > first and is_blank(text[stop - 1]):
            stop -= 1
        spans[count, 0], spans[count, 1] = first, stop
        count += 1
        if by_blanks:
            at = skip_blanks(text, at)
            if is_end(text, at):
                break
        elif is_end(text, at):
            break
        else:
            at += separator.size
    return count


@kernel
def _copy_fields(
    text: Any,
    separator: Any,
    fields: Any,
    comments: Any,
    refused: Any,
    decimal: bool,
    valued: bool,
    digits: int,
    has_zone: bool,
    extra: bool,
    width: int,
    spans: Any,
    out: Any,
    lines: Any,
    ticks: Any,
) -> tuple[int, int, int, int]:
    """Copy fields of all lines that are neither blank nor comments.

    Args:
        refused: bytes that ids without quotes must not have.
        decimal: whether commas in the third field become points.
        valued: whether blanks in the third field are a fault.
        digits, has_zone: of :func:`parse_time`.
        extra: whether lines with times may have further fields.
        width: number of fields of every line; 0 if lines may have others.
        ticks: (max_lines,) int64, gets the times in the third field, which is not copied; None to copy it.

    Returns:
        The number of lines and of bytes, where the line begins that is wrong (-1: none), and its fault.
    """
    at, count, size = 0, 0, 0
    while at < len(text):
        line = at
        at = skip_blanks(text, at)
        if not (is_end(text, at) or _is_one_of(text[at], comments)):
            found = _find_fields(text, line, separator, spans)
            lines[0, count], lines[1, count] = size, line
            count += 1
            if width and found != width:
                return count, size, line, EXTRA if found > width else TOO_FEW
            for number in range(fields.size or found):
                chosen = fields[number] if fields.size else number
                if chosen >= found:
                    return count, size, line, TOO_FEW
                if ticks is not None and number == 2:
                    if not extra and found > fields.size:
                        return count, size, line, EXTRA
                    first, stop = spans[chosen, 0], spans[chosen, 1]
                    ticks[count - 1], wrong = parse_time(text, first, stop, digits, has_zone)
                    if wrong:
                        return count, size, line, _TIME_FAULTS + wrong
                    continue
                if number:
                    out[size] = TAB
                    size += 1
                if number < 2 and _has_any(text, spans[chosen, 0], spans[chosen, 1], refused):
                    spans[-1] = spans[chosen]
                    return count, size, line, NO_ID
                for k in range(spans[chosen, 0], spans[chosen, 1]):
                    if valued and number == 2 and is_blank(text[k]):
                        return count, size, line, BLANK_WITHIN
                    out[size] = POINT if decimal and number == 2 and text[k] == COMMA else text[k]
                    size += 1
            out[size] = FEED
            size += 1
        at = next_line(text, at)
    return count, size, -1, 0


@kernel
def find_cells(
    text: Any, separator: Any, width: int, wanted: Any, comments: Any, cells: Any, line_at: Any
) -> tuple[int, int, int]:
    """Find where the cells of some columns begin and end, without quotes, in all lines that are rows.

    Blank lines are not rows, and neither are comments.

    Args:
        text: (num_bytes,) uint8, whole lines.
        separator: (num_bytes,) uint8; see :func:`chosen_fields`.
        width: fields that each line must have.
        wanted: (num_columns,) int64 numbers of the fields, from 0.
        comments: (num_signs,) uint8 bytes that begin comments.
        cells: (num_columns, max_rows, 2) int64, filled with the first byte of each cell and the one after its last.
        line_at: (max_rows,) int64, filled with the positions of the lines.

    Returns:
        Number of rows; position of the line that stopped the search; and its fault (0: none).
    """
    at, count, spans = 0, 0, np.empty((width + 1, 2), np.int64)
    while at < len(text):
        begin = skip_blanks(text, at)
        if not (is_end(text, begin) or _is_one_of(text[begin], comments)):
            found = _find_fields(text, at, separator, spans)
            if found != width:
                return count, at, TOO_FEW if found < width else TOO_MANY
            for column in range(wanted.size):
                first, stop = spans[wanted[column], 0], spans[wanted[column], 1]
                if stop - first > 1 and text[first] == QUOTE and text[stop - 1] == QUOTE:
                    first, stop = first + 1, stop - 1
                cells[column, count, 0], cells[column, count, 1] = first, stop
            line_at[count] = at
            count += 1
        at = next_line(text, at)
    return count, at, 0


@kernel
def copy_cells(text: Any, cells: Any, offset: Any, out: Any) -> int:
    """Copy cells one after the other; two double quotes within quotes become one. Returns the bytes of all copies.

    Args:
        cells: (num_rows, 2) int64 from :func:`find_cells`.
        offset: (num_rows + 1,) int64, filled with where each copy begins, and the end.
        out: (num_bytes,) uint8, filled with the copies.
    """
    size = 0
    for row in range(len(cells)):
        offset[row] = size
        at, stop = cells[row, 0], cells[row, 1]
        is_quoted = at > 0 and text[at - 1] == QUOTE
        while at < stop:
            at += is_quoted and text[at] == QUOTE and at + 1 < stop and text[at + 1] == QUOTE
            out[size] = text[at]
            size += 1
            at += 1
    offset[len(cells)] = size
    return size


@kernel
def _is_word(text: Any, first: int, stop: int, word: Any) -> bool:
    """Whether a cell is a word of lower-case letters, written in any case."""
    if stop - first != len(word):
        return False
    same = 0
    while same < stop - first and (np.int64(text[first + same]) | LOWER) == word[same]:
        same += 1
    return bool(same == len(word))


@kernel
def _trimmed(text: Any, first: int, stop: int) -> tuple[int, int]:
    while first < stop and is_blank(text[first]):
        first += 1
    while stop > first and is_blank(text[stop - 1]):
        stop -= 1
    return first, stop


@kernel
def _is_unknown(text: Any, first: int, stop: int) -> bool:
    """Whether a cell is empty or has a word for a missing value."""
    return bool(stop == first or is_missing(text, first, stop) or (stop - first == 1 and text[first] == ord("?")))


@kernel
def _parse_one(text: Any, first: int, stop: int) -> tuple[float, int]:
    """Parse a cell with a number, True or False; returns NaN for one that says that there is none, and the fault."""
    if _is_unknown(text, first, stop):
        return np.nan, 0
    value, after, wrong = parse_number(text, first)
    if not wrong and after == stop:
        return value, 0
    if _is_word(text, first, stop, (ord("t"), ord("r"), ord("u"), ord("e"))):
        return 1.0, 0
    if _is_word(text, first, stop, (ord("f"), ord("a"), ord("l"), ord("s"), ord("e"))):
        return 0.0, 0
    return np.nan, NO_NUMBER


@kernel
def _parse_list(text: Any, first: int, stop: int, row: Any) -> int:
    """Parse a cell with one number for each element of ``row``, perhaps in brackets; returns the fault (0: none)."""
    if text[first] == ord("[") or text[first] == ord("("):
        closing = ord("]") if text[first] == ord("[") else ord(")")
        if text[stop - 1] != closing:
            return NO_NUMBER
        first, stop = first + 1, stop - 1
    at, count = first, 0
    while True:
        at = skip_blanks(text, at)
        if at >= stop:
            break
        end = at
        while end < stop and not (is_blank(text[end]) or text[end] == COMMA or text[end] == SEMICOLON):
            end += 1
        if count == row.size:
            return TOO_MANY
        row[count], wrong = _parse_one(text, at, end)
        if wrong:
            return wrong
        count += 1
        at = skip_blanks(text, end)
        at += at < stop and (text[at] == COMMA or text[at] == SEMICOLON)
    return 0 if count == row.size else TOO_FEW


@kernel
def parse_cells(text: Any, cells: Any, is_list: bool, values: Any) -> tuple[int, int]:
    """Parse the cells of a column of numbers, or of lists of numbers.

    Args:
        text: (num_bytes,) uint8 that ends with a line feed.
        cells: (num_rows, 2) int64 from :func:`find_cells`.
        values: (num_rows, width) float64, filled with the numbers; NaN where there is none.

    Returns:
        The first row that cannot be read, and its fault; -1 and 0 if there is none.
    """
    for row in range(len(cells)):
        first, stop = _trimmed(text, cells[row, 0], cells[row, 1])
        if not is_list:
            values[row, 0], wrong = _parse_one(text, first, stop)
        elif stop == first or is_missing(text, first, stop):
            values[row], wrong = np.nan, 0
        else:
            wrong = _parse_list(text, first, stop, values[row])
        if wrong:
            return row, wrong
    return -1, 0


@kernel
def parse_exact(text: Any, cells: Any, values: Any) -> tuple[int, int]:
    """Parse the cells of a column of times that are numbers, which a double must hold with all their digits.

    Args:
        text: (num_bytes,) uint8 that ends with a line feed.
        cells: (num_rows, 2) int64 from :func:`find_cells`.
        values: (num_rows,) float64, filled with the numbers; NaN where there is none.

    Returns:
        The first row that cannot be read, and its fault; -1 and 0 if there is none.
    """
    for row in range(len(cells)):
        first, stop = _trimmed(text, cells[row, 0], cells[row, 1])
        if _is_unknown(text, first, stop):
            values[row] = np.nan
            continue
        values[row], after, wrong = parse_value(text, first, True)
        if wrong or after != stop:
            return row, wrong or NO_NUMBER
    return -1, 0


@kernel
def parse_dates(text: Any, cells: Any, digits: int, has_zone: bool, ticks: Any, missing: Any) -> tuple[int, int]:
    """Parse the cells of a column of times that are dates or whole numbers.

    Args:
        text: (num_bytes,) uint8 that ends with a line feed.
        cells: (num_rows, 2) int64 from :func:`find_cells`.
        digits, has_zone: of :func:`~gnnloom.pipeline.sources.reading.times.parse_time`.
        ticks: (num_rows,) int64, filled with the times.
        missing: (num_rows,) bool, filled with whether there is none.

    Returns:
        The first row that cannot be read, and its fault; -1 and 0 if there is none.
    """
    for row in range(len(cells)):
        first, stop = _trimmed(text, cells[row, 0], cells[row, 1])
        missing[row] = _is_unknown(text, first, stop)
        if not missing[row]:
            ticks[row], wrong = parse_time(text, first, stop, digits, has_zone)
            if wrong:
                return row, wrong
    return -1, 0
