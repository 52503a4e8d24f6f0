"""Line parsers for text: edges, columns of ids and tables of numbers.

Each stops at the first faulty line and returns its position and fault. All rely on whole lines: the line feed at the
end of the buffer ends every inner loop without a bounds check.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.parsers.numerals import (
    BEYOND,
    COMMA,
    DECIMAL_COMMA,
    EMPTY,
    EXTRA,
    FEED,
    FLOAT32_LIMIT,
    HASH,
    NO_ID,
    NO_NUMBER,
    NOT_FINITE,
    ONE_ID,
    PERCENT,
    REASONS,
    TOO_FEW,
    TOO_MANY,
    ZERO,
    has_byte,
    is_blank,
    is_end,
    next_line,
    parse_cell,
    parse_id,
    parse_number,
    parse_value,
    parse_vertex,
    skip_blanks,
    skip_separator,
    up_to_eight_digits,
)
from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.lines import bad_line, line_of_edge
from gnnloom.storage.kernels import kernel

#: Length of the shortest line with an edge: two digits, a separator and a line feed.
_SHORTEST_LINE = 4
#: Number of bytes that :func:`_plain_pair` may look at: two ids of eight digits, a separator, CR, LF and slack.
_PLAIN_BYTES = 24


@kernel
def _parse_value(text: Any, at: int, extra: bool, exact: bool) -> tuple[float, int, int]:
    """Parse what follows the two ids; returns the value, a position in the rest of the line, and the fault."""
    after = skip_separator(text, at)
    if after == at or is_end(text, after):
        return 1.0, at, TOO_FEW
    is_separated = has_byte(text, at, after, COMMA)
    value, at, wrong = parse_value(text, after, exact)
    # Where something else separates the fields, a comma is part of the number.
    if not wrong and text[at] == COMMA and not is_separated:
        wrong = DECIMAL_COMMA
    if wrong:
        return value, at, wrong
    at, wrong = _skip_rest(text, at, extra, NO_NUMBER)
    return value, at, wrong


@kernel
def _skip_rest(text: Any, at: int, extra: bool, unfinished: int) -> tuple[int, int]:
    """Check what follows the last field that counts; returns a position in the rest of the line, and the fault.

    Args:
        unfinished: the fault if the field goes on without a separator.
    """
    after = skip_separator(text, at)
    if is_end(text, after):
        return after, 0
    if after == at:
        return at, unfinished
    return after, 0 if extra else EXTRA


@kernel
def _parse_pair(text: Any, at: int, last_id: int, strict: bool) -> tuple[int, int, int, int]:
    """Parse two ids; returns them, the position after them, and the fault (0: none)."""
    source, at, wrong = parse_vertex(text, at, strict)
    if wrong:
        return 0, 0, at, wrong
    # No separator and more text means that the first field was not only digits.
    after = skip_separator(text, at)
    if after == at or is_end(text, after):
        return 0, 0, at, ONE_ID if is_end(text, after) else NO_ID
    target, at, wrong = parse_vertex(text, after, strict)
    if not wrong and (source > last_id or target > last_id):
        wrong = BEYOND
    return source, target, at, wrong


@kernel(inline="always")
def _plain_pair(text: Any, at: int) -> tuple[int, int, int]:
    """Parse two ids of at most eight digits with one separator between them, as most lines have.

    Returns:
        The ids and the position after them; -1 for the position if the line has any other form.
    """
    source, count = up_to_eight_digits(text, at)
    # A leading zero is left to the slow path, unless it is the whole id.
    padded = text[at] == ZERO and count > 1
    at += count
    byte = text[at]
    if count == 0 or padded or not (is_blank(byte) or byte == COMMA):
        return 0, 0, -1
    target, count = up_to_eight_digits(text, at + 1)
    padded = text[at + 1] == ZERO and count > 1
    at += count + 1
    if count == 0 or padded or not (is_blank(text[at]) or text[at] == COMMA or is_end(text, at)):
        return 0, 0, -1
    return source, target, at


@kernel
def parse_edges(
    text: Any, extra: bool, last_id: int, strict: bool, comment: int, source: Any, target: Any, weight: Any
) -> tuple[int, int, int]:
    """Parse lines of edges, ignoring lines that are blank or comments.

    Args:
        text: (num_bytes,) uint8, whole lines.
        extra: whether to ignore further columns rather than refuse them.
        last_id: highest valid id.
        strict: whether to refuse ids with leading zeros.
        comment: a byte that begins comments, in addition to ``#`` and ``%``; 0 for none.
        source, target: (max_edges,) int64, filled with the ids; a line has at least 4 bytes.
        weight: (max_edges,) float32 weights or float64 times, filled with the third column; None if there are none. The
            parser of numbers is compiled only if it is needed.

    Returns:
        Number of edges; position of the line that stopped the parser; and its fault (0: everything is parsed).
    """
    count, at, size = 0, 0, len(text)
    while at < size:
        line = at
        # The fast path for most lines loads eight bytes at once, so it stays clear of the end of the buffer.
        first, second, after = _plain_pair(text, at) if at + _PLAIN_BYTES <= size else (0, 0, -1)
        if after > 0 and first <= last_id and second <= last_id:
            at = after
        else:
            at = skip_blanks(text, at)
            if is_end(text, at) or text[at] == HASH or text[at] == PERCENT or text[at] == comment:
                at = next_line(text, at)
                continue
            first, second, at, wrong = _parse_pair(text, at, last_id, strict)
            if wrong:
                return count, line, wrong
        source[count] = first
        target[count] = second
        wrong = 0
        if weight is not None:
            value, at, wrong = _parse_value(text, at, extra, weight.itemsize == 8)
            weight[count] = value
        # Most lines end right after the second id.
        elif text[at] != FEED:
            at, wrong = _skip_rest(text, at, extra, NO_ID)
        if wrong:
            return count, line, wrong
        count += 1
        at = next_line(text, at)
    return count, size, 0


def parse_from_one(
    file: SourceFile, offset: int, block: NDArray[np.uint8], num_vertices: int, *, weights: bool, ignores_weights: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32] | None]:
    """The two ids of each line of a block, from 0 on, where the file counts from 1; and the weights, if wanted.

    Args:
        offset: of the block in the contents of the file.
        ignores_weights: lines have weights that are not wanted.

    Raises:
        InputError: a line is wrong, or has an id below 1 or above ``num_vertices``.
    """
    most = len(block) // _SHORTEST_LINE + 1
    first, second = np.empty(most, np.int64), np.empty(most, np.int64)
    weight = np.empty(most, np.float32) if weights else None
    # The number of vertices is the highest valid id.
    count, at, wrong = parse_edges(block, ignores_weights, num_vertices, False, 0, first, second, weight)
    if wrong:
        raise bad_line(file, offset + at, REASONS[wrong])
    first, second = first[:count], second[:count]
    if min(first.min(initial=1), second.min(initial=1)) < 1:
        edge = int(np.argmax((first < 1) | (second < 1)))
        raise bad_line(file, offset + line_of_edge(block, edge), "the id 0; ids of this format start from 1")
    return first - 1, second - 1, None if weight is None else weight[:count]


@kernel
def parse_ids(text: Any, ids: Any, line_at: Any) -> tuple[int, int, int]:
    """Parse lines of one id each, ignoring blank lines.

    Args:
        ids, line_at: (max_rows,) int64, filled with the ids and the positions of their lines.

    Returns:
        As :func:`parse_edges`.
    """
    count, at, size = 0, 0, len(text)
    while at < size:
        line = at
        at = skip_blanks(text, at)
        if not is_end(text, at):
            ids[count], at, wrong = parse_id(text, at)
            at = skip_blanks(text, at)
            if wrong or not is_end(text, at):
                return count, line, wrong or NO_ID
            line_at[count] = line
            count += 1
        at = next_line(text, at)
    return count, size, 0


@kernel
def parse_table(text: Any, missing: bool, words: Any, codes: Any, values: Any, line_at: Any) -> tuple[int, int, int]:
    """Parse lines with one number for each column of ``values``, ignoring blank lines.

    Args:
        missing: whether NaN is allowed, and stands for an empty cell between commas.
        words, codes: words that cells may hold instead of numbers, as for :func:`parse_cell`.
        values: (max_rows, num_columns) float32 or float64, filled row by row.
        line_at: (max_rows,) int64, filled with the positions of the lines.

    Returns:
        As :func:`parse_edges`.
    """
    count, at, size, columns = 0, 0, len(text), values.shape[1]
    while at < size:
        line = at
        at = skip_blanks(text, at)
        if not is_end(text, at):
            after_comma = False
            for column in range(columns):
                if text[at] == COMMA or (after_comma and is_end(text, at)):
                    value, wrong = np.nan, 0 if missing else EMPTY
                elif words.size:
                    value, at, wrong = parse_cell(text, at, words, codes)
                else:
                    value, at, wrong = parse_number(text, at)
                if wrong:
                    return count, line, TOO_FEW if column and is_end(text, at) else wrong
                # Written so that NaN, for which every comparison is false, is refused as well.
                if not abs(value) < FLOAT32_LIMIT and not (missing and np.isnan(value)):
                    return count, line, NOT_FINITE
                values[count, column] = value
                after = skip_separator(text, at)
                if after == at and not is_end(text, at):
                    return count, line, NO_NUMBER
                after_comma = missing and has_byte(text, at, after, COMMA)
                at = after
            if not is_end(text, at):
                return count, line, TOO_MANY
            line_at[count] = line
            count += 1
        at = next_line(text, at)
    return count, size, 0
