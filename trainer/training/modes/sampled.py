"""What the modes that sample share."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

from torch import Tensor

from gnnloom.trainer.comm.traffic import SAMPLING, Traffic
from gnnloom.trainer.networks.model import Inputs, Model
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.tasks.objectives.masked_loss import MaskedLoss

Batch = TypeVar("Batch")


def awaited(batches: Generator[Batch, None, None], traffic: Traffic) -> Generator[Batch, None, None]:
    """The same batches; the time spent waiting for each counts as sampling in a profile."""
    with closing(batches):
        while True:
            with traffic.timing(SAMPLING):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


def add_gradients(
    model: Model, number: int, operator: Operator, feature: Tensor, loss: MaskedLoss, num_terms: float
) -> float:
    """Form the gradients of a batch, as a part of a step of so many terms; returns the sum of its losses.

    Collective among the ranks of the operator.

    Args:
        number: of the batch, among those of all epochs; decides the masks of dropout, so that the same vertex loses
            other features in every batch.
        feature: (num_rows, num_features) input features of the batch.
    """
    model.epoch = number
    loss.divisor = num_terms
    with multiplying_by(operator, model):
        contribution = loss(model(Inputs(feature)))
    contribution.backward()  # type: ignore[no-untyped-call]
    return float(contribution.detach()) * num_terms


@contextmanager
def multiplying_by(operator: Operator, model: Model) -> Iterator[None]:
    """Let a model multiply by the matrix of a batch inside the block; then again by that of the whole graph."""
    whole, model.operator = model.operator, operator
    try:
        yield
    finally:
        model.operator = whole
