"""Lanes: several tasks write one file, and each lane reads as a file of its own."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnloom.pipeline.external_sort import lanes
from gnnloom.pipeline.external_sort.lanes import MOST_FILES, Lane, LaneSet, OpenFiles, writable, write_arrays
from gnnloom.storage.errors import CorruptError, IncompleteError

PAGE = lanes.PAGE_BYTES


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "PAGE_BYTES", 8)


def read(folder: Path, lane: Lane, offset: int, size: int) -> bytes:
    out = np.empty(size, np.uint8)
    with OpenFiles(folder) as files:
        files.lane(lane).read(offset, out)
    return out.tobytes()


@given(st.integers(1, 40), st.integers(0, 5 * PAGE), st.integers(0, 3 * PAGE))
def test_no_two_lanes_have_a_byte_in_common(count: int, offset: int, size: int) -> None:
    pieces = sorted(piece for number in range(count) for piece in Lane("file", number, count).pieces(offset, size))
    assert all(begin + length <= after for (begin, length), (after, _) in pairwise(pieces))
    assert sum(length for _, length in pieces) == count * size


@pytest.mark.parametrize("count", [1, 2, 16, 17, 40])
def test_every_task_reads_back_what_it_wrote(tmp_path: Path, small_pages: None, count: int) -> None:
    rng = np.random.default_rng(count)
    sets = LaneSet.create(tmp_path, "folder/phase", count)
    written = [rng.integers(0, 1 << 40, rng.integers(0, 30)) for _ in range(count)]
    # Last first, so that lanes are written before the pages in front of them.
    for task in reversed(range(count)):
        array = written[task]
        assert write_arrays(tmp_path, sets.lane(task), 3, [array[:4], array[4:]]) == 3 + array.nbytes
    for task, array in enumerate(written):
        assert read(tmp_path, sets.lane(task), 3, array.nbytes) == array.tobytes()
        assert read(tmp_path, sets.lane(task), 3, array.nbytes // 2) == array.tobytes()[: array.nbytes // 2]
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == [Path(path).name for path in sets.paths]
    assert len(sets.paths) == min(count, MOST_FILES)
    sets.remove(tmp_path)
    assert not list((tmp_path / "folder").iterdir())


def test_a_reader_of_all_lanes_opens_every_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = LaneSet.create(tmp_path, "phase", 1000)
    for task in (3, 19, 999):
        write_arrays(tmp_path, sets.lane(task), 0, [np.array([task])])
    opened: list[Path] = []
    plain = lanes._open

    def counted(path: Path, flags: int) -> int:
        opened.append(path)
        return plain(path, flags)

    monkeypatch.setattr(lanes, "_open", counted)
    with OpenFiles(tmp_path) as files:
        number = np.empty(1, np.int64)
        for _ in range(2):
            for task in (3, 19, 999):
                files.lane(sets.lane(task)).read(0, number)
                assert number == task
    # Tasks 3 and 19 share a file.
    assert len(opened) == 2


def test_an_unwritten_lane_takes_no_room(tmp_path: Path) -> None:
    sets = LaneSet.create(tmp_path, "phase", 16 * 64)
    write_arrays(tmp_path, sets.lane(16 * 63), 0, [np.ones(1 << 20, np.uint8)])
    stored = (tmp_path / sets.lane(0).path).stat()
    assert stored.st_size > 200 << 20
    assert 512 * stored.st_blocks < 2 << 20


def test_a_new_set_never_has_the_files_of_an_earlier_one(tmp_path: Path) -> None:
    first, second = (LaneSet.create(tmp_path, "phase", 3) for _ in range(2))
    assert not {*first.paths} & {*second.paths}


def test_a_lane_is_intact_as_far_as_its_file_goes(tmp_path: Path, small_pages: None) -> None:
    sets = LaneSet.create(tmp_path, "phase", 2 * MOST_FILES)
    lane, other = sets.lane(MOST_FILES), sets.lane(0)
    assert lane.is_intact(tmp_path, 0)
    assert not lane.is_intact(tmp_path, 1)
    write_arrays(tmp_path, lane, 0, [np.ones(12, np.uint8)])
    assert lane.is_intact(tmp_path, 12)
    assert not lane.is_intact(tmp_path, 13)
    assert other.is_intact(tmp_path, 16)
    with pytest.raises(CorruptError, match="ends at byte 28, expected 1 bytes more"):
        read(tmp_path, lane, 12, 1)
    (tmp_path / lane.path).unlink()
    assert not lane.is_intact(tmp_path, 0)


def test_a_lost_file_is_not_made_again_by_a_writer_or_a_reader(tmp_path: Path) -> None:
    lane = LaneSet.create(tmp_path, "phase", 1).lane(0)
    (tmp_path / lane.path).unlink()
    with pytest.raises(IncompleteError, match="disappeared while it was in use"), writable(tmp_path, lane):
        pass
    with pytest.raises(IncompleteError, match="run the same command again"):
        read(tmp_path, lane, 0, 1)


def test_a_task_fills_in_what_it_reads_from_a_file_that_it_opens_once(tmp_path: Path) -> None:
    lane = LaneSet.create(tmp_path, "phase", 1).lane(0)
    write_arrays(tmp_path, lane, 8, [np.array([5])])
    number = np.empty(1, np.int64)
    with OpenFiles(tmp_path, writable=True) as files:
        files.lane(lane).read(8, number)
        files.lane(lane).write(0, number + 1)
    assert read(tmp_path, lane, 0, 16) == np.array([6, 5]).tobytes()
    (tmp_path / lane.path).unlink()
    with OpenFiles(tmp_path, writable=True) as files, pytest.raises(IncompleteError, match="disappeared"):
        files.lane(lane)


def test_a_lane_is_described_by_json() -> None:
    lane = Lane("folder/file", 3, 7)
    assert Lane.from_json(lane.to_json()) == lane


def test_a_lane_alone_in_its_file_is_the_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(bytes(range(100)))
    assert read(tmp_path, Lane("plain"), 10, 5) == bytes(range(10, 15))
