"""The kernels of streaming refinement: weigh the nets of each vertex in a block, choose a part, and move it.

Parts are named by their *index*: their position within the window of parts that the masks cover.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.moves import WORD_BITS, accepts_move, bit_number, bit_of, lowest_bit
from gnnloom.pipeline.partition.multilevel.incidence import IncidenceBlock
from gnnloom.storage.kernels import count_below, index_of_least, kernel
from gnnloom.storage.matrix.random_numbers import unit

#: A word of masks with every bit set.
_ALL: Final = np.uint64((1 << 64) - 1)


class Moving(NamedTuple):
    """State that the moves of a pass through a window of parts depend on, for kernels.

    Attributes:
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

    vertex_weight: NDArray[np.int64]
    net_weight: NDArray[np.int64]
    part: NDArray[np.int32]
    position: NDArray[np.int64]
    first: int
    window: NDArray[np.int64]
    mask: NDArray[np.uint64]
    load: NDArray[np.int64]
    limit: int
    heat: float
    key: np.uint64


@kernel
def move_vertices(block: IncidenceBlock, work: Moving) -> int:
    """Visit a block of vertices in order; changes parts, masks and loads, and returns the number of moves."""
    touched = np.zeros(len(work.window), np.int64)
    candidates = np.empty(len(work.window), np.int64)
    whole = np.zeros(work.mask.shape[2], np.int64)
    moved = 0
    for row in range(len(block.offset) - 1):
        vertex = block.first_row + row
        # One vertex after the other: each sees the loads and masks that earlier moves left, so no move takes a part
        # above the limit.  A vertex whose part lies outside the window waits for that part's own window.
        source = work.position[work.part[vertex]] - work.first
        if not 0 <= source < len(work.window):
            continue
        nets = block.ids[block.offset[row] : block.offset[row + 1]]
        staying, count = _weigh_nets(nets, work.net_weight, work.mask, source, touched, candidates, whole)
        target, gains = _choose(vertex, source, staying, touched, candidates[:count], work)
        old = work.window[source]
        if target >= 0 and (gains or work.load[old] > work.limit):
            _update_masks(nets, work.mask, source, target)
            work.part[vertex] = work.window[target]
            work.load[old] -= work.vertex_weight[vertex]
            work.load[work.window[target]] += work.vertex_weight[vertex]
            moved += 1
        # Clearing only the touched entries, not the window, keeps a visit proportional to the parts of the pins.
        touched[candidates[:count]] = 0
    return moved


@kernel
def propose_moves(block: IncidenceBlock, work: Moving, buckets: int, moves: NDArray[np.int64]) -> int:
    """Choose the moves of a block of vertices, each as if it were the only one; returns how many there are.

    Args:
        buckets: classes into which random numbers divide the moves between two parts.
        moves: (at least num_rows, 2) int64, filled from the front: the vertex, and the class of the move,
            ``(bucket * num_parts + source) * num_parts + target``.  Moves that are good for the balance only are in
            the last bucket, number ``buckets``.
    """
    touched = np.zeros(len(work.window), np.int64)
    candidates = np.empty(len(work.window), np.int64)
    whole = np.zeros(work.mask.shape[2], np.int64)
    num_parts = len(work.load)
    found = 0
    for row in range(len(block.offset) - 1):
        vertex = block.first_row + row
        source = work.position[work.part[vertex]] - work.first
        if not 0 <= source < len(work.window):
            continue
        nets = block.ids[block.offset[row] : block.offset[row + 1]]
        staying, count = _weigh_nets(nets, work.net_weight, work.mask, source, touched, candidates, whole)
        target, gains = _choose(vertex, source, staying, touched, candidates[:count], work)
        old = work.window[source]
        if target >= 0 and (gains or work.load[old] > work.limit):
            # ``~key`` is another stream than the stream of chances to lose.
            bucket = int(unit(~work.key, np.uint64(vertex)) * buckets) if gains else buckets
            moves[found, 0] = vertex
            moves[found, 1] = (bucket * num_parts + old) * num_parts + work.window[target]
            found += 1
        touched[candidates[:count]] = 0
    return found


@kernel(inline="always")
def _choose(
    vertex: int, source: int, staying: int, touched: NDArray[np.int64], candidates: NDArray[np.int64], work: Moving
) -> tuple[int, bool]:
    """Return the index of the best part with room for a vertex, or -1, and whether it gains enough to move there."""
    window, load, limit, weight = work.window, work.load, work.limit, work.vertex_weight[vertex]
    old = window[source]
    target = _best_target(touched, candidates, window, load, source, weight, limit)
    # A part that is too heavy sends vertices even to parts where none of their nets has a pin.
    if target < 0 and load[old] > limit:
        target = _lightest(window, load, weight, limit)
    gains = False
    if target >= 0:
        # Nets without a pin in the target are cut once more, nets without another pin in the source once less:
        # (all - staying) - (all - touched).
        gain = touched[target] - staying
        # Without heat, moves that gain nothing only go to parts that stay lighter, so they cannot go in circles.
        lighter = load[window[target]] + weight < load[old]
        gains = accepts_move(gain, work.heat, work.key, vertex) or (gain == 0 and lighter)
    return target, gains


@kernel
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


@kernel
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


@kernel
def _lightest(window: NDArray[np.int64], load: NDArray[np.int64], weight: int, limit: int) -> int:
    """Return the index of the lightest part if it has room, else -1."""
    index = index_of_least(load[window])
    return index if load[window[index]] + weight <= limit else -1


@kernel(inline="always")
def _update_masks(nets: NDArray[Any], mask: NDArray[np.uint64], source: int, target: int) -> None:
    """Move a pin of each net from one part to another: exact in the target, cautious in the source."""
    source_word, source_bit = source // WORD_BITS, bit_of(source)
    target_word, target_bit = target // WORD_BITS, bit_of(target)
    for net in nets:
        _join(mask, net, target_word, target_bit)
        _leave(mask, net, source_word, source_bit)


@kernel(inline="always")
def _join(mask: NDArray[np.uint64], net: int, word: int, bit: np.uint64) -> None:
    """Add a pin of a net to a part."""
    mask[net, 1, word] |= mask[net, 0, word] & bit
    mask[net, 0, word] |= bit


@kernel(inline="always")
def _leave(mask: NDArray[np.uint64], net: int, word: int, bit: np.uint64) -> None:
    """Take a pin of a net out of a part."""
    # With two or more pins there, it is unknown how many remain: both bits stay until the next filling.
    if not mask[net, 1, word] & bit:
        mask[net, 0, word] &= ~bit


@kernel
def leave_parts(updates: NDArray[np.int64], mask: NDArray[np.uint64]) -> None:
    """Take moving pins out of the masks of their nets; all pins leave before any pin joins another part.

    Args:
        updates: (num_updates, 3) int64 net, index of the part that a pin leaves, index of the part that it joins.
        mask: (num_nets, 2, num_words) uint64; changed.
    """
    for k in range(len(updates)):
        _leave(mask, updates[k, 0], updates[k, 1] // WORD_BITS, bit_of(updates[k, 1]))


@kernel
def join_parts(updates: NDArray[np.int64], mask: NDArray[np.uint64]) -> None:
    """Add moving pins to the masks of their nets; see :func:`leave_parts`."""
    for k in range(len(updates)):
        _join(mask, updates[k, 0], updates[k, 2] // WORD_BITS, bit_of(updates[k, 2]))


@kernel
def accepted_moves(moves: NDArray[np.int64], accepted: NDArray[np.int64], num_parts: int) -> NDArray[np.int64]:
    """(num_accepted, 3) int64 vertex, part that it leaves, and part that it joins, of the moves that are made.

    Args:
        moves: (num_moves, 2) int64, see :func:`propose_moves`.
        accepted: (num_classes,) int64 classes of the moves that are made, ascending.
    """
    made = np.empty((len(moves), 3), np.int64)
    count = 0
    for k in range(len(moves)):
        if _contains(accepted, moves[k, 1]):
            made[count, 0] = moves[k, 0]
            made[count, 1], made[count, 2] = moves[k, 1] // num_parts % num_parts, moves[k, 1] % num_parts
            count += 1
    return made[:count]


@kernel
def accept_classes(
    move_class: NDArray[np.int64], weight: NDArray[np.int64], load: NDArray[np.int64], limit: int, buckets: int
) -> NDArray[np.bool_]:
    """Choose the classes of moves that are made as a whole, in the order given, so that no part exceeds the limit.

    Args:
        move_class: (num_classes,) int64, see :func:`propose_moves`.
        weight: (num_classes,) int64 weight of the vertices of each class.
        load: (num_parts,) int64 weight of each part; changed.
    """
    num_parts = len(load)
    accepted = np.zeros(len(move_class), np.bool_)
    # The second time, parts that were full may have room, because others have left them.
    for _ in range(2):
        for k in range(len(move_class)):
            source, target = move_class[k] // num_parts % num_parts, move_class[k] % num_parts
            is_for_balance = move_class[k] // num_parts // num_parts == buckets
            if accepted[k] or load[target] + weight[k] > limit or (is_for_balance and load[source] <= limit):
                continue
            accepted[k] = True
            load[source] -= weight[k]
            load[target] += weight[k]
    return accepted


@kernel(inline="always")
def _contains(ascending: NDArray[np.int64], value: int) -> bool:
    index = count_below(ascending, value)
    return bool(index < len(ascending) and ascending[index] == value)
