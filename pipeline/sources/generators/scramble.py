"""A cheap keyed bijection of the ids below any number: scrambles what a generator makes at its own speed.

Each round adds a key, multiplies by an odd number, and folds the high half into the low one: all three are bijections
of the numbers of a fixed number of bits.  An image that is not below the number is mapped again until it is
(cycle walking), less than twice on average.  It costs at most half as much as
:class:`gnnloom.storage.matrix.permutation.KeyedPermutation`, and good enough where nobody needs the inverse or a proof.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.matrix.permutation import mix


@njit(cache=True, nogil=True)
def scramble_ids(ids: NDArray[np.int64], size: int, key: np.uint64) -> None:
    """Replace ids below ``size`` by their images under the bijection that ``key`` names, in place."""
    bits = 1
    while (1 << bits) < size:
        bits += 1
    mask, limit = (np.uint64(1) << np.uint64(bits)) - np.uint64(1), np.uint64(size)
    fold = np.uint64((bits + 1) // 2)
    first_key, second_key, third_key = mix(key), mix(key + np.uint64(1)), mix(key + np.uint64(2))
    first_odd, second_odd = mix(key + np.uint64(3)) | np.uint64(1), mix(key + np.uint64(4)) | np.uint64(1)
    for k in range(len(ids)):
        value = np.uint64(ids[k])
        while True:
            value = ((value ^ first_key) * first_odd) & mask
            value ^= value >> fold
            value = ((value + second_key) * second_odd) & mask
            value ^= value >> fold
            value = ((value + third_key) * first_odd) & mask
            value ^= value >> fold
            if value < limit:
                break
        ids[k] = np.int64(value)
