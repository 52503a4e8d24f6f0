"""Refine the vertices near the cut with a native partitioner; the rest of each part becomes one vertex.

If parts have short boundaries, as in meshes, the vertices around them fit in memory although the hypergraph does not,
and their partition can be improved as well as in memory.  Tasks find the boundary and contract the rest; only what
remains is read here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.hypergraph import Hypergraph
from gnnloom.pipeline.partition.multilevel.boundary_contraction import (
    label_boundary,
    label_phases,
    select_nets_of_boundary,
    select_phases,
)
from gnnloom.pipeline.partition.multilevel.boundary_rings import boundary_of, find_boundary, ring_phases
from gnnloom.pipeline.partition.multilevel.contraction import contract_nets
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.part_files import inherit_phase
from gnnloom.pipeline.partition.multilevel.pieces import run_pieces, store_vector
from gnnloom.pipeline.tasks.cluster import Cluster, InProcessCluster
from gnnloom.pipeline.tasks.phase import Phase
from gnnloom.storage.disk.numpy_files import map_array
from gnnloom.storage.disk.own_folder import own_folder

LOGGER = logging.getLogger("gnnloom.pipeline")


@dataclass(frozen=True)
class BoundaryRefinement:
    """Options of boundary refinement.

    Attributes:
        fits: whether a hypergraph with this many pins and vertices can be improved in memory; if so, any smaller one.
        improve: returns better parts, given a hypergraph and its (num_vertices,) int32 parts.
        scratch: folder for temporary files.
    """

    fits: Callable[[int, int], bool]
    improve: Callable[[Hypergraph, NDArray[np.int32]], NDArray[np.int32]]
    scratch: Path


def refine_boundary(
    hypergraph: DiskHypergraph, part_path: Path, parts: int, refinement: BoundaryRefinement, cluster: Cluster
) -> bool:
    """Improve a partition by moving only vertices near the cut.

    Args:
        hypergraph: to partition.
        part_path: file of the (num_vertices,) int32 parts, changed in place.
        parts: number of parts P.
        refinement: limits of memory, and the function that improves parts.
        cluster: runs the tasks; tasks of a small hypergraph run in this process.

    Returns:
        False if nothing was tried: no vertex is near a cut, or even the vertices at the cut do not fit.

    Band graphs: Chevalier, Pellegrini (Parallel Computing 34, 2008), section 3.3; improved by V-cycles:
    Walshaw (Annals of Operations Research 131, 2004).
    """
    # The same tasks either way: to start many short ones on workers takes longer than their work.
    nearby = cluster if hypergraph.is_for_tasks else InProcessCluster(cluster.memory, cluster.scratch)
    num_vertices = hypergraph.num_vertices
    refinement.scratch.mkdir(parents=True, exist_ok=True)
    # A name of its own, so that a task that was taken for dead but still runs cannot change files of another level.
    with own_folder(within=refinement.scratch) as folder:
        # The rest of each part becomes one vertex more.
        boundary = find_boundary(
            hypergraph, part_path, lambda pins, vertices: refinement.fits(pins, vertices + parts), folder, nearby
        )
        labels = boundary and label_boundary(hypergraph, boundary, part_path, parts, folder, nearby)
        if not boundary or not labels:
            return False
        clusters, given_path = labels
        nets = select_nets_of_boundary(hypergraph, boundary, folder / "selected", nearby)
        small = contract_nets(nets, clusters, folder, cluster).load()
        LOGGER.info("refining the boundary: %s of %s vertices", f"{boundary.num_vertices:,}", f"{num_vertices:,}")
        improved = refinement.improve(small, np.array(map_array(given_path)))
        improved_path = store_vector(folder / "improved.npy", improved)
        run_pieces(inherit_phase(clusters, improved_path, part_path, hypergraph), nearby)
        return True


def refine_boundary_phases(hypergraph: DiskHypergraph, parts: int, pins: int) -> list[Phase]:
    """The phases before the contraction, as if all nets with a pin in the boundary lay inside as a whole.

    Args:
        parts: number of parts P.
        pins: pins of the nets, each counted in every ring.
    """
    boundary, is_weighted = boundary_of(hypergraph), hypergraph.net_weight_path is not None
    return [
        *ring_phases(boundary, pins),
        *select_phases(boundary, pins, is_weighted=is_weighted),
        *label_phases(boundary, parts),
    ]
