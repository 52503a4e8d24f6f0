"""SGD and Adam over named parameters, and the sum of the ranks' gradients.

They replace ``torch.optim`` because importing it also loads torch's compiler, which costs a second and 100 MB per rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.kernels.dispatch import Workspace
from gnnloom.trainer.layout.partial_parameters import PartialParameter

if TYPE_CHECKING:
    from gnnloom.trainer.config.train_config import TrainConfig
    from gnnloom.trainer.networks.model import Model


#: Moments that an optimizer may keep for every parameter; its state has them as ``PARAMETER/MOMENT``.
MOMENTS = ("first", "second")


class Optimizer(Protocol):
    """Updates parameters from their gradients.

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
        self, parameters: Mapping[str, nn.Parameter], decay: Mapping[str, float], lr: float, workspace: Workspace
    ) -> None:
        self._parameters, self._decay, self.lr, self._workspace = parameters, decay, lr, workspace
        self.state: dict[str, Tensor] = {}

    @torch.no_grad()
    def step(self) -> None:
        for name, parameter in self._parameters.items():
            parameter.sub_(_gradient(parameter, self._decay[name], self._workspace), alpha=self.lr)


class Adam:
    """Kingma, Ba, "Adam: A Method for Stochastic Optimization" (ICLR 2015), Algorithm 1; L2 decay in the gradient."""

    # The defaults of the paper and of torch.
    BETAS = (0.9, 0.999)
    EPSILON = 1e-8

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], decay: Mapping[str, float], lr: float, workspace: Workspace
    ) -> None:
        self._parameters, self._decay, self.lr, self._workspace = parameters, decay, lr, workspace
        # A tensor, because a checkpoint holds tensors only, and a resumed run needs it for the bias corrections.
        self.state = {"step": torch.zeros(1, dtype=torch.int64)}
        for name, parameter in parameters.items():
            for moment in MOMENTS:
                self.state[f"{name}/{moment}"] = torch.zeros_like(parameter, requires_grad=False)

    @torch.no_grad()
    def step(self) -> None:
        self.state["step"] += 1
        corrections = [1 - beta ** int(self.state["step"]) for beta in self.BETAS]
        for name, parameter in self._parameters.items():
            gradient = _gradient(parameter, self._decay[name], self._workspace)
            first, second = self.state[f"{name}/first"], self.state[f"{name}/second"]
            first.lerp_(gradient, 1 - self.BETAS[0])
            second.mul_(self.BETAS[1]).addcmul_(gradient, gradient, value=1 - self.BETAS[1])
            size = (
                torch.sqrt(second, out=self._workspace.like(second)).div_(math.sqrt(corrections[1])).add_(self.EPSILON)
            )
            parameter.addcdiv_(first, size, value=-self.lr / corrections[0])


OPTIMIZERS: dict[str, type[Adam | SGD]] = {"adam": Adam, "sgd": SGD}


def build_optimizer(model: Model, config: TrainConfig) -> Optimizer:
    """The configured optimizer over all parameters of a model. Communicates nothing."""
    parameters = dict(model.named_parameters())
    # By identity, since == compares tensors element by element.
    first = {id(parameter) for parameter in model.parameters_by_layer()[0]}
    # Trained features are data, which decay does not pull to 0.
    chosen = [
        name
        for name, parameter in parameters.items()
        if (name != "feature" if config.weight_decay_layers == "all" else id(parameter) in first)
    ]
    decay = {name: config.weight_decay if name in chosen else 0.0 for name in parameters}
    return OPTIMIZERS[config.optimizer](parameters, decay, config.lr, model.operator.workspace)


def sum_gradients(parameters: Iterable[nn.Parameter], group: Communicator, workspace: Workspace) -> None:
    """Sum the gradients of the parameters that all ranks hold, in one buffer and so in one message. Collective."""
    parameters = [p for p in parameters if p.grad is not None and not isinstance(p, PartialParameter)]
    if not parameters or group.size == 1:
        return
    flat = workspace.empty((sum(p.numel() for p in parameters),), parameters[0].dtype)
    torch.cat([parameter.grad.reshape(-1) for parameter in parameters if parameter.grad is not None], out=flat)
    group.all_reduce(flat, Kind.GRADIENT)
    start = 0
    for parameter in parameters:
        if parameter.grad is not None:
            stop = start + parameter.numel()
            # A view of the summed buffer saves copying it back.
            parameter.grad = flat[start:stop].view_as(parameter)
            start = stop


def _gradient(parameter: nn.Parameter, decay: float, workspace: Workspace) -> Tensor:
    # A parameter that the loss does not reach still decays.
    gradient = workspace.like(parameter).zero_() if parameter.grad is None else parameter.grad
    return torch.add(gradient, parameter, alpha=decay, out=workspace.like(parameter)) if decay else gradient
