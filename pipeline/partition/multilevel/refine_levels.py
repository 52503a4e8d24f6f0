"""Refinement on several levels: clusters of vertices within a part move first, then smaller ones, then vertices.

A cluster crosses a border where each of its vertices alone would lose, so this improves parts that single moves cannot.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.multilevel.clustering import cluster_vertices
from gnnloom.pipeline.partition.multilevel.contraction import contract_nets
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph, store_clusters
from gnnloom.pipeline.partition.multilevel.refine import Refinement, refine
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.format.memory_map import create_part_vector

#: Rounds of label propagation at each level.
_ROUNDS = 3
#: A cluster may weigh at most one part in the first number, and at each level as much as the second number of average
#: vertices.
_CLUSTERS_PER_PART, _VERTICES_PER_CLUSTER = 8, 3
#: The last level is the one before that which would keep more than this share of its pins.
_TOO_MUCH = 0.97
#: Heat of the clusters' moves, relative to that of the vertices'.
_CLUSTER_HEAT = 4.0


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
        refinement: of the vertices; clusters get as many passes with more heat.
        levels: the most levels of clusters; fewer if clusters stop absorbing pins.
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
