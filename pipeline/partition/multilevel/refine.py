"""Streaming refinement: passes over the vertices that move each one to the part where its nets gain most.

The state is O(n): the parts, and two bits for each net and part (``net_masks``).
A move to a part costs exactly the nets that have no pin there yet.  The gain of leaving a part is known exactly while
the net has one pin there, and is zero while it has two or more.  After pins have left, "two or more" may have become
one, which the masks learn only when they are filled again for the next pass; gains are never overestimated.  Early
passes sometimes accept losses, which frees parts that single moves cannot improve: the larger the loss and the later
the pass, the less often.  The last passes accept none and make no cut worse.

If the bits of all parts do not fit in memory, each pass deals the parts into windows in a new random order, and moves
vertices within one window after the other.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.balance import asked_limit, heaviest_allowed
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.net_masks import create_masks, fill_masks
from gnnloom.pipeline.partition.multilevel.vertex_moves import move_vertices
from gnnloom.pipeline.partition.part_bits import WORD_BITS
from gnnloom.pipeline.partition.random_moves import cooling
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.matrix.random_numbers import stream_key

LOGGER = logging.getLogger("gnnloom.pipeline")

#: Parts may use one part in this many of the imbalance that a heavy vertex forces.
_FORCED_SHARE = 3
#: A pass that moves fewer than one vertex in this many is the last, since each pass reads all pins at least twice.
_TOO_FEW = 100_000


@dataclass(frozen=True)
class Refinement:
    """How to refine.

    Attributes:
        parts: number of parts P.
        imbalance: how much heavier than the average a part may be, as a share of the average.
        seed: of the order in which parts are dealt into windows, and of the losses that are accepted.
        passes: the most passes.
        memory: bytes that the masks may take.
        heat: the loss that the first pass accepts with a chance of about 1/e; 0 for parts that are good already.
    """

    parts: int
    imbalance: float
    seed: int
    passes: int
    memory: int
    heat: float

    def num_words(self, num_nets: int) -> int:
        """Return the 64-bit words for each net and mask: for all parts, or as many as the memory allows."""
        all_parts = -(-self.parts // WORD_BITS)
        # Two masks of 8 bytes for each net and word.
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
        hypergraph: to partition.
        part: (num_vertices,) int32, mapped from the file ``part_path``.
        part_path: ``.npy`` file, which the tasks that fill the masks map.
        scratch: folder for the masks.

    Returns:
        The number of moves.

    Passes over a stream with O(1) state for each net follow Eyubov, Fonseca Faraj, Schulz (FREIGHT, SEA 2023)
    and Taşyaran et al. (2021); the pair of masks is ours.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    mask_path, position_path = scratch / "masks.npy", scratch / "positions.npy"
    num_words = refinement.num_words(hypergraph.num_nets)
    mask = create_masks(mask_path, hypergraph.num_nets, num_words)
    load = np.zeros(refinement.parts, dtype=np.int64)
    np.add.at(load, part, hypergraph.vertex_weight)
    limit = _limit(hypergraph.vertex_weight, refinement)
    heats = cooling(refinement.heat, refinement.passes)
    # Moves keep ``load`` exact, so it is summed only once.
    total = 0
    for number, position in enumerate(_deals(refinement, num_words)):
        # The tasks that fill the masks read the deal from this file.
        np.save(position_path, position)
        # A stream per pass, or each pass would repeat the chances of the one before.
        key = stream_key(refinement.seed, f"refinement {number}")
        moved = 0
        # Masks are exact after each filling, and during a pass err only toward more pins than there are.
        for first in range(0, refinement.parts, num_words * WORD_BITS):
            fill_masks(hypergraph.nets, part_path, position_path, first, mask_path, cluster)
            moved += _pass(hypergraph, part, position, first, mask, load, limit, heats[number], key)
        LOGGER.info("refinement: moved %s vertices", f"{moved:,}")
        total += moved
        if moved * _TOO_FEW < len(part):
            break
    mask_path.unlink()
    return total


def _limit(weight: NDArray[np.int64], refinement: Refinement) -> int:
    """The weight up to which moves may fill a part.

    If the heaviest vertex forces an imbalance, other parts may use only a share of it: using all of it would cut a
    little less, but a few parts would send far more than the others.
    """
    forced = heaviest_allowed(weight, refinement.parts, refinement.imbalance)
    asked = asked_limit(int(weight.sum()), refinement.parts, refinement.imbalance)
    return asked + (forced - asked) // _FORCED_SHARE


def _deals(refinement: Refinement, num_words: int) -> Iterator[NDArray[np.int64]]:
    """Yield the (P,) int64 position of every part, for each pass; a window holds consecutive positions."""
    rng = np.random.Generator(np.random.PCG64(refinement.seed))
    for _ in range(refinement.passes):
        # One window holds all parts, so another order would gain nothing.
        if num_words * WORD_BITS >= refinement.parts:
            yield np.arange(refinement.parts)
        else:
            yield rng.permutation(refinement.parts)


def _pass(
    hypergraph: DiskHypergraph,
    part: NDArray[np.int32],
    position: NDArray[np.int64],
    first: int,
    mask: NDArray[np.uint64],
    load: NDArray[np.int64],
    limit: int,
    heat: float,
    key: np.uint64,
) -> int:
    """Stream the vertices once through a window of parts; returns the number of moves."""
    # Sorting the positions inverts the permutation: it gives the part at each of them.
    window = np.argsort(position, kind="stable")[first : first + mask.shape[2] * WORD_BITS]
    moved = 0
    for block in hypergraph.vertices.blocks():
        moved += move_vertices(
            block.first_row,
            block.offset,
            block.ids,
            hypergraph.vertex_weight,
            hypergraph.net_weight,
            part,
            position,
            first,
            window,
            np.asarray(mask),
            load,
            limit,
            heat,
            key,
        )
    return moved
