"""Clusters of vertices, in files: what coarsening hands from clustering to contraction."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.vectors import map_vector, store_vector


@dataclass(frozen=True)
class Clusters:
    """The cluster of every vertex; small and picklable.

    Attributes:
        label_path: file of the (num_vertices,) int32 or int64 clusters, numbered from 0 without gaps.
        weight_path: file of the (num_clusters,) int64 weight of each cluster.
        num_clusters: at least 1.
        total_weight: of all clusters.
        heaviest: weight of the heaviest cluster.
    """

    label_path: Path
    weight_path: Path
    num_clusters: int
    total_weight: int
    heaviest: int

    @property
    def label(self) -> NDArray[Any]:
        """Map the (num_vertices,) clusters."""
        return map_vector(self.label_path)


def store_clusters(hypergraph: DiskHypergraph, label: NDArray[Any], folder: Path) -> Clusters:
    """Store labels that are in memory, and the weights of their clusters.

    Args:
        label: (num_vertices,) int32 or int64 cluster of each vertex, numbered from 0 without gaps.
        folder: for the files.
    """
    weight = np.zeros(int(label.max()) + 1, dtype=np.int64)
    np.add.at(weight, label, hypergraph.vertex_weight)
    return Clusters(
        store_vector(folder / "label.npy", label),
        store_vector(folder / "weight.npy", weight),
        len(weight),
        hypergraph.total_weight,
        int(weight.max()),
    )
