"""Labels of a boundary, by tasks over ranges of vertices: one for each vertex inside, one for the rest of each part.

Numbers have no gaps: parts without vertices outside get none.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.multilevel.boundary_rings import Boundary
from gnnloom.pipeline.partition.multilevel.clusters import Clusters
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.part_loads import add_weights
from gnnloom.pipeline.partition.multilevel.pieces import vertex_pieces
from gnnloom.pipeline.partition.multilevel.vectors import create_vector, map_vector, store_vector
from gnnloom.pipeline.tasks.cluster import Cluster, run_tasks
from gnnloom.storage.matrix.csr import index_dtype


@dataclass(frozen=True)
class Labels:
    """The vertices of the contracted hypergraph.

    Attributes:
        clusters: the label of every vertex.
        part_path: file of the (num_clusters,) int32 part of each label.
    """

    clusters: Clusters
    part_path: Path


@dataclass(frozen=True)
class _CountTask:
    """Weighs a piece of the vertices."""

    boundary: Boundary
    weight_path: Path
    part_path: Path
    parts: int
    rows: slice

    def is_near(self) -> NDArray[np.bool_]:
        """(num_rows,) whether each vertex of the piece is in the boundary."""
        ring_of = map_vector(self.boundary.vertices.ring_path)[self.rows]
        return (ring_of > 0) & (ring_of <= self.boundary.width)


@dataclass(frozen=True)
class _Count:
    """What a task counted.

    Attributes:
        first: vertex of the piece.
        num_near, heaviest: number of vertices inside, and the weight of the heaviest; 0 if there are none.
        load: (P,) int64 weight of the vertices outside, by part.
    """

    first: int
    num_near: int
    heaviest: int
    load: NDArray[np.int64]


@dataclass(frozen=True)
class _LabelTask:
    """Labels a piece of the vertices.

    Attributes:
        number_path: file of the (P,) int64 labels of the parts.
        first: label of the first vertex inside.
    """

    count: _CountTask
    number_path: Path
    labels: Labels
    first: int


def label_boundary(
    hypergraph: DiskHypergraph, boundary: Boundary, part_path: Path, parts: int, folder: Path, cluster: Cluster
) -> Labels | None:
    """Label all vertices; None if so few labels are left that nothing can move.

    Args:
        part_path: file of the (num_vertices,) int32 parts.
        parts: number of parts P.
        folder: for the files of the labels.
    """
    pieces = vertex_pieces(hypergraph.num_vertices)
    counts = [_CountTask(boundary, hypergraph.weight_path, part_path, parts, rows) for rows in pieces]
    load, heaviest, near = np.zeros(parts, dtype=np.int64), 0, {}
    for found in cluster.map(_count, counts):
        load += found.load
        heaviest, near[found.first] = max(heaviest, found.heaviest), found.num_near
    # Every vertex weighs 1 or more.
    used = np.flatnonzero(load)
    firsts = list(accumulate((near[rows.start] for rows in pieces), initial=len(used)))
    if firsts[-1] <= parts:
        return None
    clusters = Clusters(
        folder / "label.npy",
        folder / "weight.npy",
        firsts[-1],
        hypergraph.total_weight,
        max(heaviest, int(load.max())),
    )
    labels = Labels(clusters, folder / "given.npy")
    _create(labels, hypergraph.num_vertices, used, load)
    number_path = store_vector(folder / "numbers.npy", np.cumsum(load > 0) - 1)
    tasks = [_LabelTask(count, number_path, labels, first) for count, first in zip(counts, firsts, strict=False)]
    run_tasks(cluster, _label, tasks)
    return labels


def _create(labels: Labels, num_vertices: int, used: NDArray[np.int64], load: NDArray[np.int64]) -> None:
    """Create the files, in which the labels of the parts come first."""
    clusters = labels.clusters
    create_vector(clusters.label_path, (num_vertices,), index_dtype(clusters.num_clusters))
    create_vector(clusters.weight_path, (clusters.num_clusters,), np.dtype(np.int64))
    create_vector(labels.part_path, (clusters.num_clusters,), np.dtype(np.int32))
    map_vector(clusters.weight_path, "r+")[: len(used)] = load[used]
    map_vector(labels.part_path, "r+")[: len(used)] = used


def _count(task: _CountTask) -> _Count:
    is_near, weight = task.is_near(), map_vector(task.weight_path)[task.rows]
    load = np.zeros(task.parts, dtype=np.int64)
    add_weights(map_vector(task.part_path)[task.rows][~is_near], weight[~is_near], load)
    return _Count(task.rows.start, int(np.count_nonzero(is_near)), int(weight[is_near].max(initial=0)), load)


def _label(task: _LabelTask) -> None:
    count, clusters = task.count, task.labels.clusters
    is_near, part = count.is_near(), map_vector(count.part_path)[count.rows]
    inside = slice(task.first, task.first + int(np.count_nonzero(is_near)))
    # Parts without vertices outside have a meaningless number, but all of their vertices are overwritten here.
    label = map_vector(task.number_path)[part]
    label[is_near] = np.arange(inside.start, inside.stop)
    map_vector(clusters.label_path, "r+")[count.rows] = label
    map_vector(clusters.weight_path, "r+")[inside] = map_vector(count.weight_path)[count.rows][is_near]
    map_vector(task.labels.part_path, "r+")[inside] = part[is_near]
