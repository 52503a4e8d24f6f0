"""Models as a user writes them, in plain PyTorch, and models that break the contract."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from gnnloom.storage.option import Option
from gnnloom.trainer.algorithms.algorithm import ONE_LAYOUT
from gnnloom.trainer.models.networks.gat import GAT
from gnnloom.trainer.models.networks.gcn import GCN
from gnnloom.trainer.models.networks.gin import GIN
from gnnloom.trainer.models.networks.model import Inputs, Model
from gnnloom.trainer.models.networks.sage import GraphSAGE


class Plain(Model):
    """A linear module per layer, another one for the vertices of large features, a factor, and a frozen shift.

    Attributes:
        bonus: only rows with a large feature use it, so some ranks have no gradient of it.
        unused: nothing uses it.
    """

    needs = frozenset({ONE_LAYOUT})
    own_options: ClassVar = {"drop": Option(default=0.0, help="Probability of nn.Dropout", below=1.0)}
    #: Only vertices whose first feature is above this use ``bonus``.
    LARGE = 1.5

    def create_parameters(self, generator: torch.Generator) -> None:
        self.linears = nn.ModuleList([nn.Linear(*pair) for pair in self.options.pairs])
        self.bonus = nn.Linear(self.options.dims[0], self.options.dims[1])
        self.factor = nn.Parameter(torch.rand(()))
        self.shift = nn.Parameter(torch.randn(self.options.dims[-1]), requires_grad=False)
        self.unused = nn.Parameter(torch.randn(3))
        self.drop = nn.Dropout(self.options.own["drop"])

    def layer(self, inputs: Inputs, layer: int) -> Tensor:
        return self.combined(inputs.value, self.operator.propagate(inputs.value, layer), layer)

    def combined(self, own: Tensor, neighbors: Tensor, layer: int) -> Tensor:
        """A layer's output from its input and the product of the adjacency with it."""
        output: Tensor = self.linears[layer](self.drop(neighbors + self.factor * own))
        large = own[:, 0] > self.LARGE
        if layer == 0 and large.any():
            output = output.index_add(0, large.nonzero().squeeze(1), self.bonus(own[large]))
        return output + self.shift if layer == self.num_layers - 1 else output


class WithBatchNorm(Plain):
    """Torch's batch normalization, which has an integer buffer without dimensions, and a buffer that is no state."""

    def create_parameters(self, generator: torch.Generator) -> None:
        super().create_parameters(generator)
        self.normalization = nn.BatchNorm1d(self.options.dims[1])
        self.register_buffer("rows", torch.zeros(self.operator.layout(0).num_rows), persistent=False)

    def activate(self, output: Tensor) -> Tensor:
        normalized: Tensor = self.normalization(output)
        return normalized.relu()


class Jumping(Model):
    """Adds the outputs of all hidden layers before the last one (jumping knowledge; Xu et al., ICML 2018)."""

    def embed(self, inputs: Inputs) -> Inputs:
        kept, hidden = list[Tensor](), inputs
        for layer in range(self.num_layers - 1):
            hidden = self.hidden_layer(hidden, layer)
            kept.append(hidden.value)
        total = kept[0]
        for value in kept[1:]:
            total = total + value
        return Inputs(total)


class JumpingGCN(Jumping, GCN):
    """See :class:`Jumping`."""


class JumpingSAGE(Jumping, GraphSAGE):
    """See :class:`Jumping`."""


class JumpingGIN(Jumping, GIN):
    """See :class:`Jumping`."""


class JumpingGAT(Jumping, GAT):
    """See :class:`Jumping`."""


class Skipping(Model):
    """Adds the first layer's output, before its normalization and activation, to the scores."""

    def layer(self, inputs: Inputs, layer: int) -> Tensor:
        output: Tensor = super().layer(inputs, layer)  # type: ignore[safe-super]
        if layer == 0:
            self.first = output
        return output + self.first[:, : output.shape[1]] if layer == self.num_layers - 1 else output


class SkippingGCN(Skipping, GCN):
    """See :class:`Skipping`."""


class SkippingSAGE(Skipping, GraphSAGE):
    """See :class:`Skipping`."""


class SkippingGIN(Skipping, GIN):
    """See :class:`Skipping`."""


class SkippingGAT(Skipping, GAT):
    """See :class:`Skipping`."""


class Broken(Model):
    """Breaks one rule of the contract, which ``fault`` chooses."""

    needs = frozenset({ONE_LAYOUT})
    own_options: ClassVar = {"fault": Option(default=0, help="Which rule to break", below=100)}

    def create_parameters(self, generator: torch.Generator) -> None:
        self.weights = self.held_weights(generator)
        fault = FAULTS[self.options.own["fault"]]
        rank = self.operator.grid.comm.rank
        if fault == "differs":
            self.weights[1] = nn.Parameter(self.weights[1].detach() + rank)
        elif fault == "more parameters":
            self.extra: nn.Module | nn.Parameter = nn.ParameterList(
                [torch.zeros(2, dtype=self.dtype) for _ in range(rank + 1)]
            )
        elif fault == "buffer differs":
            self.register_buffer("noise", torch.full((2,), float(rank)))
        elif fault == "another dtype":
            self.extra = nn.Linear(2, 2, dtype=torch.float16)
        elif fault == "not finite":
            self.extra = nn.Parameter(torch.full((2,), torch.nan))
        elif fault == "lazy":
            self.extra = nn.LazyLinear(2)
        elif fault == "complex buffer":
            self.register_buffer("phase", torch.zeros(2, dtype=torch.complex64))
        elif fault == "name":
            self.extra = nn.ParameterDict({"of/weight": torch.zeros(1)})
        elif fault == "all frozen":
            self.requires_grad_(requires_grad=False)

    def layer(self, inputs: Inputs, layer: int) -> Tensor:
        fault = FAULTS[self.options.own["fault"]]
        output = self.product(inputs, self.weights[layer], layer)
        if fault == "late parameter" and not hasattr(self, "late"):
            self.late = nn.Parameter(torch.ones((), dtype=self.dtype))
        if fault == "no tensor":
            return None  # type: ignore[return-value]
        if fault == "wrong width" and layer == self.num_layers - 1:
            return torch.cat([output, output], 1)
        if fault == "fewer rows":
            return output[1:]
        if fault == "branches" and self.operator.grid.comm.rank == 0:
            return output + self.operator.propagate(output, layer).detach()
        return output


#: Rules to break, by the number that ``--model-options fault=`` gives.
FAULTS = (
    "none", "differs", "more parameters", "buffer differs", "another dtype", "not finite", "lazy", "complex buffer",
    "name", "all frozen", "late parameter", "no tensor", "wrong width", "fewer rows", "branches",
)  # fmt: skip


class WithLinear(GCN):
    """A module of torch that would have to know how rows and columns are spread."""

    def create_parameters(self, generator: torch.Generator) -> None:
        super().create_parameters(generator)
        self.linear = nn.Linear(2, 2)


class WithDropout(GCN):
    """Torch's dropout of features of which other ranks may hold copies."""

    def activate(self, output: Tensor) -> Tensor:
        return nn.functional.dropout(super().activate(output), 0.5, self.training)


class Rowwise(Model):
    """A linear module per layer, without the adjacency."""

    needs = frozenset({ONE_LAYOUT})
    multiplies = False
    is_rowwise = True

    def create_parameters(self, generator: torch.Generator) -> None:
        self.linears = nn.ModuleList([nn.Linear(*pair) for pair in self.options.pairs])

    def layer(self, inputs: Inputs, layer: int) -> Tensor:
        output: Tensor = self.linears[layer](inputs.value)
        return output


class WronglyRowwise(Plain):
    """Says that it needs no adjacency, and multiplies with it."""

    is_rowwise = True
