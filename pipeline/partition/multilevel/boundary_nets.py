"""The nets with a pin in a boundary, copied by tasks over ranges of nets: all others have their pins in one part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.multilevel.boundary_rings import Boundary
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.incidence import BLOCK_IDS, Incidence, IncidenceWriter
from gnnloom.pipeline.partition.multilevel.join_lists import join_lists
from gnnloom.pipeline.partition.multilevel.vectors import create_vector, map_vector
from gnnloom.pipeline.tasks.cluster import Cluster, run_tasks


@dataclass(frozen=True)
class _SelectTask:
    """Copies the nets of a range that have a pin in the boundary."""

    boundary: Boundary
    rows: range
    folder: Path

    @property
    def nets(self) -> NDArray[np.int64]:
        """The numbers of these nets, ascending."""
        return self.boundary.nets.rows_within(self.rows, 1, self.boundary.width + 1)


@dataclass(frozen=True)
class _WeightTask:
    """Copies the weights of these nets to their place among all that are copied."""

    select: _SelectTask
    source_path: Path
    target_path: Path
    first: int


def select_nets_of_boundary(
    hypergraph: DiskHypergraph, boundary: Boundary, folder: Path, cluster: Cluster
) -> DiskHypergraph:
    """Return a hypergraph with these nets only, in their order; what it says of the nets of vertices is not valid.

    Args:
        folder: for the nets.
    """
    selects = [
        _SelectTask(boundary, rows, folder / f"piece-{number:03d}") for number, rows in enumerate(boundary.nets.ranges)
    ]
    found = dict(cluster.map(_copy_nets, selects))
    pieces = [found[task.rows.start] for task in selects]
    firsts = [0, *accumulate(piece.num_rows for piece in pieces)]
    weight_path = None
    if hypergraph.net_weight_path:
        weight_path = folder / "net-weight.npy"
        create_vector(weight_path, (firsts[-1],), np.dtype(np.int64))
        tasks = [
            _WeightTask(select, hypergraph.net_weight_path, weight_path, first)
            for select, first in zip(selects, firsts, strict=False)
        ]
        run_tasks(cluster, _copy_weights, tasks)
    return replace(hypergraph, nets=join_lists(pieces, folder / "nets", cluster), net_weight_path=weight_path)


def _copy_nets(task: _SelectTask) -> tuple[int, Incidence]:
    lists = task.boundary.nets.lists
    with IncidenceWriter(task.folder, np.dtype(lists.dtype)) as writer:
        for offset, ids in _copies(task.nets, lists):
            writer.append(offset, ids)
        return task.rows.start, writer.close()


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


def _copy_weights(task: _WeightTask) -> None:
    nets = task.select.nets
    map_vector(task.target_path, "r+")[task.first : task.first + len(nets)] = map_vector(task.source_path)[nets]


@njit(cache=True, nogil=True)
def _copy_rows(
    rows: NDArray[np.int64], offset: NDArray[np.int64], ids: NDArray[Any], new_offset: NDArray[np.int64]
) -> NDArray[Any]:
    """The ids of some rows, one row after the other."""
    copied = np.empty(new_offset[-1], ids.dtype)
    for k in range(len(rows)):
        copied[new_offset[k] : new_offset[k + 1]] = ids[offset[rows[k]] : offset[rows[k] + 1]]
    return copied
