"""Streaming refinement: passes over the vertices that move each to the part where its nets gain most.

The state is O(n): the parts, and two bits for each net and part (``net_masks``).
A move to a part costs exactly the nets that have no pin there yet.  What leaving a part gains is known while
the net has one pin there (exactly), or two or more (nothing is gained); when pins have left, "two or more"
may have become one, which the masks only learn when they are made anew for the next pass: gains are never
overestimated.  Early passes also accept losses now and then, the less the larger and the later (annealing:
Kirkpatrick, Gelatt, Vecchi, Science 220, 1983), which frees parts that single moves cannot improve; the last
passes do not, and make no cut worse.

Where the bits of all parts do not fit the memory, a pass deals the parts anew into windows and moves
vertices within each window in turn.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.balance import asked_limit, heaviest_allowed
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.net_masks import WORD_BITS, bit_number, create_masks, make_masks
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.matrix.random_numbers import stream_key, unit

LOGGER = logging.getLogger("gnnloom.pipeline")

#: Parts may use one part in this many of the imbalance that a heavy vertex forces.
_FORCED_SHARE = 3
#: A pass that moves fewer than one vertex in this many is the last.
_TOO_FEW = 100_000
#: A word of masks with every bit.
_ALL: Final = np.uint64((1 << 64) - 1)


@dataclass(frozen=True)
class Refinement:
    """How to refine.

    Attributes:
        parts: P.
        imbalance: how much heavier than the average a part may be.
        seed: of the order in which parts are dealt into windows.
        passes: the most passes.
        memory: bytes that the masks may take.
        heat: the loss that the first pass risks with a chance of 1/e; 0 for parts that are good already.
    """

    parts: int
    imbalance: float
    seed: int
    passes: int
    memory: int
    heat: float

    def heat_of(self, number: int) -> float:
        """The heat of a pass; falls to 0, so that the last two passes only improve."""
        return max(0.0, self.heat * (1 - (number + 1) / max(1, self.passes - 2)))

    def num_words(self, num_nets: int) -> int:
        """64-bit words for each net and mask: for all parts, or as many as the memory allows."""
        all_parts = -(-self.parts // WORD_BITS)
        return max(1, min(all_parts, self.memory // (16 * max(1, num_nets))))


def refine(
    hypergraph: DiskHypergraph,
    part: NDArray[np.int32],
    part_path: Path,
    refinement: Refinement,
    scratch: Path,
    cluster: Cluster,
) -> int:
    """Improve a partition in place, within the imbalance; parts that are too heavy lose vertices at any cost.

    Args:
        part: (num_vertices,) int32, mapped from the file ``part_path``.
        scratch: folder for the masks.

    Returns:
        The number of moves.

    Passes over a stream with O(1) state for each net follow Eyubov, Fonseca Faraj, Schulz (FREIGHT, SEA 2023)
    and Taşyaran et al. (2021); the pair of masks is ours.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    mask_path, rank_path = scratch / "masks.npy", scratch / "ranks.npy"
    num_words = refinement.num_words(hypergraph.num_nets)
    mask = create_masks(mask_path, hypergraph.num_nets, num_words)
    load = np.zeros(refinement.parts, dtype=np.int64)
    np.add.at(load, part, hypergraph.vertex_weight)
    limit = _limit(hypergraph.vertex_weight, refinement)
    total = 0
    for number, rank in enumerate(_deals(refinement, num_words)):
        np.save(rank_path, rank)
        heat, key = refinement.heat_of(number), stream_key(refinement.seed, f"refinement {number}")
        moved = 0
        for first in range(0, refinement.parts, num_words * WORD_BITS):
            make_masks(hypergraph.nets, part_path, rank_path, first, mask_path, cluster)
            moved += _pass(hypergraph, part, rank, first, mask, load, limit, heat, key)
        LOGGER.info("refinement: moved %s vertices", f"{moved:,}")
        total += moved
        if moved * _TOO_FEW < len(part):
            break
    mask_path.unlink()
    return total


def _limit(weight: NDArray[np.int64], refinement: Refinement) -> int:
    """The weight that moves may fill a part to.

    Where the heaviest vertex forces an imbalance, other parts use a share of it only: using all would cut a little
    less, but let a few parts send far more than the others.
    """
    forced = heaviest_allowed(weight, refinement.parts, refinement.imbalance)
    asked = asked_limit(int(weight.sum()), refinement.parts, refinement.imbalance)
    return asked + (forced - asked) // _FORCED_SHARE


def _deals(refinement: Refinement, num_words: int) -> Iterator[NDArray[np.int64]]:
    """For each pass the place of every part; windows take consecutive places."""
    rng = np.random.Generator(np.random.PCG64(refinement.seed))
    for _ in range(refinement.passes):
        if num_words * WORD_BITS >= refinement.parts:
            yield np.arange(refinement.parts)
        else:
            yield rng.permutation(refinement.parts)


def _pass(
    hypergraph: DiskHypergraph,
    part: NDArray[np.int32],
    rank: NDArray[np.int64],
    first: int,
    mask: NDArray[np.uint64],
    load: NDArray[np.int64],
    limit: int,
    heat: float,
    key: np.uint64,
) -> int:
    """Stream the vertices once through a window of parts; returns the number of moves."""
    window = np.argsort(rank, kind="stable")[first : first + mask.shape[2] * WORD_BITS]
    moved = 0
    for block in hypergraph.vertices.blocks():
        moved += _move_vertices(
            block.first_row,
            block.offset,
            block.ids,
            hypergraph.vertex_weight,
            hypergraph.net_weight,
            part,
            rank,
            first,
            window,
            np.asarray(mask),
            load,
            limit,
            heat,
            key,
        )
    return moved


@njit(cache=True, nogil=True)
def _move_vertices(
    first_vertex: int,
    offset: NDArray[np.int64],
    ids: NDArray[Any],
    vertex_weight: NDArray[np.int64],
    net_weight: NDArray[np.int64],
    part: NDArray[np.int32],
    rank: NDArray[np.int64],
    first: int,
    window: NDArray[np.int64],
    mask: NDArray[np.uint64],
    load: NDArray[np.int64],
    limit: int,
    heat: float,
    key: np.uint64,
) -> int:
    """Visit a block of vertices; returns the number of moves.

    Args:
        rank: (num_parts,) place of each part.
        window: (num_places,) part at each place from ``first`` on.
        heat: accept a loss with the chance exp(-loss / heat); 0 for never.
        key: of the random numbers of this pass.
    """
    touched = np.zeros(len(window), np.int64)
    places = np.empty(len(window), np.int64)
    whole = np.zeros(mask.shape[2], np.int64)
    moved = 0
    for row in range(len(offset) - 1):
        vertex = first_vertex + row
        source = rank[part[vertex]] - first
        if not 0 <= source < len(window):
            continue
        nets = ids[offset[row] : offset[row + 1]]
        weight = vertex_weight[vertex]
        old = window[source]
        staying, num_places = _weigh_nets(nets, net_weight, mask, source, touched, places, whole)
        target = _best_target(touched, places[:num_places], window, load, source, weight, limit)
        if target < 0 and load[old] > limit:
            target = _lightest(window, load, weight, limit)
        if target >= 0:
            new = window[target]
            gain = touched[target] - staying
            accepted = gain > 0 or (heat > 0 and unit(key, np.uint64(vertex)) < np.exp(gain / heat))
            if accepted or load[old] > limit or (gain == 0 and load[new] + weight < load[old]):
                _update_masks(nets, mask, source, target)
                part[vertex] = new
                load[old] -= weight
                load[new] += weight
                moved += 1
        touched[places[:num_places]] = 0
    return moved


@njit(cache=True, nogil=True)
def _weigh_nets(
    nets: NDArray[Any],
    net_weight: NDArray[np.int64],
    mask: NDArray[np.uint64],
    source: int,
    touched: NDArray[np.int64],
    places: NDArray[np.int64],
    whole: NDArray[np.int64],
) -> tuple[int, int]:
    """Add up, in ``touched``, the weight of nets with a pin in each part, and list these parts in ``places``.

    Args:
        whole: (num_words,) zero, before and after; sums up the nets with a pin in all parts of a word.

    Returns:
        The weight of the nets that keep a pin in the source, and the number of places.
    """
    source_word, source_bit = source // WORD_BITS, np.uint64(1) << np.uint64(source % WORD_BITS)
    staying, num_places = 0, 0
    for net in nets:
        weight = net_weight[net] if net_weight.size else 1
        if mask[net, 1, source_word] & source_bit:
            staying += weight
        for word in range(mask.shape[2]):
            bits = mask[net, 0, word]
            if bits == _ALL:
                whole[word] += weight
                continue
            while bits:
                lowest = bits & (~bits + np.uint64(1))
                place = word * WORD_BITS + bit_number(lowest)
                if touched[place] == 0:
                    places[num_places] = place
                    num_places += 1
                touched[place] += weight
                bits ^= lowest
    for word in range(len(whole)):
        if whole[word]:
            for place in range(word * WORD_BITS, (word + 1) * WORD_BITS):
                if touched[place] == 0:
                    places[num_places] = place
                    num_places += 1
                touched[place] += whole[word]
            whole[word] = 0
    return staying, num_places


@njit(cache=True, nogil=True)
def _best_target(
    touched: NDArray[np.int64],
    places: NDArray[np.int64],
    window: NDArray[np.int64],
    load: NDArray[np.int64],
    source: int,
    weight: int,
    limit: int,
) -> int:
    """The place with room where most nets have a pin already, the lightest of equals; -1 if there is none."""
    best = -1
    for place in places:
        if place == source or load[window[place]] + weight > limit:
            continue
        heavier = best < 0 or touched[place] > touched[best]
        if heavier or (touched[place] == touched[best] and load[window[place]] < load[window[best]]):
            best = place
    return best


@njit(cache=True, nogil=True)
def _lightest(window: NDArray[np.int64], load: NDArray[np.int64], weight: int, limit: int) -> int:
    """The place of the lightest part, if it has room; else -1."""
    place = int(np.argmin(load[window]))
    return place if load[window[place]] + weight <= limit else -1


@njit(cache=True, nogil=True, inline="always")
def _update_masks(nets: NDArray[Any], mask: NDArray[np.uint64], source: int, target: int) -> None:
    """A pin of each net goes from one part to another: exact where it arrives, cautious where it leaves."""
    source_word, source_bit = source // WORD_BITS, np.uint64(1) << np.uint64(source % WORD_BITS)
    target_word, target_bit = target // WORD_BITS, np.uint64(1) << np.uint64(target % WORD_BITS)
    for net in nets:
        mask[net, 1, target_word] |= mask[net, 0, target_word] & target_bit
        mask[net, 0, target_word] |= target_bit
        if not mask[net, 1, source_word] & source_bit:
            mask[net, 0, source_word] &= ~source_bit
