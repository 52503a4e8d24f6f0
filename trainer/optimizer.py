"""Optimisers, and the sum of the ranks' gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from gnnloom.trainer.comm import Communicator, Kind

if TYPE_CHECKING:
    from gnnloom.trainer.config import TrainConfig


def build_optimizer(layers: Sequence[Sequence[nn.Parameter]], config: TrainConfig) -> torch.optim.Optimizer:
    """The optimiser of ``config`` over the parameters of every layer."""
    decaying = len(layers) if config.weight_decay_layers == "all" else 1
    groups = [
        {"params": list(parameters), "weight_decay": config.weight_decay if layer < decaying else 0.0}
        for layer, parameters in enumerate(layers)
    ]
    if config.optimizer == "adam":
        return torch.optim.Adam(groups, lr=config.lr)
    return torch.optim.SGD(groups, lr=config.lr)


def sum_gradients(parameters: Sequence[nn.Parameter], group: Communicator) -> None:
    """Add up the gradients of all ranks, in one buffer and so in one message. Collective."""
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    group.all_reduce(flat, Kind.GRADIENT)
    start = 0
    for parameter in parameters:
        stop = start + parameter.numel()
        parameter.grad = flat[start:stop].view_as(parameter)
        start = stop
