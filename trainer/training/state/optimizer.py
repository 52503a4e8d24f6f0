"""SGD and Adam over named parameters, the sum of the ranks' gradients, and gradient clipping.

The optimizers replace ``torch.optim`` because importing it also loads torch's compiler, which costs a second and 100 MB
per rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.layout.partial_parameters import PartialParameter, RowGradient
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.place.place import Place

if TYPE_CHECKING:
    from gnnloom.trainer.config.optimization_config import OptimizationConfig
    from gnnloom.trainer.models.networks.model import Model

#: Added to the norm; torch's default.
_EPSILON = 1e-6


def clip_gradients(parameters: list[nn.Parameter], limit: float, grid: ProcessGrid) -> float:
    """Scale all gradients so that their total norm is at most ``limit``. Collective.

    Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks" (ICML 2013), Algorithm 1.

    Args:
        parameters: parameters of the model with complete gradients; the same on every rank, whole or in pieces.
        limit: above 0.
        grid: all ranks.

    Returns:
        The norm before scaling, the same on every rank.
    """
    comm, total = grid.comm, grid.place.zeros((1,), torch.float64)
    for parameter in parameters:
        # A parameter that all ranks hold is counted by one rank, and so is a piece with copies on several ranks.
        counts = parameter.piece.speaks if isinstance(parameter, PartialParameter) else comm.rank == 0
        gradient = _any_gradient(parameter)
        if counts and gradient is not None:
            total += gradient.square().sum(dtype=torch.float64)
    comm.all_reduce(total, Kind.GRADIENT)
    length = float(total.sqrt())
    # As in torch.nn.utils.clip_grad_norm_. If the norm is not finite, nothing is scaled; the loss then reports the
    # problem.
    scale = limit / (length + _EPSILON)
    if scale < 1:
        for parameter in parameters:
            gradient = _any_gradient(parameter)
            if gradient is not None:
                gradient.mul_(scale)
    return length


def _any_gradient(parameter: nn.Parameter) -> Tensor | None:
    """The gradient of all rows or of some rows."""
    if isinstance(parameter, PartialParameter) and parameter.row_gradient is not None:
        return parameter.row_gradient.values
    return parameter.grad


#: Moments that an optimizer may keep for every parameter; its state has them as ``PARAMETER/MOMENT``.
MOMENTS = ("first", "second")
#: Number of steps of every parameter in an optimizer's state.
STEP = "step"


class Optimizer(Protocol):
    """Updates parameters from their gradients; as in torch, a parameter without a gradient stays unchanged.

    For a parameter with a :class:`~gnnloom.trainer.layout.partial_parameters.RowGradient`, only the rows in this
    gradient and their moments are updated; these rows do not decay.

    Attributes:
        lr: learning rate of the next update.
        state: tensors that a checkpoint must hold, by name; they are updated in place.
    """

    lr: float
    state: dict[str, Tensor]

    def step(self) -> None:
        """Apply one update."""
        ...


class SGD:
    """Gradient descent: p -= lr (g + decay p)."""

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], decay: Mapping[str, float], lr: float, place: Place
    ) -> None:
        self._parameters, self._decay, self.lr, self._place = parameters, decay, lr, place
        self.state: dict[str, Tensor] = {}

    @torch.no_grad()
    def step(self) -> None:
        for name, parameter in self._parameters.items():
            gradient = _rows_or_whole(parameter, self._decay[name], self._place)
            if isinstance(gradient, RowGradient):
                parameter.index_add_(0, gradient.rows, gradient.values, alpha=-self.lr)
            elif gradient is not None:
                parameter.sub_(gradient, alpha=self.lr)


class Adam:
    """Kingma, Ba, "Adam: A Method for Stochastic Optimization" (ICLR 2015), Algorithm 1; L2 decay in the gradient.

    Rows with a ``RowGradient`` are updated as by ``torch.optim.SparseAdam``: all rows count the parameter's steps.
    """

    # The defaults of the paper and of torch.
    BETAS = (0.9, 0.999)
    EPSILON = 1e-8

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], decay: Mapping[str, float], lr: float, place: Place
    ) -> None:
        self._parameters, self._decay, self.lr, self._place = parameters, decay, lr, place
        # One count per parameter, as in torch: a parameter without a gradient takes no step. A tensor, because a
        # checkpoint holds tensors only, and a resumed run needs it for the bias corrections.
        self.state = {STEP: place.lasting((len(parameters),), torch.int64)}
        for name, parameter in parameters.items():
            for moment in MOMENTS:
                self.state[f"{name}/{moment}"] = place.lasting(parameter.shape, parameter.dtype)

    @torch.no_grad()
    def step(self) -> None:
        for number, (name, parameter) in enumerate(self._parameters.items()):
            gradient = _rows_or_whole(parameter, self._decay[name], self._place)
            if gradient is None:
                continue
            self.state[STEP][number] += 1
            corrections = [1 - beta ** int(self.state[STEP][number]) for beta in self.BETAS]
            first, second = self.state[f"{name}/first"], self.state[f"{name}/second"]
            if isinstance(gradient, RowGradient):
                lr = self.lr * math.sqrt(corrections[1]) / corrections[0]
                self._update_rows(parameter, gradient, first, second, lr)
                continue
            first.lerp_(gradient, 1 - self.BETAS[0])
            second.mul_(self.BETAS[1]).addcmul_(gradient, gradient, value=1 - self.BETAS[1])
            size = torch.sqrt(second, out=self._place.like(second)).div_(math.sqrt(corrections[1])).add_(self.EPSILON)
            parameter.addcdiv_(first, size, value=-self.lr / corrections[0])

    def _update_rows(self, parameter: Tensor, some: RowGradient, first: Tensor, second: Tensor, lr: float) -> None:
        """Update some rows and their moments; ``lr`` is corrected for the bias of the moments, as in torch."""
        rows, gradient = some.rows, some.values

        def taken(whole: Tensor) -> Tensor:
            return torch.index_select(whole, 0, rows, out=self._place.like(gradient))

        mean, square = taken(first), taken(second)
        first.index_copy_(0, rows, mean.lerp_(gradient, 1 - self.BETAS[0]))
        square.mul_(self.BETAS[1]).addcmul_(gradient, gradient, value=1 - self.BETAS[1])
        second.index_copy_(0, rows, square)
        parameter.index_add_(0, rows, mean.div_(square.sqrt_().add_(self.EPSILON)), alpha=-lr)


OPTIMIZERS: dict[str, type[Adam | SGD]] = {"adam": Adam, "sgd": SGD}


def build_optimizer(model: Model, name: str, config: OptimizationConfig) -> Optimizer:
    """The configured optimizer over the parameters of a model that are not frozen. Communicates nothing.

    Args:
        name: of the model, as given with ``--model``.

    Raises:
        InputError: all parameters are frozen, or only the first layer is to decay and the model does not say which
            parameters belong to it.
    """
    parameters = {key: parameter for key, parameter in model.named_parameters() if parameter.requires_grad}
    if not parameters:
        raise InputError(f"model {name}: no parameter to train; all have requires_grad=False, or there is none")
    # By identity, since == compares tensors element by element.
    first = {id(parameter) for parameter in model.parameters_by_layer()[0]}
    if config.weight_decay and config.weight_decay_layers == "first" and not first:
        raise InputError(
            f"weight_decay_layers first: model {name} has no list with one entry of parameters per layer; hold"
            " its parameters in an nn.ParameterList or nn.ModuleList, or use all"
        )
    # Trained features are data, so decay must not pull them to 0.
    chosen = [
        key
        for key, parameter in parameters.items()
        if (key != "feature" if config.weight_decay_layers == "all" else id(parameter) in first)
    ]
    decay = {key: config.weight_decay if key in chosen else 0.0 for key in parameters}
    return OPTIMIZERS[config.optimizer](parameters, decay, config.lr, model.place)


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters of a model that are not frozen."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def sum_gradients(parameters: Iterable[nn.Parameter], operator: Operator) -> None:
    """Sum the gradients of the parameters that all ranks hold, in one buffer and so in one message. Collective.

    A rank without a gradient of a parameter adds zeros. If no rank has a gradient, no rank has one afterwards: see
    :class:`Optimizer`.

    Args:
        parameters: parameters that are not frozen, the same on every rank.
    """
    group, place = operator.grid.group(operator.weight_axes), operator.grid.place
    parameters = [p for p in parameters if p.numel() and not isinstance(p, PartialParameter)]
    if not parameters or group.size == 1:
        return
    flat = place.empty((sum(p.numel() for p in parameters),), parameters[0].dtype)
    torch.cat([_flat_gradient(parameter, place) for parameter in parameters], out=flat)
    pieces = torch.split(flat, [parameter.numel() for parameter in parameters])
    for parameter, piece in zip(parameters, pieces, strict=True):
        if parameter.grad is not None:
            # Adding 0 turns -0 into 0, which here means that there is a gradient.
            piece[:1] += 0.0
    group.all_reduce(flat, Kind.GRADIENT)
    for parameter, piece in zip(parameters, pieces, strict=True):
        # A view of the summed buffer saves copying it back.
        parameter.grad = None if _is_absent(piece) else piece.view_as(parameter)


def _flat_gradient(parameter: nn.Parameter, place: Place) -> Tensor:
    """(number of elements,) the gradient, or -0 for a parameter without one.

    Only a sum of -0 alone is -0 (IEEE 754, section 6.3), so the sum over the ranks shows whether any rank has a
    gradient, without another message.
    """
    if parameter.grad is None:
        return place.empty((parameter.numel(),), parameter.dtype).fill_(-0.0)
    return parameter.grad.reshape(-1)


def _is_absent(summed: Tensor) -> bool:
    first = float(summed[0])
    return first == 0 and math.copysign(1, first) < 0


def _rows_or_whole(parameter: nn.Parameter, decay: float, place: Place) -> RowGradient | Tensor | None:
    """The gradient of some rows, which is removed from the parameter, or the whole gradient with decay, if any."""
    if isinstance(parameter, PartialParameter) and parameter.row_gradient is not None:
        found, parameter.row_gradient = parameter.row_gradient, None
        return found
    if parameter.grad is None or not decay:
        return parameter.grad
    return torch.add(parameter.grad, parameter, alpha=decay, out=place.like(parameter))
