"""Streaming refinement: passes over the vertices that move each one to the part where its nets gain most.

The state is O(n): the parts, and two bits for each net and part (``net_masks``), in files that tasks map.  The vertices
of a small hypergraph are visited one after the other; vertices of others in rounds of tasks (``move_rounds``). A move
to a part costs exactly the nets that have no pin there yet.  The gain of leaving a part is known exactly while the net
has one pin there, and is zero while it has two or more.  After pins have left, "two or more" may have become one, which
the masks learn only when they are filled again for the next pass; gains are never overestimated.  Early passes
sometimes accept losses, which frees parts that single moves cannot improve: the larger the loss and the later the pass,
the less often.  The last passes accept none; one vertex after the other, they make no cut worse.  Rounds can make a cut
worse, because the vertices of a round do not see each other's moves, so the best parts of all rounds are kept.

If the bits of all parts do not fit in memory, each pass deals the parts into windows in a new random order, and moves
vertices within one window after the other.

On several levels, clusters of vertices within a part move first, then smaller ones, then vertices. A cluster crosses a
border where each of its vertices alone would lose, so this improves parts that single moves cannot.
"""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.measure.balance import asked_limit
from gnnloom.pipeline.partition.model.moves import WORD_BITS, cooling
from gnnloom.pipeline.partition.multilevel.clustering import cluster_vertices
from gnnloom.pipeline.partition.multilevel.contraction import contract_nets
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph, store_clusters
from gnnloom.pipeline.partition.multilevel.move_rounds import Pass, move_in_rounds, move_phases
from gnnloom.pipeline.partition.multilevel.net_masks import create_masks, fill_phase, mask_bytes
from gnnloom.pipeline.partition.multilevel.part_files import copy_phase, cut_phase, load_phase, part_loads, rows_sent
from gnnloom.pipeline.partition.multilevel.pieces import Setting, run_pieces
from gnnloom.pipeline.partition.multilevel.vertex_moves import move_vertices
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Phase
from gnnloom.storage.format.memory_map import create_part_vector
from gnnloom.storage.matrix.random_numbers import stream_key

LOGGER = logging.getLogger("gnnloom.pipeline")

#: Parts may use one part in this many of the imbalance that a heavy vertex forces.
_FORCED_SHARE = 3
#: A pass that moves fewer than one vertex in this many is the last, since each pass reads all pins at least twice.
_TOO_FEW = 100_000
#: Rounds of label propagation at each level.
_ROUNDS = 3
#: A cluster may weigh at most one part in the first number, and at each level as much as the second number of average
#: vertices.
_CLUSTERS_PER_PART, _VERTICES_PER_CLUSTER = 8, 3
#: The last level is the one before that which would keep more than this share of its pins.
_TOO_MUCH = 0.97
#: Heat of the clusters' moves, relative to the heat of the vertices' moves.
_CLUSTER_HEAT = 4.0


@dataclass(frozen=True)
class Refinement:
    """Options of refinement.

    Attributes:
        parts: number of parts P.
        imbalance: how much heavier than the average a part may be, as a share of the average.
        seed: of the order in which parts are dealt into windows, and of the losses that are accepted.
        passes: the most passes.
        memory: bytes for the buffers of a worker.
        heat: the loss that the first pass accepts with a chance of about 1/e; 0 for parts that are good already.
    """

    parts: int
    imbalance: float
    seed: int
    passes: int
    memory: int
    heat: float

    def num_words(self, num_nets: int) -> int:
        """Number of 64-bit words for each net and mask: enough for all parts, or the number that fits in memory."""
        all_parts = -(-self.parts // WORD_BITS)
        # Rounds read one file of masks and write another.
        return max(1, min(all_parts, self.memory // (2 * mask_bytes(1) * max(1, num_nets))))

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
        The number of moves, including moves that were undone because they made the cut worse.

    Passes over a stream with O(1) state for each net follow Eyubov, Fonseca Faraj, Schulz (FREIGHT, SEA 2023)
    and Taşyaran et al. (2021); the pair of masks is ours.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    mask_path, position_path = scratch / "masks.npy", scratch / "positions.npy"
    num_words = refinement.num_words(hypergraph.num_nets)
    mask = create_masks(mask_path, hypergraph.num_nets, num_words)
    load = part_loads(hypergraph, part_path, refinement.parts, cluster)
    limit = _limit(hypergraph, refinement)
    heats = cooling(refinement.heat, refinement.passes)
    in_rounds = hypergraph.is_for_tasks
    best = _BestParts(hypergraph, part_path, limit, scratch) if in_rounds else None
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
            run_pieces(fill_phase(hypergraph, part_path, position_path, first, mask_path, num_words), cluster)
            work = Pass(hypergraph, part_path, mask_path, first, limit, heats[number], key, scratch / "rounds")
            if in_rounds:
                moved += move_in_rounds(work, position, load, cluster)
            else:
                moving = work.moving(part, position, np.asarray(mask), load)
                moved += sum(move_vertices(block, moving) for block in hypergraph.vertices.blocks())
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


def refine_phases(hypergraph: DiskHypergraph, setting: Setting, refinement: Refinement) -> list[Phase]:
    """The phases of :func:`refine`, with the maximum number of passes."""
    nowhere, passes = Path(), refinement.passes
    num_words, windows = refinement.num_words(hypergraph.num_nets), refinement.windows(hypergraph.num_nets)
    fill = fill_phase(hypergraph, nowhere, nowhere, 0, nowhere, num_words)
    loads = load_phase("sum loads", hypergraph, nowhere, setting.parts)
    phases = [loads, replace(fill, repeats=passes * len(windows))]
    if hypergraph.is_for_tasks:
        offers = [cut_phase(hypergraph, nowhere, setting.parts), copy_phase(nowhere, nowhere, hypergraph)]
        phases += [replace(phase, repeats=passes + 1) for phase in offers]
        phases += move_phases(hypergraph, setting, num_words, passes * len(windows))
    return phases


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


class _BestParts:
    """Keeps the parts with the least weight above the limit and, among those, with the least cut."""

    def __init__(self, hypergraph: DiskHypergraph, part_path: Path, limit: int, folder: Path) -> None:
        """Keep nothing yet.

        Args:
            part_path: file of the (num_vertices,) int32 parts that are refined.
            limit: weight up to which a part is not too heavy.
            folder: for the best parts.
        """
        self._hypergraph, self._part_path, self._limit, self._folder = hypergraph, part_path, limit, folder
        self._best: tuple[int, int] | None = None
        self._kept_path: Path | None = None
        self._is_current = False

    def offer(self, load: NDArray[np.int64], cluster: Cluster) -> None:
        """Measure the parts as they are, and keep them if they are the best so far.

        Args:
            load: (num_parts,) int64 weight of each part.
        """
        cut = rows_sent(self._hypergraph, self._part_path, len(load), cluster)
        found = max(0, int(load.max()) - self._limit), cut
        self._is_current = self._best is None or found < self._best
        if self._is_current:
            self._best = found
            # A new file each time: a task that was taken for dead but still runs cannot change a file that is kept
            # later.
            path = self._folder / f"best-{uuid.uuid4().hex}.npy"
            create_part_vector(path, self._hypergraph.num_vertices)
            run_pieces(copy_phase(self._part_path, path, self._hypergraph), cluster)
            self._remove()
            self._kept_path = path

    def restore(self, cluster: Cluster) -> None:
        """Set the parts, unchanged since the last offer, to the best ones, and remove their file."""
        if self._kept_path is not None and not self._is_current:
            run_pieces(copy_phase(self._kept_path, self._part_path, self._hypergraph), cluster)
        self._remove()

    def _remove(self) -> None:
        if self._kept_path is not None:
            self._kept_path.unlink()
            self._kept_path = None


def refine_levels(
    hypergraph: DiskHypergraph,
    part: NDArray[np.int32],
    part_path: Path,
    refinement: Refinement,
    levels: int,
    scratch: Path,
    cluster: Cluster,
) -> None:
    """Improve a partition in place, within the imbalance; see :func:`gnnloom.pipeline.partition.multilevel.refine`.

    Args:
        hypergraph: to partition.
        part: (num_vertices,) int32, mapped from the file ``part_path``.
        part_path: ``.npy`` file, which the tasks that fill the masks map.
        refinement: refinement of the vertices; clusters get the same number of passes with more heat.
        levels: maximum number of levels of clusters; fewer if clusters stop absorbing pins.
        scratch: folder for temporary files.

    V-cycles that coarsen only within the parts: Walshaw (Annals of Operations Research 131, 2004).
    """
    clusters = replace(refinement, heat=_CLUSTER_HEAT * refinement.heat)
    _move_clusters(hypergraph, part, clusters, levels, scratch, cluster)
    refine(hypergraph, part, part_path, refinement, scratch / "masks", cluster)


def _move_clusters(
    hypergraph: DiskHypergraph,
    part: NDArray[np.int32],
    refinement: Refinement,
    levels: int,
    scratch: Path,
    cluster: Cluster,
) -> None:
    """Refine the coarser levels, the coarsest first, and carry their parts to ``part``."""
    if levels == 0 or not hypergraph.num_pins:
        return
    label = _clusters_within_parts(hypergraph, part, refinement.parts)
    folder = scratch / f"level-{levels}"
    clusters = store_clusters(hypergraph, label, folder)
    contracted = contract_nets(hypergraph, clusters, folder, cluster)
    num_clusters, num_pins = clusters.num_clusters, contracted.nets.num_ids
    # Without a net there is nothing to gain, and few clusters leave no choice of balanced parts.
    if num_clusters >= _CLUSTERS_PER_PART * refinement.parts and 0 < num_pins <= _TOO_MUCH * hypergraph.num_pins:
        path = folder / "part.npy"
        coarse = create_part_vector(path, num_clusters)
        # All vertices of a cluster share a part, so whichever is written last is right.
        coarse[label] = part
        coarser = contracted.on_disk(refinement.memory, cluster)
        _move_clusters(coarser, coarse, refinement, levels - 1, folder, cluster)
        refine(coarser, coarse, path, refinement, folder / "masks", cluster)
        part[:] = coarse[label]
    shutil.rmtree(folder)


def _clusters_within_parts(hypergraph: DiskHypergraph, part: NDArray[np.int32], parts: int) -> NDArray[Any]:
    """(num_vertices,) int64 cluster of each vertex, numbered from 0 without gaps; none has vertices of two parts."""
    total = hypergraph.total_weight
    limit = min(total // (_CLUSTERS_PER_PART * parts), _VERTICES_PER_CLUSTER * total // hypergraph.num_vertices)
    label = cluster_vertices(hypergraph, limit, _ROUNDS).astype(np.int64)
    # A cluster across a border is split there.
    within: NDArray[Any] = np.unique(label * parts + part, return_inverse=True)[1]
    return within
