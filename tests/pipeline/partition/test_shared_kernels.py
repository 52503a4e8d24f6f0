"""What multilevel and stochastic share: bits of parts, random orders, acceptance of moves, and lists of nets."""

from __future__ import annotations

import math
from inspect import unwrap
from typing import Any

import numpy as np
import pytest
from numba import njit

from gnnloom.pipeline.partition.model.hypergraph import pin_hash, select_nets
from gnnloom.pipeline.partition.model.moves import (
    WORD_BITS,
    accepts_move,
    bit_number,
    bit_of,
    cooling,
    lowest_bit,
    shuffled,
)
from gnnloom.storage.matrix.random_numbers import stream_key


@njit
def _bits_of(word: Any) -> Any:
    found = []
    while word:
        lowest = lowest_bit(word)
        found.append(bit_number(lowest))
        word ^= lowest
    return found


@njit
def _count_accepted(gain: Any, heat: Any, key: Any, count: Any) -> Any:
    return sum([accepts_move(gain, heat, key, vertex) for vertex in range(count)])


@njit
def _sum_of_hashes(pins: Any) -> Any:
    total = np.uint64(0)
    for pin in pins:
        total += pin_hash(pin)
    return total


@pytest.mark.parametrize("numbers", [[0], [63], [0, 1, 31, 32, 63], list(range(64))])
def test_the_bits_of_a_word_are_visited_in_order(numbers: list[int]) -> None:
    word = np.uint64(sum(1 << number for number in numbers))
    assert list(_bits_of(word)) == numbers
    assert unwrap(bit_of)(WORD_BITS + numbers[-1]) == np.uint64(1) << np.uint64(numbers[-1])


def test_a_shuffle_is_a_permutation_that_depends_on_the_seed() -> None:
    first, other = shuffled(1000, np.uint64(1)), shuffled(1000, np.uint64(2))
    np.testing.assert_array_equal(np.sort(first), np.arange(1000))
    np.testing.assert_array_equal(first, shuffled(1000, np.uint64(1)))
    assert (first != other).mean() > 0.9


def test_the_last_two_passes_have_no_heat() -> None:
    assert cooling(1.5, 5) == pytest.approx([1.0, 0.5, 0.0, 0.0, 0.0])
    assert cooling(1.0, 1) == [0.0]
    assert cooling(0.0, 4) == [0.0] * 4


def test_losses_are_accepted_with_the_chance_of_their_heat() -> None:
    key, count = stream_key(0, "test"), 20_000
    assert _count_accepted(1.0, 0.0, key, count) == count
    assert _count_accepted(0.0, 0.0, key, count) == 0
    assert _count_accepted(-1.0, 0.0, key, count) == 0
    # Six standard deviations of a binomial count.
    assert _count_accepted(-1.0, 1.0, key, count) == pytest.approx(count / math.e, abs=6 * math.sqrt(count / 4))


def test_the_hash_of_a_net_does_not_depend_on_the_order_of_its_pins() -> None:
    pins = np.array([5, 0, 1 << 40])
    assert _sum_of_hashes(pins) == _sum_of_hashes(pins[::-1].copy())
    assert _sum_of_hashes(pins) != _sum_of_hashes(np.array([5, 1, 1 << 40]))


def test_chosen_nets_keep_their_pins() -> None:
    size, pin = np.array([2, 0, 3, 1]), np.array([4, 5, 6, 7, 8, 9], dtype=np.int32)
    offset, kept = select_nets(size, pin, np.array([False, True, True, True]))
    assert offset.tolist() == [0, 0, 3, 4]
    assert kept.tolist() == [6, 7, 8, 9]
    assert kept.dtype == np.int32
