"""Line parser for edges between names: fields with separators between them, optionally in double quotes.

A file uses one separator: commas, tabs, or runs of blanks. Blanks around a field are not part of it. A field that
begins with a double quote ends with one and may contain separators; two double quotes within it stand for one. This is
RFC 4180, except that a line feed always ends a line.

All kernels rely on whole lines: the line feed at the end of the buffer ends every loop without a bounds check.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from gnnloom.pipeline.sources.names import LONGEST_NAME, name_fault
from gnnloom.pipeline.sources.parsers.numerals import (
    COMMA,
    DECIMAL_COMMA,
    EMPTY,
    EXTRA,
    HASH,
    LOWER,
    MISSING,
    ONE_ID,
    OPEN_COMMENT,
    PERCENT,
    QUOTE,
    RETURN,
    SPACE,
    TAB,
    TOO_FEW,
    TOO_MANY,
    has_byte,
    is_blank,
    is_end,
    next_line,
    parse_cell,
    parse_number,
    parse_value,
    skip_blanks,
)
from gnnloom.storage.kernels import kernel

#: Lines that begin with ``#`` or ``%`` after the first edge are edges, unless a blank follows: then they are faults.
DOUBTFUL: Final = -1

#: Spellings of a missing value in SQL, Python, R, pandas and spreadsheets, in lower case.
MISSING_WORDS: Final = (
    b"null", b"none", b"nan", b"na", b"n/a", b"<na>", b"\\n", b"nat", b"#n/a", b"#na", b"(null)", b"<null>", b"[null]",
    b"(blank)", b"undefined", b"#ref!", b"#value!", b"#div/0!", b"#name?", b"#num!", b"#null!",
)  # fmt: skip
#: Length of the longest word in :data:`MISSING_WORDS`.
LONGEST_MISSING: Final = 9

#: Faults of names, in addition to those that :mod:`gnnloom.pipeline.sources.parsers.numerals` lists.
EMPTY_NAME, LONG_NAME, OPEN_QUOTE, AFTER_FIELD, ESCAPED = range(101, 106)

REASONS = {
    EMPTY_NAME: name_fault(0),
    LONG_NAME: name_fault(LONGEST_NAME + 1),
    OPEN_QUOTE: "a double quote is opened and not closed on this line",
    AFTER_FIELD: "expected a separator or the end of the line after a field",
    ESCAPED: (
        "a backslash precedes a separator, and there are more fields than two names: separators within names are read"
        " in double quotes only; write the table with quotes, or quote the name that ends with a backslash"
    ),
    ONE_ID: "expected two vertex names, found one; remove the line if it is not an edge",
}

_BACKSLASH: Final = ord("\\")


@kernel
def _is_separator(byte: int, separator: int) -> bool:
    return byte == separator or (separator == SPACE and byte == TAB)


@kernel
def _skip_blanks(text: Any, at: int, separator: int) -> int:
    while text[at] == SPACE or (text[at] == TAB and separator != TAB):
        at += 1
    return at


@kernel
def _next_field(text: Any, at: int, separator: int) -> int:
    """Skip blanks and at most one separator; if there is no separator, only blanks."""
    at = _skip_blanks(text, at, separator)
    if separator != SPACE and text[at] == separator:
        at = _skip_blanks(text, at + 1, separator)
    return at


@kernel
def _is_separated(text: Any, at: int, after: int, separator: int) -> bool:
    """Whether a separator is between a field and the next one: blanks alone do not separate fields with commas."""
    return after > at and (separator == SPACE or has_byte(text, at, after, separator))


@kernel
def _copy_quoted(text: Any, at: int, out: Any, stop: int) -> tuple[int, int, int]:
    """Like :func:`_copy_name`, starting after the opening quote."""
    while True:
        if is_end(text, at):
            return at, stop, OPEN_QUOTE
        if text[at] == QUOTE:
            # The line feed has not been reached, so the next byte is within the buffer.
            if text[at + 1] != QUOTE:
                return at + 1, stop, 0
            at += 1
        out[stop] = text[at]
        stop += 1
        at += 1


@kernel
def _copy_name(text: Any, at: int, separator: int, out: Any, first: int) -> tuple[int, int, int]:
    """Copy a field; returns the position after it, the end of the copy, and the fault (0: none)."""
    stop, wrong = first, 0
    if text[at] == QUOTE:
        at, stop, wrong = _copy_quoted(text, at + 1, out, stop)
    else:
        while not (is_end(text, at) or _is_separator(text[at], separator)):
            out[stop] = text[at]
            stop += 1
            at += 1
        # Trailing blanks are copied first and dropped here, because a blank may also be followed by more of the name.
        while stop > first and (out[stop - 1] == SPACE or out[stop - 1] == TAB):
            stop -= 1
    if not wrong and stop == first:
        wrong = EMPTY_NAME
    if not wrong and stop - first > LONGEST_NAME:
        wrong = LONG_NAME
    return at, stop, wrong


@kernel
def _is_blank_field(text: Any, first: int, stop: int) -> bool:
    while first < stop and (is_blank(text[first]) or text[first] == RETURN):
        first += 1
    return bool(first == stop)


@kernel
def is_missing(text: Any, first: int, stop: int) -> bool:
    """Whether a field has only blanks, or is one of :data:`MISSING_WORDS`, in upper or lower case."""
    size = stop - first
    if is_blank(text[first]) or text[first] == RETURN:
        return _is_blank_field(text, first, stop)
    if size > LONGEST_MISSING or not _begins_word(_lower(text[first])):
        return False
    for word in MISSING_WORDS:
        if len(word) == size:
            same = 0
            while same < size and _lower(text[first + same]) == word[same]:
                same += 1
            if same == size:
                return True
    return False


@kernel
def _begins_word(byte: int) -> bool:
    """Whether one of the words begins with a byte; most names do not, and are not compared."""
    found = False
    for word in MISSING_WORDS:
        found |= word[0] == byte
    return found


@kernel
def lacks_id(text: Any, first: int, stop: int) -> bool:
    """Whether a field has no id: it is missing, or a single sign that stands for a missing value."""
    byte = text[first]
    is_sign = byte == ord("-") or byte == ord("?") or byte == ord(".")
    return (stop - first == 1 and is_sign) or is_missing(text, first, stop)


@kernel
def _lower(byte: int) -> int:
    """A byte of ASCII in lower case."""
    return byte | LOWER if ord("A") <= byte <= ord("Z") else byte


@kernel
def _may_be_comment(text: Any, at: int) -> Any:
    """Whether a line begins with a sign of comments that is followed by itself, a blank or the end of the line."""
    after = text[at + 1]
    return (text[at] == HASH or text[at] == PERCENT) and (after == text[at] or is_blank(after) or is_end(text, at + 1))


@kernel
def _parse_pair(
    text: Any, at: int, separator: int, source: Any, first: int, target: Any, second: int
) -> tuple[int, int, int, int]:
    """Copy two names; returns the position after them, the ends of the copies, and the fault (0: none)."""
    at, source_stop, wrong = _copy_name(text, _skip_blanks(text, at, separator), separator, source, first)
    if wrong:
        return at, source_stop, second, wrong
    after = _next_field(text, at, separator)
    if is_end(text, after):
        return at, source_stop, second, ONE_ID
    if not _is_separated(text, at, after, separator):
        return at, source_stop, second, AFTER_FIELD
    at, target_stop, wrong = _copy_name(text, after, separator, target, second)
    return at, source_stop, target_stop, wrong


@kernel
def _has_escape(text: Any, line: int, stop: int, separator: int) -> bool:
    """Whether a line has a backslash before a separator and no double quotes."""
    found = False
    for at in range(line, stop):
        if text[at] == QUOTE:
            return False
        found |= text[at] == _BACKSLASH and text[at + 1] == separator
    return found


@kernel
def _parse_rest(
    text: Any, line: int, at: int, separator: int, weighted: bool, extra: bool, exact: bool
) -> tuple[float, int]:
    """Parse what follows the two names of a line; returns the value and the fault (0: none)."""
    weight = 1.0
    after = _next_field(text, at, separator)
    if weighted:
        if after == at or is_end(text, after):
            return weight, TOO_FEW
        weight, at, wrong = parse_value(text, after, exact)
        if wrong:
            return weight, wrong
        if text[at] == COMMA and separator != COMMA:
            return weight, DECIMAL_COMMA
        after = _next_field(text, at, separator)
    if is_end(text, after):
        has_more = separator != SPACE and has_byte(text, at, after, separator)
        return weight, ESCAPED if has_more and _has_escape(text, line, at, separator) else 0
    if not _is_separated(text, at, after, separator):
        return weight, AFTER_FIELD
    # Either the separator is part of a name, as MySQL and Spark escape it, or a name ends with a backslash.
    if _has_escape(text, line, at, separator):
        return weight, ESCAPED
    return weight, 0 if extra else EXTRA


@kernel
def parse_names(
    text: Any,
    separator: int,
    weighted: bool,
    extra: bool,
    comment: int,
    wants_ids: bool,
    source: Any,
    source_offset: Any,
    target: Any,
    target_offset: Any,
    weight: Any,
    line_at: Any,
) -> tuple[int, int, int]:
    """Parse lines of edges between names, ignoring lines that are blank or comments.

    Args:
        text: (num_bytes,) uint8, whole lines.
        separator: comma, tab, or a space, which stands for runs of blanks.
        weighted: whether the third field is the weight or time.
        extra: whether to ignore further fields rather than refuse them.
        comment: the byte that begins comments; 0 for none, or ``DOUBTFUL``.
        wants_ids: whether a word that says that there is no id, such as NULL, is a fault rather than a name.
        source, target: (num_bytes,) uint8, filled with the concatenated names.
        source_offset, target_offset: (max_edges + 1,) int64; element k + 1 is filled with the end of name k.
        weight: (max_edges,) float32 weights or float64 times, filled if ``weighted``.
        line_at: (max_edges,) int64, filled with the positions of the lines.

    Returns:
        Number of edges; position of the line that stopped the parser; and its fault (0: everything is parsed).
    """
    # A copy is never longer than its field, so buffers as long as the text hold all names without a bounds check.
    count, at, size = 0, 0, len(text)
    source_offset[0] = target_offset[0] = 0
    while at < size:
        line = at
        at = skip_blanks(text, line)
        if is_end(text, at) or text[at] == comment:
            at = next_line(text, at)
            continue
        if comment == DOUBTFUL and _may_be_comment(text, at):
            return count, line, OPEN_COMMENT
        # Parse from the start of the line: ``skip_blanks`` has skipped tabs, but a tab may separate an empty name.
        first, second = source_offset[count], target_offset[count]
        at, source_stop, target_stop, wrong = _parse_pair(text, line, separator, source, first, target, second)
        if wrong:
            return count, line, wrong
        if wants_ids and (lacks_id(source, first, source_stop) or lacks_id(target, second, target_stop)):
            return count, line, MISSING
        value, wrong = _parse_rest(text, line, at, separator, weighted, extra, weight.itemsize == 8)
        if wrong:
            return count, line, wrong
        if weighted:
            weight[count] = value
        line_at[count] = line
        count += 1
        source_offset[count], target_offset[count] = source_stop, target_stop
        at = next_line(text, at)
    return count, size, 0


@kernel
def parse_keyed(
    text: Any, separator: int, missing: bool, words: Any, codes: Any, names: Any, offset: Any, values: Any, line_at: Any
) -> tuple[int, int, int]:
    """Parse lines of a name and numbers, ignoring blank lines. A line that may be a comment is a fault.

    Args:
        text, separator, line_at: as for :func:`parse_names`.
        missing: whether NaN stands for an empty cell.
        words, codes: words that cells may hold instead of numbers, as for :func:`parse_cell`.
        names: (num_bytes,) uint8, filled with the concatenated names.
        offset: (max_rows + 1,) int64; element k + 1 is filled with the end of name k.
        values: (max_rows, num_columns) float64, filled row by row; may contain NaN and infinity.

    Returns:
        Number of rows; position of the line that stopped the parser; and its fault (0: everything is parsed).
    """
    count, at, size = 0, 0, len(text)
    offset[0] = 0
    while at < size:
        line = at
        at = skip_blanks(text, line)
        if is_end(text, at):
            at = next_line(text, at)
            continue
        if _may_be_comment(text, at):
            return count, line, OPEN_COMMENT
        at, stop, wrong = _copy_name(text, _skip_blanks(text, line, separator), separator, names, offset[count])
        if not wrong:
            at, wrong = _parse_values(text, at, separator, missing, words, codes, values[count])
        if wrong:
            return count, line, wrong
        line_at[count] = line
        count += 1
        offset[count] = stop
        at = next_line(text, at)
    return count, size, 0


@kernel
def _parse_values(
    text: Any, at: int, separator: int, missing: bool, words: Any, codes: Any, row: Any
) -> tuple[int, int]:
    """Fill a row with the numbers that follow; returns the position after them and the fault (0: none)."""
    for column in range(row.size):
        after = _next_field(text, at, separator)
        is_begun = separator != SPACE and has_byte(text, at, after, separator)
        if is_begun and (text[after] == separator or is_end(text, after)):
            if not missing:
                return at, EMPTY
            row[column], at, wrong = np.nan, after, 0
        elif is_end(text, after):
            return at, TOO_FEW
        elif after == at:
            return at, AFTER_FIELD
        elif words.size:
            row[column], at, wrong = parse_cell(text, after, words, codes)
        else:
            row[column], at, wrong = parse_number(text, after)
        if wrong:
            return at, wrong
    after = _next_field(text, at, separator)
    if is_end(text, after):
        return after, 0
    return at, AFTER_FIELD if after == at else TOO_MANY
