"""Keyed permutations are bijections with an inverse, for any size, and random enough to balance shards."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.permutation import KeyedPermutation, permute_by_network
from support.chi_squared import quantile

#: Part of the on-disk format: these ids must never change.
FIRST_OF_THOUSAND = [863, 171, 287, 82, 849]
FEW_BY_NETWORK, FEW_SHUFFLED = [2, 7, 4, 0, 8], [2, 9, 5, 4, 8]

KEYS = st.integers(0, 2**64 - 1)


@settings(deadline=None)
@given(size=st.integers(1, 5000), key=KEYS)
def test_every_id_is_hit_once(size: int, key: int) -> None:
    permuted = KeyedPermutation(size, key).forward(np.arange(size))
    np.testing.assert_array_equal(np.sort(permuted), np.arange(size))


@settings(deadline=None)
@given(size=st.integers(1, 10**12), key=KEYS, seed=st.integers(0, 2**32))
def test_inverse_undoes_forward_for_any_size(size: int, key: int, seed: int) -> None:
    permutation = KeyedPermutation(size, key)
    ids = np.unique(np.random.default_rng(seed).integers(0, size, 200))
    permuted = permutation.forward(ids)
    assert permuted.min() >= 0
    assert permuted.max() < size
    assert len(np.unique(permuted)) == len(ids)
    np.testing.assert_array_equal(permutation.inverse(permuted), ids)
    np.testing.assert_array_equal(permutation.forward(permutation.inverse(ids)), ids)


@pytest.mark.parametrize("size", [2**24 + 1, 2**31 - 1, 2**31 + 1, 2**53 + 1, 2**62])
def test_ids_beyond_float_and_int32_are_exact(size: int) -> None:
    permutation = KeyedPermutation(size, 7)
    ids = np.array([0, 1, size // 2, size - 2, size - 1])
    np.testing.assert_array_equal(permutation.inverse(permutation.forward(ids)), ids)


def test_the_order_is_part_of_the_format() -> None:
    np.testing.assert_array_equal(
        KeyedPermutation(10, 42).forward(np.arange(10)),
        KeyedPermutation.from_json(KeyedPermutation(10, 42).to_json()).forward(np.arange(10)),
    )
    assert KeyedPermutation(1000, 1).forward(np.arange(5)).tolist() == FIRST_OF_THOUSAND
    assert KeyedPermutation(65, 1).to_json() == {"type": "feistel", "rounds": 6, "size": 65, "key": 1}
    assert KeyedPermutation.from_json(KeyedPermutation(65, 1).to_json()) == KeyedPermutation(65, 1)
    few_by_network = {"type": "feistel", "rounds": 6, "size": 10, "key": 42}
    for wrong in ({"type": "table"}, {"type": "shuffle", "size": 65, "key": 1}, few_by_network):
        with pytest.raises(InputError, match="expected type 'shuffle' for up to 64 ids"):
            KeyedPermutation.from_json(wrong)


def test_few_ids_are_shuffled_unless_the_network_is_asked_for() -> None:
    assert permute_by_network(np.arange(5), 10, 42).tolist() == FEW_BY_NETWORK
    assert KeyedPermutation(10, 42).forward(np.arange(5)).tolist() == FEW_SHUFFLED


#: Quantile beyond which a chi-squared statistic is refused. The keys are fixed, so a test passes always or never.
RARE = 1 - 1e-5


@pytest.mark.parametrize("size", range(2, 6))
def test_every_permutation_of_few_ids_is_equally_likely(size: int) -> None:
    number = {order: place for place, order in enumerate(itertools.permutations(range(size)))}
    expected = 50
    keys = range(expected * math.factorial(size))
    found = [number[tuple(KeyedPermutation(size, key).forward(np.arange(size)))] for key in keys]
    counts = np.bincount(found, minlength=len(number))
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert statistic < quantile(RARE, len(number) - 1)


@pytest.mark.parametrize("size", [2, 3, 6, 7, 8, 9, 13, 16, 33, 64])
def test_every_id_takes_every_place_equally_often(size: int) -> None:
    expected = 40
    counts = np.zeros((size, size))
    for key in range(expected * size):
        counts[np.arange(size), KeyedPermutation(size, key).forward(np.arange(size))] += 1
    # Rows and columns of the counts have fixed sums, so (size - 1)^2 of the counts are free; the statistic of a uniform
    # permutation is then (size - 1) / size times chi-squared, up to terms that vanish with more keys.
    statistic = float(((counts - expected) ** 2 / expected).sum()) * (size - 1) / size
    assert statistic < quantile(RARE, (size - 1) ** 2)


def test_keys_give_different_orders() -> None:
    orders = {tuple(KeyedPermutation(50, key).forward(np.arange(50))) for key in range(200)}
    assert len(orders) == 200


def test_ranges_are_spread_evenly() -> None:
    size, cells = 100_000, 64
    moved = KeyedPermutation(size, 3).forward(np.arange(size // 10))
    counts = np.histogram(moved, bins=cells, range=(0, size))[0]
    expected = size // 10 / cells
    chi_squared = float(((counts - expected) ** 2 / expected).sum())
    assert chi_squared < 120  # 63 degrees of freedom: 120 is beyond the 0.99999 quantile


def test_ids_out_of_range_are_refused() -> None:
    for ids in ([-1], [10], [0, 2**40]):
        with pytest.raises(IndexError, match=r"0\.\.9"):
            KeyedPermutation(10, 0).forward(np.array(ids))
    for size, key in ((-1, 0), (2**63, 0), (5, -1), (5, 2**64)):
        with pytest.raises(InputError, match="permutation"):
            KeyedPermutation(size, key)
    assert KeyedPermutation(0, 0).forward(np.empty(0, np.int64)).shape == (0,)
