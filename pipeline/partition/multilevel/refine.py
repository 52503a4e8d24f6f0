"""Streaming refinement: passes over the vertices that move each one to the part where its nets gain most.

The state is O(n): the parts, and two bits for each net and part (``net_masks``), in files that tasks map.  The
vertices of a small hypergraph are visited one after the other; those of others in rounds of tasks (``move_rounds``).
A move to a part costs exactly the nets that have no pin there yet.  The gain of leaving a part is known exactly while
the net has one pin there, and is zero while it has two or more.  After pins have left, "two or more" may have become
one, which the masks learn only when they are filled again for the next pass; gains are never overestimated.  Early
passes sometimes accept losses, which frees parts that single moves cannot improve: the larger the loss and the later
the pass, the less often.  The last passes accept none; one vertex after the other, they make no cut worse.  Rounds can,
because the vertices of one do not see each other's moves, so there the best parts of all passes are kept.

If the bits of all parts do not fit in memory, each pass deals the parts into windows in a new random order, and moves
vertices within one window after the other.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.measure.balance import asked_limit
from gnnloom.pipeline.partition.model.part_bits import WORD_BITS
from gnnloom.pipeline.partition.model.random_moves import cooling
from gnnloom.pipeline.partition.multilevel.best_parts import BestParts
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.move_rounds import Pass, move_in_rounds, window_of
from gnnloom.pipeline.partition.multilevel.net_masks import create_masks, fill_masks
from gnnloom.pipeline.partition.multilevel.part_loads import part_loads
from gnnloom.pipeline.partition.multilevel.vertex_moves import move_vertices
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
        memory: bytes that one file of masks may take; rounds of tasks use two.
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

    def windows(self, num_nets: int) -> range:
        """Return the position of the first part of each window of a pass."""
        return range(0, self.parts, self.num_words(num_nets) * WORD_BITS)


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
        The number of moves, including those that were undone because they made the cut worse.

    Passes over a stream with O(1) state for each net follow Eyubov, Fonseca Faraj, Schulz (FREIGHT, SEA 2023)
    and Taşyaran et al. (2021); the pair of masks is ours.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    mask_path, position_path = scratch / "masks.npy", scratch / "positions.npy"
    num_words = refinement.num_words(hypergraph.num_nets)
    mask = create_masks(mask_path, hypergraph.num_nets, num_words)
    load = part_loads(hypergraph.weight_path, part_path, len(part), refinement.parts, cluster)
    limit = _limit(hypergraph, refinement)
    heats = cooling(refinement.heat, refinement.passes)
    in_rounds = hypergraph.is_for_tasks
    best = BestParts(hypergraph, part_path, limit, scratch) if in_rounds else None
    if best:
        best.offer(load, cluster)
    # Moves keep ``load`` exact, so it is summed only once.
    total = 0
    for number, position in enumerate(_deals(refinement, num_words)):
        # The tasks that fill the masks read the deal from this file.
        np.save(position_path, position)
        # A stream per pass, or each pass would repeat the chances of the one before.
        key = stream_key(refinement.seed, f"refinement {number}")
        moved = 0
        # Masks are exact after each filling, and during a pass err only toward more pins than there are.
        for first in refinement.windows(hypergraph.num_nets):
            fill_masks(hypergraph.nets, part_path, position_path, first, mask_path, cluster)
            work = Pass(
                hypergraph,
                part_path,
                mask_path,
                first,
                limit,
                heats[number],
                key,
                scratch / "rounds",
            )
            if in_rounds:
                moved += move_in_rounds(work, position, load, cluster)
            else:
                moved += _move_one_by_one(work, part, position, mask, load)
        if best:
            best.offer(load, cluster)
        LOGGER.info("refinement: moved %s vertices", f"{moved:,}")
        total += moved
        if moved * _TOO_FEW < len(part):
            break
    if best:
        best.restore(cluster)
    mask_path.unlink()
    shutil.rmtree(scratch / "rounds", ignore_errors=True)
    return total


def _limit(hypergraph: DiskHypergraph, refinement: Refinement) -> int:
    """The weight up to which moves may fill a part.

    If the heaviest vertex forces an imbalance, other parts may use only a share of it: using all of it would cut a
    little less, but a few parts would send far more than the others.
    """
    asked = asked_limit(hypergraph.total_weight, refinement.parts, refinement.imbalance)
    return asked + max(0, hypergraph.heaviest - asked) // _FORCED_SHARE


def _deals(refinement: Refinement, num_words: int) -> Iterator[NDArray[np.int64]]:
    """Yield the (P,) int64 position of every part, for each pass; a window holds consecutive positions."""
    rng = np.random.Generator(np.random.PCG64(refinement.seed))
    for _ in range(refinement.passes):
        # One window holds all parts, so another order would gain nothing.
        if num_words * WORD_BITS >= refinement.parts:
            yield np.arange(refinement.parts)
        else:
            yield rng.permutation(refinement.parts)


def _move_one_by_one(
    work: Pass,
    part: NDArray[np.int32],
    position: NDArray[np.int64],
    mask: NDArray[np.uint64],
    load: NDArray[np.int64],
) -> int:
    """Stream the vertices once through a window of parts; returns the number of moves."""
    hypergraph = work.hypergraph
    weight, net_weight = hypergraph.vertex_weight, hypergraph.net_weight
    window = window_of(position, work.first, mask.shape[2])
    moved = 0
    for block in hypergraph.vertices.blocks():
        moved += move_vertices(
            block.first_row,
            block.offset,
            block.ids,
            weight,
            net_weight,
            part,
            position,
            work.first,
            window,
            np.asarray(mask),
            load,
            work.limit,
            work.heat,
            work.key,
        )
    return moved
