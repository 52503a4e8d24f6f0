"""The nets with a pin in a boundary, copied by tasks over ranges of nets: all others have their pins in one part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.multilevel.boundary_rings import RING_BYTES, Boundary
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.incidence import (
    BLOCK_IDS,
    Incidence,
    IncidenceWriter,
    StatedLists,
    join_lists,
    join_phase,
    stated_pieces,
)
from gnnloom.pipeline.partition.multilevel.pieces import NUMBER_BYTES, Piece, in_order, phase_over, run_pieces
from gnnloom.pipeline.partition.multilevel.vectors import create_vector, map_vector
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Phase, results


@dataclass(frozen=True)
class _Selection:
    """What the tasks have in common.

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
    return phase_over(
        nets.ranges, "select nets", _copy_nets, work,
        # The numbers of all nets of a task, their offsets and sizes.
        reads=rings + kept, writes=kept, files=3, buffers=nets.lists.block_bytes() + 5 * NUMBER_BYTES * pins,
        at_most=True,
    )  # fmt: skip


def _weight_phase(work: _Selection, num_nets: int, firsts: Sequence[int] | None = None) -> Phase:
    """Copy the weights of the nets to their place among all that are copied."""
    nets, size = work.boundary.nets, NUMBER_BYTES * num_nets
    reads = RING_BYTES * nets.lists.num_rows + size
    return phase_over(
        nets.ranges, "select weights", _copy_weights, work,
        reads=reads, writes=size, files=2, firsts=firsts, buffers=2 * size, at_most=True,
    )  # fmt: skip


def _copy_nets(task: Piece[_Selection]) -> tuple[int, Incidence]:
    lists = task.work.boundary.nets.lists
    with IncidenceWriter(task.work.folder / f"piece-{task.number:03d}", np.dtype(lists.dtype)) as writer:
        for offset, ids in _copies(task.work.nets(task.rows), lists):
            writer.append(offset, ids)
        return task.number, writer.close()


def _copies(rows: NDArray[np.int64], lists: Incidence) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
    """Yield offsets and ids of some rows, of at most ``BLOCK_IDS`` ids or of one row at a time."""
    offset, ids = lists.offset(), lists.ids()
    ends, first = np.cumsum(offset[rows + 1] - offset[rows]), 0
    while first < len(rows):
        before = int(ends[first - 1]) if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, before + BLOCK_IDS, side="right")))
        new_offset = np.concatenate([[0], ends[first:stop] - before])
        yield new_offset, _copy_rows(rows[first:stop], offset, ids, new_offset)
        first = stop


def _copy_weights(task: Piece[_Selection]) -> None:
    work, nets = task.work, task.work.nets(task.rows)
    if work.source_path:
        map_vector(work.weight_path, "r+")[task.first : task.first + len(nets)] = map_vector(work.source_path)[nets]


@njit(cache=True, nogil=True)
def _copy_rows(
    rows: NDArray[np.int64], offset: NDArray[np.int64], ids: NDArray[Any], new_offset: NDArray[np.int64]
) -> NDArray[Any]:
    """The ids of some rows, one row after the other."""
    copied = np.empty(new_offset[-1], ids.dtype)
    for k in range(len(rows)):
        copied[new_offset[k] : new_offset[k + 1]] = ids[offset[rows[k]] : offset[rows[k] + 1]]
    return copied
