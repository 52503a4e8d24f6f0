"""Ranges of 0..size-1, cut the same way everywhere: no padding, and lengths differ by at most one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

#: First number, and one past the last.
Span = tuple[int, int]
Positions = TypeVar("Positions", int, NDArray[np.int64])


def split_range(size: int, parts: int, number: int) -> Span:
    """Range ``number`` of ``parts`` ranges of 0..size-1: [number*size//parts, (number+1)*size//parts)."""
    # The same formula gives the stop of one range and the start of the next, so there are no gaps. Python integers do
    # not overflow, whatever the product.
    return number * size // parts, (number + 1) * size // parts


def range_of(size: int, parts: int, position: Positions) -> Positions:
    """Number of the range, of ``parts`` ranges of 0..size-1, that holds a position; see :func:`split_range`.

    An array of positions gives an array of numbers; the product of a position and ``parts`` must then fit int64.
    """
    # Position x lies in the last range i that begins at or before it, i * size // parts <= x; for integers that is
    # i * size < (x + 1) * parts.
    return ((position + 1) * parts - 1) // size


def common(first: Span, second: Span) -> Span:
    """The intersection of two ranges; it may be empty."""
    start = max(first[0], second[0])
    return start, max(start, min(first[1], second[1]))


def overlapped(span: Span, size: int, parts: int) -> Iterator[tuple[int, Span]]:
    """Ranges that overlap ``span`` when 0..size-1 is cut into ``parts`` ranges: each one's number, and the overlap."""
    for number in range(parts):
        shared = common(split_range(size, parts, number), span)
        if shared[0] < shared[1]:
            yield number, shared
