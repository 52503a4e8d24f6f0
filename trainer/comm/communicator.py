"""Messages between ranks, counted by kind; the only module that calls MPI.

What is counted, by the rank that sends:

* point to point: the payload's bytes, and one message for each piece sent to another rank;
* collectives on g ranks, as their bandwidth-optimal (ring) algorithms send them, whatever MPI does
  inside.  With b bytes (of the whole result, or of each rank's operand), over all ranks:

  ==============  =================  =================
  collective      bytes              messages
  ==============  =================  =================
  all-reduce      2 (g - 1) b        2 g (g - 1)
  reduce-scatter  (g - 1) b          g (g - 1)
  all-gather      (g - 1) b          g (g - 1)
  broadcast       (g - 1) b          g - 1
  ==============  =================  =================

What ranks tell each other about the run itself (times, counts, failures) is not counted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np
import torch
from mpi4py import MPI
from numpy.typing import NDArray

from gnnloom.storage.errors import GnnloomError

#: Elements in one MPI call; counts beyond it do not fit the C int of most MPI libraries.
MAX_COUNT = 2**31 - 1

#: MPI waits by spinning, which starves the rank that is waited for where ranks outnumber cores.
_AWAKE_SECONDS = 2e-4
_SLEEP_SECONDS, _LONGEST_SLEEP_SECONDS = 5e-5, 5e-3
#: Share of the time waited that a rank may wake up late by.
_LATE = 1 / 32

#: Names under which a profile counts what is no message: products with the adjacency, with weights, and idle time.
SPMM, GEMM, WAITING = "spmm", "gemm", "waiting"

Request = MPI.Request
Result = TypeVar("Result")


class Kind(StrEnum):
    """What a message is for."""

    HALO_FORWARD = "halo forward"
    HALO_BACKWARD = "halo backward"
    PROPAGATE_FORWARD = "propagate forward"
    PROPAGATE_BACKWARD = "propagate backward"
    TRANSFORM_FORWARD = "transform forward"
    TRANSFORM_BACKWARD = "transform backward"
    ALIGN_FORWARD = "align forward"
    ALIGN_BACKWARD = "align backward"
    ADJACENCY = "adjacency"
    WEIGHT = "weight"
    GRADIENT = "gradient"
    NORM = "norm"
    LOSS = "loss"
    METRICS = "metrics"
    SETUP = "setup"
    CHECKPOINT = "checkpoint"
    PREDICTION = "prediction"


@dataclass
class TrafficCounts:
    """Bytes and messages that one rank sent, by kind, and where its time went."""

    bytes: Counter[Kind] = field(default_factory=Counter)
    messages: Counter[Kind] = field(default_factory=Counter)
    #: By the rank that they go to.
    bytes_to: Counter[int] = field(default_factory=Counter)
    #: Of local work and communication, by name; empty unless profiled.
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, kind: Kind, num_bytes: int, num_messages: int, receiver: int) -> None:
        self.bytes[kind] += num_bytes
        self.messages[kind] += num_messages
        self.bytes_to[receiver] += num_bytes


class Traffic:
    """Where a rank's messages are counted; shared by all communicators made from one."""

    def __init__(self) -> None:
        self.counts = TrafficCounts()
        #: Measure where the time goes, and wait for each other before a collective to tell waiting from sending.
        self.profiled = False

    @contextmanager
    def timing(self, name: str, group: Communicator | None = None) -> Iterator[None]:
        """Count the seconds inside the block under ``name``, if profiled; collective if a group is given."""
        if not self.profiled:
            yield
            return
        if group is not None:
            with self.timing(WAITING):
                group.barrier()
        started = time.perf_counter()
        yield
        seconds = self.counts.seconds
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - started

    @contextmanager
    def recording(self) -> Iterator[TrafficCounts]:
        """Count what is sent inside the block apart from everything else."""
        outer, self.counts = self.counts, TrafficCounts()
        try:
            yield self.counts
        finally:
            self.counts = outer


class CollectiveError(GnnloomError):
    """An error that every rank of a group knows of; the lowest rank that has it reports it."""

    def __init__(self, message: str, *, reports: bool, code: int) -> None:
        super().__init__(message)
        self.reports = reports
        self.code = code


class Communicator:
    """A group of ranks. Methods marked collective must be called by every rank of the group, in the same order."""

    def __init__(
        self,
        comm: MPI.Comm,
        traffic: Traffic | None = None,
        max_count: int = MAX_COUNT,
        members: Sequence[int] | None = None,
    ) -> None:
        """Wrap an MPI communicator.

        Args:
            max_count: messages of more elements are sent in pieces.
            members: what the ranks of the group are called where traffic is counted; by default as in the group.
        """
        self._comm = comm
        self._max_count = max_count
        self.traffic = traffic if traffic is not None else Traffic()
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self.members: Sequence[int] = members if members is not None else range(self.size)

    def group(self, color: int, key: int) -> Communicator:
        """The ranks that gave the same ``color``, ordered by ``key``. Collective."""
        others = self.gather_numbers([color, key, self.members[self.rank]])
        mine = others[others[:, 0] == color]
        members = [int(member) for member in mine[np.argsort(mine[:, 1], kind="stable"), 2]]
        return Communicator(self._comm.Split(color, key), self.traffic, self._max_count, members)

    @property
    def _following(self) -> int:
        """Whom this rank sends to in a ring."""
        return self.members[(self.rank + 1) % self.size]

    def ranks_on_this_machine(self) -> int:
        """Number of ranks that share this machine's memory. Collective."""
        local = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        size: int = local.Get_size()
        local.Free()
        return size

    def send(self, tensor: torch.Tensor, destination: int, kind: Kind) -> list[Request]:
        """Begin to send a contiguous CPU tensor; leave it unchanged until the requests are waited for."""
        pieces = self._pieces(tensor)
        if destination != self.rank:
            self.traffic.counts.add(kind, tensor.nbytes, len(pieces), self.members[destination])
        return [self._comm.Isend(piece, destination) for piece in pieces]

    def receive(self, tensor: torch.Tensor, source: int) -> list[Request]:
        """Begin to receive into a contiguous CPU tensor of the sender's size and dtype."""
        return [self._comm.Irecv(piece, source) for piece in self._pieces(tensor)]

    @staticmethod
    def wait(requests: Sequence[Request]) -> None:
        """Wait for sends, receives and collectives; at first awake, then leaving the processor to other ranks."""
        pending = list(requests)
        started = time.perf_counter()
        while not MPI.Request.Testall(pending):
            waited = time.perf_counter() - started
            if waited > _AWAKE_SECONDS:
                # The longer it takes, the less it matters to be late, and the dearer it is to look so often.
                time.sleep(min(max(_SLEEP_SECONDS, waited * _LATE), _LONGEST_SLEEP_SECONDS))

    def all_reduce(self, tensor: torch.Tensor, kind: Kind, operation: MPI.Op = MPI.SUM) -> None:
        """Reduce a contiguous CPU tensor over the group, in place. Collective."""
        self.finish(self.begin_all_reduce(tensor, kind, operation), kind)

    def begin_all_reduce(self, tensor: torch.Tensor, kind: Kind, operation: MPI.Op = MPI.SUM) -> list[Request]:
        """Begin to reduce a contiguous CPU tensor in place; leave it alone until the requests are waited for.

        Collective.
        """
        if self.size == 1:
            return []
        self._count_all_reduce(tensor, kind)
        return [self._comm.Iallreduce(MPI.IN_PLACE, piece, op=operation) for piece in self._pieces(tensor)]

    def finish(self, requests: Sequence[Request], kind: Kind) -> None:
        """Wait for collectives of this group that were begun. Collective."""
        if self.size > 1:
            with self.traffic.timing(kind, self):
                self.wait(requests)

    def _count_all_reduce(self, tensor: torch.Tensor, kind: Kind) -> None:
        """A ring: every share but one goes round twice, to be summed and to be spread."""
        bounds = [share * tensor.numel() // self.size for share in range(self.size + 1)]
        following = (self.rank + 1) % self.size
        kept = bounds[self.rank + 1] - bounds[self.rank] + bounds[following + 1] - bounds[following]
        sent = (2 * tensor.numel() - kept) * tensor.element_size()
        self.traffic.counts.add(kind, sent, 2 * (self.size - 1), self._following)

    def broadcast(self, tensor: torch.Tensor, root: int, kind: Kind) -> None:
        """Send a contiguous CPU tensor of rank ``root`` to all others, into theirs of the same size. Collective."""
        if self.size == 1:
            return
        with self.traffic.timing(kind, self):
            self.wait([self._comm.Ibcast(piece, root) for piece in self._pieces(tensor)])
        if self.rank != (root - 1) % self.size:  # the last of the chain
            self.traffic.counts.add(kind, tensor.nbytes, 1, self._following)

    def all_gather(self, mine: torch.Tensor, sizes: Sequence[int], kind: Kind) -> torch.Tensor:
        """Put the shares of all ranks in a row. Collective.

        Args:
            mine: (sizes[rank], ...) contiguous CPU tensor.
            sizes: lengths of the shares of all ranks.

        Returns:
            (sum(sizes), ...) in the order of the ranks; ``mine`` itself on one rank.
        """
        if self.size == 1:
            return mine
        whole = mine.new_empty(sum(sizes), *mine.shape[1:])
        shares = torch.split(whole, list(sizes))
        shares[self.rank].copy_(mine)
        with self.traffic.timing(kind, self):
            if whole.numel() <= self._max_count:
                counts = [share.numel() for share in shares]
                self.wait([self._comm.Iallgatherv(MPI.IN_PLACE, [whole.view(-1).numpy(), counts])])
            else:
                pieces = [(piece, root) for root, share in enumerate(shares) for piece in self._pieces(share)]
                self.wait([self._comm.Ibcast(piece, root) for piece, root in pieces])
        following = shares[(self.rank + 1) % self.size]
        self.traffic.counts.add(kind, whole.nbytes - following.nbytes, self.size - 1, self._following)
        return whole

    def reduce_scatter(self, whole: torch.Tensor, sizes: Sequence[int], kind: Kind) -> torch.Tensor:
        """Sum over the ranks and give each its share of the rows. Collective.

        Args:
            whole: (sum(sizes), ...) contiguous CPU tensor.
            sizes: lengths of the shares of all ranks.

        Returns:
            (sizes[rank], ...); ``whole`` itself on one rank.
        """
        if self.size == 1:
            return whole
        shares = torch.split(whole, list(sizes))
        mine = torch.empty_like(shares[self.rank])
        with self.traffic.timing(kind, self):
            if whole.numel() <= self._max_count:
                counts = [share.numel() for share in shares]
                flat = (whole.view(-1).numpy(), mine.view(-1).numpy())
                self.wait([self._comm.Ireduce_scatter(*flat, recvcounts=counts)])
            else:
                self._reduce_in_turn(shares, mine)
        self.traffic.counts.add(kind, whole.nbytes - mine.nbytes, self.size - 1, self._following)
        return mine

    def _reduce_in_turn(self, shares: Sequence[torch.Tensor], mine: torch.Tensor) -> None:
        requests = []
        for root, share in enumerate(shares):
            targets = self._pieces(mine) if root == self.rank else [None] * len(self._pieces(share))
            pairs = zip(self._pieces(share), targets, strict=True)
            requests += [self._comm.Ireduce(piece, target, root=root) for piece, target in pairs]
        self.wait(requests)

    def _pieces(self, tensor: torch.Tensor) -> list[NDArray[Any]]:
        """Views of the tensor's memory, each small enough for one MPI call; none of an empty tensor."""
        flat = tensor.detach().view(-1).numpy()
        return [flat[start : start + self._max_count] for start in range(0, len(flat), self._max_count)]

    def gather_numbers(self, numbers: Sequence[float]) -> NDArray[np.float64]:
        """(size, len(numbers)) float64: the numbers of every rank. Collective; not counted."""
        mine = np.array(numbers, np.float64)
        everyones = np.empty((self.size, len(mine)), np.float64)
        self.wait([self._comm.Iallgather(mine, everyones)])
        return everyones

    def barrier(self) -> None:
        """Wait until every rank is here. Collective."""
        self.wait([self._comm.Ibarrier()])

    def together(self, action: Callable[[], Result]) -> Result:
        """Run ``action``, which must not communicate, on every rank; fail on all ranks if it fails on one. Collective.

        Raises:
            CollectiveError: ``action`` raised a GnnloomError somewhere.
        """
        failure: GnnloomError | None = None
        try:
            result = action()
        except GnnloomError as error:
            failure = error
        codes = self.gather_numbers([failure.exit_code if failure else 0])[:, 0]
        if not codes.any():
            return result
        first = int(np.flatnonzero(codes)[0])
        message = str(failure) if failure else f"rank {first} failed"
        raise CollectiveError(message, reports=first == self.rank, code=int(codes[first])) from failure
