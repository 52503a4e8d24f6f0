"""Ids of text columns in binary files: numbers, by the same rules as those in text files, or names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.sources.reading.name_parser import is_missing
from gnnloom.pipeline.sources.reading.numerals import FEED, MISSING, NO_ID, REASONS, parse_vertex
from gnnloom.pipeline.sources.reading.text_table import IdKind, judge_ids
from gnnloom.storage.errors import InputError

#: Rows at the beginning of a column that decide whether its ids are numbers.
FIRST_ROWS: Final = 4096
#: Bytes of the longest number: 19 digits, zeros after the point and quotes.
_LONGEST: Final = 64
#: Creates the error for a row of a block, from its number in the block and what is wrong.
RowError = Callable[[int, str], InputError]


def judge_column(names: Names, error: RowError) -> IdKind:
    """Decide whether the first ids of a column of text are numbers or names.

    Raises:
        InputError: an id is missing, or a few are not numbers among others that are.
    """
    kind = judge_ids([name.decode("utf-8", "replace") for name in names])
    if kind.fault:
        raise error(kind.at, kind.fault)
    return kind


def numbers_of(names: Names, error: RowError) -> NDArray[np.int64]:
    """(num_names,) int64 the numbers that names are.

    Raises:
        InputError: one is not a number.
    """
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


def _is_missing(name: bytes) -> bool:
    return not name or bool(is_missing(np.frombuffer(name, np.uint8), 0, len(name)))


@njit(cache=True, nogil=True)
def _first_missing(text: Any, offset: Any) -> int:
    for row in range(len(offset) - 1):
        if is_missing(text, offset[row], offset[row + 1]):
            return row
    return -1


@njit(cache=True, nogil=True)
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
