"""Blocks of rows from every rank to every other one, of whatever sizes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.comm.communicator import Communicator, Request
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.place.arrays import as_array
from gnnloom.trainer.place.place import Place


def exchange_counts(comm: Communicator, counts: NDArray[np.int64], place: Place, kind: Kind) -> NDArray[np.int64]:
    """Announce how many rows follow to each rank. Collective.

    Args:
        counts: (size,) int64 rows that this rank will send to each rank, itself included.

    Returns:
        (size,) int64 rows that will arrive from each rank.
    """
    if place.rehearses:
        # As if the other ranks sent as much.
        return counts
    ones = np.ones(comm.size, np.int64)
    arriving: NDArray[np.int64] = as_array(exchange_blocks(comm, place.from_numpy(counts), ones, ones, place, kind))
    return arriving


def exchange_blocks(
    comm: Communicator,
    sent: Tensor,
    counts: NDArray[np.int64],
    arriving: NDArray[np.int64],
    place: Place,
    kind: Kind,
) -> Tensor:
    """Send ``counts[rank]`` consecutive rows to each rank, and fetch those that they send. Collective.

    Args:
        sent: (sum(counts), ...) rows in the order of the ranks that get them.
        arriving: (size,) int64 as :func:`exchange_counts` returns it.

    Returns:
        (sum(arriving), ...) in the order of the ranks that send them.
    """
    requests: list[Request] = []
    arrived = place.empty((int(arriving.sum()), *sent.shape[1:]), sent.dtype)
    given, taken = (np.concatenate([[0], np.cumsum(sizes)]).tolist() for sizes in (counts, arriving))
    for step in range(1, comm.size):
        source, target = (comm.rank - step) % comm.size, (comm.rank + step) % comm.size
        # Receives are posted first, so that arriving rows go to their buffer without another copy.
        requests += comm.receive(arrived[taken[source] : taken[source + 1]], source)
        requests += comm.send(sent[given[target] : given[target + 1]], target, kind)
    arrived[taken[comm.rank] : taken[comm.rank + 1]] = sent[given[comm.rank] : given[comm.rank + 1]]
    comm.wait(requests)
    return arrived
