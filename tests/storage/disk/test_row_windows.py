"""Windows of rows of a mapped array have the rows that are asked for, and read none that the window before has."""

from __future__ import annotations

import mmap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.storage.disk.row_windows import RowWindows, block_cost, read_blocks


@pytest.mark.parametrize("width", [1, 96])
def test_windows_have_the_rows_that_are_asked_for(tmp_path: Path, width: int) -> None:
    rng, count = np.random.default_rng(5), 20_000
    given = rng.random((count, width), np.float32)
    np.save(tmp_path / "given.npy", given)
    mapped = np.load(tmp_path / "given.npy", mmap_mode="r")
    with ThreadPoolExecutor(4) as threads:
        windows = RowWindows(mapped, count, threads)
        for share in (0.0, 0.001, 0.9, 1.0, 0.3, 0.0, 0.2):
            rows = np.flatnonzero(rng.random(count) < share)
            window = windows.read(rows)
            np.testing.assert_array_equal(window.values, given[rows])
            asked = rng.permutation(rows)[: len(rows) // 2]
            window.take(asked, taken := np.empty((len(asked), width), np.float32))
            np.testing.assert_array_equal(taken, given[asked])


def test_rows_of_the_window_before_are_not_read_again() -> None:
    given = np.arange(40, dtype=np.float32)[:, None].copy()
    with ThreadPoolExecutor(2) as threads:
        windows = RowWindows(given, 20, threads)
        windows.read(np.arange(5, 15))
        given[5:15] = -1
        np.testing.assert_array_equal(windows.read(np.arange(10, 20)).values[:, 0], np.arange(10, 20))
        with pytest.raises(ValueError, match="lacks"):
            windows.read(np.arange(10, 20)).take(np.array([12, 21]), np.empty((2, 1), np.float32))
        windows.read(np.arange(10, 20))
        # Of the window before the last one, nothing is left.
        np.testing.assert_array_equal(windows.read(np.arange(5, 12)).values[:, 0], [-1] * 5 + [10, 11])


class Recorded(mmap.mmap):
    """A mapping that notes the blocks that it is asked to read whole."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.blocks = set[int]()

    def madvise(self, option: int, start: int = 0, length: int = 0) -> None:
        assert option == mmap.MADV_WILLNEED
        assert start % (1 << 20) == 0
        assert start + length <= len(self)
        self.blocks.add(start >> 20)


def test_blocks_are_read_whole_if_half_of_their_pages_have_rows(tmp_path: Path) -> None:
    given = np.random.default_rng(5).random((20_000, 128), np.float32)
    np.save(tmp_path / "given.npy", given)
    with (tmp_path / "given.npy").open("rb") as file:
        mapped = Recorded(file.fileno(), 0, access=mmap.ACCESS_READ)
    # Rows of 512 bytes after a header of 128: eight in a page, 2048 in a block. Of the blocks with rows, the first has
    # rows in half of its pages, the third in fewer, and the last one, which is not whole, in more.
    array = np.ndarray(given.shape, given.dtype, mapped, 128)
    rows = np.unique(np.concatenate([np.arange(0, 2040, 16), np.arange(4100, 6000, 20), np.arange(18_500, 20_000)]))
    values = np.empty((len(rows), 128), np.float32)
    with ThreadPoolExecutor(2) as threads:
        read_blocks(array, rows, np.arange(len(rows)), values, threads)
    np.testing.assert_array_equal(values, given[rows])
    assert mapped.blocks == {0, 9}


def test_pages_of_whole_blocks_cost_a_quarter() -> None:
    # Rows of 512 bytes: eight in a page, and 2048 in a block.
    sparse, dense = np.arange(4096, 6000, 20), np.arange(0, 2048, 16)
    assert block_cost(sparse, 512) == len(sparse)
    assert block_cost(dense, 512) == 256 / 4
    assert block_cost(np.concatenate([dense, sparse]), 512) == len(sparse) + 256 / 4
    assert block_cost(np.empty(0, np.int64), 512) == 0
