"""The cut of a partition on a hypergraph on disk, counted by tasks over ranges of nets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.pieces import NUMBER_BYTES, PART_BYTES, Piece, net_tasks, phase_over
from gnnloom.pipeline.partition.multilevel.vectors import map_vector
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Phase, results


def rows_sent(hypergraph: DiskHypergraph, part_path: Path, num_parts: int, cluster: Cluster) -> int:
    """The connectivity-1 cut of a partition: each net costs its weight for every part of its pins but one.

    Args:
        part_path: file of the (num_vertices,) int32 parts.
    """
    return sum(results(cut_phase(hypergraph, part_path, num_parts), cluster))


@dataclass(frozen=True)
class _Cut:
    hypergraph: DiskHypergraph
    part_path: Path
    num_parts: int


def cut_phase(hypergraph: DiskHypergraph, part_path: Path, num_parts: int) -> Phase:
    """The phase of :func:`rows_sent`."""
    work, ranges = _Cut(hypergraph, part_path, num_parts), hypergraph.nets.ranges(net_tasks(hypergraph.num_pins))
    reads = hypergraph.nets.num_bytes + PART_BYTES * hypergraph.num_pins + hypergraph.net_weight_bytes
    held = hypergraph.nets.block_bytes() + NUMBER_BYTES * num_parts
    return phase_over(ranges, "count cut", _count, work, reads=reads, files=3 + hypergraph.is_weighted, buffers=held)


def _count(task: Piece[_Cut]) -> int:
    hypergraph, part = task.work.hypergraph, map_vector(task.work.part_path)
    weight, seen = hypergraph.net_weight, np.full(task.work.num_parts, -1, dtype=np.int64)
    return sum(
        _cut_of_block(block.first_row, block.offset, block.ids, part, weight, seen)
        for block in hypergraph.nets.blocks(task.rows)
    )


@njit(cache=True, nogil=True)
def _cut_of_block(
    first_net: int,
    offset: NDArray[np.int64],
    pin: NDArray[Any],
    part: NDArray[np.int32],
    net_weight: NDArray[np.int64],
    seen: NDArray[np.int64],
) -> int:
    """The cut of a block of nets.

    Args:
        net_weight: (num_nets,) int64, or (0,) if all are 1.
        seen: (num_parts,) int64 last net that had a pin in each part; changed.
    """
    cut = 0
    for row in range(len(offset) - 1):
        net, connected = first_net + row, 0
        for position in range(offset[row], offset[row + 1]):
            if seen[part[pin[position]]] != net:
                seen[part[pin[position]]] = net
                connected += 1
        if connected > 1:
            cut += (connected - 1) * (net_weight[net] if net_weight.size else 1)
    return cut
