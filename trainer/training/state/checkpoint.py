"""Checkpoints of a training run: parameters, running averages and the optimizer's state, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from gnnloom.storage.errors import DivergedError, FormatError
from gnnloom.storage.format.arrays import Array
from gnnloom.storage.runs.checkpoint import StoredCheckpoint
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.layout.partial_parameters import ParameterPiece, PartialParameter
from gnnloom.trainer.layout.vertex_arrays import OwnChunks, VertexArrayPiece, read_vertex_rows
from gnnloom.trainer.models.networks.model import Model
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.training.state.buffers import stored_buffers
from gnnloom.trainer.training.state.optimizer import MOMENTS, STEP, Optimizer

_PARAMETER, _BUFFER, _OPTIMIZER = "parameter/", "buffer/", "optimizer/"


@dataclass(frozen=True)
class Snapshot:
    """This rank's part of a copy of a training's state.

    Attributes:
        epoch: number of epochs after which the copy was made.
        whole: arrays of the weights by name; on rank 0 only.
        spread: the rows that this rank writes of the arrays with one row per vertex.
    """

    epoch: int
    whole: Mapping[str, Array]
    spread: tuple[OwnChunks, ...]

    @classmethod
    def take(cls, comm: Communicator, epoch: int, model: nn.Module, optimizer: Optimizer) -> Snapshot:
        """Copy the state after ``epoch`` epochs. Collective.

        Rank 0 gathers the weights. Arrays with a row per vertex are spread over all ranks, and are never whole in
        memory.

        Raises:
            CollectiveError: a parameter is not finite.
        """
        together(comm, lambda: _check_finite(model, epoch))
        spread, whole = [], {}
        # All ranks visit the names in the same order, since gathering a piece is collective.
        for name, (tensor, piece) in sorted(stored_state(model, optimizer).items(), key=lambda item: item[0]):
            if piece is not None and piece.layout is not None:
                array = VertexArrayPiece(name, tensor, piece.layout, ("dim0", "dim1"), piece.shape[1])
                chunks = OwnChunks.of(array, piece.shape[0], Kind.CHECKPOINT)
                spread.append(replace(chunks, chunks=[(first, _apart(rows, tensor)) for first, rows in chunks.chunks]))
            elif piece is not None:
                whole[name] = piece.gather(tensor)
            elif comm.rank == 0:
                whole[name] = tensor.clone()
        arrays = {name: Place().to_numpy(tensor) for name, tensor in whole.items()} if comm.rank == 0 else {}
        return cls(epoch, arrays, tuple(spread))


def _apart(rows: Tensor, tensor: Tensor) -> Tensor:
    """Rows of a tensor in separate memory: a rank that has all rows in order exchanges none, and gets no copy."""
    return rows.clone() if rows.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr() else rows


def _check_finite(model: nn.Module, epoch: int) -> None:
    """Refuse to keep a model that has diverged: the loss of an epoch is computed with the parameters before its step.

    Raises:
        DivergedError: a parameter is not a finite number.
    """
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter.detach()).all():
            raise DivergedError(f"parameter {name} is not finite after epoch {epoch}; lower the learning rate")


def stored_state(
    model: nn.Module, optimizer: Optimizer | None = None
) -> dict[str, tuple[Tensor, ParameterPiece | None]]:
    """The tensors that a checkpoint holds by their names there, without gradients but in the memory of the training.

    Each tensor comes with this rank's piece of it, if it is split over ranks.
    """
    pieces = {name: p.piece for name, p in model.named_parameters() if isinstance(p, PartialParameter)}
    # The optimizer's moments of a parameter are split like the parameter.
    moments = {f"{name}/{moment}": piece for name, piece in pieces.items() for moment in MOMENTS}
    state = {_PARAMETER + name: (p.detach(), pieces.get(name)) for name, p in model.named_parameters()}
    state |= {_BUFFER + name: (buffer, None) for name, buffer in stored_buffers(model).items()}
    if optimizer is not None:
        state |= {_OPTIMIZER + name: (tensor, moments.get(name)) for name, tensor in optimizer.state.items()}
    return state


def restore(checkpoint: StoredCheckpoint, model: Model, optimizer: Optimizer | None = None) -> None:
    """Copy the state of a checkpoint into a model and perhaps its optimizer. Communicates nothing.

    Raises:
        FormatError: the checkpoint belongs to a model with other shapes.
    """
    for name, (tensor, piece) in stored_state(model, optimizer).items():
        # Older checkpoints have a single number of steps for all parameters.
        shared = name == _OPTIMIZER + STEP and checkpoint.shape(name) == (1,)
        _copy(checkpoint, name, tensor[:1] if shared else tensor, piece, model.place)
        if shared:
            tensor.fill_(int(tensor[0]))


def whole_state(checkpoint: StoredCheckpoint) -> dict[str, Tensor]:
    """The parameters and running averages of a checkpoint, whole, by their names in the model's ``state_dict``."""
    arrays = checkpoint.arrays
    prefixed = [(prefix, name) for name in arrays for prefix in (_PARAMETER, _BUFFER) if name.startswith(prefix)]
    return {name.removeprefix(prefix): Place().from_numpy(arrays[name]) for prefix, name in prefixed}


def module_state(checkpoint: StoredCheckpoint, name: str) -> dict[str, Tensor]:
    """Like :func:`whole_state`, but for one module of the model, by the names in its own ``state_dict``."""
    prefixes = tuple(f"{prefix}{name}." for prefix in (_PARAMETER, _BUFFER))
    found = [(each, prefix) for each in checkpoint.readers for prefix in prefixes if each.startswith(prefix)]
    return {each.removeprefix(prefix): Place().from_numpy(checkpoint.read(each)) for each, prefix in found}


def _copy(checkpoint: StoredCheckpoint, name: str, target: Tensor, piece: ParameterPiece | None, place: Place) -> None:
    stored = checkpoint.shape(name)
    shape = tuple(target.shape) if piece is None else piece.shape
    if stored != shape:
        found = "none" if stored is None else f"shape {stored}"
        raise FormatError(f"checkpoint: {name}: expected shape {shape}, found {found}")
    if piece is None:
        target.copy_(place.from_numpy(checkpoint.read(name)))
    else:
        read_vertex_rows(checkpoint.readers[name], piece.rows, target, place, piece.columns)
