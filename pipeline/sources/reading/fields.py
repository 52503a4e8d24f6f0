"""Text in which other fields than the first ones, or fields between other separators, are ids: put into the usual form.

The chosen fields of each line are copied, with tabs between them, so that the same parsers read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.lines import bad_line
from gnnloom.pipeline.sources.reading.numerals import (
    COMMA,
    EXTRA,
    FEED,
    NO_ID,
    POINT,
    QUOTE,
    REASONS,
    SPACE,
    TAB,
    TOO_FEW,
    is_blank,
    is_end,
    next_line,
    skip_blanks,
)
from gnnloom.pipeline.sources.reading.times import TimeForm, parse_time

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
            that of the file.
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
) -> Iterator[TextBlock]:
    """Copy some fields of each line.

    Args:
        blocks: offset and whole lines of every block.
        separator: what is between fields; a space stands for runs of blanks.
        fields: numbers of the fields, from 0, in the order in which they are wanted; none for all.
        comments: bytes that begin comments.
        decimal: ``,`` for a third field that has decimal commas, which become points.
        times: how the times in the third field are written, if they are dates; they are parsed rather than copied.
        extra_columns: with times, whether lines may have more fields than three.
        refused: bytes that parsers of lines take for separators, and that ids without quotes must not have.

    Raises:
        InputError: a line has too few fields or too many, a time that is written in another way, or an id with one of
            the bytes that it must not have.
    """
    between, begins, within = (np.frombuffer(each, np.uint8) for each in (separator, comments, refused))
    for offset, block in blocks:
        most = len(block) // _SHORTEST_LINE + 1
        out = np.empty(len(block) * max(2, len(fields)) + 1, np.uint8)
        lines, spans = (
            np.empty((2, most), np.int64),
            np.empty((max(fields, default=MOST_FIELDS) + 1 + (times is not None), 2), np.int64),
        )
        wanted = np.array(fields, np.int64)
        ticks = None if times is None else np.empty(most, np.int64)
        form = (0, False) if times is None else (times.digits, times.has_zone)
        copied = between, wanted, begins, within, decimal == ",", *form, extra_columns, spans, out, lines, ticks
        count, size, at, wrong = _copy_fields(block, *copied)
        if wrong == NO_ID:
            byte = "a tab" if TAB in block[slice(*spans[-1])] else "a comma or a blank"
            raise bad_line(file, offset + at, f"{byte} within an id, between fields that something else separates")
        if wrong in {TOO_FEW, EXTRA}:
            raise bad_line(file, offset + at, REASONS[wrong])
        if wrong and times is not None:
            cell = block[slice(*spans[wanted[2]])].tobytes().decode("utf-8", "replace").strip('"')
            raise bad_line(file, offset + at, times.reason(wrong - _TIME_FAULTS, cell))
        lines[1, :count] += offset
        yield TextBlock(out[:size], offset, lines[:, :count], None if ticks is None else ticks[:count])


@njit(cache=True, nogil=True)
def _is_separator(text: Any, at: int, separator: Any) -> bool:
    """Whether a separator begins here; the line feed at the end of a buffer is part of none."""
    if separator.size == 1 and separator[0] == SPACE:
        return is_blank(text[at])
    same = 0
    while same < separator.size and text[at + same] == separator[same]:
        same += 1
    return bool(same == separator.size)


@njit(cache=True, nogil=True)
def _has_any(text: Any, first: int, stop: int, refused: Any) -> bool:
    """Whether a field without quotes has one of some bytes."""
    if refused.size and text[first] != QUOTE:
        for k in range(first, stop):
            for byte in refused:
                if text[k] == byte:
                    return True
    return False


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _copy_fields(
    text: Any,
    separator: Any,
    fields: Any,
    comments: Any,
    refused: Any,
    decimal: bool,
    digits: int,
    has_zone: bool,
    extra: bool,
    spans: Any,
    out: Any,
    lines: Any,
    ticks: Any,
) -> tuple[int, int, int, int]:
    """Copy fields of all lines that are neither blank nor comments.

    Args:
        refused: bytes that ids without quotes must not have.
        decimal: whether commas in the third field become points.
        digits, has_zone: of :func:`parse_time`.
        extra: whether lines with times may have further fields.
        ticks: (max_lines,) int64, gets the times in the third field, which is not copied; None to copy it.

    Returns:
        The number of lines and of bytes, where the line begins that is wrong (-1: none), and its fault.
    """
    at, count, size = 0, 0, 0
    while at < len(text):
        line = at
        at = skip_blanks(text, at)
        is_comment = False
        for byte in comments:
            is_comment |= text[at] == byte
        if not (is_end(text, at) or is_comment):
            found = _find_fields(text, line, separator, spans)
            lines[0, count], lines[1, count] = size, line
            count += 1
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
                    out[size] = POINT if decimal and number == 2 and text[k] == COMMA else text[k]
                    size += 1
            out[size] = FEED
            size += 1
        at = next_line(text, at)
    return count, size, -1, 0
