"""Ranges cover 0..size-1 without gaps, and their lengths differ by at most one."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gnnloom.storage.matrix.ranges import common, overlapped, split_range


@given(size=st.integers(0, 10**12), parts=st.integers(1, 200))
def test_ranges_cover_everything_evenly(size: int, parts: int) -> None:
    spans = [split_range(size, parts, number) for number in range(parts)]
    assert spans[0][0] == 0
    assert spans[-1][1] == size
    assert all(before[1] == after[0] for before, after in pairwise(spans))
    lengths = {stop - start for start, stop in spans}
    assert max(lengths) - min(lengths) <= 1


@given(size=st.integers(0, 60), parts=st.integers(1, 12), ends=st.tuples(st.integers(0, 60), st.integers(0, 60)))
def test_overlaps_are_the_shared_numbers(size: int, parts: int, ends: tuple[int, int]) -> None:
    span = (min(ends), max(ends))
    found = {number: list(range(*shared)) for number, shared in overlapped(span, size, parts)}
    for number in range(parts):
        shared = sorted(set(range(*split_range(size, parts, number))) & set(range(*span)))
        assert found.get(number, []) == shared
        start, stop = common(split_range(size, parts, number), span)
        assert list(range(start, stop)) == shared
