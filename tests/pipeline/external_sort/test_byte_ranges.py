"""Copying ranges of bytes: the same bytes in the same order, in full writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort import byte_ranges, lanes
from gnnloom.pipeline.external_sort.byte_ranges import ByteRange, copy_ranges
from gnnloom.pipeline.external_sort.lanes import LaneSet, LaneWriter, OpenFiles, writable

CONTENT = bytes(range(256))


@settings(max_examples=60, deadline=None)
@given(spans=st.lists(st.tuples(st.integers(0, 256), st.integers(0, 256)), max_size=30), block=st.integers(1, 300))
def test_ranges_follow_each_other_in_as_few_writes_as_blocks(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int]], block: int
) -> None:
    folder = tmp_path_factory.mktemp("ranges")
    lane, copy = (LaneSet.create(folder, name, 1).lane(0) for name in ("source", "target"))
    lanes.write_arrays(folder, lane, [np.frombuffer(CONTENT, np.uint8)])
    writes: list[int] = []
    plain = LaneWriter.write

    def counted(lane: LaneWriter, offset: int, array: NDArray[Any]) -> int:
        writes.append(array.nbytes)
        return plain(lane, offset, array)

    with OpenFiles(folder) as files, writable(folder, copy) as target:
        ranges = [ByteRange(files.lane(lane), *span) for span in spans]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(byte_ranges, "COPY_BYTES", block)
            patch.setattr(LaneWriter, "write", counted)
            end = copy_ranges(ranges, target, 5)
    expected = b"".join(CONTENT[start:stop] for start, stop in spans)
    assert end == 5 + len(expected)
    found = np.empty(len(expected), np.uint8)
    with OpenFiles(folder) as files:
        files.lane(copy).read(5, found)
    assert found.tobytes() == expected
    # Every write but the last fills a block.
    assert writes == [block] * (len(expected) // block) + [len(expected) % block]


def test_ranges_of_lanes_that_share_a_file_are_copied_to_another_lane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "PAGE_BYTES", 8)
    # Two lanes in each file.
    sources, targets = (LaneSet.create(tmp_path, name, 2 * lanes.MOST_FILES) for name in ("source", "target"))
    contents = [bytes(range(start, start + 50)) for start in (0, 100)]
    for number, content in zip((0, lanes.MOST_FILES), contents, strict=True):
        lanes.write_arrays(tmp_path, sources.lane(number), [np.frombuffer(content, np.uint8)])
    target = targets.lane(lanes.MOST_FILES)
    with OpenFiles(tmp_path) as files, writable(tmp_path, target) as out:
        opened = [files.lane(sources.lane(number)) for number in (0, lanes.MOST_FILES)]
        ranges = [ByteRange(lane, start, start + 13) for start in range(0, 26, 13) for lane in opened]
        end = copy_ranges(ranges, out, 3)
    found = np.empty(end - 3, np.uint8)
    with OpenFiles(tmp_path) as files:
        files.lane(target).read(3, found)
    assert found.tobytes() == b"".join(content[start : start + 13] for start in (0, 13) for content in contents)
