"""Copy numbers of vertices from one file to another, by tasks over ranges of vertices."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gnnloom.pipeline.partition.multilevel.pieces import vertex_pieces
from gnnloom.pipeline.partition.multilevel.vectors import map_vector
from gnnloom.pipeline.tasks.cluster import Cluster, run_tasks


@dataclass(frozen=True)
class _CopyTask:
    source: Path
    target: Path
    rows: slice


def copy_vector(source: Path, target: Path, num_vertices: int, cluster: Cluster) -> None:
    """Copy a file of (num_vertices,) numbers to another that exists."""
    run_tasks(cluster, _copy, [_CopyTask(source, target, rows) for rows in vertex_pieces(num_vertices)])


def _copy(task: _CopyTask) -> None:
    map_vector(task.target, "r+")[task.rows] = map_vector(task.source)[task.rows]
