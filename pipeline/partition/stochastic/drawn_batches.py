"""The hypergraph of drawn batches: the nets of all batches over the same vertices, with equal nets merged.

Demirci, Haldar, Ferhatosmanoglu (PVLDB 16(4), 2022), Algorithm 3.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np

from gnnloom.pipeline.partition.stochastic.merged_nets import DrawnRuns, MergedNets, MergePlan
from gnnloom.pipeline.partition.stochastic.restricted_nets import BatchGroup, DrawnProblem
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Phase, run

#: Hoeffding's bound is stated for an error of this share of the largest cost, exceeded with this probability.
_ERROR, _MISSED = 0.1, 0.05
#: Batches suffice once they contain this share of the pins.
_COVERED = 0.9
#: No more batches once they have this many times the pins of the full hypergraph: partitioning them takes that much
#: longer than partitioning it.
MOST_PINS = 4
#: Most batches that are merged.
MOST_BATCHES = 2000
#: Batches per group, after the first group.
_GROUP = 8
#: Name of the record of the drawn batches.
_DRAWN = "drawn/0"


@dataclass(frozen=True)
class MergedBatches:
    """The nets of some batches.

    Attributes:
        nets: nets of the batches; nets with the same pins are one net, with the sum of their weights.
        count: number of drawn batches.
        covered: the share of the full hypergraph's pins that lie in at least one batch.
        stopped_by: ``coverage``: the batches contain most pins; ``pins``: they have too many; ``most``: there are
            ``MOST_BATCHES``; ``time``: the deadline came.
    """

    nets: MergedNets
    count: int
    covered: float
    stopped_by: str

    def facts(self) -> dict[str, Any]:
        """Describe the merged batches; ``batches_hoeffding`` is the number of batches that the theory asks for."""
        return {
            "batches_hoeffding": hoeffding_batches(),
            "batches_merged": self.count,
            "batches_covered": self.covered,
            "batches_nets": self.nets.num_nets,
            "batches_stopped_by": self.stopped_by,
        }


def hoeffding_batches() -> int:
    """Return ln(2/d) / (2 t^2): batches for an error of t times the largest cost, exceeded with probability d.

    The bound (Hoeffding, JASA 58(301), 1963) holds for a partition fixed beforehand. A partition fitted to few batches
    overfits them; it needs enough batches to contain most pins, on the order of (n/B)^2 for B of n uniform vertices.
    """
    return math.ceil(math.log(2 / _MISSED) / (2 * _ERROR**2))


def merge_batches(problem: DrawnProblem, cluster: Cluster, deadline: float = math.inf) -> MergedBatches:
    """Draw batches, at least one, until they contain most pins, and merge their nets; by tasks, in files.

    A batch has a net if it drew the owner of the net; the pins in the batch are the drawn pins of the net, and nets
    with one pin are dropped. An interrupted run continues.

    Args:
        deadline: moment of the monotonic clock at which to stop drawing.
    """
    writer = problem.writer
    if not writer.recorded_of([_DRAWN]):
        with writer.task(_DRAWN) as output:
            output.facts = _draw_enough(problem, cluster, deadline)
    found = writer.recorded_of([_DRAWN])[_DRAWN].facts
    pieces = list(zip(found["nets"], found["pins"], strict=True))
    phases, merging = merging_plan(problem, found["count"], pieces)
    run(phases, cluster, writer)
    return MergedBatches(merging.merged(), found["count"], found["covered"], found["stopped_by"])


def merging_plan(problem: DrawnProblem, count: int, pieces: Sequence[tuple[int, int]]) -> tuple[list[Phase], MergePlan]:
    """The phases that draw batches and merge their nets.

    Args:
        count: batches.
        pieces: nets of each piece, and their pins.
    """
    groups = list(takewhile(lambda group: group.numbers.start < count, _groups(problem)))
    drawn = DrawnRuns(problem.writer, len(problem.pieces), count, len(groups), problem.dtype)
    merging = MergePlan(drawn, pieces, [group.files for group in groups])
    return [*(phase for group in groups for phase in group.phases()), *merging.phases()], merging


def expected_merging(problem: DrawnProblem, count: int) -> list[Phase]:
    """The phases that draw batches and merge their nets, if all vertices are drawn alike.

    Args:
        count: batches.
    """
    rate = problem.rate
    pieces = [(piece.expected_nets(rate, count), piece.expected_pins(rate, count)) for piece in problem.pieces]
    return merging_plan(problem, count, pieces)[0]


def most_batches(rate: float) -> int:
    """Return an upper bound of the number of drawn batches: the number at which the pins exceed the limit.

    A batch of uniform vertices has ``rate**2`` of the pins, and one of another kind has more.
    """
    return min(MOST_BATCHES, math.ceil(MOST_PINS / rate**2) + 1)


def batch_groups() -> Iterator[range]:
    """Yield the numbers of the batches that tasks draw and restrict together, up to ``MOST_BATCHES``.

    At most a quarter of the batches is drawn in vain, or a few; and the graph is read once for each group.
    """
    start = 0
    while start < MOST_BATCHES:
        stop = min(MOST_BATCHES, start + max(1, min(start, max(_GROUP, start // 4))))
        yield range(start, stop)
        start = stop


def _groups(problem: DrawnProblem) -> Iterator[BatchGroup]:
    """Yield the plans of the groups of batches."""
    before: BatchGroup | None = None
    for number, numbers in enumerate(batch_groups()):
        before = BatchGroup(problem, number, numbers, before)
        yield before


def _draw_enough(problem: DrawnProblem, cluster: Cluster, deadline: float) -> dict[str, Any]:
    """Draw batches until a rule applies.

    Returns:
        ``count``: batches; ``covered``: the share of pins that they have; ``stopped_by``: the rule; ``nets`` and
        ``pins``: their number in each piece.
    """
    # The first batch is drawn whatever the deadline, so that there is a hypergraph to partition.
    num_nets, num_pins = np.zeros((2, len(problem.pieces)), dtype=np.int64)
    for group in _groups(problem):
        figures = _restrict(group, cluster)
        for batch, (nets, pins, met, all_pins) in zip(group.numbers, figures, strict=True):
            num_nets, num_pins = num_nets + nets, num_pins + pins
            covered = int(met.sum()) / int(all_pins.sum()) if all_pins.any() else 1.0
            # Time is looked at when a group is done: its batches are worth keeping.
            is_late = batch == group.numbers[-1] and time.monotonic() >= deadline
            times_pins = int(num_pins.sum()) / max(1, int(all_pins.sum()))
            stopped_by = _stopping_rule(covered, times_pins, batch + 1, is_late=is_late)
            if stopped_by:
                found = {"count": batch + 1, "covered": covered, "stopped_by": stopped_by}
                return found | {"nets": num_nets.tolist(), "pins": num_pins.tolist()}
    raise AssertionError("the last rule always applies")


def _restrict(group: BatchGroup, cluster: Cluster) -> np.ndarray[tuple[int, int, int], Any]:
    """Restrict the nets to the batches of a group; returns (num_batches, NUM_FIGURES, num_pieces) figures."""
    writer = group.problem.writer
    # The merge also needs the files of the previous group, whose figures are known by now.
    run(group.phases(), cluster, writer, [*group.files, *(group.before.files if group.before else ())])
    names = [group.shuffles.task_name(piece.number) for piece in group.problem.pieces]
    recorded = writer.recorded_of(names)
    return np.stack([np.array(recorded[name].facts["figures"], dtype=np.int64) for name in names], axis=-1)


def _stopping_rule(covered: float, times_pins: float, count: int, *, is_late: bool) -> str:
    """Return the reason to stop drawing, one of ``MergedBatches.stopped_by``; empty to draw more.

    Args:
        times_pins: pins drawn so far over the pins of the full hypergraph.
        count: batches drawn so far.
    """
    rules = {
        "coverage": covered >= _COVERED,
        "pins": times_pins > MOST_PINS,
        "most": count >= MOST_BATCHES,
        "time": is_late,
    }
    return next((name for name, applies in rules.items() if applies), "")
