"""The limit of the gradient of all parameters together."""

from __future__ import annotations

import torch
from torch import nn

from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.layout.partial_parameters import PartialParameter

#: Added to the length; torch's default.
_EPSILON = 1e-6


def clip_gradients(parameters: list[nn.Parameter], limit: float, grid: ProcessGrid) -> float:
    """Scale all gradients so that their length together is at most ``limit``. Collective.

    Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks" (ICML 2013), Algorithm 1.

    Args:
        parameters: of the model, with complete gradients; the same ones on every rank, whole or in pieces.
        limit: above 0.
        grid: all ranks.

    Returns:
        The length before scaling, the same on every rank.
    """
    comm, total = grid.comm, grid.place.zeros((1,), torch.float64)
    for parameter in parameters:
        # One rank counts a parameter that all hold, and one a piece of which there are copies.
        counts = parameter.piece.speaks if isinstance(parameter, PartialParameter) else comm.rank == 0
        if counts and parameter.grad is not None:
            total += parameter.grad.square().sum(dtype=torch.float64)
    comm.all_reduce(total, Kind.GRADIENT)
    length = float(total.sqrt())
    # As in torch.nn.utils.clip_grad_norm_. A length that is not finite scales nothing; the loss then reports it.
    scale = limit / (length + _EPSILON)
    if scale < 1:
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(scale)
    return length
