"""What all models share: layers over a distributed adjacency, and what lies between them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from gnnloom.trainer.kernels.dispatch import Dropout
from gnnloom.trainer.layout.partial_parameters import PartialParameter, columns_of, held, vertex_piece
from gnnloom.trainer.models.norm import build_norms, unit_rows
from gnnloom.trainer.operators.operator import LayerPlan, Operator


@dataclass(frozen=True)
class Inputs:
    """The input of a layer: (num_rows, dim) of its layout.

    Attributes:
        value: the features.
        propagated: ``value`` is what the layer's communication makes of the features already, such as the
            adjacency times them: it is kept where they never change.
        own: the features themselves, where the product lies, beside a propagated ``value``, for models that need both.
    """

    value: Tensor
    propagated: bool = False
    own: Tensor | None = None

    @property
    def features(self) -> Tensor:
        return self.value if self.own is None else self.own


@dataclass(frozen=True)
class ModelOptions:
    """What decides a model besides its weights.

    Attributes:
        dims: widths from the input features to the classes.
        input_dropout: drop from the input features as well, as Kipf and PyG do on citation graphs.
        product_order: (A H) W, A (H W), or the cheaper of the two for each layer.
        input_needs_gradient: form the gradient of the input features.
        input_is_kept: the first layer's product with the adjacency is formed once.
        norm: ``none``, ``layer`` or ``batch``: normalize the output of every hidden layer before its activation.
        residual: add a hidden layer's input to its output where their widths are equal.
        unit_embedding: scale the last layer's input to rows of length 1 (Zeng et al., ICLR 2020, use it).
        heads: attention heads of every layer (GAT).
        negative_slope: of the LeakyReLU of the attention (GAT).
    """

    dims: tuple[int, ...]
    bias: bool = True
    input_dropout: bool = True
    product_order: str = "auto"
    input_needs_gradient: bool = False
    input_is_kept: bool = False
    norm: str = "none"
    residual: bool = False
    unit_embedding: bool = False
    heads: int = 1
    negative_slope: float = 0.2

    def propagates_first(self, layer: int, width: int | None = None) -> bool:
        """Whether a layer is (A H) W: the product with A costs, and sends, in proportion to its width.

        Without a gradient for the inputs the first layer's (A H) W needs no product backwards, and where A H
        is kept it needs none at all.

        Args:
            width: of H W, by default the width of the layer's output.
        """
        if layer == 0 and self.input_is_kept:
            return True
        if self.product_order != "auto":
            return self.product_order == "propagate-first"
        before, after = self.dims[layer], width or self.dims[layer + 1]
        backward = layer > 0 or self.input_needs_gradient
        return before * (1 + backward) <= after * 2

    def layer_plan(self) -> LayerPlan:
        """What the model asks of its operator."""
        orders = tuple(self.propagates_first(layer) for layer in range(len(self.pairs)))
        return LayerPlan(self.dims, orders, self.input_needs_gradient)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Input and output width of every layer."""
        return list(zip(self.dims[:-1], self.dims[1:], strict=True))


class Model(nn.Module, ABC):
    """A model on one rank; ``forward`` is collective.

    A kind of model holds its parameters in parameter lists with one entry per layer, and computes one layer
    from its input; everything between the layers is here.
    """

    #: The model is defined for weighted edges.
    takes_weights: ClassVar[bool] = False
    #: The layers multiply with the adjacency, and so their adjoints with its transpose.
    multiplies: ClassVar[bool] = True
    #: The layers use the features besides what the adjacency makes of them.
    needs_features: ClassVar[bool] = False

    def __init__(self, operator: Operator, options: ModelOptions, dropout: Dropout, dtype: torch.dtype) -> None:
        super().__init__()
        self.operator = operator
        self.options = options
        self.dropout = dropout
        self.epoch = 0
        self.norms = nn.ModuleList(build_norms(options.norm, options.dims[1:-1], dtype))

    @property
    def num_layers(self) -> int:
        return len(self.options.dims) - 1

    def parameters_by_layer(self) -> list[list[nn.Parameter]]:
        """The parameters of every layer, with those of the normalization behind it."""
        lists = [child for child in self.children() if isinstance(child, nn.ParameterList)]
        layers = [[entries[layer] for entries in lists if layer < len(entries)] for layer in range(self.num_layers)]
        for layer, norm in enumerate(self.norms):
            layers[layer] += norm.parameters()
        return layers

    def keep(self, features: Tensor) -> Inputs:
        """The inputs with all of the first layer that never changes while ``features`` do not. Collective."""
        product = self.operator.propagate(features, 0)
        self.operator.release(0)
        if not self.needs_features:
            return Inputs(product, propagated=True)
        own = self.operator.align(features, *self.operator.product_layouts(0), self.options.dims[0])
        return Inputs(product, propagated=True, own=own)

    def train_features(self, feature: Tensor, num_vertices: int) -> nn.Parameter:
        """Make the input features a parameter, of which every rank keeps (and updates) its share.

        Args:
            feature: (num_rows, columns held) of the first layer's layout.
        """
        piece = vertex_piece(self.operator.layout(0), num_vertices, self.options.dims[0])
        parameter = PartialParameter.of(feature, piece)
        self.register_parameter("feature", parameter)
        return parameter

    def forward(self, inputs: Inputs) -> Tensor:
        """(num_rows, num_classes) scores, in the layout behind the last layer."""
        return self.classify(self.embed(inputs))

    def embed(self, inputs: Inputs) -> Inputs:
        """What the last layer sees: (num_rows, last hidden width), or the inputs of a model of one layer."""
        hidden = inputs
        for layer in range(self.num_layers - 1):
            hidden = Inputs(self._hidden_layer(hidden, layer))
        if self.options.unit_embedding and self.num_layers > 1:
            return Inputs(unit_rows(hidden.value, self.operator.layout(self.num_layers - 1)))
        return hidden

    def classify(self, hidden: Inputs) -> Tensor:
        """Scores from what :meth:`embed` returned."""
        last = self.num_layers - 1
        return self._layer(self._dropped(hidden, last), last)

    def _hidden_layer(self, inputs: Inputs, layer: int) -> Tensor:
        output = self._layer(self._dropped(inputs, layer), layer)
        if len(self.norms):
            output = self.norms[layer](output, self.operator.layout(layer + 1), self.operator.weight_axes)
        output = self._activate(output)
        return output + self._realigned(inputs.value, layer) if self.adds_input(layer) else output

    @abstractmethod
    def _layer(self, inputs: Inputs, layer: int) -> Tensor:
        """(num_rows, output width) of a layer before normalization and activation. Collective."""

    def _activate(self, output: Tensor) -> Tensor:
        return torch.relu(output)

    def adds_input(self, layer: int) -> bool:
        """Whether a layer's output has its input added: between hidden layers of the same width."""
        return self.options.residual and layer > 0 and self.options.dims[layer] == self.options.dims[layer + 1]

    def _dropped(self, inputs: Inputs, layer: int) -> Inputs:
        if not self.training or (layer == 0 and not self.options.input_dropout):
            return inputs
        layout = self.operator.layout(layer)
        first_column = layout.columns(self.options.dims[layer]).start
        value = self.dropout.apply(inputs.value, layout.vertex, first_column, self.epoch, layer)
        return replace(inputs, value=value)

    def _product(self, inputs: Inputs, weight: Tensor, layer: int) -> Tensor:
        """The adjacency times the inputs times ``weight``, in the cheaper order. Collective."""
        if inputs.propagated:
            return self.operator.transform(inputs.value, weight, layer)
        if self.options.propagates_first(layer):
            return self.operator.transform(self.operator.propagate(inputs.value, layer), weight, layer)
        return self.operator.propagate(self.operator.transform(inputs.value, weight, layer), layer)

    def _own_product(self, inputs: Inputs, weight: Tensor, layer: int) -> Tensor:
        """The inputs times ``weight``, where :meth:`_product` lies and in the same order of its steps. Collective."""
        if inputs.propagated:
            return self.operator.transform(inputs.features, weight, layer)
        source, target = self.operator.product_layouts(layer)
        before, after = self.options.dims[layer : layer + 2]
        if self.options.propagates_first(layer):
            return self.operator.transform(self.operator.align(inputs.value, source, target, before), weight, layer)
        return self.operator.align(self.operator.transform(inputs.value, weight, layer), source, target, after)

    def _realigned(self, features: Tensor, layer: int) -> Tensor:
        """A layer's input in the layout of its output. Collective."""
        source, target = self.operator.layout(layer), self.operator.layout(layer + 1)
        return self.operator.align(features, source, target, self.options.dims[layer])

    def _held(self, whole: Tensor, layer: int) -> nn.Parameter:
        """A layer's weight, of which this rank keeps what the algorithm gives it."""
        return held(whole, self.operator.weight_piece(layer, (whole.shape[0], whole.shape[1])))

    def _with_bias(self, output: Tensor, biases: nn.ParameterList, layer: int) -> Tensor:
        """The output plus the layer's bias, if there is one."""
        if not self.options.bias:
            return output
        return output + columns_of(biases[layer], self.operator.layout(layer + 1), self.operator.weight_axes)


def glorot(shape: Sequence[int], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """(input width, output width) uniform weights (Glorot, Bengio, AISTATS 2010).

    Drawn in float64, so that models of either dtype start at the same point.
    """
    bound = math.sqrt(6 / (shape[0] + shape[1]))
    uniform = torch.rand(tuple(shape), generator=generator, dtype=torch.float64)
    return ((2 * uniform - 1) * bound).to(dtype)
