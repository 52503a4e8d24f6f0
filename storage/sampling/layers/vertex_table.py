"""A hash table from vertices to their positions in a list, of a size in proportion to the list.

Open addressing with linear probing. A slot holds a position; the vertex is looked up in the list.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.permutation import GOLDEN


@kernel
def slot_bits(count: int) -> int:
    """Bits of the number of a slot, for a table that ``count`` vertices fill to between a quarter and a half."""
    bits = 4
    while (1 << bits) < 2 * count:
        bits += 1
    return bits


@kernel(inline="always")
def hashed(vertex: int, bits: int) -> int:
    """The upper bits of a multiplicative hash (Knuth, TAOCP 3, section 6.4), which spread consecutive ids evenly."""
    return int(np.int64((np.uint64(vertex) * GOLDEN) >> np.uint64(64 - bits)))


@kernel(inline="always")
def find_slot(slots: NDArray[np.int32], bits: int, vertices: NDArray[np.int64], vertex: int) -> int:
    """The slot of a vertex, or the free slot (-1) where it belongs."""
    mask = (1 << bits) - 1
    slot = hashed(vertex, bits)
    while slots[slot] >= 0 and vertices[slots[slot]] != vertex:
        slot = (slot + 1) & mask
    return slot


@kernel
def build_table(vertices: NDArray[np.int64], count: int, bits: int) -> NDArray[np.int32]:
    """The table of the first ``count`` vertices of a list without repeats."""
    slots = np.full(1 << bits, -1, np.int32)
    for position in range(count):
        slots[find_slot(slots, bits, vertices, vertices[position])] = position
    return slots
