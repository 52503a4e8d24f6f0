"""The radix sort gives what NumPy's sort gives, for any number and distribution of keys."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.radix import (
    CACHED_BITS,
    MERGE_MODES,
    NUMPY_KEYS,
    bit_length,
    merge_equal_keys,
    sort_buckets,
    sort_few,
    sort_keys,
    unique_keys,
)

NONE = np.empty(0, dtype=np.float32)


def random_keys(count: int, bits: int) -> NDArray[np.uint64]:
    return np.random.default_rng(count + bits).integers(0, (1 << bits) - 1, count, dtype=np.uint64, endpoint=True)


@pytest.mark.parametrize("value", [0, 1, 2, 255, 256, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_the_bit_length_is_pythons(value: int) -> None:
    assert bit_length(np.uint64(value)) == value.bit_length()


@pytest.mark.parametrize("count", [0, 1, 2, 31, 32, 1000, 300_000])
def test_keys_are_sorted_as_numpy_sorts_them(count: int) -> None:
    for bits in (0, 1, 7, 11, 12, 40, 63, 64):
        keys = random_keys(count, bits)
        expected = np.sort(keys)
        sort_keys(keys, NONE, np.empty_like(keys), NONE, bits)
        np.testing.assert_array_equal(keys, expected, f"{bits} bits")


@pytest.mark.parametrize("count", [5, 40, 200_000])
def test_equal_keys_keep_their_order(count: int) -> None:
    keys = np.random.default_rng(count).integers(0, 7, count).astype(np.uint64) << np.uint64(30)
    weights = np.arange(count, dtype=np.float32)
    order = np.argsort(keys, kind="stable")
    sort_keys(keys, weights, np.empty_like(keys), np.empty_like(weights), 40)
    np.testing.assert_array_equal(weights, order.astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_few_keys_are_sorted_as_many_are(dtype: type[np.generic]) -> None:
    keys = np.random.default_rng(1).integers(0, 50, NUMPY_KEYS).astype(np.uint64)
    order, given = np.argsort(keys, kind="stable"), keys.copy()
    weights = np.arange(len(keys)).astype(dtype)
    assert sort_few(keys, weights)
    np.testing.assert_array_equal(keys, given[order])
    np.testing.assert_array_equal(weights, order.astype(dtype))
    assert sort_few(given, NONE)
    np.testing.assert_array_equal(given, keys)
    more = np.arange(NUMPY_KEYS + 1, dtype=np.uint64)[::-1].copy()
    assert not sort_few(more, NONE)
    assert more[0] == NUMPY_KEYS


def test_skewed_keys_are_sorted() -> None:
    rng = np.random.default_rng(3)
    keys = (rng.zipf(1.3, 400_000).astype(np.uint64) % np.uint64(1 << 40)) << np.uint64(3)
    expected = np.unique(keys)
    sort_keys(keys, NONE, np.empty_like(keys), NONE, 43)
    np.testing.assert_array_equal(keys[: unique_keys(keys)], expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_buckets_of_any_size_are_sorted_stably(weighted: bool) -> None:
    """Empty and small buckets, one that fits the cache, and one that is split once more."""
    sizes = np.array([0, 1, 20, 0, 5000, (4 << CACHED_BITS) + 1, 3], dtype=np.int64)
    bucket = np.repeat(np.arange(len(sizes), dtype=np.uint64), sizes)
    keys = (bucket << np.uint64(20)) | (random_keys(len(bucket), 17) & np.uint64(0x1F0F3))
    weights = np.arange(len(keys) if weighted else 0, dtype=np.float32)
    order = np.argsort(keys, kind="stable")
    expected = keys[order]
    sort_buckets(keys, weights, np.empty_like(keys), np.empty_like(weights), sizes, 17)
    np.testing.assert_array_equal(keys, expected)
    if weighted:
        np.testing.assert_array_equal(weights, order.astype(np.float32))


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_distinct_keys_are_those_of_numpy(count: int) -> None:
    keys = np.sort(random_keys(count, 6))
    expected = np.unique(keys)
    assert unique_keys(keys) == len(expected)
    np.testing.assert_array_equal(keys[: len(expected)], expected)


@pytest.mark.parametrize(
    ("merge", "expected"),
    [("sum", [6.0, 4.0]), ("min", [1.0, 4.0]), ("max", [3.0, 4.0]), ("first", [2.0, 4.0])],
)
def test_weights_of_equal_keys_are_merged(merge: str, expected: list[float]) -> None:
    keys = np.array([5, 5, 5, 9], dtype=np.uint64)
    weights = np.array([2, 1, 3, 4], dtype=np.float32)
    assert merge_equal_keys(keys, weights, MERGE_MODES[merge]) == 2
    assert keys[:2].tolist() == [5, 9]
    assert weights[:2].tolist() == expected


def test_a_sum_of_weights_is_rounded_once() -> None:
    """Added one by one in float32, a million weights of 0.1 would be off by about 1 per cent."""
    count = 1_000_000
    keys = np.zeros(count, dtype=np.uint64)
    weights = np.full(count, 0.1, dtype=np.float32)
    expected = np.float32(np.cumsum(weights.astype(np.float64))[-1])
    assert merge_equal_keys(keys, weights, MERGE_MODES["sum"]) == 1
    assert weights[0] == expected


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20))
def test_a_sum_of_weights_does_not_depend_on_their_order(given_weights: list[float]) -> None:
    sums = set()
    for order in (given_weights, given_weights[::-1], sorted(given_weights), sorted(given_weights, key=abs)):
        keys, weights = np.zeros(len(order), np.uint64), np.array(order, np.float32)
        merge_equal_keys(keys, weights, MERGE_MODES["sum"])
        sums.add(str(weights[0]))
    if math.inf in given_weights or -math.inf in given_weights:
        expected = sum(value for value in given_weights if math.isinf(value))
    else:
        expected = math.fsum(given_weights)
    with np.errstate(over="ignore"):
        # A sum of zeros may be a zero of either sign.
        assert {each.removeprefix("-") if float(each) == 0 else each for each in sums} == {
            str(np.float32(expected + 0.0))
        }
