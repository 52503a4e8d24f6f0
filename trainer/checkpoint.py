"""The state of a training as a checkpoint: parameters and the optimiser's memory, by name."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnnloom.storage.checkpoint import Checkpoint
from gnnloom.storage.errors import FormatError
from gnnloom.trainer.optimizer import Optimizer

_PARAMETER, _OPTIMIZER = "parameter/", "optimizer/"


def capture(epoch: int, model: nn.Module, optimizer: Optimizer) -> Checkpoint:
    """The state after ``epoch`` epochs; the same on every rank."""
    tensors = {_PARAMETER + name: parameter.detach() for name, parameter in model.named_parameters()}
    tensors |= {_OPTIMIZER + name: tensor for name, tensor in optimizer.state.items()}
    return Checkpoint(epoch, {name: tensor.numpy() for name, tensor in tensors.items()}, {})


def restore_parameters(checkpoint: Checkpoint, model: nn.Module) -> None:
    """Put the parameters of a checkpoint into a model.

    Raises:
        FormatError: the checkpoint is of a model of other shapes.
    """
    for name, parameter in model.named_parameters():
        _copy(checkpoint, _PARAMETER + name, parameter.detach())


def restore(checkpoint: Checkpoint, model: nn.Module, optimizer: Optimizer) -> None:
    """Put the whole state of a checkpoint into a model and its optimiser.

    Raises:
        FormatError: the checkpoint is of a model of other shapes.
    """
    restore_parameters(checkpoint, model)
    for name, tensor in optimizer.state.items():
        _copy(checkpoint, _OPTIMIZER + name, tensor)


def _copy(checkpoint: Checkpoint, name: str, target: Tensor) -> None:
    stored = checkpoint.arrays.get(name)
    if stored is None or stored.shape != tuple(target.shape):
        found = "none" if stored is None else f"shape {stored.shape}"
        raise FormatError(f"checkpoint: {name}: expected shape {tuple(target.shape)}, found {found}")
    target.copy_(torch.from_numpy(stored))
