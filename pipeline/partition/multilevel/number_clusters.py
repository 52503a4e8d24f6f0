"""Number clusters from 0 without gaps, by tasks over ranges: in the order of the vertices that founded them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np

from gnnloom.pipeline.partition.multilevel.clusters import Clusters
from gnnloom.pipeline.partition.multilevel.pieces import vertex_pieces
from gnnloom.pipeline.partition.multilevel.vectors import create_vector, map_vector
from gnnloom.pipeline.tasks.cluster import Cluster, run_tasks
from gnnloom.storage.matrix.csr import index_dtype


@dataclass(frozen=True)
class _CountTask:
    """Counts the clusters that a piece of the vertices founded."""

    load_path: Path
    rows: slice


@dataclass(frozen=True)
class _NumberTask:
    """Numbers the clusters that a piece of the vertices founded, or the labels of these vertices.

    Attributes:
        number_path: file of (num_vertices,) integers, the number of the cluster that each vertex founded.
        clusters: the result.
        first: number of the first cluster.
    """

    label_path: Path
    load_path: Path
    number_path: Path
    clusters: Clusters
    rows: slice
    first: int


def number_clusters(label_path: Path, load_path: Path, total_weight: int, folder: Path, cluster: Cluster) -> Clusters:
    """Store clusters with numbers instead of the names of the vertices that founded them.

    Args:
        label_path: file of (num_vertices,) integers, the founder of each vertex's cluster.
        load_path: file of (num_vertices,) int64, the weight of the cluster that each vertex founded; 0 for none.
        folder: for the files of the result.
    """
    label = map_vector(label_path)
    pieces = vertex_pieces(len(label))
    counts = dict(cluster.map(_count, [_CountTask(load_path, rows) for rows in pieces]))
    firsts = [0, *accumulate(counts[rows.start][0] for rows in pieces)]
    heaviest = max(heaviest for _, heaviest in counts.values())
    result = Clusters(folder / "label.npy", folder / "weight.npy", firsts[-1], total_weight, heaviest)
    folder.mkdir(parents=True, exist_ok=True)
    number_path = label_path.with_name("number.npy")
    create_vector(number_path, (len(label),), index_dtype(len(label)))
    create_vector(result.label_path, (len(label),), index_dtype(result.num_clusters))
    create_vector(result.weight_path, (result.num_clusters,), np.dtype(np.int64))
    tasks = [
        _NumberTask(label_path, load_path, number_path, result, rows, first)
        for rows, first in zip(pieces, firsts, strict=False)
    ]
    # A label may be any vertex, so all numbers have to be there first.
    run_tasks(cluster, _number, tasks)
    run_tasks(cluster, _relabel, tasks)
    return result


def _count(task: _CountTask) -> tuple[int, tuple[int, int]]:
    """The first vertex of a piece, and the number and the largest weight of its clusters."""
    load = map_vector(task.load_path)[task.rows]
    # Every vertex weighs 1 or more, so a cluster without weight has no vertex left.
    return task.rows.start, (int(np.count_nonzero(load)), int(load.max()))


def _number(task: _NumberTask) -> None:
    load = map_vector(task.load_path)[task.rows]
    is_used = load > 0
    map_vector(task.number_path, "r+")[task.rows] = task.first - 1 + np.cumsum(is_used)
    weight = load[is_used]
    map_vector(task.clusters.weight_path, "r+")[task.first : task.first + len(weight)] = weight


def _relabel(task: _NumberTask) -> None:
    label = map_vector(task.label_path)[task.rows]
    map_vector(task.clusters.label_path, "r+")[task.rows] = map_vector(task.number_path)[label]
