"""Heavy-first random placement: balanced parts that know nothing of the nets, for refinement to start from."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.balance import place_in_order
from gnnloom.storage.matrix.permutation import mix


def place_heavy_first(weight: NDArray[np.int64], parts: int, seed: int, part: NDArray[np.int32]) -> NDArray[np.int64]:
    """Fill ``part``: vertices from the heaviest on, equal ones in random order, each to the lightest part.

    Args:
        weight: (num_vertices,) int64.
        part: (num_vertices,) int32.

    Returns:
        (parts,) int64 weight of each part.

    The longest-processing-time rule; see :func:`gnnloom.pipeline.partition.balance.place_in_order`.
    """
    order = shuffled(len(weight), np.uint64(seed))
    order = order[np.argsort(-weight[order], kind="stable")]
    load = np.zeros(parts, dtype=np.int64)
    place_in_order(order, weight, part, load)
    return load


def shuffled(count: int, seed: np.uint64) -> NDArray[np.int64]:
    """(count,) the numbers from 0 on in a random order."""
    key = np.empty(count, dtype=np.uint64)
    _fill_keys(seed, key)
    return np.argsort(key, kind="stable")


@njit(cache=True, nogil=True)
def _fill_keys(seed: np.uint64, key: NDArray[np.uint64]) -> None:
    begin = mix(seed + np.uint64(0x9E3779B97F4A7C15))
    for k in range(len(key)):
        key[k] = mix(begin ^ np.uint64(k))
