"""Rows in another dtype: the same bits as NumPy's conversion of all rows, for every number that is stored."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from gnnloom.storage.disk.converted_rows import converted, fill_rows
from gnnloom.storage.disk.mapped_rows import take_rows
from gnnloom.storage.disk.row_windows import RowWindow
from support.covering import few_of

#: Every float16 there is, subnormal numbers, infinities and those that are not numbers included.
HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(256, 256)
ROWS = np.random.default_rng(4).permutation(256)[:200]


def test_every_float16_is_widened_to_the_same_bits() -> None:
    out = np.full((200, 256), 3, np.float32)
    fill_rows(HALVES, ROWS, out)
    np.testing.assert_array_equal(out.view(np.uint32), HALVES[ROWS].astype(np.float32).view(np.uint32))


@pytest.mark.parametrize(
    ("stored", "wanted", "shape"),
    few_of(
        [np.float16, np.float32, np.float64, np.uint8],
        [np.float16, np.float32, np.float64],
        [(300, 700), (300,), (300, 7, 2), (300, 0)],
        together=2,
    ),
)
def test_rows_are_converted_as_by_a_copy(stored: type[Any], wanted: type[Any], shape: tuple[int, ...]) -> None:
    given = np.random.default_rng(5).integers(0, 200, shape).astype(stored)
    for rows in (ROWS, np.empty(0, np.int64)):
        out = np.full((len(rows), *shape[1:]), 3, wanted)
        fill_rows(given, rows, out)
        np.testing.assert_array_equal(out, given[rows].astype(wanted))


def test_an_array_is_copied_only_to_another_dtype() -> None:
    assert converted(HALVES, np.dtype(np.float16)) is HALVES
    # Also columns of another array, which are not contiguous.
    some = HALVES[:, 3:200:2]
    np.testing.assert_array_equal(converted(some, np.dtype(np.float32)), some.astype(np.float32))


def test_several_threads_and_windows_convert_as_well() -> None:
    rows = np.random.default_rng(6).integers(0, 256, 10_000)
    out = np.zeros((10_000, 256), np.float32)
    with ThreadPoolExecutor(2) as threads:
        assert take_rows(HALVES, rows, out, threads) is out
    np.testing.assert_array_equal(out, HALVES[rows].astype(np.float32))
    window = RowWindow(np.arange(10, 266), HALVES)
    window.take(ROWS + 10, taken := np.zeros((200, 256), np.float32))
    np.testing.assert_array_equal(taken, HALVES[ROWS])


@pytest.mark.parametrize(
    ("stored", "wanted"), [(np.float16, np.float32), (np.float32, np.float32), (np.uint8, np.float64)]
)
def test_rows_go_to_their_places_and_others_stay(stored: type[Any], wanted: type[Any]) -> None:
    rng = np.random.default_rng(6)
    given = rng.integers(0, 200, (256, 700)).astype(stored)
    rows, place = rng.integers(0, 256, 5_000), rng.permutation(6_000)[:5_000]
    expected = np.full((6_000, 700), 3, wanted)
    expected[place] = given[rows]
    with ThreadPoolExecutor(2) as threads:
        for fill in (fill_rows, lambda array, rows, out, place: take_rows(array, rows, out, threads, place)):
            out = np.full((6_000, 700), 3, wanted)
            fill(given, rows, out, place)
            np.testing.assert_array_equal(out, expected)
