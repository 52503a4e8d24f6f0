"""The kernels of streaming refinement: weigh the nets of each vertex in a block, choose a part, and move it.

Parts are named by their *index*: their position within the window of parts that the masks cover.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.part_bits import WORD_BITS, bit_number, bit_of, lowest_bit
from gnnloom.pipeline.partition.random_moves import accepts_move

#: A word of masks with every bit set.
_ALL: Final = np.uint64((1 << 64) - 1)


@njit(cache=True, nogil=True)
def move_vertices(
    first_vertex: int,
    offset: NDArray[np.int64],
    ids: NDArray[Any],
    vertex_weight: NDArray[np.int64],
    net_weight: NDArray[np.int64],
    part: NDArray[np.int32],
    position: NDArray[np.int64],
    first: int,
    window: NDArray[np.int64],
    mask: NDArray[np.uint64],
    load: NDArray[np.int64],
    limit: int,
    heat: float,
    key: np.uint64,
) -> int:
    """Visit a block of vertices in order; changes ``part``, ``mask`` and ``load``, and returns the number of moves.

    Args:
        first_vertex: number of the block's first vertex.
        offset: (num_rows + 1,) int64; row k of the block has the nets ids[offset[k]:offset[k + 1]].
        ids: (num_ids,) int32 or int64 nets.
        vertex_weight: (num_vertices,) int64.
        net_weight: (num_nets,) int64, or (0,) if all are 1.
        part: (num_vertices,) int32.
        position: (num_parts,) int64 position of each part.
        first: position of the window's first part.
        window: (num_indices,) int64 part at each index.
        mask: (num_nets, 2, num_words) uint64; see ``net_masks``.
        load: (num_parts,) int64 weight of each part.
        limit: weight up to which moves may fill a part.
        heat: a loss is accepted with a chance of exp(-loss / heat); 0 for never.
        key: of the random numbers of this pass.
    """
    touched = np.zeros(len(window), np.int64)
    candidates = np.empty(len(window), np.int64)
    whole = np.zeros(mask.shape[2], np.int64)
    moved = 0
    for row in range(len(offset) - 1):
        vertex = first_vertex + row
        # One vertex after the other: each sees the loads and masks that earlier moves left, so no move takes a part
        # above the limit.  A vertex whose part lies outside the window waits for that part's own window.
        source = position[part[vertex]] - first
        if not 0 <= source < len(window):
            continue
        nets = ids[offset[row] : offset[row + 1]]
        weight = vertex_weight[vertex]
        old = window[source]
        staying, count = _weigh_nets(nets, net_weight, mask, source, touched, candidates, whole)
        target = _best_target(touched, candidates[:count], window, load, source, weight, limit)
        # A part that is too heavy sends vertices even to parts where none of their nets has a pin.
        if target < 0 and load[old] > limit:
            target = _lightest(window, load, weight, limit)
        if target >= 0:
            new = window[target]
            # Nets without a pin in the target are cut once more, nets without another pin in the source once less:
            # (all - staying) - (all - touched).
            gain = touched[target] - staying
            accepted = accepts_move(gain, heat, key, vertex)
            # Without heat, moves that gain nothing only go to parts that stay lighter, so they cannot go in circles.
            if accepted or load[old] > limit or (gain == 0 and load[new] + weight < load[old]):
                _update_masks(nets, mask, source, target)
                part[vertex] = new
                load[old] -= weight
                load[new] += weight
                moved += 1
        # Clearing what was touched, not the window, keeps a visit proportional to the pins' parts.
        touched[candidates[:count]] = 0
    return moved


@njit(cache=True, nogil=True)
def _weigh_nets(
    nets: NDArray[Any],
    net_weight: NDArray[np.int64],
    mask: NDArray[np.uint64],
    source: int,
    touched: NDArray[np.int64],
    candidates: NDArray[np.int64],
    whole: NDArray[np.int64],
) -> tuple[int, int]:
    """Add up, in ``touched``, the weight of nets with a pin in each part, and list these parts in ``candidates``.

    Args:
        whole: (num_words,) int64, zero before and after; sums the nets with a pin in all parts of a word.

    Returns:
        The weight of the nets that keep a pin in the source, and the number of candidates.
    """
    source_word, source_bit = source // WORD_BITS, bit_of(source)
    staying, count = 0, 0
    for net in nets:
        weight = net_weight[net] if net_weight.size else 1
        if mask[net, 1, source_word] & source_bit:
            staying += weight
        for word in range(mask.shape[2]):
            bits = mask[net, 0, word]
            # Hubs touch every part; their full words are summed once per word instead of once per bit.
            if bits == _ALL:
                whole[word] += weight
                continue
            while bits:
                lowest = lowest_bit(bits)
                index = word * WORD_BITS + bit_number(lowest)
                if touched[index] == 0:
                    candidates[count] = index
                    count += 1
                touched[index] += weight
                bits ^= lowest
    for word in range(len(whole)):
        if whole[word]:
            for index in range(word * WORD_BITS, (word + 1) * WORD_BITS):
                if touched[index] == 0:
                    candidates[count] = index
                    count += 1
                touched[index] += whole[word]
            whole[word] = 0
    return staying, count


@njit(cache=True, nogil=True)
def _best_target(
    touched: NDArray[np.int64],
    candidates: NDArray[np.int64],
    window: NDArray[np.int64],
    load: NDArray[np.int64],
    source: int,
    weight: int,
    limit: int,
) -> int:
    """Return the candidate with room that has the most nets, the lightest of equals; -1 if none has room."""
    best = -1
    for index in candidates:
        if index == source or load[window[index]] + weight > limit:
            continue
        heavier = best < 0 or touched[index] > touched[best]
        if heavier or (touched[index] == touched[best] and load[window[index]] < load[window[best]]):
            best = index
    return best


@njit(cache=True, nogil=True)
def _lightest(window: NDArray[np.int64], load: NDArray[np.int64], weight: int, limit: int) -> int:
    """Return the index of the lightest part if it has room, else -1."""
    index = int(np.argmin(load[window]))
    return index if load[window[index]] + weight <= limit else -1


@njit(cache=True, nogil=True, inline="always")
def _update_masks(nets: NDArray[Any], mask: NDArray[np.uint64], source: int, target: int) -> None:
    """Move a pin of each net from one part to another: exact in the target, cautious in the source."""
    source_word, source_bit = source // WORD_BITS, bit_of(source)
    target_word, target_bit = target // WORD_BITS, bit_of(target)
    for net in nets:
        mask[net, 1, target_word] |= mask[net, 0, target_word] & target_bit
        mask[net, 0, target_word] |= target_bit
        # With two or more pins in the source, it is unknown how many remain: both bits stay until the next filling.
        if not mask[net, 1, source_word] & source_bit:
            mask[net, 0, source_word] &= ~source_bit
