"""Counts the bytes and messages that a rank sends, by kind, and times its work on request.

The sender counts. Point-to-point messages count their payload, and one message for each segment that is sent to
another rank. Collectives over g ranks count as their bandwidth-optimal (ring) algorithms, independently of the
transport (Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19(1),
2005, section 4; Patarasuk, Yuan, JPDC 69(2), 2009, for the all-reduce). Summed over all ranks, with b the bytes of the
whole matrix (for an all-reduce, of each rank's operand):

==============  =================  =================
collective      bytes              messages
==============  =================  =================
all-reduce      2 (g - 1) b        2 g (g - 1)
reduce-scatter  (g - 1) b          g (g - 1)
all-gather      (g - 1) b          g (g - 1)
broadcast       (g - 1) b          g - 1
==============  =================  =================

Messages about the run itself (times, counts, failures) are not counted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from gnnloom.trainer.comm.watchdog import Watch

#: Names of a profile's entries that are not messages: products with the adjacency, products with weights, waiting for
#: a batch to train on, and idle time.
SPMM, GEMM, SAMPLING, WAITING = "spmm", "gemm", "sampling", "waiting"


class Kind(StrEnum):
    """Purpose of a message."""

    # The values are keys in the metrics of stored runs.
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
    ROW_IDS = "row ids"
    ROWS = "rows"
    ROW_GRADIENTS = "row gradients"


@dataclass
class TrafficCounts:
    """Bytes and messages that one rank sent, and the seconds of its activities.

    Attributes:
        bytes, messages: numbers of bytes and messages by kind.
        bytes_to: bytes by the world rank of the receiver.
        seconds: seconds of local work and communication, by name; empty unless profiled.
        exposed: seconds in which the rank only waited for messages, and so for the ranks that send them.
    """

    bytes: Counter[Kind] = field(default_factory=Counter)
    messages: Counter[Kind] = field(default_factory=Counter)
    bytes_to: Counter[int] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    exposed: float = 0.0

    def add(self, kind: Kind, num_bytes: int, num_messages: int, receiver: int) -> None:
        """Count messages of one kind to one receiver."""
        self.bytes[kind] += num_bytes
        self.messages[kind] += num_messages
        self.bytes_to[receiver] += num_bytes

    def take(self, name: str, seconds: float) -> None:
        """Add the seconds of an activity."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


class Meeting(Protocol):
    """A group of ranks that can wait for each other."""

    def barrier(self) -> None:
        """Wait until every rank of the group arrives. Collective."""
        ...


class Traffic:
    """Counts a rank's messages; all communicators derived from one share it.

    Attributes:
        counts: the record that is being written.
        profiled: measure where the time goes. Ranks then meet before each collective, so that the time spent
            waiting for a late rank is not counted as communication.
        watch: reports waits that take too long.
    """

    def __init__(self) -> None:
        # Always counted, because a count costs next to nothing; timed on request, because meeting costs a barrier.
        self.counts = TrafficCounts()
        self.profiled = False
        self.watch = Watch()

    @contextmanager
    def timing(self, name: str, group: Meeting | None = None) -> Iterator[None]:
        """Count the seconds spent inside the block under ``name``, if profiled. Collective if a group is given."""
        if not self.profiled:
            yield
            return
        # The barrier absorbs the wait for the slowest rank, so the rest measures only the transfer. Without a profile,
        # the rank waits the same time in the transfer.
        started = time.perf_counter()
        if group is not None:
            group.barrier()
            met = time.perf_counter()
            self.counts.exposed += met - started
            self.counts.take(WAITING, met - started)
            started = met
        yield
        self.counts.take(name, time.perf_counter() - started)

    @contextmanager
    def recording(self) -> Iterator[TrafficCounts]:
        """Count messages inside the block in a separate record."""
        # Communicators share this object and look up `counts` for every message, so all communicators switch to the new
        # record.
        outer, self.counts = self.counts, TrafficCounts()
        try:
            yield self.counts
        finally:
            self.counts = outer


@dataclass(frozen=True)
class Ring:
    """The messages of one rank when the collectives of its group run on a ring, each rank sending to the next.

    Every transport counts its collectives with these closed forms, so their figures are comparable.

    Attributes:
        rank: this rank's number in the group.
        members: world rank of every rank of the group.
    """

    traffic: Traffic
    rank: int
    members: Sequence[int]

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def _next(self) -> int:
        return (self.rank + 1) % self.size

    def _add(self, kind: Kind, num_bytes: int, num_messages: int) -> None:
        self.traffic.counts.add(kind, num_bytes, num_messages, self.members[self._next])

    def count_all_reduce(self, kind: Kind, num_elements: int, element_size: int) -> None:
        """A reduce-scatter, then an all-gather, of blocks of about ``num_elements / size`` elements."""
        bounds = [block * num_elements // self.size for block in range(self.size + 1)]
        # A rank never sends its own block while the blocks are reduced, nor the next rank's while they are gathered.
        kept = bounds[self.rank + 1] - bounds[self.rank] + bounds[self._next + 1] - bounds[self._next]
        self._add(kind, (2 * num_elements - kept) * element_size, 2 * (self.size - 1))

    def count_broadcast(self, kind: Kind, num_bytes: int, root: int) -> None:
        """A chain from the root around the ring; its last rank sends nothing."""
        if self._next != root:
            self._add(kind, num_bytes, 1)

    def count_all_gather(self, kind: Kind, block_bytes: Sequence[int]) -> None:
        """Every block goes around; a rank forwards all blocks except the next rank's own."""
        self._add(kind, sum(block_bytes) - block_bytes[self._next], self.size - 1)

    def count_reduce_scatter(self, kind: Kind, block_bytes: Sequence[int]) -> None:
        """The all-gather backwards: a rank forwards partial sums of all blocks except its own."""
        self._add(kind, sum(block_bytes) - block_bytes[self.rank], self.size - 1)
