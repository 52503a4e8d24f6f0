"""Moves rows between ranks: from every rank to every other rank, and from all ranks to one.

All exchanges of rows use these functions, except exchanges that overlap with a product (``operators/halo.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.comm.communicator import Communicator, Request
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.place.arrays import as_array
from gnnloom.trainer.place.place import Place

Rows = TypeVar("Rows", Tensor, NDArray[Any])


def exchange(comm: Communicator, sends: Sequence[Tensor], receives: Sequence[Tensor], kind: Kind) -> None:
    """Send a tensor to every rank and receive one from every rank. Collective.

    Empty tensors are not sent, and the tensor for this rank itself is copied.

    Args:
        sends: (size,) contiguous tensors, by receiver.
        receives: (size,) contiguous tensors to fill, by sender, with the shapes of the senders' tensors.
    """
    requests: list[Request] = []
    for step in range(1, comm.size):
        # Each rank starts with the one after itself; starting with rank 0 would make all ranks send there first.
        source, target = (comm.rank - step) % comm.size, (comm.rank + step) % comm.size
        # Receives are posted first, so that arriving rows go to their buffer without another copy.
        requests += comm.receive(receives[source], source)
        requests += comm.send(sends[target], target, kind)
    receives[comm.rank].copy_(sends[comm.rank].detach())
    comm.wait(requests)


def collect(
    comm: Communicator,
    mine: Sequence[Rows],
    shapes: Sequence[Sequence[Sequence[int]]],
    place: Place,
    root: int,
    kind: Kind,
) -> Iterator[tuple[int, list[Rows]]]:
    """Bring the tensors, or arrays, of all other ranks to the root. Collective, including iterating over the result.

    The tensors of one rank arrive after the tensors of another, so that the root need not hold the tensors of all
    ranks.

    Args:
        mine: contiguous tensors, or arrays, of this rank, of the same dtypes on all ranks; the root's are not sent.
        shapes: (size,) shapes of the tensors of every rank.

    Yields:
        On the root, every other rank and its tensors, in the order of the ranks. On other ranks nothing.
    """
    given = [place.from_numpy(each) if isinstance(each, np.ndarray) else each for each in mine]
    if comm.rank != root:
        comm.wait([request for each in given for request in comm.send(each, root, kind)])
        return
    for rank, theirs in enumerate(shapes):
        if rank != root:
            arriving = [place.lasting(shape, each.dtype) for shape, each in zip(theirs, given, strict=True)]
            comm.wait([request for each in arriving for request in comm.receive(each, rank)])
            yield (
                rank,
                [
                    as_array(each) if isinstance(own, np.ndarray) else each
                    for own, each in zip(mine, arriving, strict=True)
                ],
            )


def broadcast_array(comm: Communicator, array: NDArray[Any], root: int, place: Place, kind: Kind) -> NDArray[Any]:
    """The root's array, on every rank. Collective.

    Args:
        array: array of the same shape and dtype on every rank; its values may be overwritten.
    """
    buffer = place.from_numpy(array)
    comm.broadcast(buffer, root, kind)
    return as_array(buffer)


class BlockExchange:
    """Sends consecutive rows of tensors or arrays to every rank, and rows back to their senders.

    Attributes:
        counts: (size,) int64 rows that this rank sends to each rank, itself included.
        arriving: (size,) int64 rows that each rank sends to this one.
    """

    def __init__(self, comm: Communicator, counts: NDArray[np.int64], place: Place, kind: Kind) -> None:
        """Announce the number of rows for each rank. Collective.

        Args:
            kind: kind of traffic, also for the rows unless another kind is given.
        """
        self._comm, self._place, self._kind = comm, place, kind
        announced, arriving = place.from_numpy(counts), place.empty((comm.size,), torch.int64)
        exchange(comm, torch.split(announced, 1), torch.split(arriving, 1), kind)
        self.counts, self.arriving = counts, as_array(arriving)

    def forth(self, rows: Rows, kind: Kind | None = None, out: Tensor | None = None) -> Rows:
        """Send ``counts[rank]`` rows to each rank, and receive rows from the ranks. Collective.

        Args:
            rows: (sum(counts), ...) in the order of the receiving ranks.
            out: (sum(arriving), ...) memory for the result; memory of the workspace by default.

        Returns:
            (sum(arriving), ...) in the order of the sending ranks.
        """
        return self._exchanged(rows, self.counts, self.arriving, kind, out)

    def back(self, rows: Rows, kind: Kind | None = None) -> Rows:
        """Answer: from (sum(arriving), ...) rows, one for each row that arrived, to (sum(counts), ...). Collective."""
        return self._exchanged(rows, self.arriving, self.counts, kind)

    def _exchanged(
        self,
        rows: Rows,
        given: NDArray[np.int64],
        taken: NDArray[np.int64],
        kind: Kind | None,
        out: Tensor | None = None,
    ) -> Rows:
        if isinstance(rows, np.ndarray):
            return as_array(self._exchanged(self._place.from_numpy(rows), given, taken, kind))
        if out is None:
            out = self._place.empty((int(taken.sum()), *rows.shape[1:]), rows.dtype)
        exchange(self._comm, torch.split(rows, given.tolist()), torch.split(out, taken.tolist()), kind or self._kind)
        return out


def by_rank(ranks: NDArray[Any], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The order that sorts rows by their receiving rank, and (size,) int64 number of rows for each rank."""
    return np.argsort(ranks, kind="stable"), np.bincount(ranks, minlength=size)
