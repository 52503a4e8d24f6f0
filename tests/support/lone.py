"""A communicator of one process, without any transport underneath."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.comm.communicator import Communicator, Machine, Reduction, Request
from gnnloom.trainer.comm.traffic import Kind, Traffic


class _Transfer:
    """A message to oneself, complete as soon as both ends are there."""


class LoneCommunicator:
    """The only rank of its group. Messages to oneself are matched in the order in which they begin."""

    def __init__(self) -> None:
        self.rank, self.size, self.members = 0, 1, (0,)
        self.traffic = Traffic()
        self._sent: list[Tensor] = []
        self._awaited: list[Tensor] = []

    def group(self, color: int, key: int, size: int | None = None) -> Communicator:
        return self

    def this_machine(self) -> Machine:
        return Machine()

    def send(self, tensor: Tensor, destination: int, kind: Kind) -> list[Request]:
        self._sent.append(tensor.detach().clone())
        return [_Transfer()]

    def receive(self, tensor: Tensor, source: int) -> list[Request]:
        self._awaited.append(tensor)
        return [_Transfer()]

    def wait(self, requests: Sequence[Request]) -> None:
        for target, source in zip(self._awaited, self._sent, strict=True):
            target.copy_(source)
        self._awaited, self._sent = [], []

    def progress(self, requests: Sequence[Request]) -> None:
        """A message to oneself needs none."""

    def all_reduce(self, tensor: Tensor, kind: Kind, operation: Reduction = Reduction.SUM) -> None:
        """The sum, maximum or minimum over one rank is its own tensor."""

    def begin_all_reduce(self, tensor: Tensor, kind: Kind, operation: Reduction = Reduction.SUM) -> list[Request]:
        return []

    def finish(self, requests: Sequence[Request], kind: Kind) -> None:
        """Nothing is in flight."""

    def broadcast(self, tensor: Tensor, root: int, kind: Kind) -> None:
        """The root has its tensor already."""

    def begin_broadcast(self, tensor: Tensor, root: int, kind: Kind) -> list[Request]:
        return []

    def all_gather(self, block: Tensor, sizes: Sequence[int], kind: Kind, out: Tensor | None = None) -> Tensor:
        return block

    def reduce_scatter(self, whole: Tensor, sizes: Sequence[int], kind: Kind, out: Tensor | None = None) -> Tensor:
        return whole

    def gather_numbers(self, numbers: Sequence[float]) -> NDArray[np.float64]:
        return np.array([numbers], np.float64)

    def barrier(self) -> None:
        """All ranks are here."""

    def close(self) -> None:
        """There is no job to leave."""

    def abort(self, code: int) -> NoReturn:
        raise SystemExit(code)
