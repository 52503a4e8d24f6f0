"""Checks row pointers and other offsets, because kernels use them as positions without checking them again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.disk.value_rules import Ascending, ValueCheck, first_fall
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.arrays import ArrayReader


def read_offsets(array: ArrayReader, total: int) -> NDArray[np.int64]:
    """Read offsets and check them with :func:`check_offsets`.

    Returns:
        (num_ranges + 1,) int64.
    """
    offsets: NDArray[np.int64] = array.read()
    check_offsets(array.where, offsets, total)
    return offsets


def check_offsets(where: str, offsets: NDArray[np.int64], total: int) -> None:
    """Check that offsets begin at 0, never decrease, and end at ``total``.

    Args:
        where: the array, for messages.
        offsets: (num_ranges + 1,) int64.
        total: the expected last offset.

    Raises:
        CorruptError: the offsets break a rule.
    """
    check = ValueCheck(where, Ascending(total))
    check.add(offsets)
    check.end()


def check_some_offsets(where: str, offsets: NDArray[np.int64], total: int) -> None:
    """Check that consecutive offsets, a part of an array of offsets, never decrease and lie in 0..``total``.

    Raises:
        CorruptError: the offsets break a rule.
    """
    fall = first_fall(offsets)
    if fall is not None:
        raise CorruptError(f"{where}: falls from {offsets[fall]} to {offsets[fall + 1]} after {fall}")
    if len(offsets) and not 0 <= offsets[0] <= offsets[-1] <= total:
        raise CorruptError(f"{where}: offsets from {offsets[0]} to {offsets[-1]}, expected 0 to {total}")
