"""Refine what lies near the cut with a native partitioner; the rest of each part becomes one vertex.

If parts have short boundaries, as in meshes, the vertices around them fit in memory although the hypergraph does not,
and their partition can be improved as well as in memory.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.hypergraph import Hypergraph
from gnnloom.pipeline.partition.multilevel.clusters import store_clusters
from gnnloom.pipeline.partition.multilevel.contraction import contract_nets
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.matrix.csr import index_dtype

LOGGER = logging.getLogger("gnnloom.pipeline")

#: Most nets between the cut and the farthest vertex that may move; each step reads all pins twice.
_WIDEST = 12


@dataclass(frozen=True)
class BoundaryRefinement:
    """How to refine the boundary.

    Attributes:
        fits: whether a hypergraph with this many pins and vertices can be improved in memory.
        improve: returns better parts, given a hypergraph and its (num_vertices,) int32 parts.
        scratch: folder for temporary files.
    """

    fits: Callable[[int, int], bool]
    improve: Callable[[Hypergraph, NDArray[np.int32]], NDArray[np.int32]]
    scratch: Path


def refine_boundary(
    hypergraph: DiskHypergraph,
    part: NDArray[np.int32],
    parts: int,
    refinement: BoundaryRefinement,
    cluster: Cluster,
) -> bool:
    """Improve a partition in place by moving only vertices near the cut.

    Args:
        hypergraph: to partition.
        part: (num_vertices,) int32.
        parts: number of parts P.
        refinement: what fits in memory, and what improves it.
        cluster: runs the contraction.

    Returns:
        False if nothing was tried: no vertex is near a cut, or even the vertices at the cut do not fit.

    Band graphs: Chevalier, Pellegrini (Parallel Computing 34, 2008), section 3.3; improved by V-cycles:
    Walshaw (Annals of Operations Research 131, 2004).
    """
    near = _widest_boundary(hypergraph, part, parts, refinement)
    if near is None:
        return False
    label = _boundary_labels(near, part, parts)
    # Fewer labels than parts and one vertex: there is nothing to move.
    if int(label.max()) < parts:
        return False
    folder = refinement.scratch / "boundary"
    small = contract_nets(hypergraph, store_clusters(hypergraph, label, folder), folder, cluster).load()
    given = np.empty(small.num_vertices, dtype=np.int32)
    # All vertices of a label share a part, so whichever is written last is right.
    given[label] = part
    LOGGER.info("refining the boundary: %s of %s vertices", f"{int(near.sum()):,}", f"{len(part):,}")
    part[:] = refinement.improve(small, given)[label]
    shutil.rmtree(folder)
    return True


def _widest_boundary(
    hypergraph: DiskHypergraph, part: NDArray[np.int32], parts: int, refinement: BoundaryRefinement
) -> NDArray[np.bool_] | None:
    """(num_vertices,) whether each vertex lies in the widest boundary that fits; None if there is none."""
    found = None
    # Grows by one net per step, because the pins of the next boundary are known only once they are counted.
    near = np.zeros(len(part), dtype=np.bool_)
    for width in range(_WIDEST):
        wider = near.copy()
        for block in hypergraph.nets.blocks():
            if width == 0:
                _mark_cut(block.offset, block.ids, part, wider)
            else:
                _widen(block.offset, block.ids, near, wider)
        num_pins = sum(_count_pins(block.offset, block.ids, wider) for block in hypergraph.nets.blocks())
        # The last boundary that fits is kept, and one that no longer grows covers all that the nets can reach.
        if not refinement.fits(num_pins, int(wider.sum()) + parts) or (wider == near).all():
            break
        found = near = wider
    return found


@njit(cache=True, nogil=True)
def _mark_cut(offset: NDArray[np.int64], pin: NDArray[Any], part: NDArray[np.int32], near: NDArray[np.bool_]) -> None:
    """Mark all pins of the nets that are cut."""
    for net in range(len(offset) - 1):
        pins = pin[offset[net] : offset[net + 1]]
        for other in pins:
            # A net is cut if the part of any pin differs from that of the first, so the scan ends at such a pin.
            if part[other] != part[pins[0]]:
                for vertex in pins:
                    near[vertex] = True
                break


@njit(cache=True, nogil=True)
def _widen(offset: NDArray[np.int64], pin: NDArray[Any], near: NDArray[np.bool_], wider: NDArray[np.bool_]) -> None:
    """Mark, in ``wider``, all pins of the nets that have a pin in ``near``."""
    # Two arrays, so that one call widens by one net and not along chains of nets.
    for net in range(len(offset) - 1):
        pins = pin[offset[net] : offset[net + 1]]
        for other in pins:
            if near[other]:
                for vertex in pins:
                    wider[vertex] = True
                break


@njit(cache=True, nogil=True)
def _count_pins(offset: NDArray[np.int64], pin: NDArray[Any], near: NDArray[np.bool_]) -> int:
    """Count the pins, after contraction, of the nets with a pin in the boundary."""
    total = 0
    for net in range(len(offset) - 1):
        inside = 0
        for k in range(offset[net], offset[net + 1]):
            inside += near[pin[k]]
        if inside:
            # All pins outside share one part, since a cut net lies inside as a whole: they become one pin.
            total += inside + (inside < offset[net + 1] - offset[net])
    return total


def _boundary_labels(near: NDArray[np.bool_], part: NDArray[np.int32], parts: int) -> NDArray[Any]:
    """(num_vertices,) a number for the vertices of each part outside the boundary, and one for each inside.

    Numbers have no gaps: parts without vertices outside get none.
    """
    is_used = np.zeros(parts, dtype=np.bool_)
    is_used[part[~near]] = True
    number = np.cumsum(is_used) - 1
    # Parts without vertices outside get a meaningless number here, but all of their vertices are overwritten below.
    label = number[part].astype(index_dtype(len(part)))
    label[near] = int(is_used.sum()) + np.arange(int(near.sum()))
    return label
