"""Number clusters from 0 without gaps, by tasks over ranges: in the order of the vertices that founded them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np

from gnnloom.pipeline.partition.multilevel.clusters import Clusters
from gnnloom.pipeline.partition.multilevel.vectors import create_vector, map_vector
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.matrix.csr import index_dtype

#: Vertices of a task: 8 MiB of weights.
_TASK_VERTICES = 1 << 20


@dataclass(frozen=True)
class _Task:
    """Numbers the clusters that a range of vertices founded, or the labels of these vertices.

    Attributes:
        first: number of the first cluster.
    """

    label_path: Path
    load_path: Path
    number_path: Path
    clusters: Clusters
    start: int
    first: int = 0

    @property
    def rows(self) -> slice:
        return slice(self.start, self.start + _TASK_VERTICES)


def number_clusters(label_path: Path, load_path: Path, total_weight: int, folder: Path, cluster: Cluster) -> Clusters:
    """Store clusters with numbers instead of the names of the vertices that founded them.

    Args:
        label_path: file of (num_vertices,) integers, the founder of each vertex's cluster.
        load_path: file of (num_vertices,) int64, the weight of the cluster that each vertex founded; 0 for none.
        folder: for the files of the result.
    """
    label = map_vector(label_path)
    starts = range(0, len(label), _TASK_VERTICES)
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "label.npy", folder / "weight.npy"
    draft = Clusters(*paths, 0, total_weight, 0)
    number_path = label_path.with_name("number.npy")
    counts = dict(cluster.map(_count, [_Task(label_path, load_path, number_path, draft, start) for start in starts]))
    firsts = [0, *accumulate(counts[start][0] for start in starts)]
    result = Clusters(*paths, firsts[-1], total_weight, max(heaviest for _, heaviest in counts.values()))
    create_vector(number_path, (len(label),), index_dtype(len(label)))
    create_vector(result.label_path, (len(label),), index_dtype(result.num_clusters))
    create_vector(result.weight_path, (result.num_clusters,), np.dtype(np.int64))
    tasks = [
        _Task(label_path, load_path, number_path, result, start, first)
        for start, first in zip(starts, firsts, strict=False)
    ]
    for step in (_number, _relabel):
        for _ in cluster.map(step, tasks):
            pass
    return result


def _count(task: _Task) -> tuple[int, tuple[int, int]]:
    """The first vertex of a range, and the number and heaviest of its clusters."""
    load = map_vector(task.load_path)[task.rows]
    # Every vertex weighs 1 or more, so a cluster without weight has no vertex left.
    return task.start, (int(np.count_nonzero(load)), int(load.max()))


def _number(task: _Task) -> None:
    load = map_vector(task.load_path)[task.rows]
    is_used = load > 0
    map_vector(task.number_path, "r+")[task.rows] = task.first - 1 + np.cumsum(is_used)
    weight = load[is_used]
    map_vector(task.clusters.weight_path, "r+")[task.first : task.first + len(weight)] = weight


def _relabel(task: _Task) -> None:
    label = map_vector(task.label_path)[task.rows]
    map_vector(task.clusters.label_path, "r+")[task.rows] = map_vector(task.number_path)[label]
