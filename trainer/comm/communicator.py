"""Defines the interface of transports between ranks, for operators, layouts and the training loop."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.comm.traffic import Kind, Traffic


class Reduction(Enum):
    """Operation with which an all-reduce combines the ranks' elements."""

    SUM = auto()
    MAX = auto()
    MIN = auto()


class Request(Protocol):
    """A transfer in flight; opaque to everything except the communicator that began it."""


@dataclass(frozen=True)
class Machine:
    """The ranks of a group that share the memory of one machine.

    Attributes:
        rank: number of this rank among these ranks, in the order of the group.
        ranks: number of ranks that share it.
        cores: number of distinct cores that these ranks may use.
    """

    rank: int = 0
    ranks: int = 1
    cores: int = 1

    @property
    def threads(self) -> int:
        """Threads of each rank that keep the cores of its ranks busy."""
        # Containers and launchers restrict the cores. All ranks of a machine may share the same ones, or a launcher
        # such as `srun --cpus-per-task` may bind every rank to cores of its own; counting distinct cores is right for
        # both.
        # A rank that is bound to fewer cores than others cannot use more threads than its cores.
        return max(1, min(self.cores // self.ranks, len(os.sched_getaffinity(0))))


class Communicator(Protocol):
    """A group of ranks that exchange tensors.

    Every rank of the group must call the methods marked collective, in the same order. Tensors are contiguous; in one
    message or collective, they have the same dtype on all ranks, and the same shape unless sizes are given. bfloat16
    can be moved but not reduced.
    """

    @property
    def rank(self) -> int:
        """Number of this rank in the group, from 0."""
        ...

    @property
    def size(self) -> int:
        """Number of ranks in the group."""
        ...

    @property
    def members(self) -> Sequence[int]:
        """(size,) world rank of every rank of the group; traffic is counted by world rank."""
        ...

    @property
    def traffic(self) -> Traffic:
        """The record of this rank's messages, shared with all groups formed from this one."""
        ...

    def group(self, color: int, key: int, size: int | None = None) -> Communicator:
        """Form the group of ranks that give the same ``color``, ordered by ``key``. Collective.

        Args:
            size: number of ranks of the group, if the caller knows it. A group of one rank waits for no other.
        """
        ...

    def this_machine(self) -> Machine:
        """The ranks of the group that share this machine's memory. Collective on the first call."""
        ...

    def send(self, tensor: Tensor, destination: int, kind: Kind) -> list[Request]:
        """Begin to send a tensor; leave it unchanged until the requests complete.

        Returns:
            One request for each segment: long tensors need several, and empty ones none.
        """
        ...

    def receive(self, tensor: Tensor, source: int) -> list[Request]:
        """Begin to receive into a tensor of the sender's size and dtype; read it after the requests complete."""
        ...

    def wait(self, requests: Sequence[Request]) -> None:
        """Wait until sends and receives complete."""
        ...

    def progress(self, requests: Sequence[Request]) -> None:
        """Let transfers advance, and return at once. Most transports move long messages only while they are called."""
        ...

    def all_reduce(self, tensor: Tensor, kind: Kind, operation: Reduction = Reduction.SUM) -> None:
        """Combine the tensors of all ranks element by element, in place. Collective."""
        ...

    def begin_all_reduce(self, tensor: Tensor, kind: Kind, operation: Reduction = Reduction.SUM) -> list[Request]:
        """Begin an all-reduce; do not touch the tensor until :meth:`finish` returns. Collective."""
        ...

    def finish(self, requests: Sequence[Request], kind: Kind) -> None:
        """Wait until collectives of this group complete. Collective."""
        ...

    def broadcast(self, tensor: Tensor, root: int, kind: Kind) -> None:
        """Copy the tensor of rank ``root`` into the tensors of all other ranks. Collective."""
        ...

    def begin_broadcast(self, tensor: Tensor, root: int, kind: Kind) -> list[Request]:
        """Begin a broadcast; do not touch the tensor until :meth:`finish` returns. Collective."""
        ...

    def all_gather(self, block: Tensor, sizes: Sequence[int], kind: Kind, out: Tensor | None = None) -> Tensor:
        """Concatenate the blocks of rows of all ranks. Collective.

        Args:
            block: (sizes[rank], ...) this rank's rows.
            sizes: number of rows of every rank.
            out: (sum(sizes), ...) memory for the result; a new tensor by default.

        Returns:
            (sum(sizes), ...) in the order of the ranks; ``block`` itself if the group has one rank.
        """
        ...

    def reduce_scatter(self, whole: Tensor, sizes: Sequence[int], kind: Kind, out: Tensor | None = None) -> Tensor:
        """Sum the matrices of all ranks, and return this rank's block of rows. Collective.

        Args:
            whole: (sum(sizes), ...) this rank's summand.
            sizes: number of rows of every rank's block.
            out: (sizes[rank], ...) memory for the result; a new tensor by default.

        Returns:
            (sizes[rank], ...); ``whole`` itself if the group has one rank.
        """
        ...

    def gather_numbers(self, numbers: Sequence[float]) -> NDArray[np.float64]:
        """(size, len(numbers)) float64, the numbers of every rank. Collective; not counted as traffic."""
        ...

    def barrier(self) -> None:
        """Wait until every rank arrives; sleep during long waits. Collective."""
        ...

    def close(self) -> None:
        """Leave the job; all ranks exit with the same code. Collective."""
        ...

    def abort(self, code: int) -> NoReturn:
        """End all ranks of the job at once, without waiting for any rank."""
        ...
