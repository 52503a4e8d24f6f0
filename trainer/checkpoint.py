"""The state of a training as a checkpoint: parameters, running figures and the optimiser's memory, by name."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnnloom.storage.checkpoint import Checkpoint
from gnnloom.storage.errors import FormatError
from gnnloom.trainer.optimizer import MOMENTS, Optimizer
from gnnloom.trainer.shares import PartialParameter, Place

_PARAMETER, _BUFFER, _OPTIMIZER = "parameter/", "buffer/", "optimizer/"


def capture(epoch: int, model: nn.Module, optimizer: Optimizer) -> Checkpoint:
    """The state after ``epoch`` epochs, whatever the ranks hold of it put together on rank 0. Collective."""
    places = _places(model)
    tensors = {_PARAMETER + name: parameter.detach() for name, parameter in model.named_parameters()}
    tensors |= {_BUFFER + name: buffer for name, buffer in model.named_buffers()}
    tensors |= {_OPTIMIZER + name: tensor for name, tensor in optimizer.state.items()}
    whole = {
        name: places[name].gather(tensor) if name in places else tensor for name, tensor in sorted(tensors.items())
    }
    return Checkpoint(epoch, {name: tensor.numpy() for name, tensor in whole.items()}, {})


def _places(model: nn.Module) -> dict[str, Place]:
    """Where the tensors lie of which every rank holds a part."""
    places = {name: p.place for name, p in model.named_parameters() if isinstance(p, PartialParameter)}
    moments = {f"{_OPTIMIZER}{name}/{moment}": place for name, place in places.items() for moment in MOMENTS}
    return {_PARAMETER + name: place for name, place in places.items()} | moments


def restore_parameters(checkpoint: Checkpoint, model: nn.Module) -> None:
    """Put the parameters and running figures of a checkpoint into a model.

    Raises:
        FormatError: the checkpoint is of a model of other shapes.
    """
    places = _places(model)
    for name, parameter in model.named_parameters():
        _copy(checkpoint, _PARAMETER + name, parameter.detach(), places)
    for name, buffer in model.named_buffers():
        _copy(checkpoint, _BUFFER + name, buffer, places)


def restore(checkpoint: Checkpoint, model: nn.Module, optimizer: Optimizer) -> None:
    """Put the whole state of a checkpoint into a model and its optimiser.

    Raises:
        FormatError: the checkpoint is of a model of other shapes.
    """
    restore_parameters(checkpoint, model)
    places = _places(model)
    for name, tensor in optimizer.state.items():
        _copy(checkpoint, _OPTIMIZER + name, tensor, places)


def _copy(checkpoint: Checkpoint, name: str, target: Tensor, places: dict[str, Place]) -> None:
    stored, place = checkpoint.arrays.get(name), places.get(name)
    shape = tuple(target.shape) if place is None else place.shape
    if stored is None or stored.shape != shape:
        found = "none" if stored is None else f"shape {stored.shape}"
        raise FormatError(f"checkpoint: {name}: expected shape {shape}, found {found}")
    whole = torch.from_numpy(stored)
    target.copy_(whole if place is None else place.cut(whole))
