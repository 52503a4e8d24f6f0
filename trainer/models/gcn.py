"""Graph convolutional network (Kipf, Welling, ICLR 2017): H' = relu(A H W + b), any depth and widths."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnnloom.trainer.kernels.dispatch import Dropout
from gnnloom.trainer.models.model import Inputs, Model, ModelOptions, glorot
from gnnloom.trainer.operators.operator import Operator


class GCN(Model):
    """One weight matrix and bias per layer, over the normalized adjacency."""

    takes_weights = True

    def __init__(
        self, operator: Operator, options: ModelOptions, dropout: Dropout, seed: int, dtype: torch.dtype
    ) -> None:
        """Initialize the weights (Glorot, uniform) from ``seed``: the same on every rank."""
        super().__init__(operator, options, dropout, dtype)
        generator = torch.Generator().manual_seed(seed)
        weights = [glorot(pair, generator, dtype) for pair in options.pairs]
        self.weights = nn.ParameterList([self._held(weight, layer) for layer, weight in enumerate(weights)])
        self.biases = nn.ParameterList([torch.zeros(width, dtype=dtype) for _, width in options.pairs if options.bias])

    def _layer(self, inputs: Inputs, layer: int) -> Tensor:
        output = self._product(inputs, self.weights[layer], layer)
        return self._with_bias(output, self.biases, layer)
