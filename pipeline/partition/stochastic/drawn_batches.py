"""The hypergraph of drawn batches: the nets of all batches over the same vertices, with equal nets merged.

Demirci, Haldar, Ferhatosmanoglu (PVLDB 16(4), 2022), Algorithm 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnloom.pipeline.partition.stochastic.batch_bits import DrawnBatches
from gnnloom.pipeline.partition.stochastic.deadline import NO_DEADLINE, Deadline
from gnnloom.pipeline.partition.stochastic.merged_nets import DrawnNets, MergedNets, merge_equal, merged_again
from gnnloom.pipeline.partition.stochastic.restricted_nets import (
    NUM_FIGURES,
    BatchGroup,
    NetPiece,
    RestrictTask,
    restrict_nets,
)
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.run_missing import missing_tasks, run_missing
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord
from gnnloom.storage.matrix.csr import index_dtype

#: Hoeffding's bound is stated for an error of this share of the largest cost, exceeded with this probability.
_ERROR, _MISSED = 0.1, 0.05
#: Batches suffice once they contain this share of the pins.
_COVERED = 0.9
#: No more batches once their pins are this many times those of the full hypergraph: partitioning them takes that much
#: longer than partitioning it.
MOST_PINS = 4
#: Most batches that are merged.
MOST_BATCHES = 2000
#: Batches of a group, once as many have been drawn.
_GROUP = 8
#: Name of the record of the merged nets.
_MERGED = "merge-batches/0"


@dataclass(frozen=True)
class DrawnProblem:
    """What batches are drawn of, and where.

    Attributes:
        writer: of the partition; keeps the records of the tasks.
        pieces: the nets of the full hypergraph.
        draw: fills a file with the batches of some numbers, by tasks.
    """

    writer: ArtifactWriter
    num_vertices: int
    pieces: Sequence[NetPiece]
    draw: Callable[[range, DrawnBatches, Cluster], None]

    @property
    def dtype(self) -> str:
        """Type of the pins."""
        return index_dtype(self.num_vertices).name


@dataclass(frozen=True)
class MergedBatches:
    """The nets of some batches.

    Attributes:
        nets: their nets; nets with the same pins are one net, with the weight of all of them.
        count: batches drawn.
        covered: the share of the full hypergraph's pins that lie in at least one batch.
        stopped_by: ``coverage``: the batches contain most pins; ``pins``: they have too many; ``most``: there are
            ``MOST_BATCHES``; ``time``: the deadline came.
    """

    nets: MergedNets
    count: int
    covered: float
    stopped_by: str

    def facts(self) -> dict[str, Any]:
        """Describe what was merged; ``batches_hoeffding`` is the number of batches that the theory asks for."""
        return {
            "batches_hoeffding": hoeffding_batches(),
            "batches_merged": self.count,
            "batches_covered": self.covered,
            "batches_nets": self.nets.num_nets,
            "batches_stopped_by": self.stopped_by,
        }


def hoeffding_batches() -> int:
    """Return ln(2/d) / (2 t^2): batches for an error of t times the largest cost, exceeded with probability d.

    The bound (Hoeffding, JASA 58(301), 1963) holds for a partition fixed beforehand.  One that is fitted to few
    batches overfits them; it needs as many as contain most pins, on the order of (n/B)^2 for B of n uniform vertices.
    """
    return math.ceil(math.log(2 / _MISSED) / (2 * _ERROR**2))


def merge_batches(problem: DrawnProblem, cluster: Cluster, deadline: Deadline = NO_DEADLINE) -> MergedBatches:
    """Draw batches, at least one, until they contain most pins, and merge their nets; by tasks, in files.

    A batch has a net if it drew the net's owner, with those of its pins that it drew; nets with one pin are dropped.
    A run that was interrupted goes on where it was.

    Args:
        deadline: when to stop drawing.
    """
    writer, num_pieces = problem.writer, len(problem.pieces)
    record = writer.recorded_of([_MERGED]).get(_MERGED)
    if record is None or not merged_again(writer, _merged(problem, record).nets, num_pieces):
        drawn, covered, stopped_by = _draw_enough(problem, cluster, deadline)
        nets = merge_equal(drawn, cluster)
        with writer.task(_MERGED) as output:
            output.facts = {"nets": nets.num_nets, "pins": nets.num_pins, "groups": drawn.num_groups}
            output.facts |= {"count": drawn.count, "covered": covered, "stopped_by": stopped_by}
        record = writer.recorded_of([_MERGED])[_MERGED]
    # Only now: without them, the work would begin again.
    for number in range(record.facts["groups"]):
        BatchGroup.of(number, num_pieces, problem.dtype).remove(writer.work)
    return _merged(problem, record)


def _merged(problem: DrawnProblem, record: TaskRecord) -> MergedBatches:
    found = record.facts
    nets = MergedNets.of(problem.writer.work, found["count"], problem.dtype, found["nets"], found["pins"])
    return MergedBatches(nets, found["count"], found["covered"], found["stopped_by"])


def batch_groups() -> Iterator[range]:
    """Yield the numbers of the batches that tasks draw and restrict together, up to ``MOST_BATCHES``.

    At most a quarter of the batches is drawn in vain, or a few; and the graph is read once for each group.
    """
    start = 0
    while start < MOST_BATCHES:
        stop = min(MOST_BATCHES, start + max(1, min(start, max(_GROUP, start // 4))))
        yield range(start, stop)
        start = stop


def batches_needed(rate: float) -> int:
    """Return the batches that contain most pins if a pin and its owner are each drawn at this rate."""
    if rate == 1:
        return 1
    return min(MOST_BATCHES, math.ceil(math.log(1 - _COVERED) / math.log1p(-(rate**2))))


def _draw_enough(problem: DrawnProblem, cluster: Cluster, deadline: Deadline) -> tuple[DrawnNets, float, str]:
    """Draw batches until a rule applies; returns their nets, the share of pins covered, and the rule."""
    # The first batch is drawn whatever the deadline, so that there is a hypergraph to partition.
    num_nets, num_pins = 0, 0
    for group, numbers in enumerate(batch_groups()):
        figures = _restrict(problem, group, numbers, cluster)
        for number, (nets, pins, met, all_pins) in zip(numbers, figures, strict=True):
            num_nets, num_pins = num_nets + nets, num_pins + pins
            covered = met / all_pins if all_pins else 1.0
            # Time is looked at when a group is done: its batches are worth keeping.
            is_late = number == numbers[-1] and deadline.is_over
            stopped_by = _stopping_rule(covered, num_pins / max(1, all_pins), number + 1, is_late=is_late)
            if stopped_by:
                sizes = len(problem.pieces), number + 1, group + 1, num_nets
                return DrawnNets(problem.writer, *sizes, problem.dtype), covered, stopped_by
    raise AssertionError("the last rule always applies")


def _restrict(problem: DrawnProblem, group: int, numbers: range, cluster: Cluster) -> list[list[int]]:
    """Restrict the nets to the batches of a group; returns the figures of each batch, over all pieces."""
    writer, count = problem.writer, len(problem.pieces)
    drawn = DrawnBatches(writer.work / f"drawn-{group}", len(numbers), problem.num_vertices)
    this = BatchGroup.of(group, count, problem.dtype)
    before = BatchGroup.of(group - 1, count, problem.dtype) if group else None
    nets, met = (shuffle.create_lanes(writer.work, count) for shuffle in (this.nets, this.met))
    tasks = [
        RestrictTask(writer, piece, this, before, drawn, nets.lane(piece.number), met.lane(piece.number))
        for piece in problem.pieces
    ]
    # Batches are drawn again, all of them, rather than kept: what was lost of a file of bits would be read as zeros.
    if missing_tasks(writer, tasks, is_usable=this.has_runs):
        problem.draw(numbers, drawn, cluster)
    records = run_missing("restrict nets", cluster, writer, restrict_nets, tasks, "nets", is_usable=this.has_runs)
    drawn.path.unlink(missing_ok=True)
    total = np.zeros((len(numbers), NUM_FIGURES), dtype=np.int64)
    for record in records:
        total += record.facts["figures"]
    found: list[list[int]] = total.tolist()
    return found


def _stopping_rule(covered: float, times_pins: float, count: int, *, is_late: bool) -> str:
    """Return what ends the drawing, one of ``MergedBatches.stopped_by``; empty to draw more.

    Args:
        times_pins: pins drawn so far over those of the full hypergraph.
        count: batches drawn so far.
    """
    rules = {
        "coverage": covered >= _COVERED,
        "pins": times_pins > MOST_PINS,
        "most": count >= MOST_BATCHES,
        "time": is_late,
    }
    return next((name for name, applies in rules.items() if applies), "")
