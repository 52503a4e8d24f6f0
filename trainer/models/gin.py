"""Graph isomorphism network (Xu, Hu, Leskovec, Jegelka, ICLR 2019): H' = MLP((1 + epsilon) H + A H).

A H sums the stored in-neighbors.  A stored self loop counts as one of them, so that a vertex with a loop
has the factor 2 + epsilon, as in PyG's GINConv on the same edges; ingest with ``--self-loops remove`` for the
paper's factor.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnnloom.trainer.kernels.dispatch import Dropout
from gnnloom.trainer.models.model import Inputs, Model, ModelOptions, glorot
from gnnloom.trainer.operators.operator import Operator


class GIN(Model):
    """A learned epsilon and a perceptron of two layers per layer.

    Both are of the layer's width; the inner one of the last layer is as wide as its input, as few classes
    would be a bottleneck that a rectifier closes easily.
    """

    needs_features = True

    def __init__(
        self, operator: Operator, options: ModelOptions, dropout: Dropout, seed: int, dtype: torch.dtype
    ) -> None:
        """Initialize the weights (Glorot, uniform) from ``seed``: the same on every rank."""
        super().__init__(operator, options, dropout, dtype)
        generator = torch.Generator().manual_seed(seed)
        outer = options.dims[1:]
        inner = [*outer[:-1], outer[-2] if len(outer) > 1 else outer[-1]]
        self.epsilons = nn.ParameterList([torch.zeros(1, dtype=dtype) for _ in outer])
        self.weights, self.outer_weights = (
            nn.ParameterList([glorot(pair, generator, dtype) for pair in zip(before, after, strict=True)])
            for before, after in ((options.dims[:-1], inner), (inner, outer))
        )
        self.biases, self.outer_biases = (
            nn.ParameterList([torch.zeros(width, dtype=dtype) for width in widths if options.bias])
            for widths in (inner, outer)
        )

    def _layer(self, inputs: Inputs, layer: int) -> Tensor:
        inner = self._inner(inputs, layer)
        inner = torch.relu(self._with_bias(inner, self.biases, layer))
        output = self.operator.transform(inner, self.outer_weights[layer], layer)
        return self._with_bias(output, self.outer_biases, layer)

    def _inner(self, inputs: Inputs, layer: int) -> Tensor:
        """The perceptron's first product; it is linear in H, so it may come before the sum over the neighbors."""
        own, weight, factor = inputs.features, self.weights[layer], 1 + self.epsilons[layer]
        if inputs.propagated:
            return self.operator.transform(factor * own + inputs.value, weight, layer)
        if self.options.propagates_first(layer, weight.shape[1]):
            return self.operator.transform(factor * own + self.operator.propagate(own, layer), weight, layer)
        transformed = self.operator.transform(own, weight, layer)
        summed: Tensor = factor * transformed + self.operator.propagate(transformed, layer)
        return summed
