"""Decides whether the ids of a column are numbers or names, and reads numbers from text columns in binary files."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.names import LONGEST_NAME, Names, name_fault
from gnnloom.pipeline.sources.parsers.name_parser import LONGEST_MISSING, lacks_id
from gnnloom.pipeline.sources.parsers.numerals import FEED, MISSING, NO_ID, REASONS, parse_vertex
from gnnloom.storage.errors import InputError
from gnnloom.storage.kernels import kernel

#: An id that is a number as it is written, perhaps as a decimal number with zeros after the point; and padded ones.
_NUMBER: Final = re.compile(r"(0|[1-9]\d{0,18})(\.0*)?", re.ASCII)
_PADDED: Final = re.compile(r"0\d+(\.0*)?", re.ASCII)
#: An id in single quotes, which a single name may have.
_SINGLE_QUOTES: Final = re.compile(r"'[^']*'")
#: A formula with a text, which keeps Excel from reading the text as a number.
_FORMULA: Final = re.compile(r'="[^"]*"')
#: Forms in which programs show numbers and ids, and advice about such ids.
_SHOWN: Final = {
    re.compile(r"\d(\.\d+)?[eE]\+?\d+", re.ASCII): (
        "a number in scientific notation, whose last digits may be lost; write all digits of ids"
    ),
    re.compile(r"\d{1,3}([,.'\u2019\u00a0\u202f ]\d{3})+"): (
        "a number with separators of thousands; write ids without them"
    ),
    re.compile(r"\d+(\s*[\s,;|]\s*\d+)+", re.ASCII): (
        "several numbers in one field; write a line for each edge, with one separator"
    ),
    re.compile(r"(?=.*[^\x00-\x7f])\d+"): "digits of another script; write the digits 0 to 9",
    re.compile(r"[-+]?\d+\.\d+", re.ASCII): "a number with decimals; choose the columns of ids with `--columns`",
    _SINGLE_QUOTES: "an id in single quotes; write double quotes or none",
    _FORMULA: "a formula of Excel; write the text between its quotes",
}
#: Quotes around a name that CSV does not know, and a name of hexadecimal digits, whose case has no meaning; addresses
#: have colons between them.
_QUOTES: Final = "'\"`\u2018\u2019\u201c\u201d\u00ab\u00bb"
_HEXADECIMAL: Final = re.compile(
    r"0[xX][0-9a-fA-F]+|[0-9a-fA-F-]{16,}|[0-9a-fA-F]{1,4}(::?[0-9a-fA-F]{1,4}){2,7}", re.ASCII
)
#: Signs between several names in one field; a comma also stands within a name.
_BETWEEN_NAMES: Final = ("; ", ";", "|", ", ", ",")
_MOST_ID: Final = (1 << 63) - 1
#: Rows at the beginning of a column that decide whether its ids are numbers.
FIRST_ROWS: Final = 4096
#: Bytes of the longest number: 19 digits, zeros after the point and quotes.
_LONGEST: Final = 64
#: Creates the error for a row of a block, from its number in the block and the fault.
RowError = Callable[[int, str], InputError]


@dataclass(frozen=True)
class IdKind:
    """Whether the ids at the beginning of a file are numbers or names.

    Attributes:
        are_names: they are names.
        at: number of the line that decided, from 1; -1 if all ids are numbers.
        token: the id in this line that is not a number.
        fault: why the ids can be neither; empty if they can.
    """

    are_names: bool
    at: int = -1
    token: str = ""
    fault: str = ""


def judge_ids(cells: Sequence[str]) -> IdKind:
    """Decide whether a column of ids has numbers or names, in ``at`` by the position of a cell.

    A few words among numbers are a fault: they would turn all ids into names, and change the order of the vertices.

    >>> judge_ids(["1", "2.0", "3"]).are_names, judge_ids(["007", "7"]).are_names, judge_ids(["ann", "7"]).are_names
    (False, True, True)
    >>> judge_ids(["1", "2", "3", "x"]).fault.partition("; ")[0]
    "expected a number as most ids of this column are, found 'x'"
    """
    others = [at for at, cell in enumerate(cells) if not is_id(cell)]
    for at in others:
        if is_missing_id(cells[at]):
            return IdKind(True, at, cells[at], REASONS[MISSING])
    # Numbers as spreadsheets show them would be other vertices than the numbers that they stand for.
    for pattern, fault in _SHOWN.items():
        enough = len(others) > (pattern is _SINGLE_QUOTES)
        if enough and all(pattern.fullmatch(cells[at]) for at in others):
            at = others[0]
            return IdKind(True, at, cells[at], f"{fault}, found {cells[at]!r}; or add `--ids names` if all are names")
    words = [at for at in others if not _PADDED.fullmatch(cells[at])]
    if words and len(others) < len(cells) / 2:
        at = words[0]
        fault = (
            f"expected a number as most ids of this column are, found {cells[at]!r}; correct it, remove the line, or"
            " add `--ids names`"
            " if all are names"
        )
        return IdKind(True, at, cells[at], fault)
    return IdKind(True, others[0], cells[others[0]]) if others else IdKind(are_names=False)


def find_two_forms(cells: Iterable[str]) -> tuple[int, str]:
    """Position of a name that is another one in a different spelling, and its fault; -1 and nothing if there is none.

    >>> find_two_forms(["ann", "bo", "'ann'"])[0], find_two_forms(["a", "A"])
    (2, (-1, ''))
    """
    known: dict[str, str] = {}
    for at, cell in enumerate(cells):
        form = unicodedata.normalize("NFC", cell.strip(_QUOTES))
        form = form.lower() if _HEXADECIMAL.fullmatch(form) else form
        other = known.setdefault(form, cell)
        if other != cell:
            what = "quotes" if other.strip(_QUOTES) != other or cell.strip(_QUOTES) != cell else "the case of digits"
            what = what if form.isascii() or what == "quotes" else "the Unicode form (NFC, NFD)"
            return at, (
                f"{other!a} and {cell!a} differ only in {what}, and would be two vertices; write one form, or add"
                " `--ids names` if they are two"
            )
    return -1, ""


def find_name_fault(cells: Collection[str]) -> tuple[int, str]:
    """Position and fault of the first name that :func:`find_two_forms` or :func:`find_joined` finds."""
    at, fault = find_two_forms(cells)
    return (at, fault) if fault else find_joined(cells)


def find_joined(cells: Collection[str]) -> tuple[int, str]:
    """Position of a field with several names, which others are alone, and its fault; -1 and nothing if there is none.

    >>> find_joined(["ann", "bo", "ann;cy"])[0], find_joined(["ann", "Lee, ann"]), find_joined(["a", "b", "a, b"])[0]
    (2, (-1, ''), 2)
    """
    known = set(cells)
    for at, cell in enumerate(cells):
        between = next((sign for sign in _BETWEEN_NAMES if sign in cell), "")
        parts = cell.split(between) if between else []
        alone = sum(part in known for part in parts)
        are_known = alone == len(parts) or (alone and not between.startswith(","))
        if parts and all(parts) and (are_known or all("@" in part for part in parts)):
            return at, (
                f"{cell!a} seems to be several names; write a line for each edge, or add `--ids names` if it is one"
                " name"
            )
    return -1, ""


def check_forms(columns: Sequence[Names], error: RowError) -> None:
    """Check that the first names of several columns are single names, with one spelling each.

    Raises:
        InputError: names are such as :func:`find_name_fault` finds.
    """
    rows = [row for names in columns for row in range(len(names))]
    at, fault = find_name_fault([name.decode("utf-8", "replace") for names in columns for name in names])
    if fault:
        raise error(rows[at], fault)


def id_fault(cell: str) -> str:
    """Reason why a cell is not an id; empty if the only known reason is that it is not a number.

    >>> id_fault("'7'").partition(";")[0], id_fault("ann")
    ('expected a vertex id, found an id in single quotes', '')
    """
    if is_missing_id(cell):
        return REASONS[MISSING]
    return next((f"expected a vertex id, found {each}" for known, each in _SHOWN.items() if known.fullmatch(cell)), "")


def is_id(cell: str) -> bool:
    """Whether a cell is a number below 2^63 without leading zeros, perhaps as a decimal number below 2^53.

    >>> [is_id(cell) for cell in ("0", "17", "5.0", "007", "-1", "7.9E+17")]
    [True, True, True, False, False, False]
    """
    digits, point, _ = cell.partition(".")
    return _NUMBER.fullmatch(cell) is not None and int(digits) <= (1 << 53 if point else _MOST_ID)


def is_missing_id(cell: str) -> bool:
    """Whether a cell is empty, or says that there is no id, as NULL and nan do."""
    # Calls of compiled code are slow, and a file has thousands of cells to judge.
    if not cell or len(cell) > LONGEST_MISSING:
        return not cell
    text = np.frombuffer(f"{cell}\n".encode(), np.uint8)
    return bool(lacks_id(text, 0, len(text) - 1))


def judge_column(names: Names, error: RowError) -> IdKind:
    """Decide whether the first ids of a column of text are numbers or names.

    Raises:
        InputError: an id is missing or too long, or a few are not numbers among others that are.
    """
    _check_lengths(names, error)
    kind = judge_ids([name.decode("utf-8", "replace") for name in names])
    if kind.fault:
        raise error(kind.at, kind.fault)
    return kind


def numbers_of(names: Names, error: RowError) -> NDArray[np.int64]:
    """(num_names,) int64 the numbers that names are.

    Raises:
        InputError: one is not a number.
    """
    _check_lengths(names, error)
    ids = np.empty(len(names), np.int64)
    row, wrong = _parse_all(names.text, names.offset, ids)
    if row >= 0:
        name = names.name(row)
        reason = REASONS[MISSING if _is_missing(name) else wrong]
        raise error(row, f"{reason}, found {name.decode('utf-8', 'replace')!r}; if ids are names, add `--ids names`")
    return ids


def check_present(names: Names, error: RowError) -> None:
    """Raise InputError if a name says that there is none, as NULL does."""
    row = int(_first_missing(names.text, names.offset))
    if row >= 0:
        raise error(row, f"{REASONS[MISSING]}, found {names.name(row).decode()!r}")


def _check_lengths(names: Names, error: RowError) -> None:
    """Raise InputError if a name is too long; messages quote others."""
    length = np.diff(names.offset)
    if length.max(initial=0) > LONGEST_NAME:
        row = int(np.argmax(length > LONGEST_NAME))
        raise error(row, name_fault(int(length[row])))


def _is_missing(name: bytes) -> bool:
    return not name or bool(lacks_id(np.frombuffer(name, np.uint8), 0, len(name)))


@kernel
def _first_missing(text: Any, offset: Any) -> int:
    for row in range(len(offset) - 1):
        if lacks_id(text, offset[row], offset[row + 1]):
            return row
    return -1


@kernel
def _parse_all(text: Any, offset: Any, ids: Any) -> tuple[int, int]:
    """Fill ``ids``; returns the first name that is not a number and its fault (-1 and 0: all are numbers)."""
    # The parser stops at a line feed, which names do not have after them.
    line = np.empty(_LONGEST + 8, np.uint8)
    for row in range(len(ids)):
        size = offset[row + 1] - offset[row]
        if not 0 < size <= _LONGEST:
            return row, NO_ID
        line[:size] = text[offset[row] : offset[row + 1]]
        line[size:] = FEED
        value, stop, wrong = parse_vertex(line, 0, True)
        if wrong or stop != size:
            return row, wrong or NO_ID
        ids[row] = value
    return -1, 0
