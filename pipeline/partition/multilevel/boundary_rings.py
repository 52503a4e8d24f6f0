"""The vertices near a cut, ring by ring, by tasks over ranges of nets and vertices.

Cut nets are the first ring of nets, and their pins the first ring of vertices. The next ring of nets consists of the
remaining nets of the first ring of vertices, and so on. Only the search for cut nets reads all pins; after it, tasks
read the lists of the last ring alone. Two files have a byte for every vertex and every net: the number of its ring,
from 1 on, or 0.

A ring grows in two phases.  Tasks over ranges of nets write the pins of the last ring, ascending; tasks over ranges of
vertices read the pins in their range from the files of all, and write these vertices' rings.  A task may run twice, so
the tasks of a ring count ids that already have its number as new.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.incidence import Incidence, IncidenceBlock
from gnnloom.pipeline.partition.multilevel.pieces import (
    NET_TASKS,
    NUMBER_BYTES,
    PART_BYTES,
    RangeTask,
    create_vector,
    phase_over,
    run_pieces,
    store_vector,
)
from gnnloom.pipeline.partition.partitioner import LevelSteps
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Phase, results
from gnnloom.storage.disk.numpy_files import map_array
from gnnloom.storage.kernels import kernel

#: Most rings of a boundary: nets between the cut and the farthest vertex that may move.
WIDEST = 12
#: Bytes of the number of a ring.
RING_BYTES = 1


@dataclass(frozen=True)
class Side:
    """The vertices or the nets; small and picklable.

    Attributes:
        lists: the nets of every vertex, or the pins of every net.
        ring_path: file of (num_rows,) uint8 rings.
        ranges: in which tasks work.
        name: in the names of phases.
        steps: sizes of the steps of the tasks.
    """

    lists: Incidence
    ring_path: Path
    ranges: tuple[range, ...]
    name: str
    steps: LevelSteps

    def rows_within(self, rows: range, first: int, last: int) -> NDArray[np.int64]:
        """Rows of a range in the rings from ``first`` to ``last``, ascending."""
        return rows_of_rings(map_array(self.ring_path)[rows.start : rows.stop], rows.start, first, last)


@dataclass(frozen=True)
class Boundary:
    """The vertices near the cut: the vertices of the first ``width`` rings.

    The nets with a pin there are the nets of one ring more.

    Attributes:
        num_vertices: number of vertices in the rings.
    """

    vertices: Side
    nets: Side
    width: int
    num_vertices: int


@dataclass(frozen=True)
class _Ring:
    """A ring of one side grows from the last ring of the other.

    Attributes:
        source, target: the sides.
        last, ring: numbers of the last ring and of the new ring.
        folder: folder for the lists of the tasks.
    """

    source: Side
    target: Side
    last: int
    ring: int
    folder: Path

    def path(self, number: int) -> Path:
        """File of the (num_ids,) ids that a task finds, ascending."""
        return self.folder / f"{self.target.ring_path.stem}-{self.ring:02d}-{number:03d}.npy"


def find_boundary(
    hypergraph: DiskHypergraph, part_path: Path, fits: Callable[[int, int], bool], folder: Path, cluster: Cluster
) -> Boundary | None:
    """Find the widest boundary that fits, up to ``WIDEST`` rings; None if no net is cut, or even one ring is too large.

    Args:
        part_path: file of the (num_vertices,) int32 parts.
        fits: whether a boundary with this many pins and vertices fits; a net with pins outside counts one extra pin.
            Smaller boundaries than one that fits must fit as well.
        folder: for the files of the rings, and for lists that nothing needs afterwards.
    """
    nets, vertices = _sides(hypergraph, folder)
    for side in (nets, vertices):
        create_vector(side.ring_path, (side.lists.num_rows,), np.dtype(np.uint8))
    # ``whole`` counts the pins of the nets that lie inside as a whole, because they are in an earlier ring.
    whole, near, num_nets, found = sum(results(_cut_phase(nets, part_path), cluster)), 0, 0, None
    for width in range(1, WIDEST + 1):
        # The two tests before the last one compare lower bounds, before tasks list nets that would not fit.
        if not whole or not fits(whole, near):
            break
        new, nets_of_new = _grow(_Ring(nets, vertices, width, width, folder), cluster)
        near, num_nets = near + new, num_nets + nets_of_new
        if not new or not fits(num_nets, near):
            break
        pins, inside = _grow(_Ring(vertices, nets, width, width + 1, folder), cluster)
        if not fits(whole + inside, near):
            break
        whole, found = whole + pins, Boundary(vertices, nets, width, near)
    return found


def boundary_of(hypergraph: DiskHypergraph) -> Boundary:
    """The widest boundary of a hypergraph, by its size alone."""
    nets, vertices = _sides(hypergraph, Path())
    return Boundary(vertices, nets, WIDEST, hypergraph.num_vertices)


def ring_phases(boundary: Boundary, pins: int) -> list[Phase]:
    """The phases of :func:`find_boundary`, as if all nets with a pin in the boundary lay inside as a whole.

    Args:
        pins: pins of the nets, each counted in every ring.
    """
    nets, vertices = boundary.nets, boundary.vertices
    rings = (_Ring(nets, vertices, 0, 0, Path()), _Ring(vertices, nets, 0, 0, Path()))
    grown = [phase for ring in rings for phase in _ring_phases(ring, min(pins, nets.lists.num_ids))]
    return [_cut_phase(nets, Path()), *(replace(phase, repeats=boundary.width) for phase in grown)]


def _sides(hypergraph: DiskHypergraph, folder: Path) -> tuple[Side, Side]:
    """Nets and vertices."""
    count = max(1, min(NET_TASKS, hypergraph.num_pins // hypergraph.steps.range_pins))
    nets, vertices = (
        Side(lists, folder / f"{name}-rings.npy", tuple(lists.ranges(count)), name, hypergraph.steps)
        for lists, name in ((hypergraph.nets, "nets"), (hypergraph.vertices, "vertices"))
    )
    return nets, vertices


def _cut_phase(nets: Side, part_path: Path) -> Phase:
    """Make the cut nets the first ring."""
    lists = nets.lists
    ranges = lists.ranges(max(len(nets.ranges), -(-lists.num_ids // nets.steps.scan_pins)))
    reads, writes = lists.num_bytes + PART_BYTES * lists.num_ids, RING_BYTES * lists.num_rows
    return phase_over(
        ranges, "find cut nets", _find_cut, (nets, part_path),
        reads=reads, writes=writes, files=3, buffers=lists.block_bytes(), at_most=True,
    )  # fmt: skip


def _ring_phases(work: _Ring, pins: int) -> list[Phase]:
    """List what shares a pin with the last ring, and make it a ring.

    Args:
        pins: in the lists of both rings.
    """
    source, target = work.source, work.target
    size = source.lists.itemsize * pins
    # The lists of a row and their bounds; the ring of each id.
    lists = (2 * NUMBER_BYTES + source.lists.itemsize + target.lists.itemsize + RING_BYTES) * pins
    spread = phase_over(
        source.ranges,
        f"spread to {target.name}",
        _spread,
        work,
        reads=RING_BYTES * source.lists.num_rows + lists,
        writes=size,
        files=4,
        # All ids of the rows, sorted, and then each once.
        buffers=(NUMBER_BYTES + 2 * source.lists.itemsize + RING_BYTES) * pins,
        at_most=True,
    )
    to_nets = target.name == "nets"
    # A task reads its range of the lists of all.
    opened, read = (3, lists) if to_nets else (1, 2 * NUMBER_BYTES * pins)
    reach = phase_over(
        target.ranges,
        f"reach {target.name}",
        _reach_nets if to_nets else _reach_vertices,
        work,
        reads=size + read,
        writes=RING_BYTES * pins,
        files=len(source.ranges) + opened,
        # The ids that all tasks listed, each once, and the bounds of their lists.
        buffers=(2 * source.lists.itemsize + RING_BYTES + 4 * NUMBER_BYTES) * pins,
        at_most=True,
    )
    return [spread, replace(reach, arrays=1 + opened)]


def _grow(work: _Ring, cluster: Cluster) -> tuple[int, int]:
    """Make all that shares a pin with a ring of one side a ring of the other; returns the sums of what tasks count."""
    spread, reach = _ring_phases(work, 0)
    run_pieces(spread, cluster)
    counts = [0, 0]
    for found in results(reach, cluster):
        counts = [total + count for total, count in zip(counts, found, strict=True)]
    return counts[0], counts[1]


def _find_cut(task: RangeTask[tuple[Side, Path]]) -> int:
    """Make the cut nets of a range the first ring; returns the number of their pins."""
    nets, part_path = task.work
    part, ring_of = map_array(part_path), map_array(nets.ring_path, "r+")
    return sum(mark_cut(block, part, ring_of) for block in nets.lists.blocks(task.rows))


def _spread(task: RangeTask[_Ring]) -> None:
    """Write the ids in the lists of the last ring, as far as these are in no ring, or in this one already."""
    work, lists = task.work, task.work.source.lists
    rows, ring_of = work.source.rows_within(task.rows, work.last, work.last), map_array(work.target.ring_path)
    store_vector(work.path(task.number), _ascending(ids_of_ring(rows, lists.offset(), lists.ids(), ring_of, work.ring)))


def _reach_vertices(task: RangeTask[_Ring]) -> tuple[int, int]:
    """Number of vertices of a ring, and number of nets of these vertices."""
    rows, offset = _reach(task), task.work.target.lists.offset()
    return len(rows), int((offset[rows + 1] - offset[rows]).sum())


def _reach_nets(task: RangeTask[_Ring]) -> tuple[int, int]:
    """The number of pins of the nets of a ring, and of those inside, with one more for each net with pins elsewhere."""
    rows, lists = _reach(task), task.work.target.lists
    return count_pins(rows, lists.offset(), lists.ids(), map_array(task.work.source.ring_path))


def _reach(task: RangeTask[_Ring]) -> NDArray[np.int64]:
    """Give the rows of a range, as far as they are in the lists of all tasks, the number of the ring; return them."""
    work = task.work
    paths = [work.path(number) for number in range(len(work.source.ranges))]
    found = np.concatenate([_within(map_array(path), task.rows) for path in paths])
    rows = _ascending(found).astype(np.int64)
    map_array(work.target.ring_path, "r+")[rows] = work.ring
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
    # In the dtype of the ids: another dtype would make NumPy convert all ids.
    first, last = np.array([rows[0], rows[-1]], dtype=ids.dtype)
    return ids[np.searchsorted(ids, first) : np.searchsorted(ids, last, side="right")]


@kernel
def mark_cut(block: IncidenceBlock, part: NDArray[np.int32], ring_of: NDArray[np.uint8]) -> int:
    """Mark the nets of a block that are cut with 1; returns the number of their pins."""
    offset, pin, total = block.offset, block.ids, 0
    for net in range(len(offset) - 1):
        for k in range(offset[net], offset[net + 1]):
            # A net is cut if the part of any pin differs from the part of the first pin, so the scan ends at such a
            # pin.
            if part[pin[k]] != part[pin[offset[net]]]:
                ring_of[block.first_row + net] = 1
                total += offset[net + 1] - offset[net]
                break
    return total


@kernel
def rows_of_rings(ring_of: NDArray[np.uint8], first_row: int, first: int, last: int) -> NDArray[np.int64]:
    """Rows with rings from ``first`` to ``last``, of consecutive ones from ``first_row`` on."""
    # Counted before they are listed: a comparison of all at once would take another byte for each.
    count = 0
    for ring in ring_of:
        count += first <= ring <= last
    rows = np.empty(count, np.int64)
    count = 0
    for row in range(len(ring_of)):
        if first <= ring_of[row] <= last:
            rows[count] = first_row + row
            count += 1
    return rows


@kernel
def ids_of_ring(
    rows: NDArray[np.int64], offset: NDArray[np.int64], ids: NDArray[Any], ring_of: NDArray[np.uint8], ring: int
) -> NDArray[Any]:
    """The ids in the lists of some rows that are in no ring, or in this one already."""
    size = 0
    for row in rows:
        size += offset[row + 1] - offset[row]
    found = np.empty(size, ids.dtype)
    count = 0
    for row in rows:
        for k in range(offset[row], offset[row + 1]):
            if ring_of[ids[k]] == 0 or ring_of[ids[k]] == ring:
                found[count] = ids[k]
                count += 1
    return found[:count]


@kernel
def count_pins(
    nets: NDArray[np.int64], offset: NDArray[np.int64], pin: NDArray[Any], ring_of: NDArray[np.uint8]
) -> tuple[int, int]:
    """Count the pins of nets, and those after contraction.

    Args:
        ring_of: (num_vertices,) uint8 ring of each vertex; 0 outside the boundary.
    """
    total, contracted = 0, 0
    for net in nets:
        inside = 0
        for k in range(offset[net], offset[net + 1]):
            inside += ring_of[pin[k]] > 0
        size = offset[net + 1] - offset[net]
        total += size
        # All pins outside share one part, since a cut net lies inside as a whole: they become one pin.
        contracted += inside + (inside < size)
    return total, contracted
