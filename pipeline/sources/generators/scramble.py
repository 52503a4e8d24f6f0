"""A cheap keyed bijection of the ids below any number, which scrambles ids as fast as a generator makes them.

Each round adds a key, multiplies by an odd number, and folds the high half into the low half. All three are bijections
of the numbers with a fixed number of bits. An image that is not below the given number is mapped again until it is
(cycle walking), less than twice on average. The bijection costs at most half as much as
:class:`gnnloom.storage.matrix.permutation.KeyedPermutation` and suffices if neither the inverse nor a proof is needed.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.matrix.permutation import mix


@njit(cache=True, nogil=True)
def scramble_ids(ids: NDArray[np.int64], size: int, key: np.uint64) -> None:
    """Replace ids by their images under a bijection, in place.

    Args:
        ids: (num_ids,) int64, below ``size``.
        size: the bijection maps the numbers below ``size`` to themselves.
        key: selects the bijection.
    """
    bits = 1
    while (1 << bits) < size:
        bits += 1
    mask, limit = (np.uint64(1) << np.uint64(bits)) - np.uint64(1), np.uint64(size)
    # At least half of the bits, so the upper part changes only bits below itself and the step can be undone.
    fold = np.uint64((bits + 1) // 2)
    first_key, second_key, third_key = mix(key), mix(key + np.uint64(1)), mix(key + np.uint64(2))
    # Odd multipliers have an inverse modulo a power of two, which makes the multiplication a bijection.
    first_odd, second_odd = mix(key + np.uint64(3)) | np.uint64(1), mix(key + np.uint64(4)) | np.uint64(1)
    # Cycle walking: repeat the rounds until the image is a valid id.
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
