"""The hypergraph of uniform batches, made without sampling: full nets, and a 2-pin net for each of their pins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.hypergraph import Hypergraph
from gnnloom.pipeline.partition.native.guard import NATIVE_LIMIT
from gnnloom.storage.artifacts.graph import Graph

#: Weights are whole numbers; a net and its 2-pin nets share this many units, so this is how fine their ratio is.
_SCALE = 64
#: The chord ends at this many times the pins that a part holds on average.
_FAR = 3


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
    """Return the (num_nets,) int64 owner of each net of the hypergraph with the rows of these matrices as nets.

    Nets of one pin are left out, as in :func:`gnnloom.pipeline.partition.model.hypergraph.column_net_hypergraph`.
    """
    owners = [np.empty(0, dtype=np.int64)]
    for matrix in matrices:
        owners += [rows_with_others(block.row_offset, block.indptr, block.indices) for block in matrix.blocks()]
    return np.concatenate(owners)


@njit(cache=True, nogil=True)
def rows_with_others(first_row: int, indptr: NDArray[np.int64], indices: NDArray[Any]) -> NDArray[np.int64]:
    """Return the (num_nets,) int64 rows with a column other than their own number, which own the nets of a block."""
    # Owners are matched to nets by position: the same rows as in the hypergraph, in the same order.
    rows = np.empty(len(indptr) - 1, np.int64)
    count = 0
    for row in range(len(indptr) - 1):
        length = indptr[row + 1] - indptr[row]
        if length > 1 or (length == 1 and indices[indptr[row]] != first_row + row):
            rows[count] = first_row + row
            count += 1
    return rows[:count]
