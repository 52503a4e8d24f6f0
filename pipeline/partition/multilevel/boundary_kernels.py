"""The kernels that find a boundary: cut nets, and lists of the vertices and nets of a ring."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def mark_cut(offset: NDArray[np.int64], pin: NDArray[Any], part: NDArray[np.int32], ring_of: NDArray[np.uint8]) -> int:
    """Mark the nets of a block that are cut with 1; returns the number of their pins."""
    total = 0
    for net in range(len(offset) - 1):
        for k in range(offset[net], offset[net + 1]):
            # A net is cut if the part of any pin differs from that of the first, so the scan ends at such a pin.
            if part[pin[k]] != part[pin[offset[net]]]:
                ring_of[net] = 1
                total += offset[net + 1] - offset[net]
                break
    return total


@njit(cache=True, nogil=True)
def rows_of_rings(ring_of: NDArray[np.uint8], first_row: int, first: int, last: int) -> NDArray[np.int64]:
    """Rows with rings from ``first`` to ``last``, of consecutive ones from ``first_row`` on."""
    # Counted before they are listed: a comparison of all at once would take another byte for each.
    count = 0
    for ring in ring_of:
        count += first <= ring <= last
    rows = np.empty(count, np.int64)
    count = 0
    for row in range(len(ring_of)):
        if first <= ring_of[row] <= last:
            rows[count] = first_row + row
            count += 1
    return rows


@njit(cache=True, nogil=True)
def ids_of_ring(
    rows: NDArray[np.int64], offset: NDArray[np.int64], ids: NDArray[Any], ring_of: NDArray[np.uint8], ring: int
) -> NDArray[Any]:
    """The ids in the lists of some rows that are in no ring, or in this one already."""
    size = 0
    for row in rows:
        size += offset[row + 1] - offset[row]
    found = np.empty(size, ids.dtype)
    count = 0
    for row in rows:
        for k in range(offset[row], offset[row + 1]):
            if ring_of[ids[k]] == 0 or ring_of[ids[k]] == ring:
                found[count] = ids[k]
                count += 1
    return found[:count]


@njit(cache=True, nogil=True)
def count_pins(
    nets: NDArray[np.int64], offset: NDArray[np.int64], pin: NDArray[Any], ring_of: NDArray[np.uint8]
) -> tuple[int, int]:
    """Count the pins of nets, and those after contraction.

    Args:
        ring_of: (num_vertices,) uint8 ring of each vertex; 0 outside the boundary.
    """
    total, contracted = 0, 0
    for net in nets:
        inside = 0
        for k in range(offset[net], offset[net + 1]):
            inside += ring_of[pin[k]] > 0
        size = offset[net + 1] - offset[net]
        total += size
        # All pins outside share one part, since a cut net lies inside as a whole: they become one pin.
        contracted += inside + (inside < size)
    return total, contracted
