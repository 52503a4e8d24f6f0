"""Ranges of 0..size-1, the same for everybody who cuts: no padding, and lengths that differ by one at most."""

from __future__ import annotations

from collections.abc import Iterator

Span = tuple[int, int]


def split_range(size: int, parts: int, number: int) -> Span:
    """Range ``number`` of 0..size-1 cut into ``parts``: [number*size//parts, (number+1)*size//parts)."""
    return number * size // parts, (number + 1) * size // parts


def common(first: Span, second: Span) -> Span:
    """The numbers that lie in both ranges; perhaps none."""
    start = max(first[0], second[0])
    return start, max(start, min(first[1], second[1]))


def overlapped(span: Span, size: int, parts: int) -> Iterator[tuple[int, Span]]:
    """The ranges of 0..size-1 cut into ``parts`` that share numbers with ``span``: which, and what they share."""
    for number in range(parts):
        shared = common(split_range(size, parts, number), span)
        if shared[0] < shared[1]:
            yield number, shared
