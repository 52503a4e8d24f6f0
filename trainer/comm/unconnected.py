"""A rank whose messages come back to it, to find out the cost of an epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.comm.communicator import Communicator, Machine, Reduction, Request
from gnnloom.trainer.comm.traffic import Kind, Traffic


@dataclass
class _Message:
    """A tensor that was sent to another rank, or that waits for a message; None once it is complete."""

    tensor: Tensor | None
    other: int
    arrives: bool


class UnconnectedRank:
    """One rank of a group of a stated size; see :class:`gnnloom.trainer.comm.communicator.Communicator`.

    It continues as if every other rank echoed its messages: a tensor that is awaited together with a message to the
        same rank gets the values of the message, if it has the same shape. All other received tensors keep their
        values.
    """

    def __init__(self, rank: int, size: int, traffic: Traffic | None = None) -> None:
        self.rank, self.size, self.members = rank, size, range(size)
        self.traffic = traffic or Traffic()

    def group(self, color: int, key: int, size: int | None = None) -> Communicator:  # noqa: ARG002
        return UnconnectedRank(key, self.size if size is None else size, self.traffic)

    def this_machine(self) -> Machine:
        return Machine()

    def send(self, tensor: Tensor, destination: int, kind: Kind) -> list[Request]:  # noqa: ARG002
        return [_Message(tensor.detach(), destination, arrives=False)] if tensor.numel() else []

    def receive(self, tensor: Tensor, source: int) -> list[Request]:
        return [_Message(tensor, source, arrives=True)] if tensor.numel() else []

    def wait(self, requests: Sequence[Request]) -> None:
        """Complete the awaited messages, which come back."""
        messages = [each for each in requests if isinstance(each, _Message)]
        sent = {each.other: each.tensor for each in messages if not each.arrives}
        for each in messages:
            found = sent.get(each.other)
            if each.arrives and each.tensor is not None and found is not None and each.tensor.shape == found.shape:
                each.tensor.copy_(found)
        # Their tensors are free once they have arrived.
        for each in messages:
            each.tensor = None

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
        """Gather numbers as if all other ranks had the same numbers.

        Numbers that stand for consecutive pieces, where every rank knows its own piece, move from rank to rank.
        """
        shift = len(numbers) // self.size
        return np.array([np.roll(numbers, (rank - self.rank) * shift) for rank in range(self.size)], np.float64)

    def barrier(self) -> None:
        """There is no other rank to wait for."""

    def close(self) -> None:
        """There is no job to leave."""

    def abort(self, code: int) -> NoReturn:
        raise SystemExit(code)
