"""Parts for uniform batches of vertices, improved by what they are expected to send: exact gains, annealed.

A net sends its owner's row to part p, which holds c of its other pins, with probability f(c) = 1 - (1-q)^c whenever
the owner is drawn.  Moving a vertex changes c in two parts of each of its nets, so that its *affinity* to a part is,
over its nets, f(c) of those that it does not own, or 1 where the owner lies in that part, and f(c) / q of its own.  A
move gains the difference of two affinities, counted without the vertex itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.balance import heaviest_allowed
from gnnloom.pipeline.partition.hypergraph import Hypergraph
from gnnloom.pipeline.partition.multilevel.net_masks import WORD_BITS, bit_number
from gnnloom.pipeline.partition.multilevel.placement import shuffled
from gnnloom.pipeline.partition.stochastic.deadline import NO_DEADLINE, Deadline
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.random_numbers import stream_key, unit

#: Passes over all vertices, and the loss of affinity that the first risks with a chance of 1/e, times the rate: to
#: polish parts that a partitioner improved again, and to improve good ones or leave them for better ones.
Schedules = tuple[tuple[int, float], ...]
POLISHING: Schedules = ((200, 0.04),)
IMPROVING: Schedules = ((100, 0.1), (400, 0.8))
#: Bytes of an order of the vertices while it is made, offsets of their nets, parts to compare, and rests.
_VERTEX_BYTES = 64
#: A vertex for which any move loses so many times the heat sits out a few passes.
_SETTLED, _REST = 10.0, 3


@dataclass(frozen=True)
class BatchNets:
    """The nets of uniform batches.

    Attributes:
        full: the column-net hypergraph.
        owner: (num_nets,) the pin of each net that sends.
        rate: the share of the vertices that is drawn.
    """

    full: Hypergraph
    owner: NDArray[np.int64]
    rate: float

    def expected_volume(self, part: NDArray[np.int32], parts: int) -> float:
        """Rows sent per batch on average: the sum over nets of q f(c) over the parts without the owner."""
        state = _State.begin(self, part, parts)
        return self.rate * float(_sum_sent(part[self.owner], state.count, state.mask, state.sending))


def annealing_memory(num_vertices: int, num_nets: int, num_pins: int, parts: int) -> int:
    """Bytes that :func:`anneal` takes: a count and a bit for each net and part, the nets of vertices, and orders."""
    tables = num_nets * (4 * parts + 8 * -(-parts // WORD_BITS))
    return tables + index_dtype(num_nets).itemsize * num_pins + _VERTEX_BYTES * num_vertices


@dataclass(frozen=True)
class _State:
    """What changes with every move.

    Attributes:
        count: (num_nets, num_parts) int32 pins of each net in each part.
        mask: (num_nets, num_words) uint64, a bit for each part with a pin.
        load: (num_parts,) int64 weight of each part.
        sending: (largest net + 1,) float64 f.
    """

    count: NDArray[np.int32]
    mask: NDArray[np.uint64]
    load: NDArray[np.int64]
    sending: NDArray[np.float64]

    @classmethod
    def begin(cls, nets: BatchNets, part: NDArray[np.int32], parts: int) -> Self:
        full = nets.full
        count = np.zeros((full.num_nets, parts), dtype=np.int32)
        mask = np.zeros((full.num_nets, -(-parts // WORD_BITS)), dtype=np.uint64)
        _count_pins(full.net_offset, full.pin, part, count, mask)
        load = np.zeros(parts, dtype=np.int64)
        np.add.at(load, part, full.vertex_weight)
        pins = np.arange(int(np.diff(full.net_offset).max(initial=0)) + 1)
        sending = 1 - (1 - nets.rate) ** pins
        return cls(count, mask, load, sending.astype(np.float64))


def anneal(
    nets: BatchNets,
    starts: Mapping[Schedules, NDArray[np.int32]],
    parts: int,
    imbalance: float,
    seed: int,
    deadline: Deadline = NO_DEADLINE,
) -> tuple[NDArray[np.int32], bool]:
    """The parts by which batches send least: those given, or annealed within the imbalance.

    Early passes accept losses now and then, the less the larger and the later (Kirkpatrick, Gelatt, Vecchi, Science
    220, 1983); the last two only improve.

    Args:
        starts: parts to anneal by each of some schedules.

    Returns:
        (num_vertices,) the parts, and whether all passes were made: at the deadline the best so far stand.
    """
    incidence = _nets_of_vertices(nets.full)
    candidates, finished = list(starts.values()), True
    for schedules, start in starts.items():
        for passes, heat in schedules:
            heats = heat / nets.rate * (1 - np.arange(1, passes + 1) / (passes - 2))
            candidates.append(start.copy())
            finished &= _anneal(nets, incidence, candidates[-1], parts, imbalance, heats, seed, deadline)
    return min(candidates, key=lambda candidate: nets.expected_volume(candidate, parts)), finished


def _anneal(
    nets: BatchNets,
    incidence: tuple[NDArray[np.int64], NDArray[Any]],
    part: NDArray[np.int32],
    parts: int,
    imbalance: float,
    heats: NDArray[np.float64],
    seed: int,
    deadline: Deadline,
) -> bool:
    """Change ``part`` in place, by a pass for each heat; False where the deadline came before the last."""
    weight = nets.full.vertex_weight
    state = _State.begin(nets, part, parts)
    limit = heaviest_allowed(weight, parts, imbalance)
    rest = np.zeros(len(part), dtype=np.int8)
    for number, heat in enumerate(heats.tolist()):
        if deadline.is_over:
            return False
        key = stream_key(seed, f"annealing {number}")
        _pass(
            shuffled(len(part), key),
            *incidence,
            nets.owner,
            weight,
            nets.rate,
            part,
            state.count,
            state.mask,
            state.load,
            state.sending,
            limit,
            rest,
            max(0.0, heat),
            key,
        )
    return True


def _nets_of_vertices(full: Hypergraph) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Offsets and the nets of every vertex, ascending."""
    offset = np.concatenate([[0], np.cumsum(np.bincount(full.pin, minlength=full.num_vertices))]).astype(np.int64)
    net = np.empty(full.num_pins, dtype=index_dtype(full.num_nets))
    _fill_nets(full.net_offset, full.pin, offset[:-1].copy(), net)
    return offset, net


@njit(cache=True, nogil=True)
def _fill_nets(net_offset: NDArray[np.int64], pin: NDArray[Any], end: NDArray[np.int64], net: NDArray[Any]) -> None:
    for number in range(len(net_offset) - 1):
        for position in range(net_offset[number], net_offset[number + 1]):
            net[end[pin[position]]] = number
            end[pin[position]] += 1


@njit(cache=True, nogil=True)
def _count_pins(
    offset: NDArray[np.int64],
    pin: NDArray[Any],
    part: NDArray[np.int32],
    count: NDArray[np.int32],
    mask: NDArray[np.uint64],
) -> None:
    for net in range(len(offset) - 1):
        for position in range(offset[net], offset[net + 1]):
            _add_pin(count, mask, net, part[pin[position]])


@njit(cache=True, nogil=True)
def _sum_sent(
    sender: NDArray[np.int32], count: NDArray[np.int32], mask: NDArray[np.uint64], sending: NDArray[np.float64]
) -> float:
    """The sum over nets of f over the parts with a pin, other than the sender's."""
    total = 0.0
    for net in range(len(sender)):
        for word in range(mask.shape[1]):
            bits = mask[net, word]
            while bits:
                lowest = bits & (~bits + np.uint64(1))
                place = word * WORD_BITS + bit_number(lowest)
                if place != sender[net]:
                    total += sending[count[net, place]]
                bits ^= lowest
    return total


@njit(cache=True, nogil=True, inline="always")
def _add_pin(count: NDArray[np.int32], mask: NDArray[np.uint64], net: int, part: int) -> None:
    count[net, part] += 1
    mask[net, part // WORD_BITS] |= np.uint64(1) << np.uint64(part % WORD_BITS)


@njit(cache=True, nogil=True, inline="always")
def _remove_pin(count: NDArray[np.int32], mask: NDArray[np.uint64], net: int, part: int) -> None:
    count[net, part] -= 1
    if count[net, part] == 0:
        mask[net, part // WORD_BITS] &= ~(np.uint64(1) << np.uint64(part % WORD_BITS))


@njit(cache=True, nogil=True)
def _pass(
    order: NDArray[np.int64],
    offset: NDArray[np.int64],
    net: NDArray[Any],
    owner: NDArray[np.int64],
    weight: NDArray[np.int64],
    rate: float,
    part: NDArray[np.int32],
    count: NDArray[np.int32],
    mask: NDArray[np.uint64],
    load: NDArray[np.int64],
    sending: NDArray[np.float64],
    limit: int,
    rest: NDArray[np.int8],
    heat: float,
    key: np.uint64,
) -> None:
    """Visit the vertices in this order, and move each where its affinity is highest.

    Args:
        rest: (num_vertices,) passes that each still sits out, unless there is no heat.
    """
    affinity = np.zeros(len(load), np.float64)
    for vertex in order:
        if heat > 0 and rest[vertex] > 0:
            rest[vertex] -= 1
            continue
        nets = net[offset[vertex] : offset[vertex + 1]]
        old = part[vertex]
        _weigh(nets, owner, vertex, rate, part, count, mask, sending, affinity)
        new = old
        best = -1.0
        for target in range(len(load)):
            if target != old and affinity[target] > best and load[target] + weight[vertex] <= limit:
                new, best = target, affinity[target]
        gain = best - affinity[old]
        rest[vertex] = _REST if gain < -_SETTLED * heat else 0
        accepted = gain > 0 or (heat > 0 and unit(key, np.uint64(vertex)) < np.exp(gain / heat))
        if new != old and (accepted or load[old] > limit):
            part[vertex] = new
            load[old] -= weight[vertex]
            load[new] += weight[vertex]
            for number in nets:
                _remove_pin(count, mask, number, old)
                _add_pin(count, mask, number, new)
        affinity[:] = 0


@njit(cache=True, nogil=True)
def _weigh(
    nets: NDArray[Any],
    owner: NDArray[np.int64],
    vertex: int,
    rate: float,
    part: NDArray[np.int32],
    count: NDArray[np.int32],
    mask: NDArray[np.uint64],
    sending: NDArray[np.float64],
    affinity: NDArray[np.float64],
) -> None:
    """Add up the affinity of a vertex to every part, without the vertex itself."""
    old = part[vertex]
    for number in nets:
        is_own = owner[number] == vertex
        sender = part[owner[number]]
        share = 1 / rate if is_own else 1.0
        for word in range(mask.shape[1]):
            bits = mask[number, word]
            while bits:
                lowest = bits & (~bits + np.uint64(1))
                place = word * WORD_BITS + bit_number(lowest)
                if is_own or place != sender:
                    affinity[place] += share * sending[count[number, place] - (place == old)]
                bits ^= lowest
        if not is_own:
            affinity[sender] += 1.0
