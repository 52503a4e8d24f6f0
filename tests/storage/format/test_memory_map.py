"""A memory map of a stored array equals the array, and what changes in a temporary file is found."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format import memory_map
from gnnloom.storage.format.arrays import ArrayReader, write_array
from gnnloom.storage.format.memory_map import RecordedArray
from support.streamed_flips import flip_bit


@pytest.mark.parametrize("shape", [(1000,), (70, 3), (0,), (0, 4)])
def test_a_mapped_copy_equals_the_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]
) -> None:
    monkeypatch.setattr(memory_map, "_COPY_ROWS", 64)
    data = np.random.default_rng(0).normal(size=shape)
    reader = ArrayReader(tmp_path, write_array(tmp_path, "values", data, ("row", "feature")[: len(shape)]))
    np.testing.assert_array_equal(memory_map.map_copy(reader, tmp_path).values, data)


def _written(folder: Path, order: str) -> tuple[RecordedArray, np.ndarray]:
    """(700, 90) numbers in a file, whose rows or columns are written in some order."""
    values = np.random.default_rng(0).normal(size=(700, 90))
    made = RecordedArray(folder, "numbers", values.shape, values.dtype)
    if order == "ranges":
        for start, stop in ((0, 256), (256, 600), (600, 700)):
            made.write(slice(start, stop), values[start:stop])
    elif order == "scattered":
        for rows in np.array_split(np.random.default_rng(1).permutation(700), 3):
            made.write(rows, values[rows])
    else:
        for columns in (slice(0, 40), slice(40, 41), slice(41, 90)):
            for rows in np.array_split(np.random.default_rng(1).permutation(700), 2):
                made.write(rows, values[rows, columns], columns)
    return made, values


@pytest.mark.parametrize("order", ["ranges", "scattered", "columns"])
def test_any_bit_that_changes_in_a_temporary_file_is_found(tmp_path: Path, order: str) -> None:
    made, values = _written(tmp_path, order)
    np.testing.assert_array_equal(made.values, values)
    made.check()
    assert made._file is not None
    chosen = np.random.default_rng(2)
    for place in [0, values.nbytes - 1, *chosen.integers(0, values.nbytes, 20).tolist()]:
        flip_bit(made._file.descriptor, place, place % 8)
        with pytest.raises(CorruptError, match="numbers, from row"):
            made.check()
        flip_bit(made._file.descriptor, place, place % 8)
    made.check()


def test_what_is_written_to_a_mapped_array_stays_out_of_the_file(tmp_path: Path) -> None:
    made, values = _written(tmp_path, "ranges")
    mapped = made.values
    mapped += 1
    made.check()
    np.testing.assert_array_equal(made.values, values)


def test_rows_that_were_read_are_checked_without_the_others(tmp_path: Path) -> None:
    made, values = _written(tmp_path, "ranges")
    assert made._file is not None
    flip_bit(made._file.descriptor, 650 * values[0].nbytes)
    made.check(np.array([0, 255, 599]))
    with pytest.raises(CorruptError, match="from row 600"):
        made.check(np.array([3, 699]))


def test_a_page_of_zeros_in_the_place_of_values_is_found(tmp_path: Path) -> None:
    """As after a lost write."""
    made, _ = _written(tmp_path, "scattered")
    assert made._file is not None
    os.pwrite(made._file.descriptor, bytes(4096), 8192)
    with pytest.raises(CorruptError, match="numbers"):
        made.check()
