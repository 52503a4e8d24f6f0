"""What tasks do with the part of every vertex in a file: copy, inherit, weigh, and fill parts that are empty."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.measure.balance import choose_for_empty
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import Clusters
from gnnloom.pipeline.partition.multilevel.pieces import NUMBER_BYTES, PART_BYTES, Piece, phase_over, vertex_pieces
from gnnloom.pipeline.partition.multilevel.vectors import map_vector
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Phase, results


def copy_phase(source: Path, target: Path, num_vertices: int) -> Phase:
    """Copy a file of (num_vertices,) int32 parts to another that exists."""
    size, pieces = PART_BYTES * num_vertices, vertex_pieces(num_vertices)
    return phase_over(pieces, "keep parts", _copy, (source, target), reads=size, writes=size, files=1)


def _copy(task: Piece[tuple[Path, Path]]) -> None:
    source, target = task.work
    map_vector(target, "r+")[task.span] = map_vector(source)[task.span]


@dataclass(frozen=True)
class _Inherit:
    clusters: Clusters
    coarse_path: Path
    part_path: Path


def inherit_phase(clusters: Clusters, coarse_path: Path, part_path: Path, num_vertices: int) -> Phase:
    """Give every vertex the part of its cluster, which keeps the cut and the loads of the level above.

    Args:
        coarse_path: file of the (num_clusters,) int32 parts.
        part_path: file of (num_vertices,) int32 parts, filled.
    """
    work, size = _Inherit(clusters, coarse_path, part_path), PART_BYTES * num_vertices
    pieces, reads = vertex_pieces(num_vertices), size + clusters.label_bytes * num_vertices
    held = NUMBER_BYTES + PART_BYTES
    return phase_over(pieces, "inherit parts", _inherit, work, reads=reads, writes=size, files=2, row_bytes=held)


def _inherit(task: Piece[_Inherit]) -> None:
    work = task.work
    map_vector(work.part_path, "r+")[task.span] = map_vector(work.coarse_path)[work.clusters.label[task.span]]


@dataclass(frozen=True)
class _Weigh:
    weight_path: Path
    part_path: Path
    num_parts: int


def part_loads(
    weight_path: Path, part_path: Path, num_vertices: int, num_parts: int, cluster: Cluster
) -> NDArray[np.int64]:
    """(num_parts,) int64 weight of each part.

    Args:
        weight_path: file of (num_vertices,) int64 weights.
        part_path: file of (num_vertices,) int32 parts.
    """
    load = np.zeros(num_parts, dtype=np.int64)
    for found in results(load_phase("sum loads", weight_path, part_path, num_vertices, num_parts), cluster):
        load += found
    return load


def load_phase(name: str, weight_path: Path, part_path: Path, num_vertices: int, num_parts: int) -> Phase:
    """The phase of :func:`part_loads`."""
    read, pieces = (NUMBER_BYTES + PART_BYTES) * num_vertices, vertex_pieces(num_vertices)
    work, loads = _Weigh(weight_path, part_path, num_parts), NUMBER_BYTES * num_parts
    return phase_over(pieces, name, _sum, work, reads=read, files=2, buffers=loads)


def _sum(task: Piece[_Weigh]) -> NDArray[np.int64]:
    load = np.zeros(task.work.num_parts, dtype=np.int64)
    add_weights(map_vector(task.work.part_path)[task.span], map_vector(task.work.weight_path)[task.span], load)
    return load


@njit(cache=True, nogil=True)
def add_weights(part: NDArray[np.int32], weight: NDArray[np.int64], load: NDArray[np.int64]) -> None:
    """Add the weights of vertices to those of their parts, (num_parts,) int64."""
    # ``bincount`` with weights would sum in float64, which is exact only up to 2^53.
    for vertex in range(len(part)):
        load[part[vertex]] += weight[vertex]


def fill_empty_from_files(
    weight_path: Path, part_path: Path, num_vertices: int, num_parts: int, cluster: Cluster
) -> int:
    """Move vertices as :func:`gnnloom.pipeline.partition.measure.balance.fill_empty_parts` does; returns how many.

    Tasks find the lightest vertices of a piece, one for each part, and the client moves a few of them.

    Args:
        weight_path: file of (num_vertices,) int64 weights.
        part_path: file of (num_vertices,) int32 parts, changed in place.
        num_parts: number of parts P, at most ``num_vertices``.
    """
    work, pieces = _Weigh(weight_path, part_path, num_parts), vertex_pieces(num_vertices)
    read = (NUMBER_BYTES + PART_BYTES) * num_vertices
    size, lightest = np.zeros(num_parts, dtype=np.int64), np.empty((3, 0), dtype=np.int64)
    phase = phase_over(pieces, "find the lightest vertices", _find, work, reads=read, files=2, row_bytes=NUMBER_BYTES)
    for size_of_piece, found in results(phase, cluster):
        size += size_of_piece
        lightest = np.concatenate([lightest, found], axis=1)
        # By weight, then by number: whichever piece is found first, the same vertices remain.
        lightest = lightest[:, np.lexsort((lightest[1], lightest[0]))[:num_parts]]
    _, vertex, part = lightest
    empty = np.flatnonzero(size == 0)
    chosen = choose_for_empty(part.astype(np.int32), size)
    map_vector(part_path, "r+")[vertex[chosen]] = empty[: len(chosen)]
    return len(chosen)


def _find(task: Piece[_Weigh]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The number of vertices in each part, and (3, num_found) int64 weights, vertices and parts."""
    work = task.work
    weight, part = map_vector(work.weight_path)[task.span], map_vector(work.part_path)[task.span]
    first = np.argsort(weight, kind="stable")[: work.num_parts]
    size = np.bincount(part, minlength=work.num_parts)
    return size, np.stack([weight[first], task.rows.start + first, part[first].astype(np.int64)])
