"""Parts for uniform batches of vertices, improved by their expected volume: exact gains, annealed.

Moving a vertex changes the number of pins in two parts for each of its nets.  Its *affinity* to a part is the sum,
over its nets, of f(c) (see ``uniform_batches``) for the nets that it does not own, or 1 if their owner lies in that
part, and of f(c) / q for the net that it owns; c does not count the vertex itself. A move lowers the expected rows per
batch by q^2 times the difference of two affinities.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.measure.balance import heaviest_allowed
from gnnloom.pipeline.partition.model.hypergraph import Hypergraph
from gnnloom.pipeline.partition.model.moves import WORD_BITS, accepts_move, bit_number, cooling, lowest_bit, shuffled
from gnnloom.pipeline.partition.stochastic.uniform_batches import BatchNets, PinCounts, add_pin, count_bytes, remove_pin
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.random_numbers import stream_key

#: Passes over all vertices, and the loss of affinity, times the rate, that the first pass accepts with a chance of
#: about 1/e.
Schedules = tuple[tuple[int, float], ...]
#: For parts that a partitioner has improved once more.
POLISHING: Schedules = ((200, 0.04),)
#: For good parts: to improve them, or to leave them for better ones.
IMPROVING: Schedules = ((100, 0.1), (400, 0.8))
#: Bytes per vertex of an order of visits while it is made, offsets of nets, parts to compare, and passes to rest.
_VERTEX_BYTES = 64
#: A vertex rests for a few passes if even its best move loses this many times the heat, which is hardly ever accepted.
_SETTLED, _REST = 10.0, 3


def annealing_memory(num_vertices: int, num_nets: int, num_pins: int, parts: int) -> int:
    """Return the bytes that :func:`anneal` takes: counts, the nets of every vertex, and orders of the vertices."""
    return count_bytes(num_nets, parts) + index_dtype(num_nets).itemsize * num_pins + _VERTEX_BYTES * num_vertices


def anneal(
    nets: BatchNets,
    starts: Mapping[Schedules, NDArray[np.int32]],
    parts: int,
    imbalance: float,
    seed: int,
    deadline: float = math.inf,
) -> tuple[NDArray[np.int32], bool]:
    """Anneal parts within the imbalance, and return the best: those given, or one of the results.

    Args:
        nets: the nets of the batches.
        starts: for some schedules, the (num_vertices,) int32 parts that each begins with.
        parts: number of parts P.
        imbalance: how much heavier than the average a part may be, as a share of the average.
        seed: of the order of visits and of the losses that are accepted.
        deadline: moment of the monotonic clock at which to stop, with the best parts so far.

    Returns:
        (num_vertices,) int32 the parts with the smallest expected volume, and whether all passes were made.

    Simulated annealing; see :mod:`gnnloom.pipeline.partition.model.moves`.
    """
    incidence = _nets_of_vertices(nets.full)
    # The starts compete as well, so the result is never worse than the given parts.
    candidates, finished = list(starts.values()), True
    for schedules, start in starts.items():
        for passes, heat in schedules:
            candidates.append(start.copy())
            heats = cooling(heat / nets.rate, passes)
            finished &= _anneal(nets, incidence, candidates[-1], parts, imbalance, heats, seed, deadline)
    return min(candidates, key=lambda candidate: nets.expected_volume(candidate, parts)), finished


def _anneal(
    nets: BatchNets,
    incidence: tuple[NDArray[np.int64], NDArray[Any]],
    part: NDArray[np.int32],
    parts: int,
    imbalance: float,
    heats: list[float],
    seed: int,
    deadline: float,
) -> bool:
    """Change ``part`` in place, by one pass for each heat; False if the deadline came before the last pass."""
    weight = nets.full.vertex_weight
    # Counted once per schedule; the passes keep the counts exact.
    counts = PinCounts.of(nets, part, parts)
    limit = heaviest_allowed(weight, parts, imbalance)
    # int8, because rests are only a few passes long.
    rest = np.zeros(len(part), dtype=np.int8)
    for number, heat in enumerate(heats):
        if time.monotonic() >= deadline:
            return False
        # A stream per pass, or each pass would repeat the order and the chances of the one before.
        key = stream_key(seed, f"annealing {number}")
        _pass(
            shuffled(len(part), key), *incidence, nets.owner, weight, nets.rate, part, counts, limit, rest, heat, key
        )  # fmt: skip
    return True


def _nets_of_vertices(full: Hypergraph) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Transpose the incidence: (num_vertices + 1,) offsets and the nets of every vertex, ascending."""
    offset = np.concatenate([[0], np.cumsum(np.bincount(full.pin, minlength=full.num_vertices))]).astype(np.int64)
    net = np.empty(full.num_pins, dtype=index_dtype(full.num_nets))
    _fill_nets(full.net_offset, full.pin, offset[:-1].copy(), net)
    return offset, net


@kernel
def _fill_nets(net_offset: NDArray[np.int64], pin: NDArray[Any], end: NDArray[np.int64], net: NDArray[Any]) -> None:
    """Fill the nets of every vertex; ``end`` is the end of the list of each vertex so far, and is advanced."""
    for number in range(len(net_offset) - 1):
        # Nets come in order, so the list of each vertex is ascending.
        for position in range(net_offset[number], net_offset[number + 1]):
            net[end[pin[position]]] = number
            end[pin[position]] += 1


@kernel
def _pass(
    order: NDArray[np.int64],
    offset: NDArray[np.int64],
    net: NDArray[Any],
    owner: NDArray[np.int64],
    weight: NDArray[np.int64],
    rate: float,
    part: NDArray[np.int32],
    counts: PinCounts,
    limit: int,
    rest: NDArray[np.int8],
    heat: float,
    key: np.uint64,
) -> None:
    """Visit the vertices in this order, and move each to the part with the highest affinity if that is accepted.

    Args:
        order: (num_vertices,) int64.
        offset: (num_vertices + 1,) int64; vertex v has the nets net[offset[v]:offset[v + 1]].
        net: (num_pins,) int32 or int64.
        owner: (num_nets,) int64 the pin of each net that sends.
        weight: (num_vertices,) int64.
        rate: the share of the vertices that is drawn.
        part: (num_vertices,) int32; changed, like ``counts``.
        limit: weight up to which moves may fill a part.
        rest: (num_vertices,) int8 passes that each vertex still skips, unless there is no heat; changed.
        heat: a loss is accepted with a chance of exp(-loss / heat); 0 for never.
        key: of the random numbers of this pass.
    """
    load = counts.load
    affinity = np.zeros(len(load), np.float64)
    for vertex in order:
        # The passes without heat visit every vertex, since the affinities of a resting one may have changed.
        if heat > 0 and rest[vertex] > 0:
            rest[vertex] -= 1
            continue
        # One vertex at a time on exact counts, so every gain is exact when its move is decided.
        nets = net[offset[vertex] : offset[vertex + 1]]
        old = part[vertex]
        _weigh(nets, owner, vertex, rate, part, counts, affinity)
        new = old
        # Affinities are never negative, so any part with room is better than this.
        best = -1.0
        for target in range(len(load)):
            if target != old and affinity[target] > best and load[target] + weight[vertex] <= limit:
                new, best = target, affinity[target]
        gain = best - affinity[old]
        # A settled vertex would only be weighed again to stay where it is.
        rest[vertex] = _REST if gain < -_SETTLED * heat else 0
        accepted = accepts_move(gain, heat, key, vertex)
        if new != old and (accepted or load[old] > limit):
            part[vertex] = new
            load[old] -= weight[vertex]
            load[new] += weight[vertex]
            for number in nets:
                remove_pin(counts, number, old)
                add_pin(counts, number, new)
        # Clears only the numbers that the choice above has read anyway.
        affinity[:] = 0


@kernel
def _weigh(
    nets: NDArray[Any],
    owner: NDArray[np.int64],
    vertex: int,
    rate: float,
    part: NDArray[np.int32],
    counts: PinCounts,
    affinity: NDArray[np.float64],
) -> None:
    """Add up the affinity of a vertex to every part, without counting the vertex itself."""
    old = part[vertex]
    for number in nets:
        is_own = owner[number] == vertex
        sender = part[owner[number]]
        share = 1 / rate if is_own else 1.0
        # The mask finds the few parts with a pin among many.
        for word in range(counts.mask.shape[1]):
            bits = counts.mask[number, word]
            while bits:
                lowest = lowest_bit(bits)
                target = word * WORD_BITS + bit_number(lowest)
                if is_own or target != sender:
                    affinity[target] += share * counts.sending[counts.pins[number, target] - (target == old)]
                bits ^= lowest
        # In the owner's part the vertex receives nothing: the whole row is saved.
        if not is_own:
            affinity[sender] += 1.0
