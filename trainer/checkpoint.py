"""The state of a training as a checkpoint: parameters and the optimiser's memory, by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from gnnloom.storage.checkpoint import Checkpoint
from gnnloom.storage.errors import FormatError

_SCALARS = "scalars"


def capture(epoch: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> Checkpoint:
    """The state after ``epoch`` epochs; the same on every rank."""
    tensors = {f"parameter/{name}": parameter.detach() for name, parameter in model.named_parameters()}
    names = _parameter_names(model)
    for parameter, memory in optimizer.state.items():
        for key, value in memory.items():
            if isinstance(value, torch.Tensor):
                tensors[f"optimizer/{names[parameter]}/{key}"] = value
    # Stored arrays have at least one dimension.
    scalars = sorted(name for name, tensor in tensors.items() if tensor.ndim == 0)
    arrays = {name: np.atleast_1d(tensor.numpy()).copy() for name, tensor in tensors.items()}
    return Checkpoint(epoch, arrays, {_SCALARS: scalars})


def restore_parameters(checkpoint: Checkpoint, model: nn.Module) -> None:
    """Put the parameters of a checkpoint into a model.

    Raises:
        FormatError: the checkpoint is of a model of other shapes.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            stored = checkpoint.arrays.get(f"parameter/{name}")
            if stored is None or stored.shape != tuple(parameter.shape):
                found = "none" if stored is None else f"shape {stored.shape}"
                raise FormatError(
                    f"checkpoint: parameter {name}: expected shape {tuple(parameter.shape)}, found {found}"
                )
            parameter.copy_(torch.from_numpy(stored))


def restore(checkpoint: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Put the whole state of a checkpoint into a model and its optimiser.

    Raises:
        FormatError: the checkpoint is of a model of other shapes.
    """
    restore_parameters(checkpoint, model)
    scalars = set(checkpoint.facts[_SCALARS])
    by_name = {name: parameter for parameter, name in _parameter_names(model).items()}
    for name, array in checkpoint.arrays.items():
        section, _, rest = name.partition("/")
        if section == "optimizer":
            parameter, key = by_name[rest.rpartition("/")[0]], rest.rpartition("/")[2]
            tensor = torch.from_numpy(array)
            optimizer.state[parameter][key] = tensor[0] if name in scalars else tensor


def _parameter_names(model: nn.Module) -> dict[Any, str]:
    return {parameter: name for name, parameter in model.named_parameters()}
