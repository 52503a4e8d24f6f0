"""Part files: each part reads back its own entries of every column, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import MOST_FILES, Lane, LaneSet, OpenFiles
from gnnloom.pipeline.shards.rows.part_file import (
    PartColumn,
    part_offsets,
    read_part,
    read_parts,
    write_part_file,
    write_part_lane,
)


def column(entries: NDArray[Any], part: NDArray[np.int32], num_parts: int) -> PartColumn:
    """Entries sorted by part."""
    return PartColumn(entries[np.argsort(part, kind="stable")], part_offsets(part, num_parts))


def read(folder: Path, lane: Lane, part: int, *dtypes: type) -> list[NDArray[Any]]:
    """The first columns of a part."""
    with OpenFiles(folder) as files:
        return read_part(files.lane(lane), part, [np.dtype(dtype) for dtype in dtypes])


@settings(max_examples=25, deadline=None)
@given(count=st.integers(0, 40), num_parts=st.integers(1, 6), seed=st.integers(0, 10**6))
def test_each_part_reads_its_own_entries(
    tmp_path_factory: pytest.TempPathFactory, count: int, num_parts: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    part = rng.integers(0, num_parts, count).astype(np.int32)
    ids, rows = rng.integers(0, 1 << 40, count), rng.random((count, 3)).astype(np.float32)
    path = tmp_path_factory.mktemp("work") / "new folder" / "spill"
    write_part_file(path, [column(ids, part, num_parts), column(rows, part, num_parts)])
    for number in range(num_parts):
        found_ids, found_rows = read(path.parent, Lane("spill"), number, np.int64, np.float32)
        np.testing.assert_array_equal(found_ids, ids[part == number])
        np.testing.assert_array_equal(found_rows.reshape(-1, 3), rows[part == number])


def test_columns_may_have_their_own_number_of_entries(tmp_path: Path) -> None:
    part = np.array([1, 0, 1], dtype=np.int32)
    rows = column(np.array([7, 8, 9]), part, 2)
    nonzeros = PartColumn(np.arange(6, dtype=np.int32), np.array([0, 1, 6]))
    write_part_file(tmp_path / "spill", [rows, nonzeros])
    found = read(tmp_path, Lane("spill"), 1, np.int64, np.int32)
    assert [array.tolist() for array in found] == [[7, 9], [1, 2, 3, 4, 5]]


def test_the_first_columns_can_be_read_alone(tmp_path: Path) -> None:
    part = np.array([0, 1], dtype=np.int32)
    write_part_file(tmp_path / "spill", [column(np.array([3, 4]), part, 2), column(np.array([5.0, 6.0]), part, 2)])
    (ids,) = read(tmp_path, Lane("spill"), 1, np.int64)
    assert ids.tolist() == [4]


def test_a_file_with_one_column_is_read_whole(tmp_path: Path) -> None:
    written = column(np.array([10, 11, 12, 13]), np.array([2, 0, 2, 0], dtype=np.int32), 4)
    write_part_file(tmp_path / "spill", [written])
    with OpenFiles(tmp_path) as files:
        found = read_parts(files.lane(Lane("spill")), 0, 4, np.dtype(np.int64))
    assert found.entry.tolist() == [11, 13, 10, 12]
    assert found.offset.tolist() == [0, 2, 2, 4, 4]


def test_spill_files_that_share_a_file_keep_apart(tmp_path: Path) -> None:
    count, part = 2 * MOST_FILES + 1, np.array([0, 1, 1], dtype=np.int32)
    lanes = LaneSet.create(tmp_path, "spill", count)
    for number in range(count):
        size = write_part_lane(tmp_path, lanes.lane(number), [column(number * 10 + np.arange(3), part, 2)])
        assert lanes.lane(number).is_intact(tmp_path, size)
    for number in range(count):
        (ids,) = read(tmp_path, lanes.lane(number), 1, np.int64)
        assert ids.tolist() == [10 * number + 1, 10 * number + 2]
