"""Distinct numbers are those of a set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gnnloom.storage.matrix.distinct import distinct
from support.covering import few_of


@pytest.mark.parametrize(
    ("dtype", "shape"), few_of([np.int32, np.int64], [(0,), (1,), (0, 3), (40,), (2, 30)], together=1)
)
def test_distinct_numbers_are_those_of_a_set_ascending(shape: tuple[int, ...], dtype: type[np.integer[Any]]) -> None:
    numbers = np.random.default_rng(1).integers(-9, 9, shape).astype(dtype)
    before = numbers.copy()
    found = distinct(numbers)
    assert found.dtype == dtype
    assert found.tolist() == sorted(set(numbers.ravel().tolist()))
    np.testing.assert_array_equal(numbers, before)
