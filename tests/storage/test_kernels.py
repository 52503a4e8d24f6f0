"""The loops that stand for NumPy's functions give what these give."""

from __future__ import annotations

import numpy as np
import pytest

from gnnloom.storage.kernels import copy_elements, count_at_most, count_below, index_of_least


@pytest.mark.parametrize("size", [0, 1, 2, 7, 100])
def test_searches_count_as_numpy_does(size: int) -> None:
    ascending = np.sort(np.random.default_rng(size).integers(0, 30, size)).astype(np.int64)
    for value in range(-1, 32):
        assert count_at_most(ascending, value) == np.searchsorted(ascending, value, side="right")
        assert count_below(ascending, value) == np.searchsorted(ascending, value)


def test_the_least_of_several_is_the_first() -> None:
    values = np.array([4, 2, 3, 2], np.int64)
    assert index_of_least(values) == values.argmin()


def test_only_the_first_elements_are_overwritten() -> None:
    out = np.zeros(4, np.float32)
    copy_elements(np.array([1, 2], np.float32), out[1:])
    assert out.tolist() == [0, 1, 2, 0]
