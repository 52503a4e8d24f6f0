"""Spill files hold entries of any width in few bytes, and notice when they are damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort import raw_files, spill
from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles, writable
from gnnloom.pipeline.external_sort.spill import SpillFile
from gnnloom.storage.errors import CorruptError, DamagedWorkError


def bits_of(
    row: NDArray[np.uint64], column: NDArray[np.uint64], bits: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    entries = (row << np.uint64(bits)) | column
    return entries.astype(np.uint32), (entries >> np.uint64(32)).astype(np.uint32)


@pytest.mark.slow
def test_entries_of_wide_matrices_are_decoded_exactly() -> None:
    """Row and column share the 64 bits of an entry, here with ids beyond 2^34."""
    n = (1 << 34) + 5
    shift, bits = spill.unit_shift(n - 1), (n - 1).bit_length()
    column = np.array([0, n - 1, n - 2], dtype=np.uint64)
    row = np.array([0, 1, (1 << shift) - 1], dtype=np.uint64)
    low, high = bits_of(row, column, bits)
    keys = np.empty(3, dtype=np.uint64)
    spill.decode_entries(low, high, 0, np.array([0, 1, 3], dtype=np.int64), 0, shift, bits, bits, keys)
    np.testing.assert_array_equal(keys >> np.uint64(bits), row + np.array([0, 1, 1], np.uint64) * np.uint64(1 << shift))
    np.testing.assert_array_equal(keys & np.uint64((1 << bits) - 1), column)


def test_decoding_may_begin_within_a_bucket() -> None:
    shift, bits = 12, 13
    offsets = np.array([0, 2, 2, 5], dtype=np.int64)
    row, column = np.array([7, 9, 1, 2, 3], dtype=np.uint64), np.arange(5, dtype=np.uint64)
    low, _ = bits_of(row, column, bits)
    keys = np.empty(3, dtype=np.uint64)
    spill.decode_entries(low[1:4], np.empty(0, np.uint8), 1, offsets, 0, shift, bits, bits, keys)
    rows = row[1:4] + np.array([0, 2, 2], np.uint64) * np.uint64(1 << shift)
    np.testing.assert_array_equal(keys, (rows << np.uint64(bits)) | column[1:4])


def test_gathered_units_hold_the_keys_of_all_files_in_order() -> None:
    """Two files with buckets of 2^12 and 2^13 rows are gathered into units of 2^13 rows."""
    unit_shift, column_bits = 13, 20
    rng = np.random.default_rng(0)
    files = []
    for shift, column_max in ((12, 1 << 14), (13, 1 << 20)):
        row = np.sort(rng.integers(0, 3 << unit_shift, 500))
        column = rng.integers(0, column_max, 500)
        files.append((shift, (column_max - 1).bit_length(), row, column))
    units = [row >> unit_shift for _, _, row, _ in files]
    sizes = np.bincount(np.concatenate(units), minlength=3)
    position = np.cumsum(sizes) - sizes
    keys, weights = np.empty(1000, np.uint64), np.empty(1000, np.float32)
    for number, (shift, bits, row, column) in enumerate(files):
        buckets = 3 << (unit_shift - shift)
        offsets = np.searchsorted(row >> shift, np.arange(buckets + 1))
        entries = ((row & ((1 << shift) - 1)) << bits) | column
        low, high = entries.astype(np.uint32), (entries >> 32).astype(np.uint8)
        own = np.full(500, number, np.float32)
        spill.gather_units(low, high, own, offsets, 0, shift, bits, column_bits, unit_shift, position, keys, weights)
    np.testing.assert_array_equal(position, np.cumsum(sizes))
    plain = np.concatenate([(row << column_bits) | column for _, _, row, column in files]).astype(np.uint64)
    order = np.argsort(np.concatenate(units), kind="stable")
    np.testing.assert_array_equal(keys, plain[order])
    np.testing.assert_array_equal(weights, np.repeat([0, 1], 500)[order])


def test_the_widest_matrix_fits_64_bits() -> None:
    highest = spill.MAX_VERTICES - 1
    assert spill.unit_shift(highest) + highest.bit_length() <= 64
    assert spill.unit_shift(highest) <= spill.unit_shift(highest + 1)


@pytest.mark.parametrize(("max_id", "expected"), [(0, 4), ((1 << 20) - 1, 4), ((1 << 24) - 1, 5), ((1 << 35) - 1, 8)])
def test_entries_take_the_bytes_that_their_ids_need(max_id: int, expected: int) -> None:
    assert spill.KeyForm(max_id + 1).entry_bytes == expected


def test_files_of_one_lane_are_described_and_read_as_they_were_written(tmp_path: Path) -> None:
    """Three entries of 40 bits with weights, in two buckets, after a file with a single entry of 32 bits."""
    lane = Lane("one")
    (tmp_path / "one").touch()
    first = SpillFile(0, 1, 12, 20, 1, value_bytes=0)
    second = SpillFile(first.stop, 3, 20, 20, 2, value_bytes=4)
    with writable(tmp_path, lane) as out:
        first.begin(out, np.array([0, 1]))
        out.write(first.low_at, np.array([7], np.uint32))
        second.begin(out, np.array([0, 1, 3]))
        for place, array in ((second.low_at, np.uint32), (second.high_at, np.uint8), (second.values_at, np.float32)):
            out.write(place, np.arange(3, dtype=array))
    with OpenFiles(tmp_path) as files:
        opened = files.lane(lane)
        assert list(SpillFile.read_all(opened, second.stop)) == [first, second]
        np.testing.assert_array_equal(second.offsets(opened, 0, 9), [0, 1, 3])
        np.testing.assert_array_equal(second.offsets(opened, 1, 2), [1, 3])
        high, weights = np.empty(3, np.uint8), np.empty(3, np.float32)
        opened.read(second.high_at, high)
        opened.read(second.values_at, weights)
        with pytest.raises(DamagedWorkError, match=f"bytes {second.stop} to {second.stop + 1}, of {second.stop}"):
            opened.read(second.stop, np.empty(1, np.uint8))
    np.testing.assert_array_equal(high, weights)


def test_a_short_spill_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"12345678")
    with pytest.raises(CorruptError, match=r"short: .* 8 "):
        raw_files.read_bytes(tmp_path / "short", 0, np.empty(2, dtype=np.uint64))
