"""Graph convolutional network (Kipf, Welling, ICLR 2017): H' = relu(A H W + b), any depth and widths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gnnloom.trainer.kernels.dropout import Dropout
from gnnloom.trainer.operators.base import Operator

PRODUCT_ORDERS = ("auto", "propagate-first", "transform-first")


@dataclass(frozen=True)
class Inputs:
    """The input features of a model: (num_rows, dim) of layer 0's layout.

    Attributes:
        propagated: ``value`` is the adjacency times the features already.
    """

    value: Tensor
    propagated: bool = False


@dataclass(frozen=True)
class GCNOptions:
    """What decides a GCN besides its weights.

    Attributes:
        dims: widths from the input features to the classes.
        input_dropout: drop from the input features as well, as Kipf and PyG do on citation graphs.
        product_order: (A H) W, A (H W), or the cheaper of the two for each layer.
        input_needs_gradient: form the gradient of the input features.
    """

    dims: tuple[int, ...]
    bias: bool = True
    input_dropout: bool = True
    product_order: str = "auto"
    input_needs_gradient: bool = False


class GCN(nn.Module):
    """The model on one rank; ``forward`` is collective."""

    def __init__(
        self, operator: Operator, options: GCNOptions, dropout: Dropout, seed: int, dtype: torch.dtype
    ) -> None:
        """Initialise the weights (Glorot, uniform) from ``seed``: the same on every rank."""
        super().__init__()
        self.operator = operator
        self.options = options
        self.dropout = dropout
        self.epoch = 0
        generator = torch.Generator().manual_seed(seed)
        pairs = list(zip(options.dims[:-1], options.dims[1:], strict=True))
        self.weights = nn.ParameterList([_glorot(pair, generator, dtype) for pair in pairs])
        self.biases = nn.ParameterList([torch.zeros(width, dtype=dtype) for _, width in pairs if options.bias])

    @property
    def num_layers(self) -> int:
        return len(self.weights)

    def parameters_by_layer(self) -> list[list[nn.Parameter]]:
        """The parameters of every layer."""
        return [[self.weights[layer], *self.biases[layer : layer + 1]] for layer in range(self.num_layers)]

    def forward(self, inputs: Inputs) -> Tensor:
        """(num_rows, num_classes) scores, in the layout behind the last layer."""
        return self.classify(self.embed(inputs))

    def embed(self, inputs: Inputs) -> Inputs:
        """What the last layer sees: (num_rows, last hidden width), or the inputs of a model of one layer."""
        hidden = inputs
        for layer in range(self.num_layers - 1):
            hidden = Inputs(torch.relu(self._layer(hidden, layer)))
        return hidden

    def classify(self, hidden: Inputs) -> Tensor:
        """Scores from what :meth:`embed` returned."""
        return self._layer(hidden, self.num_layers - 1)

    def _layer(self, inputs: Inputs, layer: int) -> Tensor:
        hidden = inputs.value
        if self.training and (layer > 0 or self.options.input_dropout):
            layout = self.operator.layout(layer)
            hidden = self.dropout.apply(hidden, layout, self.options.dims[layer], self.epoch, layer)
        weight = self.weights[layer]
        if inputs.propagated:
            hidden = self.operator.transform(hidden, weight, layer)
        elif self.propagates_first(layer):
            hidden = self.operator.transform(self.operator.propagate(hidden, layer), weight, layer)
        else:
            hidden = self.operator.propagate(self.operator.transform(hidden, weight, layer), layer)
        return hidden + self.biases[layer] if self.options.bias else hidden

    def propagates_first(self, layer: int) -> bool:
        """Whether the layer is (A H) W: the product with A costs, and sends, in proportion to its width.

        Without a gradient for the inputs the first layer's (A H) W needs no product backwards.
        """
        if self.options.product_order != "auto":
            return self.options.product_order == "propagate-first"
        before, after = self.options.dims[layer : layer + 2]
        backward = layer > 0 or self.options.input_needs_gradient
        return before * (1 + backward) <= after * 2


def _glorot(shape: Sequence[int], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Drawn in float64, so that models of either dtype start at the same point."""
    bound = math.sqrt(6 / (shape[0] + shape[1]))
    uniform = torch.rand(tuple(shape), generator=generator, dtype=torch.float64)
    return ((2 * uniform - 1) * bound).to(dtype)
