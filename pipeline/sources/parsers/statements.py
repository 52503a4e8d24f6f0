r"""Line parser for N-Triples: statements of subject, predicate and object.

    statement   subject predicate object "."      blanks between them, and a comment after the point
    subject     <IRI> or _:label
    predicate   <IRI>
    object      <IRI>, _:label, or a literal: "text", "text"@language or "text"^^<IRI>

In IRIs, ``\uXXXX`` and ``\UXXXXXXXX`` stand for characters, which are copied in UTF-8. The name of a vertex is its IRI
without the angle brackets, or its label with ``_:``. Literals are not copied. RDF 1.1 N-Triples (W3C, 2014), section 2.

All kernels rely on whole lines: the line feed at the end of the buffer ends every loop without a bounds check.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from gnnloom.pipeline.sources.names import LONGEST_NAME, name_fault
from gnnloom.pipeline.sources.parsers.numerals import FEED, HASH, MINUS, POINT, QUOTE, RETURN, SPACE, TAB
from gnnloom.storage.kernels import kernel

#: Faults of statements; 0 means none.
NO_SUBJECT, NO_PREDICATE, NO_OBJECT, NO_POINT, AFTER_POINT, OPEN_IRI, BAD_IRI, BAD_LABEL, OPEN_LITERAL = range(1, 10)
BAD_ESCAPE, NO_CHARACTER, NO_LANGUAGE, NO_DATATYPE, EMPTY_IRI, LONG_NAME, QUOTED_STATEMENT = range(10, 17)

_ENDS: Final = "the subject is an IRI in angle brackets or a blank node such as _:b1"
REASONS: Final = {
    NO_SUBJECT: f"expected a statement of N-Triples: {_ENDS}",
    NO_PREDICATE: "expected a predicate after the subject, an IRI in angle brackets",
    NO_OBJECT: "expected an object after the predicate: an IRI in angle brackets, a blank node or a literal in quotes",
    NO_POINT: "expected a point after the object, at the end of the statement",
    AFTER_POINT: "expected nothing but a comment after the point, which ends the statement",
    OPEN_IRI: "an angle bracket is opened and not closed on this line",
    BAD_IRI: "an IRI has a blank, a quote, an angle bracket, a control character or _: at its beginning; escape them",
    BAD_LABEL: "expected a label of letters, digits, '_', '-' and points after _:",
    OPEN_LITERAL: "a literal's double quote is opened and not closed on this line",
    BAD_ESCAPE: r"expected \uXXXX or \UXXXXXXXX after a backslash, in hexadecimal; literals also have \t, \n or \"",
    NO_CHARACTER: "an escape stands for no character of Unicode",
    NO_LANGUAGE: "expected a language such as en or de-AT after the literal and @",
    NO_DATATYPE: "expected the IRI of a datatype in angle brackets after the literal and ^^",
    EMPTY_IRI: name_fault(0),
    LONG_NAME: name_fault(LONGEST_NAME + 1),
    QUOTED_STATEMENT: "statements about statements (RDF-star) are not read; remove the line",
}

#: The predicate whose objects are types.
RDF_TYPE: Final = np.frombuffer(b"http://www.w3.org/1999/02/22-rdf-syntax-ns#type", np.uint8)

#: Kinds of statements: the object is a literal, it is a vertex, or it is the type of the subject.
LITERAL, LINK, TYPE = range(3)

_LESS, _GREATER, _BACKSLASH, _UNDERSCORE, _COLON = ord("<"), ord(">"), ord("\\"), ord("_"), ord(":")
_AT, _CARET, _LOWER_U, _UPPER_U = ord("@"), ord("^"), ord("u"), ord("U")
#: Characters that may follow a backslash in a literal, besides the escapes of characters by their number.
_ESCAPED = np.frombuffer(rb"tbnrf\"'" + b"\\", np.uint8)


@kernel
def parse_statements(
    text: Any,
    wanted: Any,
    suffix: Any,
    subjects: Any,
    subject_offset: Any,
    predicates: Any,
    predicate_offset: Any,
    objects: Any,
    object_offset: Any,
    line_at: Any,
    counts: Any,
) -> tuple[int, int, int]:
    """Parse statements, ignoring blank lines and comments; keeps statements of some kinds.

    Args:
        text: (num_bytes,) uint8, whole lines.
        wanted: (3,) bool whether statements of each kind are kept, by number of the kind.
        suffix: (num_suffix,) uint8, written after the labels of blank nodes.
        subjects, predicates, objects: (num_bytes + max_statements * num_suffix,) uint8, filled with the concatenated
            names; the name of a literal is empty.
        subject_offset, predicate_offset, object_offset: (max_statements + 1,) int64; element k + 1 is filled with the
            end of name k.
        line_at: (max_statements,) int64, filled with the positions of the lines.
        counts: (3,) int64, to which the number of statements of each kind is added.

    Returns:
        Number of statements kept; position of the line that stopped the parser; and its fault (0: everything is
        parsed).
    """
    count, at, size = 0, 0, len(text)
    subject_offset[0] = predicate_offset[0] = object_offset[0] = 0
    while at < size:
        line = at
        at = _skip(text, line)
        if text[at] == FEED or text[at] == HASH:
            at = _next(text, at)
            continue
        at, subject_stop, wrong = _copy_node(text, at, suffix, subjects, subject_offset[count], NO_SUBJECT)
        if wrong:
            return count, line, wrong
        at = _skip(text, at)
        first = predicate_offset[count]
        if text[at] != _LESS:
            return count, line, NO_PREDICATE
        at, predicate_stop, wrong = _copy_iri(text, at, predicates, first)
        if wrong:
            return count, line, wrong
        at, object_stop = _skip(text, at), object_offset[count]
        if text[at] == QUOTE:
            kind = LITERAL
            at, wrong = _skip_literal(text, at, predicates, predicate_stop)
        else:
            kind = TYPE if _is_equal(predicates, first, predicate_stop, RDF_TYPE) else LINK
            at, object_stop, wrong = _copy_node(text, at, suffix, objects, object_stop, NO_OBJECT)
        if wrong:
            return count, line, wrong
        at, wrong = _skip_end(text, _skip(text, at))
        if wrong:
            return count, line, wrong
        counts[kind] += 1
        if wanted[kind]:
            line_at[count] = line
            count += 1
            subject_offset[count], predicate_offset[count] = subject_stop, predicate_stop
            object_offset[count] = object_stop
    return count, size, 0


@kernel
def _skip(text: Any, at: int) -> int:
    """Position after blanks; a carriage return is one."""
    while text[at] == SPACE or text[at] == TAB or text[at] == RETURN:
        at += 1
    return at


@kernel
def _next(text: Any, at: int) -> int:
    """Position of the next line."""
    while text[at] != FEED:
        at += 1
    return at + 1


@kernel
def _is_equal(names: Any, start: int, stop: int, word: Any) -> bool:
    at = 0
    while at < len(word) and start + at < stop and names[start + at] == word[at]:
        at += 1
    return at == len(word) and start + at == stop


@kernel
def _skip_end(text: Any, at: int) -> tuple[int, int]:
    """Skip the point of a statement and a comment; returns the position of the next line and the fault."""
    if text[at] != POINT:
        return at, NO_POINT
    at = _skip(text, at + 1)
    if text[at] != FEED and text[at] != HASH:
        return at, AFTER_POINT
    return _next(text, at), 0


@kernel
def _copy_node(text: Any, at: int, suffix: Any, out: Any, first: int, missing: int) -> tuple[int, int, int]:
    """Copy an IRI or a label; returns the position after it, the end of the copy, and the fault.

    Args:
        missing: the fault if there is neither.
    """
    if text[at] == _LESS:
        return _copy_iri(text, at, out, first)
    if text[at] == _UNDERSCORE and text[at + 1] == _COLON:
        return _copy_label(text, at, suffix, out, first)
    return at, first, missing


@kernel
def _copy_iri(text: Any, at: int, out: Any, first: int) -> tuple[int, int, int]:
    at, stop = at + 1, first
    while text[at] != _GREATER:
        byte = text[at]
        if byte == FEED:
            return at, stop, OPEN_IRI
        if byte == _LESS and stop == first:
            return at, stop, QUOTED_STATEMENT
        if byte <= SPACE or byte in (_LESS, QUOTE):
            return at, stop, BAD_IRI
        if byte == _BACKSLASH:
            at, character, wrong = _escaped(text, at)
            if wrong:
                return at, stop, wrong
            stop = _put(character, out, stop)
        else:
            out[stop] = byte
            stop, at = stop + 1, at + 1
    if stop == first:
        return at, stop, EMPTY_IRI
    if stop - first > LONGEST_NAME:
        return at, stop, LONG_NAME
    # Blank nodes have such names.
    if stop - first > 1 and out[first] == _UNDERSCORE and out[first + 1] == _COLON:
        return at, stop, BAD_IRI
    return at + 1, stop, 0


@kernel
def _copy_label(text: Any, at: int, suffix: Any, out: Any, first: int) -> tuple[int, int, int]:
    """As :func:`_copy_node`, for a blank node. Points at the end of a label are not part of it."""
    end = at + 2
    while _is_letter(text[end]) or text[end] == MINUS or text[end] == POINT:
        end += 1
    while text[end - 1] == POINT:
        end -= 1
    if end == at + 2 or text[at + 2] == MINUS or text[at + 2] == POINT:
        return at, first, BAD_LABEL
    if end - at + len(suffix) > LONGEST_NAME:
        return at, first, LONG_NAME
    stop = first
    for k in range(at, end):
        out[stop] = text[k]
        stop += 1
    for k in range(len(suffix)):
        out[stop] = suffix[k]
        stop += 1
    return end, stop, 0


@kernel
def _is_letter(byte: int) -> bool:
    """Whether a byte is a letter, a digit, ``_``, ``:`` or part of a character beyond ASCII."""
    lower = byte | 32
    return ord("a") <= lower <= ord("z") or ord("0") <= byte <= _COLON or byte == _UNDERSCORE or byte >= 0x80


@kernel
def _skip_literal(text: Any, at: int, scratch: Any, scratch_at: int) -> tuple[int, int]:
    """Skip a literal with its language or datatype; returns the position after it, and the fault.

    Args:
        scratch: where the IRI of the datatype is copied, from ``scratch_at`` on, to check it.
    """
    at += 1
    while text[at] != QUOTE:
        if text[at] == FEED:
            return at, OPEN_LITERAL
        if text[at] != _BACKSLASH:
            at += 1
        elif text[at + 1] == _LOWER_U or text[at + 1] == _UPPER_U:
            at, _, wrong = _escaped(text, at)
            if wrong:
                return at, wrong
        elif (text[at + 1] == _ESCAPED).any():
            at += 2
        else:
            return at, BAD_ESCAPE
    at += 1
    if text[at] == _CARET and text[at + 1] == _CARET:
        if text[at + 2] != _LESS:
            return at, NO_DATATYPE
        at, _, wrong = _copy_iri(text, at + 2, scratch, scratch_at)
        return at, wrong
    if text[at] == _AT:
        at, first = at + 1, at + 1
        while _is_letter(text[at]) or text[at] == MINUS:
            at += 1
        return at, NO_LANGUAGE if at == first or text[first] == MINUS else 0
    return at, 0


@kernel
def _escaped(text: Any, at: int) -> tuple[int, int, int]:
    """The character that an escape at a position stands for; returns the position after it, it, and the fault."""
    if text[at + 1] == _LOWER_U:
        digits = 4
    elif text[at + 1] == _UPPER_U:
        digits = 8
    else:
        return at, 0, BAD_ESCAPE
    at, character = at + 2, 0
    for _ in range(digits):
        byte: Any = np.int64(text[at])
        lower = byte | 32
        if ord("0") <= byte <= ord("9"):
            character = character * 16 + byte - ord("0")
        elif ord("a") <= lower <= ord("f"):
            character = character * 16 + lower - ord("a") + 10
        else:
            return at, 0, BAD_ESCAPE
        at += 1
    is_surrogate = 0xD800 <= character < 0xE000
    return at, character, NO_CHARACTER if is_surrogate or character > 0x10FFFF else 0


@kernel
def _put(character: int, out: Any, stop: int) -> int:
    """Write a character in UTF-8, which is never longer than its escape; returns the end."""
    if character < 0x80:
        out[stop] = character
        return stop + 1
    if character < 0x800:
        out[stop] = 0xC0 | character >> 6
        out[stop + 1] = 0x80 | character & 0x3F
        return stop + 2
    if character < 0x10000:
        out[stop] = 0xE0 | character >> 12
        out[stop + 1] = 0x80 | (character >> 6) & 0x3F
        out[stop + 2] = 0x80 | character & 0x3F
        return stop + 3
    out[stop] = 0xF0 | character >> 18
    out[stop + 1] = 0x80 | (character >> 12) & 0x3F
    out[stop + 2] = 0x80 | (character >> 6) & 0x3F
    out[stop + 3] = 0x80 | character & 0x3F
    return stop + 4
