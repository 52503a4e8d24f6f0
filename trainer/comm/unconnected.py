"""A rank without others, to find out what its epoch would take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.comm.communicator import Communicator, Machine, Reduction, Request
from gnnloom.trainer.comm.traffic import Kind, Traffic


class UnconnectedRank:
    """One rank of a group that exchanges nothing; see :class:`gnnloom.trainer.comm.communicator.Communicator`.

    Receiving leaves a tensor's values unchanged.
    """

    def __init__(self, rank: int, size: int, traffic: Traffic | None = None) -> None:
        self.rank, self.size, self.members = rank, size, range(size)
        self.traffic = traffic or Traffic()

    def group(self, color: int, key: int, size: int | None = None) -> Communicator:  # noqa: ARG002
        return UnconnectedRank(key, self.size if size is None else size, self.traffic)

    def this_machine(self) -> Machine:
        return Machine()

    def send(self, tensor: Tensor, destination: int, kind: Kind) -> list[Request]:  # noqa: ARG002
        return []

    def receive(self, tensor: Tensor, source: int) -> list[Request]:  # noqa: ARG002
        return []

    def wait(self, requests: Sequence[Request]) -> None:
        """Nothing is in flight."""

    def progress(self, requests: Sequence[Request]) -> None:
        """Nothing is in flight."""

    def all_reduce(self, tensor: Tensor, kind: Kind, operation: Reduction = Reduction.SUM) -> None:
        """Keep this rank's tensor."""

    def begin_all_reduce(self, tensor: Tensor, kind: Kind, operation: Reduction = Reduction.SUM) -> list[Request]:  # noqa: ARG002
        return []

    def finish(self, requests: Sequence[Request], kind: Kind) -> None:
        """Nothing is in flight."""

    def broadcast(self, tensor: Tensor, root: int, kind: Kind) -> None:
        """Keep this rank's tensor."""

    def begin_broadcast(self, tensor: Tensor, root: int, kind: Kind) -> list[Request]:  # noqa: ARG002
        return []

    def all_gather(self, block: Tensor, sizes: Sequence[int], kind: Kind, out: Tensor | None = None) -> Tensor:  # noqa: ARG002
        if self.size == 1:
            return block
        return block.new_empty(sum(sizes), *block.shape[1:]) if out is None else out

    def reduce_scatter(self, whole: Tensor, sizes: Sequence[int], kind: Kind, out: Tensor | None = None) -> Tensor:  # noqa: ARG002
        if self.size == 1:
            return whole
        return whole.new_empty(sizes[self.rank], *whole.shape[1:]) if out is None else out

    def gather_numbers(self, numbers: Sequence[float]) -> NDArray[np.float64]:
        """As if the other ranks had the same numbers.

        Those that stand for consecutive pieces, of which every rank knows its own, move on from rank to rank.
        """
        shift = len(numbers) // self.size
        return np.array([np.roll(numbers, (rank - self.rank) * shift) for rank in range(self.size)], np.float64)

    def barrier(self) -> None:
        """Nobody else arrives."""

    def close(self) -> None:
        """There is no job to leave."""

    def abort(self, code: int) -> NoReturn:
        raise SystemExit(code)
