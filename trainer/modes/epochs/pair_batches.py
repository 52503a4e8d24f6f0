"""Batches of a rank's training pairs: neighbors of all ends are drawn, but not along the pairs of the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.distinct import distinct
from gnnloom.trainer.feed.pair_seeds import TRAIN, PairSeeds, PairSet
from gnnloom.trainer.modes.epochs.mode import ModeContext
from gnnloom.trainer.tasks.objectives.pairs import PairLabels, PairObjective, PairStepLoss
from gnnloom.trainer.tasks.options import BATCH_PAIRS


class RankPairs(PairSeeds):
    """The training pairs that a rank has in memory, as seeds.

    Attributes:
        nothing: no pairs, in the form of the pairs of the last epoch; for steps in which only other ranks have a batch.
    """

    def __init__(self, context: ModeContext, objective: PairObjective) -> None:
        """Communicates nothing."""
        self._context, self._objective = context, objective
        self._labels: PairLabels = context.labels
        self._pairs, options = self._labels.sets[TRAIN], objective.options
        size = int(options["link_batch"]) or BATCH_PAIRS
        super().__init__(objective.pairs, len(self._pairs), size, excludes=options["exclude_targets"])
        self.nothing = self._pairs.take(slice(0))

    @classmethod
    def of(cls, context: ModeContext) -> Self | None:
        """The pairs of a task on pairs; None for a task on vertices. Communicates nothing."""
        return cls(context, context.objective) if isinstance(context.objective, PairObjective) else None

    @property
    def ends(self) -> NDArray[np.int64]:
        """(num_ends,) int64 vertices of all pairs, ascending."""
        return distinct(np.concatenate([self._pairs.source, self._pairs.target]))

    def pairs_of(self, epoch: int) -> Callable[[int], PairSet]:
        """See :meth:`PairSeeds.pairs_of`. Collective."""
        pairs, size = self._of_epoch(epoch), self.batch_size
        # A copy: an empty slice would be a view that keeps all pairs of the epoch in memory until the next epoch.
        self.nothing = pairs.take(np.empty(0, np.int64))
        return lambda number: pairs.take(slice(number * size, (number + 1) * size))

    def _of_epoch(self, epoch: int) -> PairSet:
        """The pairs in the order of their batches, with their negatives. Collective."""
        comm, objective = self._context.comm, self._objective
        pairs = self._pairs.take(np.argsort(objective.order(epoch).forward(self._pairs.number)))
        # Batches are numbered over all ranks, so that only pairs of one batch share negatives.
        group = np.arange(len(pairs)) // self.batch_size * comm.size + comm.rank
        # For all batches at once: ranks may have to ask each other, and their numbers of batches differ.
        return objective.compared(self._labels, replace(pairs, group=group), epoch)

    def loss(self, pairs: PairSet, seeds: NDArray[np.int64]) -> PairStepLoss:
        """See :func:`batch_loss`."""
        return batch_loss(self._objective, self._labels, pairs, seeds)


def batch_loss(objective: PairObjective, labels: PairLabels, pairs: PairSet, seeds: NDArray[np.int64]) -> PairStepLoss:
    """The mean loss over the training pairs of all ranks' batches. Collective.

    Args:
        pairs: pairs of this rank's batch.
        seeds: (num_seeds,) int64 vertices whose scores the loss takes, ascending.
    """
    count = int(labels.rows.layout.grid.comm.gather_numbers([len(pairs)]).sum())

    def numbered(rows: Tensor, *ends: NDArray[np.int64]) -> tuple[Tensor, list[NDArray[np.int64]]]:
        return rows, [np.searchsorted(seeds, each) for each in ends]

    return objective.step_loss(labels, pairs, TRAIN, count, numbered)
