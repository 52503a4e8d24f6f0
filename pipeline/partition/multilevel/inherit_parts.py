"""Carry parts from the clusters of a level to their vertices, by tasks over ranges of vertices."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gnnloom.pipeline.partition.multilevel.clusters import Clusters
from gnnloom.pipeline.partition.multilevel.vectors import map_vector
from gnnloom.pipeline.tasks.cluster import Cluster

#: Vertices of a task: 4 MiB of parts.
_TASK_VERTICES = 1 << 20


@dataclass(frozen=True)
class _InheritTask:
    clusters: Clusters
    coarse_path: Path
    part_path: Path
    start: int


def inherit_parts(clusters: Clusters, coarse_path: Path, part_path: Path, num_vertices: int, cluster: Cluster) -> None:
    """Give every vertex the part of its cluster: the same cut and the same loads as one level above.

    Args:
        coarse_path: file of the (num_clusters,) int32 parts.
        part_path: file of (num_vertices,) int32 parts, filled.
    """
    tasks = [_InheritTask(clusters, coarse_path, part_path, start) for start in range(0, num_vertices, _TASK_VERTICES)]
    for _ in cluster.map(_inherit, tasks):
        pass


def _inherit(task: _InheritTask) -> None:
    rows = slice(task.start, task.start + _TASK_VERTICES)
    map_vector(task.part_path, "r+")[rows] = map_vector(task.coarse_path)[task.clusters.label[rows]]
