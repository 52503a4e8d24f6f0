"""Numbers some vertices of all ranks, where no rank knows those of the others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.matrix.ranges import split_range
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.block_exchange import exchange_blocks, exchange_counts
from gnnloom.trainer.place.arrays import as_array
from gnnloom.trainer.place.place import Place


def number_vertices(
    comm: Communicator, num_vertices: int, vertex: NDArray[np.int64], place: Place
) -> tuple[NDArray[np.int64], int]:
    """Number some of the vertices by ascending id, whichever ranks have them. Collective.

    Every rank gets the ids in one range of all vertices, and numbers them after those of the ranges before.

    Args:
        num_vertices: of the graph.
        vertex: (num_own,) int64 distinct ids; no two ranks have the same.

    Returns:
        (num_own,) int64 number of each, and how many all ranks have.
    """
    order = np.argsort(vertex)
    bounds = [split_range(num_vertices, comm.size, rank)[0] for rank in range(1, comm.size)]
    counts = np.diff(np.searchsorted(vertex[order], bounds), prepend=0, append=len(vertex))
    arriving = exchange_counts(comm, counts, place, Kind.SETUP)
    arrived = as_array(exchange_blocks(comm, place.from_numpy(vertex[order]), counts, arriving, place, Kind.SETUP))
    totals = comm.gather_numbers([len(arrived)])[:, 0].astype(np.int64)
    number = np.empty(len(arrived), np.int64)
    number[np.argsort(arrived)] = totals[: comm.rank].sum() + np.arange(len(arrived))
    answered = exchange_blocks(comm, place.from_numpy(number), arriving, counts, place, Kind.SETUP)
    found = np.empty(len(vertex), np.int64)
    found[order] = as_array(answered)
    return found, int(totals.sum())
