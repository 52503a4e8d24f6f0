"""Fill empty parts of a part vector in a file: tasks find the lightest vertices, and the client moves a few of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.measure.balance import choose_for_empty
from gnnloom.pipeline.partition.multilevel.pieces import vertex_pieces
from gnnloom.pipeline.partition.multilevel.vectors import map_vector
from gnnloom.pipeline.tasks.cluster import Cluster


@dataclass(frozen=True)
class _FindTask:
    """Finds the lightest vertices of a piece, one for each part."""

    weight_path: Path
    part_path: Path
    num_parts: int
    rows: slice


def fill_empty_from_files(
    weight_path: Path, part_path: Path, num_vertices: int, num_parts: int, cluster: Cluster
) -> int:
    """Move vertices as :func:`gnnloom.pipeline.partition.measure.balance.fill_empty_parts` does; returns how many.

    Args:
        weight_path: file of (num_vertices,) int64 weights.
        part_path: file of (num_vertices,) int32 parts, changed in place.
        num_parts: number of parts P, at most ``num_vertices``.
    """
    tasks = [_FindTask(weight_path, part_path, num_parts, rows) for rows in vertex_pieces(num_vertices)]
    size, lightest = np.zeros(num_parts, dtype=np.int64), np.empty((3, 0), dtype=np.int64)
    for size_of_piece, found in cluster.map(_find, tasks):
        size += size_of_piece
        lightest = np.concatenate([lightest, found], axis=1)
        # By weight, then by number: whichever piece is found first, the same vertices remain.
        lightest = lightest[:, np.lexsort((lightest[1], lightest[0]))[:num_parts]]
    _, vertex, part = lightest
    empty = np.flatnonzero(size == 0)
    chosen = choose_for_empty(part.astype(np.int32), size)
    map_vector(part_path, "r+")[vertex[chosen]] = empty[: len(chosen)]
    return len(chosen)


def _find(task: _FindTask) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The number of vertices in each part, and (3, num_found) int64 weights, vertices and parts."""
    weight, part = map_vector(task.weight_path)[task.rows], map_vector(task.part_path)[task.rows]
    first = np.argsort(weight, kind="stable")[: task.num_parts]
    size = np.bincount(part, minlength=task.num_parts)
    return size, np.stack([weight[first], task.rows.start + first, part[first].astype(np.int64)])
