"""What the modes that sample share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.networks.model import Model
from gnnloom.trainer.operators.operator import Operator


@contextmanager
def multiplying_by(operator: Operator, model: Model) -> Iterator[None]:
    """Let a model multiply by the matrix of a batch inside the block; then again by that of the whole graph."""
    whole, model.operator = model.operator, operator
    try:
        yield
    finally:
        model.operator = whole


def complete_gradients(model: Model) -> None:
    """Give every parameter a gradient, of zeros if the loss does not reach it.

    Ranks without a batch then add as many numbers to the sum over the ranks as the others.
    """
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def average_buffers(model: Model, comm: Communicator) -> None:
    """Average the running means and variances, for which every rank has seen other batches. Collective."""
    for buffer in model.buffers():
        comm.all_reduce(buffer, Kind.NORM)
        buffer.div_(comm.size)
