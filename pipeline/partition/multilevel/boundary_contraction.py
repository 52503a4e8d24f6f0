"""Contracts a hypergraph for boundary refinement: labels of all vertices, and the nets with a pin in the boundary.

Tasks over ranges of vertices give a label to each vertex inside, and one to the rest of each part. Numbers have no
gaps: parts without vertices outside get none. Tasks over ranges of nets copy the nets with a pin inside: all others
have their pins in one part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.multilevel.boundary_rings import RING_BYTES, Boundary
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import Clusters, DiskHypergraph
from gnnloom.pipeline.partition.multilevel.incidence import (
    Incidence,
    IncidenceWriter,
    StatedLists,
    join_lists,
    join_phase,
    stated_pieces,
)
from gnnloom.pipeline.partition.multilevel.pieces import (
    NUMBER_BYTES,
    PART_BYTES,
    RangeTask,
    create_vector,
    in_order,
    phase_over,
    run_pieces,
    store_vector,
    vertex_pieces,
)
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Phase, results
from gnnloom.storage.disk.numpy_files import map_array
from gnnloom.storage.matrix.csr import index_dtype

#: Bytes that tasks read of a vertex, and hold if it is selected: its ring, part and weight.
_READ_BYTES = RING_BYTES + PART_BYTES + NUMBER_BYTES


@dataclass(frozen=True)
class _Labeling:
    """Common fields of the labeling tasks.

    Attributes:
        folder: for the files of the labels.
    """

    boundary: Boundary
    weight_path: Path
    part_path: Path
    parts: int
    folder: Path

    @property
    def number_path(self) -> Path:
        """File of the (P,) int64 labels of the parts."""
        return self.folder / "numbers.npy"

    @property
    def clusters(self) -> Clusters:
        """The result; numbers and weights are not known before vertices are weighed."""
        return Clusters(self.folder / "label.npy", self.folder / "weight.npy", 0, 0, 0)

    @property
    def given_path(self) -> Path:
        """File of the (num_clusters,) int32 part of each label."""
        return self.folder / "given.npy"

    def is_near(self, piece: slice) -> NDArray[np.bool_]:
        """(num_rows,) whether each vertex of a piece is in the boundary."""
        ring_of = map_array(self.boundary.vertices.ring_path)[piece]
        return (ring_of > 0) & (ring_of <= self.boundary.width)


def label_boundary(
    hypergraph: DiskHypergraph, boundary: Boundary, part_path: Path, parts: int, folder: Path, cluster: Cluster
) -> tuple[Clusters, Path] | None:
    """Label all vertices; None if so few labels are left that nothing can move.

    Args:
        part_path: file of the (num_vertices,) int32 parts.
        parts: number of parts P.
        folder: for the files of the labels.

    Returns:
        The label of every vertex, and the file of the (num_clusters,) int32 part of each label.
    """
    work = _Labeling(boundary, hypergraph.weight_path, part_path, parts, folder)
    load, heaviest, near = np.zeros(parts, dtype=np.int64), 0, {}
    for number, num_near, weight, outside in results(_count_phase(work), cluster):
        load += outside
        heaviest, near[number] = max(heaviest, weight), num_near
    # Every vertex weighs 1 or more.
    used = np.flatnonzero(load)
    firsts = list(accumulate((near[number] for number in sorted(near)), initial=len(used)))
    if firsts[-1] <= parts:
        return None
    heaviest, total = max(heaviest, int(load.max())), hypergraph.total_weight
    clusters = replace(work.clusters, num_clusters=firsts[-1], total_weight=total, heaviest=heaviest)
    create_vector(clusters.label_path, (hypergraph.num_vertices,), index_dtype(clusters.num_clusters))
    # The labels of the parts come first.
    for path, dtype, of_parts in ((clusters.weight_path, np.int64, load[used]), (work.given_path, np.int32, used)):
        create_vector(path, (clusters.num_clusters,), np.dtype(dtype))
        map_array(path, "r+")[: len(used)] = of_parts
    store_vector(work.number_path, np.cumsum(load > 0) - 1)
    run_pieces(_label_phase(work, firsts), cluster)
    return clusters, work.given_path


def label_phases(boundary: Boundary, parts: int) -> list[Phase]:
    """The phases of :func:`label_boundary`."""
    work = _Labeling(boundary, Path(), Path(), parts, Path())
    return [_count_phase(work), _label_phase(work)]


def _count_phase(work: _Labeling) -> Phase:
    """Weigh the vertices."""
    vertices = work.boundary.vertices
    n = vertices.lists.num_rows
    pieces = vertex_pieces(n, vertices.steps)
    loads = NUMBER_BYTES * work.parts
    return phase_over(
        pieces, "count boundary", _count, work,
        reads=_READ_BYTES * n, files=3, row_bytes=_READ_BYTES + NUMBER_BYTES + 2 * RING_BYTES, buffers=loads,
    )  # fmt: skip


def _label_phase(work: _Labeling, firsts: Sequence[int] | None = None) -> Phase:
    """Label the vertices.

    Args:
        firsts: label of the first vertex of each piece that is inside.
    """
    vertices = work.boundary.vertices
    n = vertices.lists.num_rows
    pieces = vertex_pieces(n, vertices.steps)
    reads = _READ_BYTES * n + NUMBER_BYTES * work.parts * len(pieces)
    writes = (index_dtype(n).itemsize + NUMBER_BYTES + PART_BYTES) * n
    return phase_over(
        pieces, "label vertices", _label, work,
        # Labels, and the parts by which they are looked up or the weights.
        reads=reads, writes=writes, files=4, firsts=firsts, row_bytes=2 * NUMBER_BYTES + RING_BYTES, at_most=True,
    )  # fmt: skip


def _count(task: RangeTask[_Labeling]) -> tuple[int, int, int, NDArray[np.int64]]:
    """The task's number; the vertices inside, and the weight of the heaviest; (P,) weights outside, by part."""
    work, is_near = task.work, task.work.is_near(task.span)
    weight, part = map_array(work.weight_path)[task.span], map_array(work.part_path)[task.span]
    load = np.zeros(work.parts, dtype=np.int64)
    np.add.at(load, part[~is_near].astype(np.intp), weight[~is_near])
    return task.number, int(np.count_nonzero(is_near)), int(weight[is_near].max(initial=0)), load


def _label(task: RangeTask[_Labeling]) -> None:
    work, clusters = task.work, task.work.clusters
    is_near, part = work.is_near(task.span), map_array(work.part_path)[task.span]
    inside = slice(task.first, task.first + int(np.count_nonzero(is_near)))
    # Parts without vertices outside have a meaningless number, but all of their vertices are overwritten here.
    label = map_array(work.number_path)[part]
    label[is_near] = np.arange(inside.start, inside.stop)
    map_array(clusters.label_path, "r+")[task.span] = label
    map_array(clusters.weight_path, "r+")[inside] = map_array(work.weight_path)[task.span][is_near]
    map_array(work.given_path, "r+")[inside] = part[is_near]


@dataclass(frozen=True)
class _Selection:
    """Common fields of the selection tasks.

    Attributes:
        folder: for the nets.
        source_path: file of the weights of all nets; None if all are 1.
    """

    boundary: Boundary
    folder: Path
    source_path: Path | None

    @property
    def weight_path(self) -> Path:
        """File of the weights of the nets that are copied."""
        return self.folder / "net-weight.npy"

    def nets(self, rows: range) -> NDArray[np.int64]:
        """The numbers of the nets of a range that have a pin in the boundary, ascending."""
        return self.boundary.nets.rows_within(rows, 1, self.boundary.width + 1)


def select_nets_of_boundary(
    hypergraph: DiskHypergraph, boundary: Boundary, folder: Path, cluster: Cluster
) -> DiskHypergraph:
    """Return a hypergraph with these nets only, in their order; what it says of the nets of vertices is not valid.

    Args:
        folder: for the nets.
    """
    work, weight_path = _Selection(boundary, folder, hypergraph.net_weight_path), None
    pieces = in_order(results(_copy_phase(work, 0), cluster))
    if work.source_path:
        firsts, weight_path = list(accumulate((piece.num_rows for piece in pieces), initial=0)), work.weight_path
        create_vector(weight_path, (firsts[-1],), np.dtype(np.int64))
        run_pieces(_weight_phase(work, 0, firsts), cluster)
    nets = join_lists("join nets of the boundary", pieces, folder / "nets", cluster)
    return replace(hypergraph, nets=nets, net_weight_path=weight_path)


def select_phases(boundary: Boundary, pins: int, *, is_weighted: bool) -> list[Phase]:
    """The phases of :func:`select_nets_of_boundary`.

    Args:
        pins: of the nets with a pin in the boundary.
    """
    lists, work = boundary.nets.lists, _Selection(boundary, Path(), Path() if is_weighted else None)
    kept = min(pins, lists.num_ids)
    nets = StatedLists(Path(), min(pins, lists.num_rows), kept, lists.dtype)
    join = join_phase("join nets of the boundary", stated_pieces(nets, len(boundary.nets.ranges)), nets)
    weights = [_weight_phase(work, nets.num_rows)] if is_weighted else []
    return [_copy_phase(work, kept), *weights, replace(join, at_most=True)]


def _copy_phase(work: _Selection, pins: int) -> Phase:
    nets = work.boundary.nets
    kept, rings = (NUMBER_BYTES + nets.lists.itemsize) * pins, RING_BYTES * nets.lists.num_rows
    # The numbers of all nets of a task, their offsets and sizes; and the places of the ids of a block.
    held = 5 * NUMBER_BYTES * pins + nets.lists.block_bytes(id_bytes=3 * NUMBER_BYTES)
    return phase_over(
        nets.ranges, "select nets", _copy_nets, work,
        reads=rings + kept, writes=kept, files=3, buffers=held, at_most=True,
    )  # fmt: skip


def _weight_phase(work: _Selection, num_nets: int, firsts: Sequence[int] | None = None) -> Phase:
    """Copy the weights of the nets to their place among all that are copied."""
    nets, size = work.boundary.nets, NUMBER_BYTES * num_nets
    reads = RING_BYTES * nets.lists.num_rows + size
    return phase_over(
        nets.ranges, "select weights", _copy_weights, work,
        reads=reads, writes=size, files=2, firsts=firsts, buffers=2 * size, at_most=True,
    )  # fmt: skip


def _copy_nets(task: RangeTask[_Selection]) -> tuple[int, Incidence]:
    lists = task.work.boundary.nets.lists
    with IncidenceWriter(task.work.folder / f"piece-{task.number:03d}", np.dtype(lists.dtype)) as writer:
        for offset, ids in _copies(task.work.nets(task.rows), lists):
            writer.append(offset, ids)
        return task.number, writer.close()


def _copies(rows: NDArray[np.int64], lists: Incidence) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
    """Yield offsets and ids of some rows, of at most ``lists.block_ids`` ids or of one row at a time."""
    offset, ids = lists.offset(), lists.ids()
    ends, first = np.cumsum(offset[rows + 1] - offset[rows]), 0
    while first < len(rows):
        before = int(ends[first - 1]) if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, before + lists.block_ids, side="right")))
        new_offset = np.concatenate([[0], ends[first:stop] - before])
        # An id is as far behind its old place as its row is.
        place = np.arange(new_offset[-1]) + np.repeat(offset[rows[first:stop]] - new_offset[:-1], np.diff(new_offset))
        yield new_offset, ids[place]
        first = stop


def _copy_weights(task: RangeTask[_Selection]) -> None:
    work, nets = task.work, task.work.nets(task.rows)
    if work.source_path:
        map_array(work.weight_path, "r+")[task.first : task.first + len(nets)] = map_array(work.source_path)[nets]
