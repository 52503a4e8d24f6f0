"""Uniform batches: the expected number of rows that they send, and a hypergraph that models them without sampling.

A net sends its owner's row to part p, which holds c of its other pins, with probability f(c) = 1 - (1-q)^c whenever
the owner is drawn, which happens with probability q. The hypergraph has the full nets, and a 2-pin net for each of
their pins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.hypergraph import Hypergraph
from gnnloom.pipeline.partition.model.moves import WORD_BITS, bit_number, bit_of, lowest_bit
from gnnloom.pipeline.partition.native.program import NATIVE_LIMIT
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.kernels import kernel

#: Weights are whole numbers; a net and its 2-pin nets share this many units, so this is how fine their ratio is.
_SCALE = 64
#: The chord ends at this many times the pins that a part holds on average.
_FAR = 3


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
        return self.rate * float(_sum_sent(part[self.owner], counts))


class PinCounts(NamedTuple):
    """The pins of each net in each part; kernels update it with every move.

    Attributes:
        pins: (num_nets, num_parts) int32.
        mask: (num_nets, num_words) uint64, a bit for each part with a pin.
        load: (num_parts,) int64 weight of each part.
        sending: (largest net + 1,) float64 the probability f(c).
    """

    pins: NDArray[np.int32]
    mask: NDArray[np.uint64]
    load: NDArray[np.int64]
    sending: NDArray[np.float64]

    @classmethod
    def of(cls, nets: BatchNets, part: NDArray[np.int32], parts: int) -> PinCounts:
        """Count the pins for (num_vertices,) int32 parts."""
        full = nets.full
        # Usually the largest state of the annealing; native programs take nets of at most 2^31 - 1 pins.
        count = np.zeros((full.num_nets, parts), dtype=np.int32)
        mask = np.zeros((full.num_nets, -(-parts // WORD_BITS)), dtype=np.uint64)
        load = np.zeros(parts, dtype=np.int64)
        np.add.at(load, part, full.vertex_weight)
        # A table, because kernels would otherwise compute a power for every pin that they weigh. Products, because
        # NumPy's powers differ in their last bits between processors, and annealing would then give other parts.
        missing = np.full(int(np.diff(full.net_offset).max(initial=0)) + 1, 1 - nets.rate)
        missing[0] = 1.0
        counts = cls(count, mask, load, 1 - np.multiply.accumulate(missing))
        _count_pins(full.net_offset, full.pin, part, counts)
        return counts


def count_bytes(num_nets: int, parts: int) -> int:
    """Return the bytes of a count and a bit for each net and part."""
    return num_nets * (4 * parts + 8 * -(-parts // WORD_BITS))


@kernel
def _count_pins(offset: NDArray[np.int64], pin: NDArray[Any], part: NDArray[np.int32], counts: PinCounts) -> None:
    """Add all pins to the counts."""
    for net in range(len(offset) - 1):
        for position in range(offset[net], offset[net + 1]):
            add_pin(counts, net, part[pin[position]])


@kernel
def _sum_sent(sender: NDArray[np.int32], counts: PinCounts) -> float:
    """Sum f over the nets and their parts, except for the part of the sender.

    Args:
        sender: (num_nets,) int32 part of each net's owner.
    """
    total = 0.0
    # The mask finds the few parts with a pin among many.
    for net in range(len(sender)):
        for word in range(counts.mask.shape[1]):
            bits = counts.mask[net, word]
            while bits:
                lowest = lowest_bit(bits)
                part = word * WORD_BITS + bit_number(lowest)
                if part != sender[net]:
                    total += counts.sending[counts.pins[net, part]]
                bits ^= lowest
    return total


@kernel(inline="always")
def add_pin(counts: PinCounts, net: int, part: int) -> None:
    """Add a pin of a net to a part."""
    counts.pins[net, part] += 1
    counts.mask[net, part // WORD_BITS] |= bit_of(part)


@kernel(inline="always")
def remove_pin(counts: PinCounts, net: int, part: int) -> None:
    """Take a pin of a net out of a part."""
    counts.pins[net, part] -= 1
    if counts.pins[net, part] == 0:
        counts.mask[net, part // WORD_BITS] &= ~bit_of(part)


def uniform_hypergraph(full: Hypergraph, owner: NDArray[np.int64], rate: float, parts: int) -> Hypergraph:
    """Build full nets and 2-pin nets, weighted for batches of uniform vertices.

    For a net of s pins, 1 - (1-rate)^c is replaced by its chord through c = 1 and c = 3 s / P, a few times what a
    part holds on average.  The constant of the chord is the weight of the full net, its slope the weight of each of
    the 2-pin nets.  Equal 2-pin nets are merged.

    Args:
        full: the column-net hypergraph, with nets of unit weight.
        owner: (num_nets,) int64 the pin of each net that sends.
        rate: the share of the vertices that is drawn, above 0.
        parts: number of parts P.
    """
    size = np.diff(full.net_offset)
    far = np.maximum(2.0, _FAR * size / parts)
    slope = ((1 - rate) - (1 - rate) ** far) / (far - 1)
    # Every net and every pin weighs at most one scale, and the sum must not overflow in a native partitioner.
    scale = max(1, min(_SCALE, NATIVE_LIMIT // (full.num_nets + full.num_pins + 1)))
    pair_weight = np.rint(scale * slope / rate).astype(np.int64)
    net_weight = scale - pair_weight
    # A net of two pins is its own 2-pin net.
    net_weight[size == 2] = 0
    pair_weight[size == 2] = scale
    pair, weight = _merged_pairs(full, owner, pair_weight)
    kept = net_weight > 0
    offset = np.cumsum(np.concatenate([[0], size[kept], np.full(len(pair), 2)])).astype(np.int64)
    pins = np.concatenate([full.pin[np.repeat(kept, size)], pair.reshape(-1).astype(full.pin.dtype)])
    return Hypergraph(full.vertex_weight, offset, pins, np.concatenate([net_weight[kept], weight]))


def _merged_pairs(
    full: Hypergraph, owner: NDArray[np.int64], pair_weight: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(num_pairs, 2) int64 distinct pairs of an owner and another pin, ascending, and their summed weights."""
    size = np.diff(full.net_offset)
    sender, weight = np.repeat(owner, size), np.repeat(pair_weight, size)
    # The owner sends nothing to itself, and a weight that was rounded to 0 would be refused.
    useful = (sender != full.pin) & (weight > 0)
    sender, pin, weight = sender[useful], full.pin[useful].astype(np.int64), weight[useful]
    # Pairs are unordered.  Native partitioners take fewer than 2^31 vertices, so the product fits int64.
    key = np.minimum(sender, pin) * full.num_vertices + np.maximum(sender, pin)
    distinct, position = np.unique(key, return_inverse=True)
    total = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(total, position, weight)
    return np.stack(np.divmod(distinct, full.num_vertices), axis=1), total


def net_owners(matrices: Sequence[Graph]) -> NDArray[np.int64]:
    """Return the (num_nets,) int64 owner of each net of the hypergraph whose nets are the rows of ``matrices``.

    Nets of one pin are left out, as in :func:`gnnloom.pipeline.partition.model.hypergraph.column_net_hypergraph`.
    """
    owners = [np.empty(0, dtype=np.int64)]
    for matrix in matrices:
        owners += [rows_with_others(block.row_offset, block.indptr, block.indices) for block in matrix.blocks()]
    return np.concatenate(owners)


def rows_with_others(first_row: int, indptr: NDArray[np.int64], indices: NDArray[Any]) -> NDArray[np.int64]:
    """Return the (num_nets,) int64 rows with a column other than their own number, which own the nets of a block."""
    # Owners are matched to nets by position: the same rows as in the hypergraph, in the same order.
    length, row = np.diff(indptr), np.arange(len(indptr) - 1)
    is_owner, single = length > 1, row[length == 1]
    is_owner[single] = indices[indptr[single]] != first_row + single
    return first_row + np.flatnonzero(is_owner)
