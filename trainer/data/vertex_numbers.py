"""Numbers some vertices of all ranks, although no rank knows the others' vertices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.matrix.ranges import split_range
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.exchange import BlockExchange
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.place.place import Place


def number_vertices(
    comm: Communicator, num_vertices: int, vertex: NDArray[np.int64], place: Place
) -> tuple[NDArray[np.int64], int]:
    """Number some of the vertices by ascending id, across all ranks. Collective.

    Every rank gets the ids in one range of all vertices, and numbers them after the ids of the preceding ranges.

    Args:
        num_vertices: number of vertices of the graph.
        vertex: (num_own,) int64 distinct ids; no two ranks have the same id.

    Returns:
        (num_own,) int64 number of each vertex, and the total number on all ranks.
    """
    order = np.argsort(vertex)
    bounds = [split_range(num_vertices, comm.size, rank)[0] for rank in range(1, comm.size)]
    counts = np.diff(np.searchsorted(vertex[order], bounds), prepend=0, append=len(vertex))
    blocks = BlockExchange(comm, counts, place, Kind.SETUP)
    arrived = blocks.forth(vertex[order])
    totals = comm.gather_numbers([len(arrived)])[:, 0].astype(np.int64)
    number = np.empty(len(arrived), np.int64)
    number[np.argsort(arrived)] = totals[: comm.rank].sum() + np.arange(len(arrived))
    found = np.empty(len(vertex), np.int64)
    found[order] = blocks.back(number)
    return found, int(totals.sum())
