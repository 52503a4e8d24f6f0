"""Counts lines of text without parsing them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.sources.reading.numerals import FEED, HASH, PERCENT, is_blank, is_end, next_line, skip_blanks


def count_data_lines(blocks: Iterable[tuple[int, NDArray[Any]]], *, has_comments: bool = True) -> int:
    """Number of lines that are neither blank nor comments.

    Args:
        blocks: offset and whole lines, (num_bytes,) uint8, of every block.
        has_comments: whether lines that begin with ``#`` or ``%`` are comments.
    """
    return sum(int(_count_data_lines(block, has_comments)) for _, block in blocks)


@njit(cache=True, nogil=True)
def _count_data_lines(text: Any, has_comments: bool) -> int:
    count, at = 0, 0
    while at < len(text):
        first = skip_blanks(text, at)
        is_comment = has_comments and (text[first] == HASH or text[first] == PERCENT)
        count += not (is_end(text, first) or is_comment)
        at = next_line(text, at)
    return count


@njit(cache=True, nogil=True)
def count_uncommented(text: Any, is_inside: bool, is_comment: bool) -> tuple[int, bool, bool]:
    """Count the ends of lines that are not comments, blank lines included, in a block that may begin within a line.

    Args:
        text: (num_bytes,) uint8.
        is_inside: whether something other than blanks precedes the block in its first line.
        is_comment: whether that line is a comment, which begins with ``%``.

    Returns:
        The number of lines, and both arguments for the next block.
    """
    count = 0
    for byte in text:
        if byte == FEED:
            count += not is_comment
            is_inside, is_comment = False, False
        elif not is_inside and not is_blank(byte):
            is_inside, is_comment = True, byte == PERCENT
    return count, is_inside, is_comment
