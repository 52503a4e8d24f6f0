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
    FEED,
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
    """

    text: NDArray[np.uint8]
    offset: int
    lines: NDArray[np.int64] | None = None

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
) -> Iterator[TextBlock]:
    """Copy some fields of each line.

    Args:
        blocks: offset and whole lines of every block.
        separator: what is between fields; a space stands for runs of blanks.
        fields: numbers of the fields, from 0, in the order in which they are wanted; none for all.
        comments: bytes that begin comments.
        decimal: ``,`` for a third field that has decimal commas, which become points.

    Raises:
        InputError: a line has too few fields.
    """
    between, begins = (np.frombuffer(each, np.uint8) for each in (separator, comments))
    for offset, block in blocks:
        most = len(block) // _SHORTEST_LINE + 1
        out = np.empty(len(block) * max(2, len(fields)) + 1, np.uint8)
        lines, spans = np.empty((2, most), np.int64), np.empty((max(fields, default=MOST_FIELDS) + 1, 2), np.int64)
        wanted = np.array(fields, np.int64)
        count, size, at = _copy_fields(block, between, wanted, begins, decimal == ",", spans, out, lines)
        if at >= 0:
            raise bad_line(file, offset + at, REASONS[TOO_FEW])
        lines[1, :count] += offset
        yield TextBlock(out[:size], offset, lines[:, :count])


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
    text: Any, separator: Any, fields: Any, comments: Any, decimal: bool, spans: Any, out: Any, lines: Any
) -> tuple[int, int, int]:
    """Copy fields of all lines that are neither blank nor comments.

    Args:
        decimal: whether commas in the third field become points.

    Returns:
        The number of lines and of bytes, and where the line begins that has too few fields (-1: none).
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
                    return count, size, line
                if number:
                    out[size] = TAB
                    size += 1
                for k in range(spans[chosen, 0], spans[chosen, 1]):
                    out[size] = POINT if decimal and number == 2 and text[k] == COMMA else text[k]
                    size += 1
            out[size] = FEED
            size += 1
        at = next_line(text, at)
    return count, size, -1
