"""Tasks on a file with the part of every vertex: copy, inherit, weigh, count the cut, and fill empty parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.measure.balance import choose_for_empty
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import Clusters, DiskHypergraph
from gnnloom.pipeline.partition.multilevel.incidence import IncidenceBlock
from gnnloom.pipeline.partition.multilevel.pieces import (
    NUMBER_BYTES,
    PART_BYTES,
    RangeTask,
    net_tasks,
    phase_over,
    vertex_pieces,
)
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Phase, results
from gnnloom.storage.disk.numpy_files import map_array
from gnnloom.storage.kernels import kernel


def copy_phase(source: Path, target: Path, hypergraph: DiskHypergraph) -> Phase:
    """Copy a file of (num_vertices,) int32 parts to another that exists."""
    n = hypergraph.num_vertices
    size, pieces = PART_BYTES * n, vertex_pieces(n, hypergraph.steps)
    return phase_over(pieces, "keep parts", _copy, (source, target), reads=size, writes=size, files=1)


def _copy(task: RangeTask[tuple[Path, Path]]) -> None:
    source, target = task.work
    map_array(target, "r+")[task.span] = map_array(source)[task.span]


def inherit_phase(clusters: Clusters, coarse_path: Path, part_path: Path, hypergraph: DiskHypergraph) -> Phase:
    """Give every vertex the part of its cluster, which keeps the cut and the loads of the level above.

    Args:
        coarse_path: file of the (num_clusters,) int32 parts.
        part_path: file of (num_vertices,) int32 parts, filled.
        hypergraph: with these vertices.
    """
    n = hypergraph.num_vertices
    work, size = (clusters, coarse_path, part_path), PART_BYTES * n
    pieces, reads = vertex_pieces(n, hypergraph.steps), size + clusters.label_bytes * n
    held = NUMBER_BYTES + PART_BYTES
    return phase_over(pieces, "inherit parts", _inherit, work, reads=reads, writes=size, files=2, row_bytes=held)


def _inherit(task: RangeTask[tuple[Clusters, Path, Path]]) -> None:
    clusters, coarse_path, part_path = task.work
    map_array(part_path, "r+")[task.span] = map_array(coarse_path)[clusters.label[task.span]]


@dataclass(frozen=True)
class _Parts:
    """Common fields of the tasks that weigh parts or count their cut."""

    hypergraph: DiskHypergraph
    part_path: Path
    num_parts: int

    def phase(self, name: str, function: Callable[[RangeTask[_Parts]], Any], *, row_bytes: int = 0) -> Phase:
        """A phase whose tasks read the weights and parts of their vertices, and hold a number for each part."""
        n = self.hypergraph.num_vertices
        read, held = (NUMBER_BYTES + PART_BYTES) * n, NUMBER_BYTES * self.num_parts
        pieces = vertex_pieces(n, self.hypergraph.steps)
        return phase_over(pieces, name, function, self, reads=read, files=2, row_bytes=row_bytes, buffers=held)

    def vertices(self, span: slice) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Weights and parts of some vertices."""
        return self.hypergraph.vertex_weight[span], map_array(self.part_path)[span]


def part_loads(hypergraph: DiskHypergraph, part_path: Path, num_parts: int, cluster: Cluster) -> NDArray[np.int64]:
    """(num_parts,) int64 weight of each part.

    Args:
        part_path: file of (num_vertices,) int32 parts.
    """
    load = np.zeros(num_parts, dtype=np.int64)
    for found in results(load_phase("sum loads", hypergraph, part_path, num_parts), cluster):
        load += found
    return load


def load_phase(name: str, hypergraph: DiskHypergraph, part_path: Path, num_parts: int) -> Phase:
    """The phase of :func:`part_loads`."""
    return _Parts(hypergraph, part_path, num_parts).phase(name, _sum, row_bytes=NUMBER_BYTES)


def _sum(task: RangeTask[_Parts]) -> NDArray[np.int64]:
    load = np.zeros(task.work.num_parts, dtype=np.int64)
    weight, part = task.work.vertices(task.span)
    # ``bincount`` with weights would sum in float64, which is exact only up to 2^53.
    np.add.at(load, part.astype(np.intp), weight)
    return load


def fill_empty_from_files(hypergraph: DiskHypergraph, part_path: Path, num_parts: int, cluster: Cluster) -> int:
    """Move vertices as :func:`gnnloom.pipeline.partition.measure.balance.fill_empty_parts` does; returns how many.

    Tasks find the lightest vertices of a piece, one for each part, and the client moves a few of these vertices.

    Args:
        part_path: file of (num_vertices,) int32 parts, changed in place.
        num_parts: number of parts P, at most ``num_vertices``.
    """
    # Every vertex weighs 1 or more.  Looking for the lightest sorts all weights, and is hardly ever needed.
    if part_loads(hypergraph, part_path, num_parts, cluster).all():
        return 0
    size, lightest = np.zeros(num_parts, dtype=np.int64), np.empty((3, 0), dtype=np.int64)
    phase = _Parts(hypergraph, part_path, num_parts).phase("find lightest vertices", _find, row_bytes=2 * NUMBER_BYTES)
    for size_of_piece, found in results(phase, cluster):
        size += size_of_piece
        lightest = np.concatenate([lightest, found], axis=1)
        # By weight, then by number: whichever piece is found first, the same vertices remain.
        lightest = lightest[:, np.lexsort((lightest[1], lightest[0]))[:num_parts]]
    _, vertex, part = lightest
    empty = np.flatnonzero(size == 0)
    chosen = choose_for_empty(part.astype(np.int32), size)
    map_array(part_path, "r+")[vertex[chosen]] = empty[: len(chosen)]
    return len(chosen)


def _find(task: RangeTask[_Parts]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The number of vertices in each part, and (3, num_found) int64 weights, vertices and parts."""
    work = task.work
    weight, part = work.vertices(task.span)
    first = np.argsort(weight, kind="stable")[: work.num_parts]
    size = np.bincount(part, minlength=work.num_parts)
    return size, np.stack([weight[first], task.rows.start + first, part[first].astype(np.int64)])


def rows_sent(hypergraph: DiskHypergraph, part_path: Path, num_parts: int, cluster: Cluster) -> int:
    """The connectivity-1 cut of a partition: each net costs its weight for every part of its pins but one.

    Args:
        part_path: file of the (num_vertices,) int32 parts.
    """
    return sum(results(cut_phase(hypergraph, part_path, num_parts), cluster))


def cut_phase(hypergraph: DiskHypergraph, part_path: Path, num_parts: int) -> Phase:
    """The phase of :func:`rows_sent`."""
    work, tasks = _Parts(hypergraph, part_path, num_parts), net_tasks(hypergraph.num_pins, hypergraph.steps)
    ranges = hypergraph.nets.ranges(tasks)
    reads = hypergraph.nets.num_bytes + PART_BYTES * hypergraph.num_pins + hypergraph.net_weight_bytes
    held = hypergraph.nets.block_bytes(row_bytes=3 * NUMBER_BYTES) + NUMBER_BYTES * num_parts
    return phase_over(ranges, "count cut", _count, work, reads=reads, files=3 + hypergraph.is_weighted, buffers=held)


def _count(task: RangeTask[_Parts]) -> int:
    hypergraph, part = task.work.hypergraph, map_array(task.work.part_path)
    weight, seen = hypergraph.net_weight, np.full(task.work.num_parts, -1, dtype=np.int64)
    total = 0
    for block in hypergraph.nets.blocks(task.rows):
        spread = np.maximum(count_labels(block, part, seen) - 1, 0)
        nets = slice(block.first_row, block.first_row + len(spread))
        total += int((spread * weight[nets]).sum() if len(weight) else spread.sum())
    return total


@kernel
def count_labels(block: IncidenceBlock, label: NDArray[Any], seen: NDArray[np.int64]) -> NDArray[np.int64]:
    """(num_nets,) int64 different labels of the pins of each net of a block.

    Args:
        label: (num_vertices,) integers.
        seen: (num_labels,) int64 last net that had a pin with each label; changed.
    """
    count = np.zeros(len(block.offset) - 1, np.int64)
    for row in range(len(count)):
        net = block.first_row + row
        for position in range(block.offset[row], block.offset[row + 1]):
            if seen[label[block.ids[position]]] != net:
                seen[label[block.ids[position]]] = net
                count[row] += 1
    return count
