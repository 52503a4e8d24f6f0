"""Distinct numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def distinct(numbers: NDArray[Any], *, overwrite: bool = False) -> NDArray[Any]:
    """The distinct integers of an array of any shape, ascending, as ``np.unique`` finds them.

    It sorts; NumPy fills a hash table since version 2.3, which takes 20 times as long for a million numbers.

    Args:
        overwrite: sort the numbers, of one dimension, in place instead of in a copy.

    >>> distinct(np.array([[3, 1], [3, 2]]))
    array([1, 2, 3])
    """
    ascending = numbers if overwrite else numbers.ravel().copy()
    ascending.sort()
    is_first = np.ones(len(ascending), np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=is_first[1:])
    return ascending[is_first]
