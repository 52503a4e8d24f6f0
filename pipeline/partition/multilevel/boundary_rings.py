"""The vertices near a cut, ring by ring, by tasks over ranges of nets and vertices.

Cut nets are the first ring of nets, and their pins the first ring of vertices.  The next ring of nets are the further
nets of these vertices, and so on.  Only the search for cut nets reads all pins; after it, tasks read the lists of the
last ring alone.  Two files have a byte for every vertex and every net: the number of its ring, from 1 on, or 0.

A ring grows in two phases.  Tasks over ranges of nets write the pins of the last ring, ascending; tasks over ranges of
vertices read the pins in their range from the files of all, and write these vertices' rings.  A task may run twice, so
those of a ring count what already has its number as new.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.multilevel.boundary_kernels import count_pins, ids_of_ring, mark_cut, rows_of_rings
from gnnloom.pipeline.partition.multilevel.boundary_plan import WIDEST, BoundaryPlan
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.incidence import Incidence
from gnnloom.pipeline.partition.multilevel.vectors import create_vector, map_vector, store_vector
from gnnloom.pipeline.tasks.cluster import Cluster, run_tasks


@dataclass(frozen=True)
class Side:
    """The vertices or the nets; small and picklable.

    Attributes:
        lists: the nets of every vertex, or the pins of every net.
        ring_path: file of (num_rows,) uint8 rings.
        ranges: in which tasks work.
    """

    lists: Incidence
    ring_path: Path
    ranges: tuple[range, ...]

    def rows_within(self, rows: range, first: int, last: int) -> NDArray[np.int64]:
        """Rows of a range in the rings from ``first`` to ``last``, ascending."""
        return rows_of_rings(map_vector(self.ring_path)[rows.start : rows.stop], rows.start, first, last)


@dataclass(frozen=True)
class Boundary:
    """The vertices near the cut: those of the first ``width`` rings.

    The nets with a pin there are those of one ring more.

    Attributes:
        num_vertices: of these rings.
    """

    vertices: Side
    nets: Side
    width: int
    num_vertices: int


@dataclass(frozen=True)
class _CutTask:
    """Looks for cut nets in a range."""

    nets: Side
    rows: range
    part_path: Path


@dataclass(frozen=True)
class _SpreadTask:
    """Writes the ids in the lists of a ring of one side, as far as these belong to the next ring of the other.

    Attributes:
        last, ring: numbers of these two rings.
        path: file of the (num_ids,) ids, ascending.
    """

    source: Side
    target: Side
    rows: range
    last: int
    ring: int
    path: Path


@dataclass(frozen=True)
class _ReachTask:
    """Gives the rows of a range, as far as they are in the files, the number of a ring.

    Attributes:
        other: the other side.
    """

    side: Side
    other: Side
    rows: range
    ring: int
    paths: tuple[Path, ...]


def find_boundary(
    hypergraph: DiskHypergraph,
    part_path: Path,
    fits: Callable[[int, int], bool],
    folder: Path,
    cluster: Cluster,
) -> Boundary | None:
    """Find the widest boundary that fits, up to ``WIDEST`` rings; None if no net is cut, or even one ring is too large.

    Args:
        part_path: file of the (num_vertices,) int32 parts.
        fits: whether a boundary fits whose nets have so many pins in it, counting one more for each net that also has
            pins elsewhere, and which has so many vertices.  All that is smaller than what fits must fit as well.
        folder: for the files of the rings, and for lists that nothing needs afterwards.
    """
    plan = BoundaryPlan.for_hypergraph(hypergraph)
    nets = Side(hypergraph.nets, folder / "net-rings.npy", tuple(hypergraph.nets.ranges(plan.ranges)))
    vertices = Side(hypergraph.vertices, folder / "vertex-rings.npy", tuple(hypergraph.vertices.ranges(plan.ranges)))
    for side in (nets, vertices):
        create_vector(side.ring_path, (side.lists.num_rows,), np.dtype(np.uint8))
    cuts = [_CutTask(nets, rows, part_path) for rows in hypergraph.nets.ranges(plan.scans)]
    # ``whole`` counts the pins of the nets that lie inside as a whole, because they are in an earlier ring.
    whole, near, num_nets, found = sum(cluster.map(_find_cut, cuts)), 0, 0, None
    for width in range(1, WIDEST + 1):
        # The two tests before the last one compare lower bounds, before tasks list what would not fit.
        if not whole or not fits(whole, near):
            break
        new, nets_of_new = _grow(nets, vertices, width, width, _reach_vertices, folder, cluster)
        near, num_nets = near + new, num_nets + nets_of_new
        if not new or not fits(num_nets, near):
            break
        pins, inside = _grow(vertices, nets, width, width + 1, _reach_nets, folder, cluster)
        if not fits(whole + inside, near):
            break
        whole, found = whole + pins, Boundary(vertices, nets, width, near)
    return found


def _grow(
    source: Side,
    target: Side,
    last: int,
    ring: int,
    reach: Callable[[_ReachTask], tuple[int, int]],
    folder: Path,
    cluster: Cluster,
) -> tuple[int, int]:
    """Make all that shares a pin with a ring of one side a ring of the other; returns the sums of what tasks count."""
    paths = tuple(
        folder / f"{target.ring_path.stem}-{ring:02d}-{number:03d}.npy" for number in range(len(source.ranges))
    )
    spread = [
        _SpreadTask(source, target, rows, last, ring, path) for rows, path in zip(source.ranges, paths, strict=True)
    ]
    run_tasks(cluster, _spread, spread)
    counts = [0, 0]
    for found in cluster.map(reach, [_ReachTask(target, source, rows, ring, paths) for rows in target.ranges]):
        counts = [total + count for total, count in zip(counts, found, strict=True)]
    return counts[0], counts[1]


def _find_cut(task: _CutTask) -> int:
    """Make the cut nets of a range the first ring; returns the number of their pins."""
    part, ring_of = map_vector(task.part_path), map_vector(task.nets.ring_path, "r+")
    return sum(
        mark_cut(block.offset, block.ids, part, ring_of[block.first_row :])
        for block in task.nets.lists.blocks(task.rows)
    )


def _spread(task: _SpreadTask) -> None:
    rows = task.source.rows_within(task.rows, task.last, task.last)
    lists, ring_of = task.source.lists, map_vector(task.target.ring_path)
    store_vector(task.path, _ascending(ids_of_ring(rows, lists.offset(), lists.ids(), ring_of, task.ring)))


def _reach_vertices(task: _ReachTask) -> tuple[int, int]:
    """The number of vertices of a ring, and of the nets of all of them."""
    rows = _reach(task)
    offset = task.side.lists.offset()
    return len(rows), int((offset[rows + 1] - offset[rows]).sum())


def _reach_nets(task: _ReachTask) -> tuple[int, int]:
    """The number of pins of the nets of a ring, and of those inside, with one more for each net with pins elsewhere."""
    rows = _reach(task)
    lists = task.side.lists
    return count_pins(rows, lists.offset(), lists.ids(), map_vector(task.other.ring_path))


def _reach(task: _ReachTask) -> NDArray[np.int64]:
    """Set and return the rows of a ring, ascending."""
    found = np.concatenate([_within(map_vector(path), task.rows) for path in task.paths])
    rows = _ascending(found).astype(np.int64)
    map_vector(task.side.ring_path, "r+")[rows] = task.ring
    return rows


def _ascending(ids: NDArray[Any]) -> NDArray[Any]:
    """Sort ids, which changes the array, and return each once."""
    # ``unique`` would look for equal ones with a hash table first, which takes several times as long.
    ids.sort()
    is_first = np.ones(len(ids), dtype=np.bool_)
    np.not_equal(ids[1:], ids[:-1], out=is_first[1:])
    return ids[is_first]


def _within(ids: NDArray[Any], rows: range) -> NDArray[Any]:
    """The ascending ids that are in a range."""
    # In the dtype of the ids: any other would make NumPy convert all of them.
    first, last = np.array([rows[0], rows[-1]], dtype=ids.dtype)
    return ids[np.searchsorted(ids, first) : np.searchsorted(ids, last, side="right")]
