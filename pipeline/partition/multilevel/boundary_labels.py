"""Labels of a boundary, by tasks over ranges of vertices: one for each vertex inside, one for the rest of each part.

Numbers have no gaps: parts without vertices outside get none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.multilevel.boundary_rings import RING_BYTES, Boundary
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import Clusters, DiskHypergraph
from gnnloom.pipeline.partition.multilevel.part_files import add_weights
from gnnloom.pipeline.partition.multilevel.pieces import (
    NUMBER_BYTES,
    PART_BYTES,
    Piece,
    phase_over,
    run_pieces,
    vertex_pieces,
)
from gnnloom.pipeline.partition.multilevel.vectors import create_vector, map_vector, store_vector
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Phase, results
from gnnloom.storage.matrix.csr import index_dtype

#: Bytes that tasks read of a vertex, and hold if it is selected: its ring, part and weight.
_READ_BYTES = RING_BYTES + PART_BYTES + NUMBER_BYTES


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
class _Labeling:
    """What the tasks have in common.

    Attributes:
        folder: for the files of the labels.
    """

    boundary: Boundary
    weight_path: Path
    part_path: Path
    parts: int
    folder: Path

    @property
    def number_path(self) -> Path:
        """File of the (P,) int64 labels of the parts."""
        return self.folder / "numbers.npy"

    @property
    def labels(self) -> Labels:
        """The result; numbers and weights of its clusters are not known before vertices are weighed."""
        clusters = Clusters(self.folder / "label.npy", self.folder / "weight.npy", 0, 0, 0)
        return Labels(clusters, self.folder / "given.npy")

    def is_near(self, piece: slice) -> NDArray[np.bool_]:
        """(num_rows,) whether each vertex of a piece is in the boundary."""
        ring_of = map_vector(self.boundary.vertices.ring_path)[piece]
        return (ring_of > 0) & (ring_of <= self.boundary.width)


@dataclass(frozen=True)
class _Count:
    """What a task counted.

    Attributes:
        number: of the task.
        num_near, heaviest: number of vertices inside, and the weight of the heaviest; 0 if there are none.
        load: (P,) int64 weight of the vertices outside, by part.
    """

    number: int
    num_near: int
    heaviest: int
    load: NDArray[np.int64]


def label_boundary(
    hypergraph: DiskHypergraph, boundary: Boundary, part_path: Path, parts: int, folder: Path, cluster: Cluster
) -> Labels | None:
    """Label all vertices; None if so few labels are left that nothing can move.

    Args:
        part_path: file of the (num_vertices,) int32 parts.
        parts: number of parts P.
        folder: for the files of the labels.
    """
    work = _Labeling(boundary, hypergraph.weight_path, part_path, parts, folder)
    load, heaviest, near = np.zeros(parts, dtype=np.int64), 0, {}
    for found in results(_count_phase(work), cluster):
        load += found.load
        heaviest, near[found.number] = max(heaviest, found.heaviest), found.num_near
    # Every vertex weighs 1 or more.
    used = np.flatnonzero(load)
    firsts = list(accumulate((near[number] for number in sorted(near)), initial=len(used)))
    if firsts[-1] <= parts:
        return None
    clusters = replace(
        work.labels.clusters,
        num_clusters=firsts[-1],
        total_weight=hypergraph.total_weight,
        heaviest=max(heaviest, int(load.max())),
    )
    labels = replace(work.labels, clusters=clusters)
    _create(labels, hypergraph.num_vertices, used, load)
    store_vector(work.number_path, np.cumsum(load > 0) - 1)
    run_pieces(_label_phase(work, firsts), cluster)
    return labels


def label_phases(boundary: Boundary, parts: int) -> list[Phase]:
    """The phases of :func:`label_boundary`."""
    work = _Labeling(boundary, Path(), Path(), parts, Path())
    return [_count_phase(work), _label_phase(work)]


def _count_phase(work: _Labeling) -> Phase:
    """Weigh the vertices."""
    n = work.boundary.vertices.lists.num_rows
    pieces = vertex_pieces(n)
    loads = NUMBER_BYTES * work.parts
    return phase_over(
        pieces, "count boundary", _count, work,
        reads=_READ_BYTES * n, files=3, row_bytes=_READ_BYTES + 2 * RING_BYTES, buffers=loads,
    )  # fmt: skip


def _label_phase(work: _Labeling, firsts: Sequence[int] | None = None) -> Phase:
    """Label the vertices.

    Args:
        firsts: label of the first vertex of each piece that is inside.
    """
    n = work.boundary.vertices.lists.num_rows
    pieces = vertex_pieces(n)
    reads = _READ_BYTES * n + NUMBER_BYTES * work.parts * len(pieces)
    writes = (index_dtype(n).itemsize + NUMBER_BYTES + PART_BYTES) * n
    return phase_over(
        pieces, "label vertices", _label, work,
        # Labels, and the parts by which they are looked up or the weights.
        reads=reads, writes=writes, files=4, firsts=firsts, row_bytes=2 * NUMBER_BYTES + RING_BYTES, at_most=True,
    )  # fmt: skip


def _create(labels: Labels, num_vertices: int, used: NDArray[np.int64], load: NDArray[np.int64]) -> None:
    """Create the files, in which the labels of the parts come first."""
    clusters = labels.clusters
    create_vector(clusters.label_path, (num_vertices,), index_dtype(clusters.num_clusters))
    create_vector(clusters.weight_path, (clusters.num_clusters,), np.dtype(np.int64))
    create_vector(labels.part_path, (clusters.num_clusters,), np.dtype(np.int32))
    map_vector(clusters.weight_path, "r+")[: len(used)] = load[used]
    map_vector(labels.part_path, "r+")[: len(used)] = used


def _count(task: Piece[_Labeling]) -> _Count:
    work, is_near = task.work, task.work.is_near(task.span)
    weight, part = map_vector(work.weight_path)[task.span], map_vector(work.part_path)[task.span]
    load = np.zeros(work.parts, dtype=np.int64)
    add_weights(part[~is_near], weight[~is_near], load)
    return _Count(task.number, int(np.count_nonzero(is_near)), int(weight[is_near].max(initial=0)), load)


def _label(task: Piece[_Labeling]) -> None:
    work, labels = task.work, task.work.labels
    is_near, part = work.is_near(task.span), map_vector(work.part_path)[task.span]
    inside = slice(task.first, task.first + int(np.count_nonzero(is_near)))
    # Parts without vertices outside have a meaningless number, but all of their vertices are overwritten here.
    label = map_vector(work.number_path)[part]
    label[is_near] = np.arange(inside.start, inside.stop)
    map_vector(labels.clusters.label_path, "r+")[task.span] = label
    map_vector(labels.clusters.weight_path, "r+")[inside] = map_vector(work.weight_path)[task.span][is_near]
    map_vector(labels.part_path, "r+")[inside] = part[is_near]
