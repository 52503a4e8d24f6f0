"""Lists of nets: a hash that finds nets with the same pins, and the choice of some nets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.matrix.permutation import mix


@njit(cache=True, nogil=True, inline="always")
def pin_hash(pin: int) -> np.uint64:
    """Hash one pin; the sum over the pins of a net, modulo 2^64, does not depend on their order.

    Two different nets share a sum once in 2^64 pairs; then the cut counts one net with the weight of both.
    """
    # Without the constant, pin 0 would hash to 0 and would not change any sum.
    return mix(mix(np.uint64(pin) + np.uint64(0x9E3779B97F4A7C15)))


def select_nets(
    size: NDArray[np.int64], pin: NDArray[Any], kept: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return offsets and pins of the chosen nets.

    Args:
        size: (num_nets,) int64 pins of each net.
        pin: (num_pins,) pins, net by net.
        kept: (num_nets,) whether to keep each net.

    Returns:
        (num_kept + 1,) int64 offsets, and the pins of the kept nets.
    """
    return np.concatenate([[0], np.cumsum(size[kept])]).astype(np.int64), pin[np.repeat(kept, size)]
