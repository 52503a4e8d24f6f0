"""Batches of a rank's training pairs: the neighbors of all ends are drawn, and none over the pairs of the batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.distinct import distinct
from gnnloom.storage.sampling.layers.seeds import SeedsOfBatch
from gnnloom.trainer.feed.batches import without_pairs
from gnnloom.trainer.modes.epochs.mode import ModeContext
from gnnloom.trainer.tasks.objectives.pairs import TRAIN, PairObjective, PairSet, PairStepLoss, Step, of_pairs
from gnnloom.trainer.tasks.options import BATCH_PAIRS


class PairSeeds:
    """See :class:`gnnloom.storage.sampling.layers.seeds.Seeds`.

    Attributes:
        nothing: no pairs, as those of the last epoch are; for steps of an epoch in which only other ranks have a batch.
    """

    def __init__(self, context: ModeContext, objective: PairObjective) -> None:
        """Communicates nothing."""
        self._context, self._objective, self._labels = context, objective, of_pairs(context.labels)
        pairs = self._labels.sets[TRAIN]
        self.nothing = pairs.take(slice(0))
        self.num_examples, self.batch_size = len(pairs), pairs_of_batch(objective)

    @property
    def ends(self) -> NDArray[np.int64]:
        """(num_ends,) int64 vertices of all pairs, ascending."""
        pairs = self._labels.sets[TRAIN]
        return distinct(np.concatenate([pairs.source, pairs.target]))

    def begin(self, epoch: int) -> Callable[[int], SeedsOfBatch]:
        """See :meth:`gnnloom.storage.sampling.layers.seeds.Seeds.begin`. Collective."""
        pairs, size = pairs_of_epoch(self._context, self._objective, epoch), self.batch_size
        # A copy: an empty slice would be a view that keeps all pairs of the epoch in memory until the next one.
        self.nothing = pairs.take(np.empty(0, np.int64))
        excludes, links = self._objective.options["exclude_targets"], self._objective.pairs

        def of(number: int) -> SeedsOfBatch:
            batch = pairs.take(slice(number * size, (number + 1) * size))
            without = without_pairs(links, batch.source, batch.target) if excludes else None
            return SeedsOfBatch(distinct_ends(batch), batch, without)

        return of

    def loss(self, pairs: PairSet, seeds: NDArray[np.int64]) -> PairStepLoss:
        """The mean loss over the pairs of all ranks' batches. Collective.

        Args:
            pairs: of this rank's batch.
            seeds: (num_seeds,) int64 the vertices of the scores that the loss is of, ascending.
        """
        count = int(self._context.comm.gather_numbers([len(pairs)]).sum())

        def numbered(rows: Tensor, *ends: NDArray[np.int64]) -> tuple[Tensor, list[NDArray[np.int64]]]:
            return rows, [np.searchsorted(seeds, each) for each in ends]

        return self._objective.step_loss(self._labels, pairs, Step(TRAIN, count), numbered)


def pairs_of_batch(objective: PairObjective) -> int:
    """Training pairs of a batch; the last one may have fewer."""
    return int(objective.options["link_batch"]) or BATCH_PAIRS


def pairs_of_epoch(context: ModeContext, objective: PairObjective, epoch: int) -> PairSet:
    """A rank's training pairs in the order of their batches, with what they are compared with. Collective."""
    labels, size = of_pairs(context.labels), pairs_of_batch(objective)
    pairs = labels.sets[TRAIN]
    pairs = pairs.take(np.argsort(objective.order(epoch).forward(pairs.number)))
    # Batches of all ranks have numbers of their own, for what the pairs of a batch share.
    group = np.arange(len(pairs)) // size * context.comm.size + context.comm.rank
    # For all batches at once, as ranks may have to ask each other, and not all have equally many.
    return objective.compared(labels, pairs, Step(TRAIN, len(pairs), epoch), group)


def distinct_ends(pairs: PairSet) -> NDArray[np.int64]:
    """(num_ends,) int64 the vertices whose vectors the loss of some pairs needs, ascending."""
    return distinct(np.concatenate([each.ravel() for each in pairs.ends]))
