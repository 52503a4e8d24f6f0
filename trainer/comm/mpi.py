"""The MPI transport; the only module that imports mpi4py."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, cast

import numpy as np
import torch
from mpi4py import MPI
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.faults import fault_point
from gnnloom.trainer.comm.communicator import Machine, Reduction, Request
from gnnloom.trainer.comm.traffic import Kind, Ring, Traffic
from gnnloom.trainer.comm.watchdog import MismatchError, Transfer

#: Elements in one MPI call; most MPI libraries keep counts in a C int.
MAX_COUNT = 2**31 - 1

#: A waiting rank spins for 0.2 ms, enough for a short message, and then sleeps between checks: if ranks outnumber
#: cores, a spinning rank starves the one it waits for. A sleep lasts at least 50 us, the default timer slack of Linux,
#: since shorter ones would end no sooner, and at most 5 ms, so that no rank wakes up much later than that.
_SPIN_SECONDS = 2e-4
_SLEEP_SECONDS, _LONGEST_SLEEP_SECONDS = 5e-5, 5e-3
#: Largest delay caused by late wake-ups, as a fraction of the time since anything moved.
_LATE = 1 / 32
#: Longest message that MPI copies in one piece.
_PIECE_BYTES = 1 << 14
#: A call of MPI that copies part of a message takes longer than one that finds nothing to do, by at least this many
#: times what such a call takes if no collective is in flight: 1.2 us against 0.35.
_COPYING = 1.5
#: Calls to learn how long one takes that finds nothing to do.
_FIRST_CALLS = 8
#: Most seconds that count as waiting between two looks.
_LONGEST_STEP_SECONDS = 1.0

_OPERATIONS = {Reduction.SUM: MPI.SUM, Reduction.MAX: MPI.MAX, Reduction.MIN: MPI.MIN}


class _Request(MPI.Request):
    """A request that knows what it is for.

    Attributes:
        is_long: it may be copied in several pieces, and nobody has waited for it yet.
    """

    transfer: Transfer
    is_long: bool


class _Calls:
    """Tells whether calls of MPI copy messages, by how long they take; shared by all groups of ranks.

    Only long messages arrive in pieces, so calls are timed only while one is in flight. A call takes longer while a
    collective is in flight, because MPI polls every pending request.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self._num_long = 0
        alone = min(self._seconds() for _ in range(_FIRST_CALLS))
        self._copying = _COPYING * alone
        self._shortest = {False: alone, True: math.inf}

    def request(self, begun: MPI.Request, transfer: Transfer, num_bytes: int) -> _Request:
        """The same request, with a description of what it transfers."""
        request = _Request(begun)
        request.transfer, request.is_long = transfer, num_bytes > _PIECE_BYTES
        self._num_long += request.is_long
        return request

    def completed(self, requests: Sequence[_Request]) -> None:
        """Forget requests that were waited for."""
        for request in requests:
            self._num_long -= request.is_long
            request.is_long = False

    def copy(self, *, in_collective: bool) -> bool:
        """Call MPI, so that messages make progress; returns whether it copied a piece of a long one."""
        if not self._num_long:
            return False
        # The first call after a sleep is slow even if it finds nothing to do, because the caches are cold.
        self._seconds()
        # A call may be interrupted, but hardly two in a row; a message of many pieces keeps both busy.
        took = min(self._seconds(), self._seconds())
        self._shortest[in_collective] = min(self._shortest[in_collective], took)
        return took > self._shortest[in_collective] + self._copying

    def _seconds(self) -> float:
        started = time.perf_counter()
        self._comm.Iprobe()
        return time.perf_counter() - started


class MpiCommunicator:
    """A group of MPI ranks; see :class:`gnnloom.trainer.comm.communicator.Communicator`. Tensors are on the CPU."""

    def __init__(
        self,
        comm: MPI.Comm,
        traffic: Traffic | None = None,
        max_count: int = MAX_COUNT,
        members: Sequence[int] | None = None,
        calls: _Calls | None = None,
    ) -> None:
        """Wrap an MPI communicator.

        Args:
            traffic: where messages are counted; a new record by default.
            max_count: largest number of elements of one MPI call; longer messages are sent in segments.
            members: (size,) world ranks of the group; 0 to size - 1 by default.
            calls: how long calls of MPI take; measured by default.
        """
        self._comm = comm
        self._max_count = max_count
        self.traffic = traffic if traffic is not None else Traffic()
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self.members: Sequence[int] = members if members is not None else range(self.size)
        self._calls = calls or _Calls(comm)
        self._machine: Machine | None = None
        self._others = tuple(member for number, member in enumerate(self.members) if number != self.rank)
        # Collectives are counted as rings whatever the library does, so figures are the same with every MPI.
        self._ring = Ring(self.traffic, self.rank, self.members)

    def group(self, color: int, key: int, size: int | None = None) -> MpiCommunicator:
        if size == 1:
            # A split waits for all ranks, which takes long if they are many.
            return self._group(MPI.COMM_SELF.Dup(), [self.members[self.rank]])
        # Split alone does not say which world ranks are in the group, and traffic is counted by world rank.
        everyones = self.gather_numbers([color, key, self.members[self.rank]])
        same = everyones[everyones[:, 0] == color]
        # A stable sort breaks ties by rank, as MPI_Comm_split does.
        members = [int(member) for member in same[np.argsort(same[:, 1], kind="stable"), 2]]
        return self._group(self._comm.Split(color, key), members)

    def _group(self, comm: MPI.Comm, members: Sequence[int]) -> MpiCommunicator:
        return MpiCommunicator(comm, self.traffic, self._max_count, members, self._calls)

    def this_machine(self) -> Machine:
        if self._machine is None:
            # Calls that block are outside of the watchdog's sight: no rank enters one before all are here.
            self.barrier()
            local = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
            mine = os.sched_getaffinity(0)
            # A place for every core up to the highest that a rank may use.
            highest = np.array([max(mine)], np.int64)
            local.Allreduce(MPI.IN_PLACE, highest, op=MPI.MAX)
            cores = np.zeros(int(highest[0]) + 1, np.uint8)
            cores[list(mine)] = 1
            local.Allreduce(MPI.IN_PLACE, cores, op=MPI.MAX)
            self._machine = Machine(local.Get_rank(), local.Get_size(), int(cores.sum()))
            # MPI libraries limit the number of communicators.
            local.Free()
        return self._machine

    def send(self, tensor: Tensor, destination: int, kind: Kind) -> list[Request]:
        segments = self._segments(tensor)
        # A message to this rank itself is a copy in memory and does not count as traffic.
        if destination != self.rank:
            self.traffic.counts.add(kind, tensor.nbytes, len(segments), self.members[destination])
        # All messages have the same tag: MPI matches those between two ranks in the order in which they are sent, so
        # the segments of consecutive tensors cannot be mixed up.
        if fault_point(f"send.{kind}"):
            return []
        transfer, calls = Transfer("send", kind, (self.members[destination],)), self._calls
        return [calls.request(self._comm.Isend(part, destination), transfer, part.nbytes) for part in segments]

    def receive(self, tensor: Tensor, source: int) -> list[Request]:
        # Nothing is counted here: the sender counts a message.
        transfer, calls = Transfer("receive", "", (self.members[source],)), self._calls
        segments = self._segments(tensor)
        return [calls.request(self._comm.Irecv(part, source), transfer, part.nbytes) for part in segments]

    def progress(self, requests: Sequence[Request]) -> None:
        # Requests that have completed are null from then on, and the wait passes over them.
        pending = cast("list[_Request]", list(requests))
        try:
            MPI.Request.Testsome(cast("list[MPI.Request]", pending))
        except MPI.Exception as error:
            raise self._mismatch(pending) from error

    def wait(self, requests: Sequence[Request]) -> None:
        started = time.perf_counter()
        self._wait(requests)
        self.traffic.counts.exposed += time.perf_counter() - started

    def _wait(self, requests: Sequence[Request]) -> None:
        pending, watch = cast("list[_Request]", list(requests)), self.traffic.watch
        waited, quiet, last = 0.0, 0.0, time.perf_counter()
        in_collective = any(request.transfer.is_collective for request in pending)
        # A collective takes up to 2 log P rounds, and each round may wait until a rank wakes up.
        rounds = 2 * (self.size - 1).bit_length() if in_collective else 1
        # Testall returns at once, so the rank can sleep; MPI's own wait spins on most libraries.
        while not self._completes(pending):
            now = time.perf_counter()
            # While this process is itself stopped, it does not wait for others.
            step, last = min(now - last, _LONGEST_STEP_SECONDS), now
            waited, quiet = waited + step, quiet + step
            if waited > watch.notes_after:
                # Requests that have completed are null after this, which a test of all allows.
                watch.overdue(waited, [request.transfer for request in pending if not request.Test()])
            # A message to this rank itself, or between processes that may not read each other's memory, is copied
            # through small buffers, one whenever MPI is called: if this rank slept in between, 16 KB would arrive
            # every 5 ms. MPI does not say whether it copies, or the other rank is not there yet.
            if self._calls.copy(in_collective=in_collective):
                quiet = 0.0
            elif quiet > _SPIN_SECONDS:
                # The longer the wait, the less a late wake-up matters, so check less often.
                time.sleep(max(_SLEEP_SECONDS, min(quiet * _LATE, _LONGEST_SLEEP_SECONDS) / rounds))
        self._calls.completed(pending)
        watch.moved()

    def _completes(self, pending: Sequence[_Request]) -> bool:
        """Whether all transfers are complete.

        Raises:
            MismatchError: MPI cannot complete one.
        """
        # A rank that waits asks thousands of times: a context manager would take longer than the question.
        try:
            return MPI.Request.Testall(cast("list[MPI.Request]", pending))
        except MPI.Exception as error:
            raise self._mismatch(pending) from error

    def _mismatch(self, pending: Sequence[_Request]) -> MismatchError:
        """The report of messages that do not fit each other, wherever MPI finds them first."""
        return MismatchError(self.traffic.watch.mismatch([request.transfer for request in pending]))

    def all_reduce(self, tensor: Tensor, kind: Kind, operation: Reduction = Reduction.SUM) -> None:
        self.finish(self.begin_all_reduce(tensor, kind, operation), kind)

    def begin_all_reduce(self, tensor: Tensor, kind: Kind, operation: Reduction = Reduction.SUM) -> list[Request]:
        if self.size == 1:
            return []
        _check_sum(tensor)
        self._ring.count_all_reduce(kind, tensor.numel(), tensor.element_size())
        # Nonblocking collectives match in the order in which they begin; all ranks cut the same segments in the same
        # order.
        mpi_operation = _OPERATIONS[operation]
        segments = self._segments(tensor)
        begun = [self._comm.Iallreduce(MPI.IN_PLACE, segment, op=mpi_operation) for segment in segments]
        return self._named("all-reduce", kind, begun, tensor.nbytes)

    def _named(self, operation: str, kind: str, requests: Sequence[MPI.Request], num_bytes: int) -> list[Request]:
        """Describe the requests of a collective, of ``num_bytes`` in total, for the watchdog."""
        fault_point(f"collective.{kind or operation}")
        transfer = Transfer(operation, kind, self._others)
        return [self._calls.request(request, transfer, num_bytes) for request in requests]

    def finish(self, requests: Sequence[Request], kind: Kind) -> None:
        if self.size > 1:
            with self.traffic.timing(kind, self):
                self.wait(requests)

    def broadcast(self, tensor: Tensor, root: int, kind: Kind) -> None:
        self.finish(self.begin_broadcast(tensor, root, kind), kind)

    def begin_broadcast(self, tensor: Tensor, root: int, kind: Kind) -> list[Request]:
        if self.size == 1:
            return []
        self._ring.count_broadcast(kind, tensor.nbytes, root)
        begun = [self._comm.Ibcast(segment, root) for segment in self._segments(tensor)]
        return self._named("broadcast", kind, begun, tensor.nbytes)

    def all_gather(self, block: Tensor, sizes: Sequence[int], kind: Kind, out: Tensor | None = None) -> Tensor:
        if self.size == 1:
            return block
        whole = block.new_empty(sum(sizes), *block.shape[1:]) if out is None else out
        # Views of the result, so blocks arrive where they belong.
        blocks = torch.split(whole, list(sizes))
        # MPI.IN_PLACE takes this rank's block from its position in the result.
        blocks[self.rank].copy_(block)
        with self.traffic.timing(kind, self):
            if whole.numel() <= self._max_count:
                # The variant with counts, since blocks differ in size and may be empty.
                counts = [other.numel() for other in blocks]
                begun = [self._comm.Iallgatherv(MPI.IN_PLACE, [_numbers(whole.view(-1)), counts])]
                self.wait(self._named("all-gather", kind, begun, whole.nbytes))
            else:
                # Allgatherv's displacements would overflow a C int, so each rank broadcasts its block in segments.
                segments = [(segment, root) for root, other in enumerate(blocks) for segment in self._segments(other)]
                begun = [self._comm.Ibcast(segment, root) for segment, root in segments]
                self.wait(self._named("all-gather", kind, begun, whole.nbytes))
        self._ring.count_all_gather(kind, [other.nbytes for other in blocks])
        return whole

    def reduce_scatter(self, whole: Tensor, sizes: Sequence[int], kind: Kind, out: Tensor | None = None) -> Tensor:
        if self.size == 1:
            return whole
        _check_sum(whole)
        blocks = torch.split(whole, list(sizes))
        mine = torch.empty_like(blocks[self.rank]) if out is None else out
        with self.traffic.timing(kind, self):
            if whole.numel() <= self._max_count:
                counts = [block.numel() for block in blocks]
                flat = (whole.view(-1).numpy(), mine.view(-1).numpy())
                begun = [self._comm.Ireduce_scatter(*flat, recvcounts=counts)]
                self.wait(self._named("reduce-scatter", kind, begun, whole.nbytes))
            else:
                # The counts add up to more than a C int, in which a library may keep their sum.
                self._reduce_block_by_block(blocks, mine, kind)
        self._ring.count_reduce_scatter(kind, [block.nbytes for block in blocks])
        return mine

    def _reduce_block_by_block(self, blocks: Sequence[Tensor], mine: Tensor, kind: Kind) -> None:
        """Reduce every block in segments to the rank that keeps it."""
        # All reductions are in flight together: they have different roots, and none needs to wait for another.
        requests: list[MPI.Request] = []
        for root, block in enumerate(blocks):
            # Only the root passes a receive buffer; all ranks pass the same number of segments.
            targets = self._segments(mine) if root == self.rank else [None] * len(self._segments(block))
            pairs = zip(self._segments(block), targets, strict=True)
            requests += [self._comm.Ireduce(segment, target, root=root) for segment, target in pairs]
        self.wait(self._named("reduce-scatter", kind, requests, sum(block.nbytes for block in blocks)))

    def _segments(self, tensor: Tensor) -> list[NDArray[Any]]:
        """Views of the tensor's memory, each short enough for one MPI call; none of an empty tensor."""
        # A view, which fails on a tensor that is not contiguous: reshape would copy it, and data would arrive in the
        # copy.
        flat = _numbers(tensor.detach().view(-1))
        return [flat[start : start + self._max_count] for start in range(0, len(flat), self._max_count)]

    def gather_numbers(self, numbers: Sequence[float]) -> NDArray[np.float64]:
        # float64 holds every integer below 2^53 exactly, enough for counts of edges and bytes.
        mine = np.array(numbers, np.float64)
        everyones = np.empty((self.size, len(mine)), np.float64)
        self._wait(self._named("agreement", "", [self._comm.Iallgather(mine, everyones)], everyones.nbytes))
        return everyones

    def barrier(self) -> None:
        self._wait(self._named("barrier", "", [self._comm.Ibarrier()], 0))

    def close(self) -> None:
        # Otherwise `python -m mpi4py` would take the exit code for a failure of this rank alone, and abort the others.
        MPI.Finalize()

    def abort(self, code: int) -> NoReturn:
        MPI.COMM_WORLD.Abort(code)
        # Not reached; an MPI that returns from it must not let this rank go on.
        os._exit(code)


def _numbers(tensor: Tensor) -> NDArray[Any]:
    """An array that shares a tensor's memory. MPI has no bfloat16: its bits travel as integers, and are not summed."""
    return tensor.view(torch.int16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def _check_sum(tensor: Tensor) -> None:
    if tensor.dtype == torch.bfloat16:
        raise ValueError("bfloat16 cannot be reduced over ranks; sum in float32")


def world() -> MpiCommunicator:
    """All ranks of this MPI job."""
    return MpiCommunicator(MPI.COMM_WORLD)


@contextmanager
def lent_world() -> Iterator[MPI.Comm]:
    """An MPI communicator of all ranks, for a library that must not share ours. Collective."""
    lent = MPI.COMM_WORLD.Dup()
    yield lent
    lent.Free()
