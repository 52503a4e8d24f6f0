"""The sorter gives what NumPy gives, with any buffer, for any skew."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort import radix
from gnnloom.pipeline.external_sort.key_sorter import KeyRange, KeySorter, Segment, grouped
from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles, OpenLane, write_arrays
from gnnloom.storage.errors import DamagedWorkError
from support.covering import examples

#: One more than the highest key.
LIMIT = 1 << 45


@pytest.fixture(autouse=True, params=[0, radix.NUMPY_KEYS], ids=["kernels", "numpy"])
def _few_keys(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few keys are sorted by the kernels, as many are, or by NumPy."""
    monkeypatch.setattr(radix, "NUMPY_KEYS", request.param)


@contextmanager
def open_keys(folder: Path, keys: NDArray[np.uint64], weights: NDArray[np.float32] | None = None) -> Iterator[OpenLane]:
    """A file of keys and then weights."""
    (folder / "keys").touch()
    write_arrays(folder, Lane("keys"), [keys, *([] if weights is None else [weights])])
    with OpenFiles(folder) as files:
        yield files.lane(Lane("keys"))


def key_range(file: OpenLane, keys: NDArray[np.uint64], num_segments: int) -> KeyRange:
    cuts = np.linspace(0, len(keys), num_segments + 1).astype(int).tolist()
    segments = [Segment(file, start, stop, 0, 8 * len(keys), None) for start, stop in itertools.pairwise(cuts)]
    return KeyRange(0, LIMIT - 1, segments)


@pytest.mark.slow
@given(
    st.lists(st.integers(0, 40) | st.integers(0, LIMIT - 1), min_size=1, max_size=300),
    st.sampled_from(["sum", "min", "max", "first"]),
    st.integers(1, 30),
    st.integers(1, 5),
)
@settings(max_examples=examples(60), deadline=None)
def test_a_small_buffer_gives_what_a_large_one_gives(
    tmp_path_factory: pytest.TempPathFactory, values: list[int], merge: str, capacity: int, num_segments: int
) -> None:
    folder = tmp_path_factory.mktemp("keys")
    keys = np.array(values, dtype=np.uint64)
    weights = np.random.default_rng(len(values)).random(len(values), dtype=np.float32)
    with open_keys(folder, keys, weights) as file:
        whole = key_range(file, keys, num_segments)
        found = [
            (each.keys.copy(), each.weights.copy(), each.entries, each.first_key, each.last_key)
            for each in KeySorter(folder / "split", capacity, merge).sort(whole)
        ]
    distinct, inverse = np.unique(keys, return_inverse=True)
    of_key = [weights[inverse == k].astype(np.float64) for k in range(len(distinct))]
    reductions: dict[str, Callable[[Any], Any]] = {
        "sum": lambda w: np.cumsum(w)[-1],
        "min": np.min,
        "max": np.max,
        "first": lambda w: w[0],
    }
    np.testing.assert_array_equal(np.concatenate([each[0] for each in found]), distinct)
    expected = np.array([reductions[merge](w) for w in of_key]).astype(np.float32)
    np.testing.assert_array_equal(np.concatenate([each[1] for each in found]), expected)
    assert sum(each[2] for each in found) == len(keys)
    bounds = [bound for each in found for bound in each[3:]]
    assert bounds == sorted(bounds)
    assert (bounds[0], bounds[-1]) == (0, whole.last_key)
    assert not list((folder / "split").glob("*"))


@pytest.mark.slow
@pytest.mark.parametrize("capacity", [7, 1000])
def test_copies_of_a_single_key_need_no_more_memory_than_others(tmp_path: Path, capacity: int) -> None:
    keys = np.full(5000, 123, dtype=np.uint64)
    keys[::100] = np.arange(50, dtype=np.uint64)
    with open_keys(tmp_path, keys) as file:
        sorter = KeySorter(tmp_path / "split", capacity, None)
        found = [each.keys.copy() for each in sorter.sort(key_range(file, keys, 3))]
    np.testing.assert_array_equal(np.concatenate(found), np.unique(keys))


def test_scratch_memory_is_as_long_as_asked_for(tmp_path: Path) -> None:
    assert len(KeySorter(tmp_path, 10, None).scratch) >= 80
    assert len(KeySorter(tmp_path, 10, None, scratch_bytes=1001).scratch) >= 1001


def test_a_file_that_ends_early_is_an_error_and_leaves_no_split_files(tmp_path: Path) -> None:
    with open_keys(tmp_path, np.arange(90, dtype=np.uint64)) as file:
        whole = KeyRange(0, LIMIT - 1, [Segment(file, 0, 100, 0, 0, None)])
        with pytest.raises(DamagedWorkError, match="bytes 720 to 800, of 720"):
            list(KeySorter(tmp_path / "split", 10, None).sort(whole))
    assert not list((tmp_path / "split").iterdir())


def test_plain_keys_are_not_gathered_by_unit(tmp_path: Path) -> None:
    keys, weights = np.empty(1, np.uint64), np.empty(0, np.float32)
    with open_keys(tmp_path, keys) as file:
        segment = Segment(file, 0, 1, 0, 0, None)
        with pytest.raises(ValueError, match="keys: "):
            segment.gather(12, np.zeros(1, np.int64), keys, weights, (keys, weights))


def test_groups_keep_to_the_limit_unless_one_item_exceeds_it() -> None:
    assert list(grouped(np.array([3, 3, 3, 9, 1, 0, 5]), 6)) == [(0, 2), (2, 3), (3, 4), (4, 7)]
    assert list(grouped(np.array([], dtype=np.int64), 6)) == []
