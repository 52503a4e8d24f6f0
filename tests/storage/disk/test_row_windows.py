"""Windows of rows of a mapped array have the rows that are asked for, and read none that the window before has."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gnnloom.storage.disk.row_windows import RowWindows


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
            np.testing.assert_array_equal(window.take(asked), given[asked])


def test_rows_of_the_window_before_are_not_read_again() -> None:
    given = np.arange(40, dtype=np.float32)[:, None].copy()
    with ThreadPoolExecutor(2) as threads:
        windows = RowWindows(given, 20, threads)
        windows.read(np.arange(5, 15))
        given[5:15] = -1
        np.testing.assert_array_equal(windows.read(np.arange(10, 20)).values[:, 0], np.arange(10, 20))
        with pytest.raises(ValueError, match="lacks"):
            windows.read(np.arange(10, 20)).take(np.array([12, 21]))
        windows.read(np.arange(10, 20))
        # Of the window before the last one, nothing is left.
        np.testing.assert_array_equal(windows.read(np.arange(5, 12)).values[:, 0], [-1] * 5 + [10, 11])
