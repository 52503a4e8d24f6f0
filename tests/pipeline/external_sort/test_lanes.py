"""Lanes: several tasks write one file, and each lane reads as a file of its own."""

from __future__ import annotations

import os
import tempfile
from copy import copy
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnloom.pipeline.external_sort import lanes
from gnnloom.pipeline.external_sort.lanes import Lane, LaneSet, OpenFiles, writable, write_arrays
from gnnloom.storage.disk.work_folder import BESIDE, Scratch
from gnnloom.storage.errors import DamagedWorkError, IncompleteError

PAGE, MOST_FILES = BESIDE.page_bytes, BESIDE.files
SMALL_PAGES = Scratch(page_bytes=8)


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
def test_every_task_reads_back_what_it_wrote(tmp_path: Path, count: int) -> None:
    rng = np.random.default_rng(count)
    sets = LaneSet.create(tmp_path, "folder/phase", count, SMALL_PAGES)
    written = [rng.integers(0, 1 << 40, rng.integers(0, 30)) for _ in range(count)]
    # Last first, so that lanes are written before the pages in front of them.
    for task in reversed(range(count)):
        array = written[task]
        assert (
            write_arrays(tmp_path, sets.lane(task), [np.zeros(3, np.uint8), array[:4], array[4:]]) == 3 + array.nbytes
        )
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
        write_arrays(tmp_path, sets.lane(task), [np.array([task])])
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
    write_arrays(tmp_path, sets.lane(16 * 63), [np.ones(1 << 20, np.uint8)])
    stored = (tmp_path / sets.lane(0).path).stat()
    assert stored.st_size > 200 << 20
    assert 512 * stored.st_blocks < 2 << 20


def test_a_new_set_never_has_the_files_of_an_earlier_one(tmp_path: Path) -> None:
    first, second = (LaneSet.create(tmp_path, "phase", 3) for _ in range(2))
    assert not {*first.paths} & {*second.paths}


def test_a_lane_is_intact_as_far_as_its_file_goes(tmp_path: Path) -> None:
    sets = LaneSet.create(tmp_path, "phase", 2 * MOST_FILES, SMALL_PAGES)
    lane, other = sets.lane(MOST_FILES), sets.lane(0)
    assert not lane.is_intact(tmp_path, 0)
    write_arrays(tmp_path, lane, [np.ones(12, np.uint8)])
    assert lane.is_intact(tmp_path, 12)
    assert not lane.is_intact(tmp_path, 13)
    assert other.is_intact(tmp_path, 12)
    (tmp_path / lane.path).unlink()
    assert not lane.is_intact(tmp_path, 0)


def test_a_lost_file_is_not_made_again_by_a_writer_or_a_reader(tmp_path: Path) -> None:
    lane = LaneSet.create(tmp_path, "phase", 1).lane(0)
    (tmp_path / lane.path).unlink()
    with pytest.raises(IncompleteError, match="disappeared while it was in use"), writable(tmp_path, lane):
        pass
    with pytest.raises(IncompleteError, match="run the same command again"):
        read(tmp_path, lane, 0, 1)


def test_a_lane_is_described_by_json() -> None:
    lane = Lane("folder/file", 3, 7, 1000)
    assert Lane.from_json(lane.to_json()) == lane


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "BLOCK_BYTES", 6)


writes = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40)), max_size=8)


@pytest.mark.slow
@given(writes, st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=5), st.integers(1, 9))
def test_bytes_written_in_any_order_are_read_in_any_pieces(
    parts: list[tuple[int, int]], wanted: list[tuple[int, int]], block: int
) -> None:
    with (
        tempfile.TemporaryDirectory() as temporary,
        patch.object(lanes, "BLOCK_BYTES", block),
    ):
        folder, expected = Path(temporary), bytearray()
        lane = LaneSet.create(folder, "phase", 18, SMALL_PAGES).lane(17)
        with writable(folder, lane) as opened:
            for number, (offset, size) in enumerate(parts):
                content = bytes([number + 1] * size)
                assert opened.write(offset, np.frombuffer(content, np.uint8)) == offset + size
                expected.extend(bytes(max(0, offset + size - len(expected)) if size else 0))
                expected[offset : offset + size] = content
        covered = {at for offset, size in parts for at in range(offset, offset + size)}
        for offset, size in wanted:
            # Blocks of which nobody wrote a byte have no checksum.
            blocks = range(offset // block * block, min(-(-(offset + size) // block) * block, len(expected)))
            if offset + size <= len(expected) and covered >= set(blocks):
                assert read(folder, lane, offset, size) == bytes(expected[offset : offset + size])
        with pytest.raises(DamagedWorkError, match=rf"bytes 0 to {len(expected) + 1}, of {len(expected)}"):
            read(folder, lane, 0, len(expected) + 1)


def test_no_changed_byte_of_a_lane_is_read(tmp_path: Path, small_blocks: None) -> None:
    sets = LaneSet.create(tmp_path, "phase", 2 * MOST_FILES, SMALL_PAGES)
    lane, content = sets.lane(MOST_FILES), np.arange(1, 21, dtype=np.uint8)
    write_arrays(tmp_path, sets.lane(0), [content])
    write_arrays(tmp_path, lane, [content])
    path = tmp_path / lane.path
    intact = path.read_bytes()
    places = [at for begin, count in lane.pieces(0, 16 + 20 + 4 * 4) for at in range(begin, begin + count)]
    for at in places:
        path.write_bytes(intact[:at] + bytes([intact[at] ^ 1 << at % 8]) + intact[at + 1 :])
        with pytest.raises(DamagedWorkError, match="lane 1 is damaged"):
            read(tmp_path, lane, 0, 20)
        assert read(tmp_path, sets.lane(0), 0, 20) == content.tobytes()


@pytest.mark.parametrize("damage", ["zeroed", "cut", "exchanged", "another lane's"])
def test_a_lane_with_other_content_is_not_read(tmp_path: Path, small_blocks: None, damage: str) -> None:
    sets = LaneSet.create(tmp_path, "phase", 2 * MOST_FILES, SMALL_PAGES)
    for task in range(2 * MOST_FILES):
        write_arrays(tmp_path, sets.lane(task), [np.full(20, task, np.uint8)])
    lane, other = sets.lane(0), sets.lane(1)
    path = tmp_path / lane.path
    if damage == "zeroed":
        path.write_bytes(bytes(path.stat().st_size))
    elif damage == "cut":
        os.truncate(path, 20)
        assert not lane.is_intact(tmp_path, 20)
    elif damage == "exchanged":
        path.write_bytes((tmp_path / other.path).read_bytes())
    else:
        content = bytearray(path.read_bytes())
        for begin, count in lane.pieces(0, 52):
            content[begin : begin + count] = content[begin + 8 : begin + 8 + count]
        path.write_bytes(content)
    with pytest.raises(DamagedWorkError, match=f"{path.name}: lane 0 is damaged: its (seal|end)"):
        read(tmp_path, lane, 0, 20)


def test_a_lane_that_was_not_ended_is_not_read(tmp_path: Path) -> None:
    lane = LaneSet.create(tmp_path, "phase", 1).lane(0)

    def write_in_part() -> None:
        with writable(tmp_path, lane) as opened:
            opened.write(0, np.arange(100))
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        write_in_part()
    with pytest.raises(DamagedWorkError, match="its seal"):
        read(tmp_path, lane, 0, 8)


def test_the_error_of_a_damaged_lane_can_be_made_again(tmp_path: Path) -> None:
    error = DamagedWorkError(tmp_path / "file", "lane 3 is damaged: its seal")
    # As processes send it to each other.
    sent = copy(error)
    assert str(sent) == str(error) == f"{tmp_path / 'file'}: lane 3 is damaged: its seal"
