"""How many pins each net has in each part, and the rows that uniform batches are expected to send.

A net sends its owner's row to part p, which holds c of its other pins, with probability f(c) = 1 - (1-q)^c whenever
the owner is drawn, which happens with probability q.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.hypergraph import Hypergraph
from gnnloom.pipeline.partition.model.part_bits import WORD_BITS, bit_number, bit_of, lowest_bit


@dataclass(frozen=True)
class BatchNets:
    """The nets of uniform batches.

    Attributes:
        full: the column-net hypergraph.
        owner: (num_nets,) int64 the pin of each net that sends.
        rate: the share q of the vertices that is drawn, above 0.
    """

    full: Hypergraph
    owner: NDArray[np.int64]
    rate: float

    def expected_volume(self, part: NDArray[np.int32], parts: int) -> float:
        """Return the rows sent per batch on average: the sum of q f(c) over nets and parts without the owner.

        Args:
            part: (num_vertices,) int32.
            parts: number of parts P.
        """
        counts = PinCounts.of(self, part, parts)
        return self.rate * float(_sum_sent(part[self.owner], counts.count, counts.mask, counts.sending))


@dataclass(frozen=True)
class PinCounts:
    """The pins of each net in each part; kernels update it with every move.

    Attributes:
        count: (num_nets, num_parts) int32 pins.
        mask: (num_nets, num_words) uint64, a bit for each part with a pin.
        load: (num_parts,) int64 weight of each part.
        sending: (largest net + 1,) float64 the probability f(c).
    """

    count: NDArray[np.int32]
    mask: NDArray[np.uint64]
    load: NDArray[np.int64]
    sending: NDArray[np.float64]

    @classmethod
    def of(cls, nets: BatchNets, part: NDArray[np.int32], parts: int) -> Self:
        """Count the pins for (num_vertices,) int32 parts."""
        full = nets.full
        # Usually the largest state of the annealing; native programs take nets of at most 2^31 - 1 pins.
        count = np.zeros((full.num_nets, parts), dtype=np.int32)
        mask = np.zeros((full.num_nets, -(-parts // WORD_BITS)), dtype=np.uint64)
        _count_pins(full.net_offset, full.pin, part, count, mask)
        load = np.zeros(parts, dtype=np.int64)
        np.add.at(load, part, full.vertex_weight)
        # A table, because kernels would otherwise compute a power for every pin that they weigh. Products, because
        # NumPy's powers differ in their last bits between processors, and annealing would then give other parts.
        missing = np.full(int(np.diff(full.net_offset).max(initial=0)) + 1, 1 - nets.rate)
        missing[0] = 1.0
        return cls(count, mask, load, 1 - np.multiply.accumulate(missing))


def count_bytes(num_nets: int, parts: int) -> int:
    """Return the bytes of a count and a bit for each net and part."""
    return num_nets * (4 * parts + 8 * -(-parts // WORD_BITS))


@njit(cache=True, nogil=True)
def _count_pins(
    offset: NDArray[np.int64],
    pin: NDArray[Any],
    part: NDArray[np.int32],
    count: NDArray[np.int32],
    mask: NDArray[np.uint64],
) -> None:
    """Add all pins to ``count`` and ``mask``."""
    for net in range(len(offset) - 1):
        for position in range(offset[net], offset[net + 1]):
            add_pin(count, mask, net, part[pin[position]])


@njit(cache=True, nogil=True)
def _sum_sent(
    sender: NDArray[np.int32], count: NDArray[np.int32], mask: NDArray[np.uint64], sending: NDArray[np.float64]
) -> float:
    """Sum f over the nets and their parts, except for the part of the sender.

    Args:
        sender: (num_nets,) int32 part of each net's owner.
    """
    total = 0.0
    # The mask finds the few parts with a pin among many.
    for net in range(len(sender)):
        for word in range(mask.shape[1]):
            bits = mask[net, word]
            while bits:
                lowest = lowest_bit(bits)
                part = word * WORD_BITS + bit_number(lowest)
                if part != sender[net]:
                    total += sending[count[net, part]]
                bits ^= lowest
    return total


@njit(cache=True, nogil=True, inline="always")
def add_pin(count: NDArray[np.int32], mask: NDArray[np.uint64], net: int, part: int) -> None:
    """Add a pin of a net to a part."""
    count[net, part] += 1
    mask[net, part // WORD_BITS] |= bit_of(part)


@njit(cache=True, nogil=True, inline="always")
def remove_pin(count: NDArray[np.int32], mask: NDArray[np.uint64], net: int, part: int) -> None:
    """Take a pin of a net out of a part."""
    count[net, part] -= 1
    if count[net, part] == 0:
        mask[net, part // WORD_BITS] &= ~bit_of(part)
