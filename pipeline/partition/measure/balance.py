"""The largest weight of a part, parts by weight alone, and repairs of parts that are too heavy or empty."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.kernels import index_of_least, kernel

#: Parts that an exchange of vertices tries, the lightest first.
_MOST_PARTNERS: Final = 64


def asked_limit(total: int, parts: int, imbalance: float) -> int:
    """The weight that no part may exceed: (1 + imbalance) times the average, rounded down.

    The limit is never below the average rounded up, which some part always reaches.

    Args:
        total: weight of all vertices.
        imbalance: share above the average; P - 1 already allows everything in one part.
    """
    # Without the cap on the imbalance, a huge one would make the product infinite, which ``floor`` refuses.
    return max(math.floor((1 + min(imbalance, parts - 1)) * total / parts), -(-total // parts))


def heaviest_allowed(weight: NDArray[np.int64], parts: int, imbalance: float) -> int:
    """The weight that no part may exceed: the limit asked for, or the weight of the heaviest vertex if larger.

    Args:
        weight: (num_vertices,) int64.
    """
    return max(asked_limit(int(weight.sum()), parts, imbalance), int(weight.max(initial=0)))


def native_imbalance(weight: NDArray[np.int64], parts: int, imbalance: float) -> float:
    """The imbalance to ask of a partitioner that measures from the average *rounded up*.

    Args:
        weight: (num_vertices,) int64.
        imbalance: the share above the exact average that parts must stay within.
    """
    total = int(weight.sum())
    # Half a unit makes up for rounding: the product with the average must not come out just below the limit.
    return (asked_limit(total, parts, imbalance) + 0.5) / -(-total // parts) - 1


def repair_balance(part: NDArray[np.int32], weight: NDArray[np.int64], parts: int, imbalance: float) -> int:
    """Move light vertices out of parts that are too heavy, each to the lightest part; changes ``part`` in place.

    Where no vertex fits, vertices are exchanged for lighter ones. A part of a few heavy vertices may stay too heavy;
    the reported imbalance is measured afterwards.

    Args:
        part: (num_vertices,) int32.
        weight: (num_vertices,) int64.

    Returns:
        The number of vertices moved.
    """
    limit = heaviest_allowed(weight, parts, imbalance)
    # ``bincount`` with weights would sum in float64, which is exact only up to 2^53.
    load = np.zeros(parts, dtype=np.int64)
    np.add.at(load, part, weight)
    if (load <= limit).all():
        return 0
    # Only vertices of parts above the limit are sorted; all others stay where they are.
    movable = np.flatnonzero(load[part] > limit)
    movable = movable[np.argsort(weight[movable], kind="stable")]
    moved = int(_unload(movable, part, weight, load, limit))
    return moved + (0 if (load <= limit).all() else _exchange(part, weight, load, limit))


@kernel
def _unload(
    movable: NDArray[np.int64],
    part: NDArray[np.int32],
    weight: NDArray[np.int64],
    load: NDArray[np.int64],
    limit: int,
) -> int:
    """Move vertices in this order while their part is too heavy and they fit the lightest part; returns how many."""
    size = np.zeros(len(load), np.int64)
    for vertex in range(len(part)):
        size[part[vertex]] += 1
    moved = 0
    # Lightest vertices come first, so as few heavy ones as possible leave; no part loses its last vertex.
    for vertex in movable:
        source = part[vertex]
        # Checked for every vertex, because earlier moves may have brought its part below the limit.
        if load[source] <= limit or size[source] == 1:
            continue
        target = index_of_least(load)
        if load[target] + weight[vertex] > limit:
            continue
        load[source] -= weight[vertex]
        load[target] += weight[vertex]
        size[source] -= 1
        size[target] += 1
        part[vertex] = target
        moved += 1
    return moved


def _exchange(part: NDArray[np.int32], weight: NDArray[np.int64], load: NDArray[np.int64], limit: int) -> int:
    """Exchange vertices of parts that are too heavy for lighter ones of parts with room; returns how many moved."""
    order = np.lexsort((weight, part))
    first = np.searchsorted(part[order], np.arange(len(load) + 1))
    # Vertices of each part, the lightest first.
    members = {number: order[first[number] : first[number + 1]] for number in range(len(load))}
    moved = 0
    for source in np.flatnonzero(load > limit).tolist():
        while load[source] > limit:
            found = _best_exchange(source, members, weight, load, limit)
            if found is None:
                break
            target, given, taken = found
            for number, old, new in ((source, given, taken), (target, taken, given)):
                others = members[number][members[number] != old]
                members[number] = np.insert(others, np.searchsorted(weight[others], weight[new]), new)
                load[number] += weight[new] - weight[old]
                part[new] = number
            moved += 2
    return moved


def _best_exchange(
    source: int,
    members: Mapping[int, NDArray[np.int64]],
    weight: NDArray[np.int64],
    load: NDArray[np.int64],
    limit: int,
) -> tuple[int, int, int] | None:
    """The exchange that takes most weight from a part, or enough: the other part, and the vertex of each of the two.

    Args:
        members: vertices of each part, the lightest first.
    """
    own, best, found = weight[members[source]], 0, None
    for target in np.argsort(load, kind="stable")[:_MOST_PARTNERS].tolist():
        room = limit - int(load[target])
        if room <= best or best >= load[source] - limit:
            break
        others = weight[members[target]]
        # The lightest vertex of the other part for which the other part still has room.
        at = np.searchsorted(others, own - room)
        less = np.where(at < len(others), own - others[np.minimum(at, len(others) - 1)], 0)
        chosen = int(np.argmax(less))
        if less[chosen] > best:
            best, found = int(less[chosen]), (target, int(members[source][chosen]), int(members[target][at[chosen]]))
    return found


def fill_empty_parts(part: NDArray[np.int32], weight: NDArray[np.int64], parts: int) -> int:
    """Move a vertex to each empty part: the lightest that is not alone in its part; changes ``part`` in place.

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
    # Light vertices disturb the balance least.  The stable sort makes the choice among equal ones reproducible.
    order = np.argsort(weight, kind="stable")
    chosen = order[choose_for_empty(part[order], size)]
    part[chosen] = empty[: len(chosen)]
    return len(chosen)


def choose_for_empty(part: NDArray[np.int32], size: NDArray[np.int64]) -> list[int]:
    """Choose a vertex for each empty part: the first that is not alone in its part when it is its turn.

    The first P vertices suffice, as a part gives vertices until one is left, and only that one is passed over.

    Args:
        part: (num_vertices,) int32 parts of vertices, in the order of preference; not empty ones.
        size: (P,) int64 number of all vertices in each part; updated.

    Returns:
        The positions of the chosen vertices, in the order of the empty parts.
    """
    empty, chosen = np.flatnonzero(size == 0), list[int]()
    for position, source in enumerate(part):
        if len(chosen) == len(empty):
            break
        if size[source] > 1:
            size[source] -= 1
            size[empty[len(chosen)]] = 1
            chosen.append(position)
    return chosen


def fill_only_choice(part: NDArray[np.int32], parts: int) -> bool:
    """Fill ``part`` if there is nothing to choose: one part, or one for each vertex; returns whether it did.

    Args:
        part: (num_vertices,) int32.
    """
    if parts not in {1, len(part)}:
        return False
    part[:] = np.arange(len(part)) if parts > 1 else 0
    return True


def spread(weight: NDArray[np.int64], parts: int) -> NDArray[np.int32]:
    """(num_vertices,) int32 parts of vertices without nets: the heaviest first, each to the lightest part.

    Args:
        weight: (num_vertices,) int64.
    """
    part = np.empty(len(weight), dtype=np.int32)
    place_in_order(np.argsort(-weight, kind="stable"), weight, part, np.zeros(parts, dtype=np.int64))
    return part


@kernel
def place_in_order(
    order: NDArray[np.int64], weight: NDArray[np.int64], part: NDArray[np.int32], load: NDArray[np.int64]
) -> None:
    """Assign each vertex in turn to the part that is then the lightest, the first of equals.

    Heaviest first, this is Graham's longest-processing-time rule (SIAM J. Appl. Math. 17(2), 1969).

    Args:
        order: (num_vertices,) int64 vertices.
        weight: (num_vertices,) int64.
        part: (num_vertices,) int32, filled.
        load: (num_parts,) int64 weight of each part, all equal on entry; updated.
    """
    parts = len(load)
    # A binary heap of the parts with the lightest at the root; since all loads are equal, ascending numbers are a heap.
    heap = np.arange(parts)
    # Only the root's load changes, so one sift per vertex restores the heap: O(n log P) in all.
    for vertex in order:
        lightest = heap[0]
        part[vertex] = lightest
        load[lightest] += weight[vertex]
        # Sift the root down: it became heavier.
        position = 0
        while True:
            child = 2 * position + 1
            if child >= parts:
                break
            other = child + 1
            if other < parts and _before(load, heap[other], heap[child]):
                child = other
            if not _before(load, heap[child], lightest):
                break
            heap[position] = heap[child]
            position = child
        heap[position] = lightest


@kernel(inline="always")
def _before(load: NDArray[np.int64], one: int, other: int) -> bool:
    """Whether a part is lighter than another, or equal and has the smaller number."""
    # Ties go by number, so the order of places does not depend on the layout of the heap.
    return bool(load[one] < load[other] or (load[one] == load[other] and one < other))
