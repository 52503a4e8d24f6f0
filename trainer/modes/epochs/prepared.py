"""Waiting for batches prepared ahead, their features and their steps, shared by several modes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.local_numbers import LocalNumbers
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import SAMPLING, Kind, Traffic
from gnnloom.trainer.data.row_exchange import RowExchange
from gnnloom.trainer.feed.batches import Batches
from gnnloom.trainer.feed.feature_view import FeatureView, LearnedFeatures, OwnFeatures
from gnnloom.trainer.models.networks.model import Model
from gnnloom.trainer.modes.epochs.mode import Mode, ModeContext, form_gradients
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.operators.whole_rows import AXIS
from gnnloom.trainer.tasks.objectives.masked_loss import MaskedLoss

Batch = TypeVar("Batch")


def awaited(batches: Generator[Batch, None, None], traffic: Traffic) -> Generator[Batch, None, None]:
    """The same batches; the time spent waiting for each counts as sampling in a profile."""
    with closing(batches):
        while True:
            with traffic.timing(SAMPLING):
                ready = list(islice(batches, 1))
            if not ready:
                return
            # Not bound to a name here, so that the batch is freed once the mode drops it.
            yield ready.pop()


def take_steps(
    model: Model, epoch: int, num_steps: int, step: Callable[[], tuple[float, float]], update: Callable[[], None]
) -> float:
    """Train an epoch of steps; returns this rank's contribution to its mean loss. Collective.

    Args:
        step: forms the gradients of the next batch; returns this rank's contribution to the mean loss of the step, and
            the terms of that mean, the same on all ranks.
        update: see :meth:`Mode.train_epoch`; not called if a step has no terms.
    """
    total = terms = 0.0
    for number in model.place.steps(range(num_steps)):
        # Every step has its own dropout masks.
        model.epoch = epoch * num_steps + number
        contribution, weight = step()
        if weight:
            update()
        total += contribution * weight
        terms += weight
    return total / terms if terms else 0.0


def features_in_memory(context: ModeContext, owner: NDArray[np.int32] | None) -> FeatureView:
    """A view of features that ranks hold in memory or learn. Communicates nothing.

    Args:
        owner: (n,) int32 rank of every vertex; None if every rank reads only its own rows.
    """
    learned, place, own = context.learned, context.place, LocalNumbers.of(context.operator.layout(0).vertex)
    rows = context.inputs.value.detach()
    exchange = RowExchange(
        context.comm, own, context.model.as_features(rows) if learned is None else rows, owner, place
    )
    return OwnFeatures(exchange) if learned is None else LearnedFeatures(learned, exchange, place)


@dataclass(frozen=True)
class Prepared:
    """A batch, or a rank's share of one, that is ready for a step.

    Attributes:
        number: of the batch, among the batches of all epochs.
        vertices: (num_rows,) int64 global ids.
        operator: multiplies by the batch's matrix.
        feature: (num_rows, width) input features; without rows if the step asks for them.
        loss: loss over these rows only; communicates nothing.
    """

    number: int
    vertices: NDArray[np.int64]
    operator: Operator
    feature: Tensor
    loss: MaskedLoss


class PreparedMode(Mode):
    """A mode that prepares batches ahead, including batches of the next epoch.

    Attributes:
        features: view of the features of the vertices of batches.
        batches: batches of the rank; their numbers among all ranks' batches are :meth:`_numbers`.
        alone: a grid with only this rank, for losses of its own rows.
    """

    def __init__(self, context: ModeContext) -> None:
        """Open the batches, and begin to prepare them. Collective.

        Raises:
            CollectiveError: see the mode's :meth:`_open`.
        """
        super().__init__(context)
        options = context.options
        self.alone = ProcessGrid(context.operator.grid.group(()), {AXIS: 1}, context.place)
        self.batches, self.features = context.feed.open(self._open)
        ready = self.batches.of_all(self._numbers(), options["sampler_threads"], options["pool"])
        self._ready = awaited(ready, context.comm.traffic)

    @abstractmethod
    def _open(self) -> tuple[Batches[Prepared], FeatureView]:
        """Open the data of the batches; returns their maker and the view of their features. Collective."""

    def _numbers(self) -> Iterator[int]:
        """The batches of this rank among the batches of all epochs, in the order of training."""
        epochs, num_batches = self.context.epochs, self.batches.num_batches
        yield from range(epochs.start * num_batches, epochs.stop * num_batches)

    def _terms(self, batch: Prepared | None) -> float:
        """Terms of the loss of a step on all ranks. Collective."""
        terms = self.context.place.tensor([batch.loss.num_terms if batch else 0.0], torch.float64)
        self.context.comm.all_reduce(terms, Kind.LOSS)
        return float(terms)

    def _train_batch(self, batch: Prepared | None, num_terms: float) -> float:
        """Form the gradients of this rank's batch, if it has one; returns the sum of its losses. Collective.

        Args:
            num_terms: terms of the loss of the step on all ranks.
        """
        model, features = self.context.model, self.features
        if batch is None:
            # A rank without a batch still has rows that others need.
            model.zero_grad()
            nothing = np.empty(0, np.int64)
            features.give_back(nothing, features.in_step(nothing, features.ahead(nothing)))
            return 0.0
        # The same vertex drops different features in every batch.
        model.epoch = batch.number
        batch.loss.divisor = num_terms
        return form_gradients(model, features, batch.vertices, batch.feature, batch.operator, batch.loss) * num_terms

    def close(self) -> None:
        self._ready.close()
