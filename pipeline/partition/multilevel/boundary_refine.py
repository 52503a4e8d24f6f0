"""Refinement of what lies near the cut, by a native partitioner: all else of a part becomes one vertex.

Where parts have short boundaries, as in meshes, the band around them fits the memory though the hypergraph does not,
and its partition can be improved as well as in memory.
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
from gnnloom.pipeline.partition.multilevel.contraction import contract_nets
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.matrix.csr import index_dtype

LOGGER = logging.getLogger("gnnloom.pipeline")

#: Nets between the cut and the end of the band, at most.
_WIDEST = 12


@dataclass(frozen=True)
class Band:
    """How to refine the band around the cut.

    Attributes:
        fits: whether a hypergraph of so many pins and vertices can be improved in memory.
        improve: (num_vertices,) better parts for a hypergraph and the parts that it has.
        scratch: folder for files that go away.
    """

    fits: Callable[[int, int], bool]
    improve: Callable[[Hypergraph, NDArray[np.int32]], NDArray[np.int32]]
    scratch: Path


def refine_band(hypergraph: DiskHypergraph, part: NDArray[np.int32], parts: int, band: Band, cluster: Cluster) -> bool:
    """Improve a partition in place, moving only vertices near the cut; False where there are few, or more than fit.

    Args:
        part: (num_vertices,) int32.

    Band graphs: Chevalier, Pellegrini (Parallel Computing 34, 2008), section 3.3; improved by V-cycles:
    Walshaw (Annals of Operations Research 131, 2004).
    """
    near = _widest_band(hypergraph, part, parts, band)
    if near is None:
        return False
    label = _band_labels(near, part, parts)
    if int(label.max()) < parts:
        return False
    folder = band.scratch / "band"
    small = contract_nets(hypergraph, label, folder, cluster).load()
    given = np.empty(small.num_vertices, dtype=np.int32)
    given[label] = part
    LOGGER.info("band: %s of %s vertices", f"{int(near.sum()):,}", f"{len(part):,}")
    part[:] = band.improve(small, given)[label]
    shutil.rmtree(folder)
    return True


def _widest_band(
    hypergraph: DiskHypergraph, part: NDArray[np.int32], parts: int, band: Band
) -> NDArray[np.bool_] | None:
    """(num_vertices,) the vertices around the cut that fit; None where those at the cut do not, or there are none."""
    found = None
    near = np.zeros(len(part), dtype=np.bool_)
    for width in range(_WIDEST):
        wider = near.copy()
        for block in hypergraph.nets.blocks():
            if width == 0:
                _mark_cut(block.offset, block.ids, part, wider)
            else:
                _widen(block.offset, block.ids, near, wider)
        num_pins = sum(_count_pins(block.offset, block.ids, wider) for block in hypergraph.nets.blocks())
        if not band.fits(num_pins, int(wider.sum()) + parts) or (wider == near).all():
            break
        found = near = wider
    return found


@njit(cache=True, nogil=True)
def _mark_cut(offset: NDArray[np.int64], pin: NDArray[Any], part: NDArray[np.int32], near: NDArray[np.bool_]) -> None:
    for net in range(len(offset) - 1):
        pins = pin[offset[net] : offset[net + 1]]
        for other in pins:
            if part[other] != part[pins[0]]:
                for vertex in pins:
                    near[vertex] = True
                break


@njit(cache=True, nogil=True)
def _widen(offset: NDArray[np.int64], pin: NDArray[Any], near: NDArray[np.bool_], wider: NDArray[np.bool_]) -> None:
    for net in range(len(offset) - 1):
        pins = pin[offset[net] : offset[net + 1]]
        for other in pins:
            if near[other]:
                for vertex in pins:
                    wider[vertex] = True
                break


@njit(cache=True, nogil=True)
def _count_pins(offset: NDArray[np.int64], pin: NDArray[Any], near: NDArray[np.bool_]) -> int:
    """Pins of the nets that reach the band; a net has one pin at most for what lies outside, as it is not cut there."""
    total = 0
    for net in range(len(offset) - 1):
        inside = 0
        for position in range(offset[net], offset[net + 1]):
            inside += near[pin[position]]
        if inside:
            total += inside + (inside < offset[net + 1] - offset[net])
    return total


def _band_labels(near: NDArray[np.bool_], part: NDArray[np.int32], parts: int) -> NDArray[Any]:
    """(num_vertices,) a number for each vertex of the band, and one for all others of a part; without gaps."""
    is_used = np.zeros(parts, dtype=np.bool_)
    is_used[part[~near]] = True
    number = np.cumsum(is_used) - 1
    label = number[part].astype(index_dtype(len(part)))
    label[near] = int(is_used.sum()) + np.arange(int(near.sum()))
    return label
