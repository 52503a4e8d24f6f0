"""Checkpoints of a training: parameters, running averages and the optimizer's state, by name."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from gnnloom.storage.errors import FormatError
from gnnloom.storage.format.arrays import ArrayReader
from gnnloom.storage.runs.checkpoint import (
    StoredCheckpoint,
    begin_checkpoint,
    checkpoint_aside,
    publish_checkpoint,
    write_arrays,
)
from gnnloom.trainer.comm.communicator import Communicator, Kind
from gnnloom.trainer.layout.partial_parameters import PartialParameter, Place
from gnnloom.trainer.layout.vertex_arrays import VertexArray, write_vertex_arrays
from gnnloom.trainer.training.optimizer import MOMENTS, Optimizer

_PARAMETER, _BUFFER, _OPTIMIZER = "parameter/", "buffer/", "optimizer/"


def save_checkpoint(comm: Communicator, folder: Path, epoch: int, model: nn.Module, optimizer: Optimizer) -> None:
    """Write the state after ``epoch`` epochs below ``folder``. Collective.

    Rank 0 gathers and writes the weights. Arrays with a row per vertex are written by all ranks, each its own rows, and
    are never whole in memory.
    """
    places = _places(model)
    tensors = {_PARAMETER + name: parameter.detach() for name, parameter in model.named_parameters()}
    tensors |= {_BUFFER + name: buffer for name, buffer in model.named_buffers()}
    tensors |= {_OPTIMIZER + name: tensor for name, tensor in optimizer.state.items()}
    spread, whole = [], {}
    for name, tensor in sorted(tensors.items()):
        place = places.get(name)
        if place is not None and place.layout is not None:
            spread.append(VertexArray(name, tensor, place.layout, ("dim0", "dim1"), place.shape[1]))
        else:
            whole[name] = tensor if place is None else place.gather(tensor)
    if comm.rank == 0:
        begin_checkpoint(folder, epoch)
    num_vertices = max((places[array.name].shape[0] for array in spread), default=0)
    records = write_vertex_arrays(comm, checkpoint_aside(folder, epoch), spread, num_vertices, Kind.CHECKPOINT)
    if comm.rank == 0:
        arrays = {name: tensor.numpy() for name, tensor in whole.items()}
        records += write_arrays(checkpoint_aside(folder, epoch), arrays)
        publish_checkpoint(folder, epoch, records, {})


def _places(model: nn.Module) -> dict[str, Place]:
    """Which part of a tensor this rank holds, for tensors that are split over ranks."""
    places = {name: p.place for name, p in model.named_parameters() if isinstance(p, PartialParameter)}
    moments = {f"{_OPTIMIZER}{name}/{moment}": place for name, place in places.items() for moment in MOMENTS}
    return {_PARAMETER + name: place for name, place in places.items()} | moments


def restore_parameters(checkpoint: StoredCheckpoint, model: nn.Module) -> None:
    """Copy the parameters and running averages of a checkpoint into a model.

    Raises:
        FormatError: the checkpoint belongs to a model with other shapes.
    """
    places = _places(model)
    for name, parameter in model.named_parameters():
        _copy(checkpoint, _PARAMETER + name, parameter.detach(), places)
    for name, buffer in model.named_buffers():
        _copy(checkpoint, _BUFFER + name, buffer, places)


def restore(checkpoint: StoredCheckpoint, model: nn.Module, optimizer: Optimizer) -> None:
    """Copy the whole state of a checkpoint into a model and its optimizer.

    Raises:
        FormatError: the checkpoint belongs to a model with other shapes.
    """
    restore_parameters(checkpoint, model)
    places = _places(model)
    for name, tensor in optimizer.state.items():
        _copy(checkpoint, _OPTIMIZER + name, tensor, places)


def _copy(checkpoint: StoredCheckpoint, name: str, target: Tensor, places: dict[str, Place]) -> None:
    stored, place = checkpoint.readers.get(name), places.get(name)
    shape = tuple(target.shape) if place is None else place.shape
    if stored is None or stored.shape != shape:
        found = "none" if stored is None else f"shape {stored.shape}"
        raise FormatError(f"checkpoint: {name}: expected shape {shape}, found {found}")
    if place is None:
        target.copy_(torch.from_numpy(stored.read()))
    else:
        _read_part(stored, place, target)


def _read_part(stored: ArrayReader, place: Place, target: Tensor) -> None:
    """Read this rank's part of a matrix, with only one chunk of the matrix in memory."""
    order = torch.argsort(place.rows)
    rows = place.rows[order]
    for start in range(0, place.shape[0], stored.chunk_rows):
        stop = min(start + stored.chunk_rows, place.shape[0])
        first, last = torch.searchsorted(rows, torch.tensor([start, stop])).tolist()
        if first < last:
            chunk = torch.from_numpy(stored.read(start, stop))
            target[order[first:last]] = chunk[rows[first:last] - start, place.columns].to(target.dtype)
