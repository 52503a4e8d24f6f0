"""The time of an epoch: its steps at the rates of a machine.

A collective takes the time of its ring (Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005, section 4). Groups that lie
within a node have its links; others share the network cards of their nodes: the number of rings that leave a node at
the same time is the number of ranks between two neighbors of a group, up to the ranks of a node (Singh et al., SC 2024,
section IV, which Plexus's performance model uses too; Ranjan et al., SC 2025, section 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2

from gnnloom.trainer.algorithms.steps import Communication, DenseWork, ElementWork, Operation, SparseWork, Step
from gnnloom.trainer.planner.profile import MEASURED_BYTES, CollectiveRate, MachineProfile


@dataclass(frozen=True)
class Cost:
    """Seconds of an epoch on one rank.

    Attributes:
        spmm, gemm, passes: local work of an average rank, by what it is.
        communication: of each kind of message, exposed or not.
        hidden: of the communication, what runs behind products.
        waiting: of an average rank for the one with most nonzeros.
    """

    spmm: float
    gemm: float
    passes: float
    communication: dict[str, float]
    hidden: float
    waiting: float

    @property
    def compute(self) -> float:
        return self.spmm + self.gemm + self.passes

    @property
    def exposed(self) -> float:
        """Communication that no product hides."""
        return sum(self.communication.values()) - self.hidden

    @property
    def total(self) -> float:
        return self.compute + self.exposed + self.waiting

    def and_times(self, other: Cost, count: float) -> Cost:
        """This cost plus ``count`` times another cost."""
        here, there = self.communication, other.communication
        return Cost(
            self.spmm + count * other.spmm,
            self.gemm + count * other.gemm,
            self.passes + count * other.passes,
            {kind: here.get(kind, 0.0) + count * there.get(kind, 0.0) for kind in (*here, *there)},
            self.hidden + count * other.hidden,
            self.waiting + count * other.waiting,
        )


def epoch_cost(steps: Sequence[Step], profile: MachineProfile, number_size: int = MEASURED_BYTES) -> Cost:
    """The time of an epoch whose steps follow each other.

    Args:
        number_size: bytes of a number in the products; see :meth:`MachineProfile.rates`.
    """
    spmm = gemm = passes = hidden = waiting = product = unused = 0.0
    communication: dict[str, float] = {}
    for step in steps:
        if isinstance(step, SparseWork):
            seconds = _sparse_seconds(step, step.average, profile, number_size)
            waiting += _sparse_seconds(step, step.nnz, profile, number_size) - seconds
            spmm += seconds
            product = unused = seconds
        elif isinstance(step, DenseWork):
            gemm += dense_seconds(step, profile, number_size)
        elif isinstance(step, ElementWork):
            rates, factor = profile.rates(number_size)
            each = MEASURED_BYTES * rates.passes * factor / profile.stream
            passes += step.numbers * each + step.calls * profile.call
        else:
            seconds = communication_seconds(step, profile)
            communication[step.kind.value] = communication.get(step.kind.value, 0.0) + seconds
            # All that runs behind one product shares its time.
            behind = min(step.overlapped * seconds * profile.overlap, step.overlapped * product, unused)
            hidden, unused = hidden + behind, unused - behind
    return Cost(spmm, gemm, passes, communication, hidden, waiting)


def _sparse_seconds(step: SparseWork, nnz: float, profile: MachineProfile, number_size: int) -> float:
    degree = nnz / max(1.0, step.rows * step.calls)
    rates, factor = profile.rates(number_size)
    rate = factor * rates.spmm.at(max(1.0, step.width), max(1.0, degree), max(1.0, step.columns))
    # However few the nonzeros are, each call writes its rows.
    written = step.calls * step.rows * step.width * 2 * number_size / profile.stream
    return nnz * step.width * rate + written + step.calls * profile.call


def dense_seconds(step: DenseWork, profile: MachineProfile, number_size: int = MEASURED_BYTES) -> float:
    """Seconds of a dense product."""
    sides = sorted(max(1.0, side) for side in (step.rows, step.inner, step.columns))
    rates, factor = profile.rates(number_size)
    multiplications = step.rows * step.inner * step.columns
    # The gradient of a weight is a sum over all rows: in bfloat16, of the products of some rows at a time.
    table = (rates.gradient if step.inner > max(step.rows, step.columns) else None) or rates.gemm
    return multiplications * factor * table.at(*sides[: len(table.axes)]) + step.calls * profile.call


def communication_seconds(step: Communication, profile: MachineProfile) -> float:
    """Seconds of the calls of one group; all groups communicate at the same time."""
    if step.operation is Operation.EXCHANGE:
        return _exchange_seconds(step, profile)
    rate = profile.measured(step.operation.value, step.group) or _ring(step, profile)
    # In a broadcast every rank receives all; of other operands a rank sends its share.
    ranks = step.group - 1 if step.operation is Operation.BROADCAST else step.group
    return step.calls / step.groups * rate.latency + step.bytes / step.groups / ranks * rate.byte_seconds


def _ring(step: Communication, profile: MachineProfile) -> CollectiveRate:
    """The rate of a collective that was not measured."""
    is_within = step.stride * step.group <= profile.ranks_per_node
    link = profile.intra if is_within else profile.inter
    bandwidth = link.bandwidth
    if not is_within:
        # Groups whose members are far apart have many rings through the cards of a node.
        rings = min(profile.ranks_per_node, step.stride)
        bandwidth = min(profile.intra.bandwidth, profile.cards * link.bandwidth / rings)
    rounds = ceil(log2(step.group)) * (2 if step.operation is Operation.ALL_REDUCE else 1)
    return CollectiveRate(step.operation.value, step.group, rounds * link.latency, 1 / bandwidth)


def _exchange_seconds(step: Communication, profile: MachineProfile) -> float:
    """Seconds of the busiest rank of a point-to-point exchange."""
    num_bytes, messages = step.bytes * step.busiest[0], step.calls * step.busiest[1]
    within = min(1.0, (profile.ranks_per_node - 1) / max(1, step.group - 1))
    # The ranks of a node send at the same time, through the same cards.
    shared = min(profile.intra.bandwidth, profile.cards * profile.inter.bandwidth / profile.ranks_per_node)
    inside = within * (messages * profile.intra.latency + num_bytes / profile.intra.bandwidth)
    return inside + (1 - within) * (messages * profile.inter.latency + num_bytes / shared)
