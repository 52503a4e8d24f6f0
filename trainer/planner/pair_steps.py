"""Steps that training on pairs adds to the steps of the graph, each with rows of its pairs' ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

from gnnloom.trainer.algorithms.steps import Communication, ElementWork, Operation, Step
from gnnloom.trainer.algorithms.workload import Footprint, Workload
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.tasks.options import NEGATIVES, step_pairs

#: Bytes of a vertex id and of a number of ids, as they are sent.
_ID_BYTES: Final = 8
#: Copies of ids: of an epoch's pairs while they are sorted, and of a step's ends while they are numbered.
_ORDERED, _NUMBERED_ENDS = 6, 7
#: Passes over the rows of both ends of each pair and negative: rows are gathered and multiplied, and their gradients
#: summed. Number of such operations in a step.
_PASSES, _CALLS = 10, 40
#: Why the volume is an estimate.
EXPECTED: Final = "expected ends of pairs on other ranks"


@dataclass(frozen=True, kw_only=True)
class PairFacts:
    """Facts about the training pairs on which an epoch depends.

    Attributes:
        num_pairs: number of pairs per epoch.
        step_pairs: number of pairs per step.
        negatives: number of negatives that are drawn for each pair.
        draws_sources: a negative also has its own source.
    """

    num_pairs: int
    step_pairs: int
    negatives: int = 0
    draws_sources: bool = False

    @classmethod
    def of(cls, config: TrainConfig, num_pairs: int) -> Self:
        """The pairs of a training run.

        Args:
            num_pairs: pairs to train on.
        """
        task = config.task
        draws = task.own_fields >= NEGATIVES.keys()
        return cls(
            num_pairs=num_pairs,
            step_pairs=step_pairs(task.link_batch, num_pairs, excludes=config.drops_targets),
            negatives=task.negatives if draws else 0,
            draws_sources=draws and task.negative_sampler == "pairs",
        )

    @property
    def num_steps(self) -> int:
        return -(-self.num_pairs // max(1, self.step_pairs))

    def ends_on(self, ranks: int) -> int:
        """Ends of the pairs of a rank's share of a step, and of their negatives, each as often as it occurs."""
        return -(-self.step_pairs * (2 + self.negatives * (1 + self.draws_sources)) // ranks)

    def bytes_on(self, ranks: int) -> int:
        """Bytes of the ids of a rank's share of the pairs, at the worst moment of a step."""
        # A pair has two ids and its number.
        return _ID_BYTES * (_ORDERED * 3 * self.num_pairs // ranks + _NUMBERED_ENDS * self.ends_on(ranks))


def is_once(step: Step) -> bool:
    """Whether a step of the graph occurs once per epoch, for any number of steps on pairs: the loss does."""
    return isinstance(step, Communication) and step.kind is Kind.LOSS


def align_rows(work: Workload, ranks: int, output: Footprint) -> list[Step]:
    """The moves of the model's output to the ranks that own its rows, and of its gradient back.

    See :meth:`gnnloom.trainer.links.pair_rows.PairRows.spread`.

    Args:
        output: the rank's share of the output.
    """
    entries = work.num_vertices * work.dims[-1]
    # Parts that the rows and the columns are split into; other ranks have copies.
    row_parts, column_parts = round(1 / output.rows), round(output.rows / output.held)
    # The columns of its own rows come to a rank; the gradients of all rows that it holds go back to it.
    forward, backward = entries * (1 - 1 / column_parts), entries / column_parts * (ranks / row_parts - 1)
    found: list[Step] = []
    for kind, elements, others in (
        (Kind.ALIGN_FORWARD, forward, column_parts - 1),
        (Kind.ALIGN_BACKWARD, backward, ranks // row_parts - 1),
    ):
        if others:
            found.append(_exchange(kind, elements, ranks * others, ranks, work.parameter_size))
    return found


def _exchange(kind: Kind, elements: float, messages: int, ranks: int, element_size: int) -> Communication:
    """An exchange in which all ranks send about the same number of bytes."""
    return Communication(
        kind=kind,
        operation=Operation.EXCHANGE,
        group=ranks,
        stride=1,
        groups=1,
        elements=elements,
        calls=messages,
        element_size=element_size,
        busiest=(1 / ranks, 1 / ranks),
    )


def add_pairs(pairs: PairFacts, work: Workload, ranks: int) -> list[Step]:
    """Steps that a step on pairs adds to the products of the graph, if ends were drawn from all vertices alike.

    A rank fetches the ends of its pairs that other ranks own, each once, and sends their gradients back. With a good
    partition, few targets are on other ranks, as for edges. Negatives do not follow the partition.
    """
    n, width = work.num_vertices, work.dims[-1]
    own = pairs.num_pairs / pairs.num_steps / ranks
    drawn = own * pairs.negatives * (2 if pairs.draws_sources else 1)
    found: list[Step] = [ElementWork(numbers=_PASSES * (2 * own + drawn) * width, calls=_CALLS)]
    others = n * (ranks - 1) / ranks
    if not others:
        return found
    targets = others * -math.expm1(-own * _cut_share(work, ranks, others) / others)
    negatives = others * -math.expm1(-drawn / n)
    rows = ranks * others * (1 - (1 - targets / others) * (1 - negatives / others))
    messages = ranks * (ranks - 1)

    # Each rank sends the number of requested ids, and the ids, for the rows and again for their gradients.
    # Ends are spread evenly.
    ids = [
        _exchange(Kind.ROW_IDS, elements, messages, ranks, _ID_BYTES) for elements in (messages, rows) for _ in range(2)
    ]
    moved = [
        _exchange(kind, rows * width, messages, ranks, work.parameter_size) for kind in (Kind.ROWS, Kind.ROW_GRADIENTS)
    ]
    return [*found, *ids, *moved]


def _cut_share(work: Workload, ranks: int, others: float) -> float:
    """Share of the edges that lead to another rank, as if a rank's edges led to all vertices of others alike.

    Args:
        others: vertices that a rank does not own.
    """
    share = (ranks - 1) / ranks
    received = 1.0 if work.exchange is None else work.exchange.rows / ranks / others
    if received >= 1:
        return share
    # Expected number of distinct vertices at the ends of a rank's cut edges.
    cut = ranks * others * -math.log1p(-received)
    return min(share, cut / max(1, work.nnz - work.num_vertices))
