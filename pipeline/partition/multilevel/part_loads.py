"""The weight of every part, summed by tasks over ranges of vertices."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.multilevel.pieces import vertex_pieces
from gnnloom.pipeline.partition.multilevel.vectors import map_vector
from gnnloom.pipeline.tasks.cluster import Cluster


@dataclass(frozen=True)
class _SumTask:
    weight_path: Path
    part_path: Path
    num_parts: int
    rows: slice


def part_loads(
    weight_path: Path, part_path: Path, num_vertices: int, num_parts: int, cluster: Cluster
) -> NDArray[np.int64]:
    """(num_parts,) int64 weight of each part.

    Args:
        weight_path: file of (num_vertices,) int64 weights.
        part_path: file of (num_vertices,) int32 parts.
    """
    tasks = [_SumTask(weight_path, part_path, num_parts, rows) for rows in vertex_pieces(num_vertices)]
    load = np.zeros(num_parts, dtype=np.int64)
    for found in cluster.map(_sum, tasks):
        load += found
    return load


def _sum(task: _SumTask) -> NDArray[np.int64]:
    load = np.zeros(task.num_parts, dtype=np.int64)
    add_weights(map_vector(task.part_path)[task.rows], map_vector(task.weight_path)[task.rows], load)
    return load


@njit(cache=True, nogil=True)
def add_weights(part: NDArray[np.int32], weight: NDArray[np.int64], load: NDArray[np.int64]) -> None:
    """Add the weights of vertices to those of their parts, (num_parts,) int64."""
    # ``bincount`` with weights would sum in float64, which is exact only up to 2^53.
    for vertex in range(len(part)):
        load[part[vertex]] += weight[vertex]
