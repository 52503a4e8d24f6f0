"""Levels of merges: every file reaches every position through few files per merge."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnloom.pipeline.external_sort.merge_levels import merge_levels, merges, most_sources
from gnnloom.storage.matrix.ranges import range_of, split_range


@given(
    num_files=st.integers(1, 300),
    fan_in=st.integers(2, 9),
    num_positions=st.integers(1, 60),
)
def test_merges_pass_on_each_file_and_position_once(num_files: int, fan_in: int, num_positions: int) -> None:
    levels = merge_levels(num_files, fan_in)
    # The files of the first level that each file of a span consists of.
    found = {(0, source): [source] for source in range(num_files)}
    for before, level in itertools.pairwise(levels):
        made = list(merges(levels, level, num_positions))
        for merge in made:
            assert merge.positions == split_range(num_positions, level.spans, merge.span)
            wide = split_range(num_positions, before.spans, merge.span_before)
            assert wide[0] <= merge.positions[0] < merge.positions[1] <= wide[1]
        found = {
            (merge.span, merge.source): [file for one in merge.group for file in found[merge.span_before, one]]
            for merge in made
        }
        assert len(found) == len(made)
        assert max(len(merge.group) for merge in made) <= fan_in
    last = levels[-1]
    assert last.sources <= fan_in
    for position in range(num_positions):
        span = range_of(num_positions, last.spans, position)
        files = [found[span, source] for source in range(last.sources)]
        # In the order of the first level.
        assert list(itertools.chain(*files)) == list(range(num_files))


@given(size=st.integers(1, 200), parts=st.integers(1, 300))
def test_the_range_of_a_position_holds_it(size: int, parts: int) -> None:
    for position in range(size):
        start, stop = split_range(size, parts, range_of(size, parts, position))
        assert start <= position < stop


@pytest.mark.parametrize(("num_bytes", "most"), [(0, 16), (100 * 16 * 65536, 16), (100 * 17 * 65536, 17)])
def test_a_task_opens_more_files_if_it_reads_64_kib_from_each(num_bytes: int, most: int) -> None:
    assert most_sources(num_bytes, 100) == most
