"""Distinct numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def distinct(numbers: NDArray[Any]) -> NDArray[Any]:
    """The distinct integers of an array of any shape, ascending, as ``np.unique`` finds them.

    It sorts, where NumPy since version 2.3 fills a table of hashes, which takes a million numbers 20 times as long.

    >>> distinct(np.array([[3, 1], [3, 2]]))
    array([1, 2, 3])
    """
    ascending = np.sort(numbers, axis=None)
    is_first = np.ones(len(ascending), np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=is_first[1:])
    return ascending[is_first]
