"""Carry parts from the clusters of a level to their vertices, by tasks over ranges of vertices."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gnnloom.pipeline.partition.multilevel.clusters import Clusters
from gnnloom.pipeline.partition.multilevel.pieces import vertex_pieces
from gnnloom.pipeline.partition.multilevel.vectors import map_vector
from gnnloom.pipeline.tasks.cluster import Cluster, run_tasks


@dataclass(frozen=True)
class _InheritTask:
    clusters: Clusters
    coarse_path: Path
    part_path: Path
    rows: slice


def inherit_parts(clusters: Clusters, coarse_path: Path, part_path: Path, num_vertices: int, cluster: Cluster) -> None:
    """Give every vertex the part of its cluster, which keeps the cut and the loads of the level above.

    Args:
        coarse_path: file of the (num_clusters,) int32 parts.
        part_path: file of (num_vertices,) int32 parts, filled.
    """
    tasks = [_InheritTask(clusters, coarse_path, part_path, rows) for rows in vertex_pieces(num_vertices)]
    run_tasks(cluster, _inherit, tasks)


def _inherit(task: _InheritTask) -> None:
    map_vector(task.part_path, "r+")[task.rows] = map_vector(task.coarse_path)[task.clusters.label[task.rows]]
