"""Checks row pointers and other offsets, because kernels use them as positions without checking them again."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.arrays import ArrayReader

#: Offsets that are compared at a time: few enough that the comparison stays in the cache.
_STEP: Final = 1 << 15


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
        CorruptError: the offsets break one of these rules.
    """
    if len(offsets) == 0 or offsets[0] != 0:
        raise CorruptError(f"{where}: expected to begin at 0, found {offsets[:1].tolist()}")
    _check_order(where, offsets)
    if offsets[-1] != total:
        raise CorruptError(f"{where}: ends at {offsets[-1]}, expected {total}")


def check_some_offsets(where: str, offsets: NDArray[np.int64], total: int) -> None:
    """Check that consecutive offsets out of an array of them never decrease, and lie in 0..``total``.

    Raises:
        CorruptError: the offsets break one of these rules.
    """
    _check_order(where, offsets)
    if len(offsets) and not 0 <= offsets[0] <= offsets[-1] <= total:
        raise CorruptError(f"{where}: offsets from {offsets[0]} to {offsets[-1]}, expected 0 to {total}")


def _check_order(where: str, offsets: NDArray[np.int64]) -> None:
    for start in range(0, len(offsets) - 1, _STEP):
        some = offsets[start : start + _STEP + 1]
        falls = some[1:] < some[:-1]
        if falls.any():
            first = int(falls.argmax())
            raise CorruptError(f"{where}: falls from {some[first]} to {some[first + 1]} after {start + first}")
