"""Number clusters from 0 without gaps, by tasks over ranges: in the order of the vertices that founded them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import numpy as np

from gnnloom.pipeline.partition.multilevel.disk_hypergraph import Clusters
from gnnloom.pipeline.partition.multilevel.pieces import (
    NUMBER_BYTES,
    Piece,
    in_order,
    phase_over,
    run_pieces,
    vertex_pieces,
)
from gnnloom.pipeline.partition.multilevel.vectors import create_vector, map_vector
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Phase, results
from gnnloom.storage.matrix.csr import index_dtype


@dataclass(frozen=True)
class _Numbering:
    """What the tasks have in common.

    Attributes:
        label_path: file of (num_vertices,) integers, the founder of each vertex's cluster.
        load_path: file of (num_vertices,) int64, the weight of the cluster that each vertex founded; 0 for none.
        clusters: the result; its numbers are not known before clusters are counted.
    """

    label_path: Path
    load_path: Path
    clusters: Clusters

    @property
    def number_path(self) -> Path:
        """File of (num_vertices,) integers, the number of the cluster that each vertex founded."""
        return self.label_path.with_name("number.npy")


def number_clusters(label_path: Path, load_path: Path, total_weight: int, folder: Path, cluster: Cluster) -> Clusters:
    """Store clusters with numbers instead of the names of the vertices that founded them.

    Args:
        label_path, load_path: see :class:`_Numbering`.
        folder: for the files of the result.
    """
    num_vertices = len(map_vector(label_path))
    clusters = Clusters(folder / "label.npy", folder / "weight.npy", 0, total_weight, 0)
    work = _Numbering(label_path, load_path, clusters)
    counts = in_order(results(_count_phase(work, num_vertices), cluster))
    firsts = [0, *accumulate(count for count, _ in counts)]
    clusters = replace(clusters, num_clusters=firsts[-1], heaviest=max(heaviest for _, heaviest in counts))
    folder.mkdir(parents=True, exist_ok=True)
    create_vector(work.number_path, (num_vertices,), index_dtype(num_vertices))
    create_vector(clusters.label_path, (num_vertices,), index_dtype(clusters.num_clusters))
    create_vector(clusters.weight_path, (clusters.num_clusters,), np.dtype(np.int64))
    # A label may be any vertex, so all numbers have to be there first.
    for phase in _number_phases(work, num_vertices, firsts):
        run_pieces(phase, cluster)
    return clusters


def number_phases(num_vertices: int) -> list[Phase]:
    """The phases of :func:`number_clusters`; at most, every vertex is a cluster."""
    work = _Numbering(Path(), Path(), Clusters(Path(), Path(), num_vertices, 0, 0))
    return [_count_phase(work, num_vertices), *_number_phases(work, num_vertices)]


def _count_phase(work: _Numbering, num_vertices: int) -> Phase:
    pieces = vertex_pieces(num_vertices)
    return phase_over(pieces, "count clusters", _count, work, reads=NUMBER_BYTES * num_vertices, files=1, row_bytes=1)


def _number_phases(work: _Numbering, num_vertices: int, firsts: Sequence[int] | None = None) -> list[Phase]:
    """Number the clusters that the vertices of a piece founded, then the labels of these vertices."""
    pieces, label = vertex_pieces(num_vertices), index_dtype(num_vertices).itemsize * num_vertices
    numbers = NUMBER_BYTES * num_vertices
    writes = label + numbers
    return [
        phase_over(
            pieces, "number clusters", _number, work,
            reads=numbers, writes=writes, files=1, firsts=firsts, row_bytes=3 * NUMBER_BYTES + 1, at_most=True,
        ),
        phase_over(
            pieces, "name clusters", _relabel, work, reads=2 * label, writes=label, files=2, row_bytes=2 * NUMBER_BYTES
        ),
    ]  # fmt: skip


def _count(task: Piece[_Numbering]) -> tuple[int, tuple[int, int]]:
    """The task's number, and the number and the largest weight of the clusters that its vertices founded."""
    load = map_vector(task.work.load_path)[task.span]
    # Every vertex weighs 1 or more, so a cluster without weight has no vertex left.
    return task.number, (int(np.count_nonzero(load)), int(load.max()))


def _number(task: Piece[_Numbering]) -> None:
    load = map_vector(task.work.load_path)[task.span]
    is_used = load > 0
    map_vector(task.work.number_path, "r+")[task.span] = task.first - 1 + np.cumsum(is_used)
    weight = load[is_used]
    map_vector(task.work.clusters.weight_path, "r+")[task.first : task.first + len(weight)] = weight


def _relabel(task: Piece[_Numbering]) -> None:
    label = map_vector(task.work.label_path)[task.span]
    map_vector(task.work.clusters.label_path, "r+")[task.span] = map_vector(task.work.number_path)[label]
