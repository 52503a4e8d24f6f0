"""What a part may weigh; parts by weight alone, and repairs of those that came out too heavy or empty."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray


def asked_limit(total: int, parts: int, imbalance: float) -> int:
    """The weight that no part may exceed: (1 + imbalance) times the average, never below that nor above the total."""
    return max(math.floor((1 + min(imbalance, parts - 1)) * total / parts), -(-total // parts))


def heaviest_allowed(weight: NDArray[np.int64], parts: int, imbalance: float) -> int:
    """The weight that no part may exceed: what was asked for, or what the heaviest vertex forces.

    Args:
        weight: (num_vertices,) int64.
    """
    return max(asked_limit(int(weight.sum()), parts, imbalance), int(weight.max(initial=0)))


def native_imbalance(weight: NDArray[np.int64], parts: int, imbalance: float) -> float:
    """What to ask of a partitioner that measures from the average *rounded up*, so that parts stay within the limit.

    Half a unit keeps a product that should be whole from being cut off below it.
    """
    total = int(weight.sum())
    return (asked_limit(total, parts, imbalance) + 0.5) / -(-total // parts) - 1


def repair_balance(part: NDArray[np.int32], weight: NDArray[np.int64], parts: int, imbalance: float) -> int:
    """Move light vertices out of parts that are too heavy, each to the lightest part; changes ``part`` in place.

    A part that holds few but heavy vertices may stay too heavy: what is reported is measured.

    Returns:
        The number of vertices moved.
    """
    limit = heaviest_allowed(weight, parts, imbalance)
    load = np.zeros(parts, dtype=np.int64)
    np.add.at(load, part, weight)
    if (load <= limit).all():
        return 0
    movable = np.flatnonzero(load[part] > limit)
    movable = movable[np.argsort(weight[movable], kind="stable")]
    return int(_unload(movable, part, weight, load, limit))


@njit(cache=True, nogil=True)
def _unload(
    movable: NDArray[np.int64],
    part: NDArray[np.int32],
    weight: NDArray[np.int64],
    load: NDArray[np.int64],
    limit: int,
) -> int:
    """Move vertices in this order while their part is too heavy and the lightest part has room for them."""
    size = np.zeros(len(load), np.int64)
    for vertex in range(len(part)):
        size[part[vertex]] += 1
    moved = 0
    for vertex in movable:
        source = part[vertex]
        if load[source] <= limit or size[source] == 1:
            continue
        target = np.argmin(load)
        if load[target] + weight[vertex] > limit:
            continue
        load[source] -= weight[vertex]
        load[target] += weight[vertex]
        size[source] -= 1
        size[target] += 1
        part[vertex] = target
        moved += 1
    return moved


def fill_empty_parts(part: NDArray[np.int32], weight: NDArray[np.int64], parts: int) -> int:
    """Give every empty part the lightest vertex that is not alone in its part; changes ``part`` in place.

    Args:
        part: (num_vertices,) int32; num_vertices is at least ``parts``.
        weight: (num_vertices,) int64.

    Returns:
        The number of vertices moved.
    """
    size = np.bincount(part, minlength=parts)
    empty = np.flatnonzero(size == 0)
    if not len(empty):
        return 0
    moved = 0
    for vertex in np.argsort(weight, kind="stable"):
        if moved == len(empty):
            break
        if size[part[vertex]] > 1:
            size[part[vertex]] -= 1
            part[vertex] = empty[moved]
            size[empty[moved]] = 1
            moved += 1
    return moved


def spread(weight: NDArray[np.int64], parts: int) -> NDArray[np.int32]:
    """(num_vertices,) parts of vertices that nothing joins: the heaviest first, each to the lightest part."""
    part = np.empty(len(weight), dtype=np.int32)
    place_in_order(np.argsort(-weight, kind="stable"), weight, part, np.zeros(parts, dtype=np.int64))
    return part


@njit(cache=True, nogil=True)
def place_in_order(
    order: NDArray[np.int64], weight: NDArray[np.int64], part: NDArray[np.int32], load: NDArray[np.int64]
) -> None:
    """Put each vertex in turn into the part that is the lightest by then, the first of equals.

    Heaviest first, this is Graham's longest-processing-time rule (SIAM J. Appl. Math. 17(2), 1969).

    Args:
        order: (num_vertices,) int64.
        part: (num_vertices,) int32, filled.
        load: (num_parts,) int64 weight of each part before, and after.
    """
    parts = len(load)
    # The lightest part is at the root.
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
