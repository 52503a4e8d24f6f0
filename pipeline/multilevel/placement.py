"""Heavy-first random placement: balanced parts that know nothing of the nets, for refinement to start from."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.permutation import mix


def place_heavy_first(weight: NDArray[np.int64], parts: int, seed: int, part: NDArray[np.int32]) -> NDArray[np.int64]:
    """Fill ``part``: vertices from the heaviest on, equal ones in random order, each to the lightest part.

    Args:
        weight: (num_vertices,) int64.
        part: (num_vertices,) int32.

    Returns:
        (parts,) int64 weight of each part.

    Graham's longest-processing-time rule (SIAM J. Appl. Math. 17(2), 1969).
    """
    order = shuffled(len(weight), np.uint64(seed))
    order = order[np.argsort(-weight[order], kind="stable")]
    load = np.zeros(parts, dtype=np.int64)
    _place(order, weight, part, load)
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


@njit(cache=True, nogil=True)
def _place(
    order: NDArray[np.int64], weight: NDArray[np.int64], part: NDArray[np.int32], load: NDArray[np.int64]
) -> None:
    """Deal vertices in this order; ``heap`` has the lightest part at its root, parts of equal load by number."""
    parts = len(load)
    heap = np.arange(parts)
    for vertex in order:
        lightest = heap[0]
        part[vertex] = lightest
        load[lightest] += weight[vertex]
        # Sift the root down.
        place = 0
        while True:
            child = 2 * place + 1
            if child >= parts:
                break
            other = child + 1
            if other < parts and _before(load, heap[other], heap[child]):
                child = other
            if not _before(load, heap[child], lightest):
                break
            heap[place] = heap[child]
            place = child
        heap[place] = lightest


@njit(cache=True, nogil=True, inline="always")
def _before(load: NDArray[np.int64], one: int, other: int) -> bool:
    return bool(load[one] < load[other] or (load[one] == load[other] and one < other))
