"""Checks a model before its first epoch: an error then costs no work, and all ranks train the same model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm.agreement import CollectiveError, named_ranks, short_digest, tensor_digest, together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.partial_parameters import ParameterPiece, PartialParameter
from gnnloom.trainer.models.networks.model import Model
from gnnloom.trainer.models.networks.norm import Norm
from gnnloom.trainer.place.global_generator import has_drawn
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.objectives.objective import TASK_MODULE
from gnnloom.trainer.training.state.buffers import stored_buffers
from gnnloom.trainer.training.state.optimizer import STEP

#: Names of parameters and buffers become names of folders in a checkpoint. PyG calls the modules of a relation
#: ``<SOURCE___NAME___TARGET>``, with ``#`` for dots.
_NAME = re.compile(r"[\w.<>#-]{1,200}")
#: Dtypes that a checkpoint can hold; NumPy has no bfloat16.
_STORED_DTYPES = frozenset(
    {torch.float16, torch.float32, torch.float64, torch.bool}
    | {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
)
#: Modules whose parameters the model itself applies, or that know the layouts.
_LAYOUT_MODULES = Model, Norm, nn.ParameterList, nn.ParameterDict, nn.ModuleList, nn.ModuleDict
#: Maximum number of ranks that an error names.
_NAMED_RANKS = 8


def agree_on_model(comm: Communicator, model: Model, name: str) -> None:
    """Check that a new model can be trained and stored, and is the same on all ranks. Collective.

    Args:
        name: name of the model, as given with ``--model``.

    Raises:
        CollectiveError: see :func:`check_model`, or a parameter or buffer differs between ranks.
    """
    together(comm, lambda: check_model(model, name))
    problem = _difference(comm, model)
    if problem:
        message = f"model {name}: {problem}; draw numbers from the given generator or from torch's global one"
        raise CollectiveError(message, reports=comm.rank == 0, code=InputError.exit_code)


def check_model(model: Model, name: str) -> None:
    """Check that a new model can be trained and stored. Communicates nothing.

    Raises:
        InputError: a parameter has no size yet, another dtype than the run, or values that are not finite; a parameter
            or buffer cannot be stored in a checkpoint; or a module of torch does not see whole rows.
    """
    for what, tensor in _state(model):
        problem = _problem(what.partition(" ")[2], tensor, model.place)
        if problem:
            raise InputError(f"model {name}: {what} {problem}")
    _check_rows(model, name)


def check_epoch(model: Model, name: str, trained: Sequence[nn.Parameter], generator: torch.Generator) -> None:
    """Check after an epoch that the trainer can handle the behavior of the model. Communicates nothing.

    Args:
        trained: the parameters that the optimizer updates.
        generator: torch's global generator as the epoch has left it.

    Raises:
        InputError: the model has a parameter that is not trained; or copies of rows on several ranks got different
            random numbers.
    """
    known = {id(parameter) for parameter in trained}
    for key, parameter in model.named_parameters():
        if parameter.requires_grad and id(parameter) not in known:
            raise InputError(
                f"model {name}: parameter {key} was created or unfrozen during training, and the optimizer does not"
                " know it; create it in create_parameters, with requires_grad=True"
            )
    if any(layout.has_copies for layout in _layouts(model)) and has_drawn(generator):
        raise InputError(
            f"model {name}: it draws random numbers, as nn.Dropout does, for rows that several ranks hold; use the"
            " model's own dropout, or p2p, broadcast or replicated"
        )


def _layouts(model: Model) -> list[Layout]:
    return [model.operator.layout(layer) for layer in range(model.num_layers + 1)]


def _state(model: Model) -> Iterator[tuple[str, Tensor]]:
    """State of a model in a checkpoint: ``parameter NAME`` or ``buffer NAME``, and the tensor."""
    for name, parameter in model.named_parameters():
        yield f"parameter {name}", parameter
    for name, buffer in stored_buffers(model).items():
        yield f"buffer {name}", buffer


def _problem(name: str, tensor: Tensor, place: Place) -> str | None:
    """Reason why a parameter or buffer cannot be trained or stored; None if it can."""
    if nn.parameter.is_lazy(tensor):
        return "has no size yet; use a module that is given all its sizes, such as nn.Linear instead of nn.LazyLinear"
    if not _NAME.fullmatch(name) or name == STEP:
        return f"needs another name: of letters, digits and underscores, and not {STEP!r}"
    if tensor.requires_grad and tensor.dtype != place.sum_dtype:
        return f"is {tensor.dtype}, expected {place.sum_dtype}; create it with dtype=self.dtype, or without a dtype"
    if tensor.dtype not in _STORED_DTYPES or tensor.layout != torch.strided or not place.has(tensor):
        found = f"{tensor.dtype} with {tensor.layout} on {tensor.device}"
        return f"cannot be stored in a checkpoint: expected dense numbers on the CPU, found {found}"
    if isinstance(tensor, nn.Parameter) and not torch.isfinite(tensor.detach()).all():
        return "is not finite; initialize all its numbers"
    return None


def _check_rows(model: Model, name: str) -> None:
    """Check that modules such as ``nn.Linear``, which know no layouts, see whole rows that no other rank has.

    If columns were split, such modules would have to hold a part of their weights. Ranks with copies of a row would
    each add the row's gradient.

    Raises:
        InputError: the algorithm splits or copies rows.
    """
    if all(layout.column_group.size == 1 and not layout.has_copies for layout in _layouts(model)):
        return
    for path, module in model.named_modules():
        # In any layout, a task passes whole rows to its own modules.
        if path.partition(".")[0] == TASK_MODULE:
            continue
        if not isinstance(module, _LAYOUT_MODULES) and (module._parameters or module._buffers):  # noqa: SLF001
            raise InputError(
                f"model {name}: {type(module).__name__} {path} needs whole rows on one rank, but this algorithm and"
                " grid divide rows among ranks; use p2p, broadcast or replicated"
            )


def _difference(comm: Communicator, model: Model) -> str | None:
    """Difference of parameters or buffers between ranks, the same text on every rank. Collective."""
    if comm.size == 1:
        return None
    state = list(_state(model))
    most = int(comm.gather_numbers([len(state)]).max())
    numbers = np.zeros((most, 3))
    for row, (what, tensor) in zip(numbers, state, strict=False):
        row[:] = _identity(what, tensor)
    found = comm.gather_numbers(numbers.reshape(-1).tolist()).reshape(comm.size, most, 3)
    for number in range(most):
        what = state[number][0] if number < len(state) else "a further parameter"
        kind, place, value = found[:, number].T
        for differs, how in (
            (kind != kind[0], "name, shape, dtype or requires_grad"),
            (_unequal(place, value), "value"),
        ):
            if differs.any():
                others = named_ranks(np.flatnonzero(differs).tolist(), _NAMED_RANKS)
                return f"{what} has another {how} on {others} than on rank 0"
    return None


def _identity(what: str, tensor: Tensor) -> tuple[float, float, float]:
    """Facts that must be equal on all ranks: the rank's piece, or 0, and values that are equal for the same piece."""
    piece = tensor.piece if isinstance(tensor, PartialParameter) else None
    shape = tuple(tensor.shape) if piece is None else piece.shape
    kind = f"{what} {shape} {tensor.dtype} {tensor.requires_grad}"
    return short_digest(np.frombuffer(kind.encode(), np.uint8)), _place(piece), tensor_digest(tensor)


def _place(piece: ParameterPiece | None) -> float:
    """A number that is equal for equal pieces; 0 for a whole parameter."""
    if piece is None:
        return 0.0
    # The last column too: with fewer columns than ranks, empty pieces begin where others do.
    return short_digest(np.array([tensor_digest(piece.rows), piece.columns.start, piece.columns.stop]))


def _unequal(place: NDArray[np.float64], value: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(ranks,) bool: ranks whose values differ from the values of the first rank with the same piece."""
    _, first, group = np.unique(place, return_index=True, return_inverse=True)
    differs: NDArray[np.bool_] = value != value[first[group]]
    return differs
