"""Rows of a mapped array: the same as by indexing, whether the caller reads them or several threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gnnloom.storage.disk.mapped_rows import mapping_of, take_rows
from support.covering import few_of


@pytest.mark.parametrize(
    ("shape", "count"), few_of([(5000, 128), (5000, 128, 2), (1_500_000,)], [0, 1, 7, 1_500_000], together=1)
)
def test_rows_are_those_of_the_index(tmp_path: Path, shape: tuple[int, ...], count: int) -> None:
    rng = np.random.default_rng(3)
    given = rng.random(shape, np.float32)
    np.save(tmp_path / "given.npy", given)
    mapped = np.load(tmp_path / "given.npy", mmap_mode="r")
    rows = rng.integers(0, shape[0], count if len(shape) == 1 else count // 100)
    taken = take_rows(mapped, rows)
    assert type(taken) is np.ndarray
    np.testing.assert_array_equal(taken, given[rows])
    out = np.zeros_like(taken)
    with ThreadPoolExecutor(2) as threads:
        assert take_rows(mapped, rows, out, threads) is out
    np.testing.assert_array_equal(out, taken)


def test_views_of_a_mapped_array_know_their_mapping(tmp_path: Path) -> None:
    np.save(tmp_path / "given.npy", np.arange(12.0).reshape(4, 3))
    mapped = np.load(tmp_path / "given.npy", mmap_mode="r")
    for array in (mapped, np.asarray(mapped), np.asarray(mapped)[1:, :2]):
        assert mapping_of(array) is mapped.base
    assert mapping_of(np.arange(3)) is None
