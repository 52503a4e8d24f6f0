"""GraphSAGE with the mean (Hamilton, Ying, Leskovec, NeurIPS 2017): H' = relu(H W_self + mean of neighbors W + b).

The mean is over the stored in-neighbors, a stored self loop among them, as in PyG's SAGEConv on the same edges.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnnloom.trainer.kernels.dispatch import Dropout
from gnnloom.trainer.models.model import Inputs, Model, ModelOptions, glorot
from gnnloom.trainer.operators.operator import Operator


class GraphSAGE(Model):
    """Two weight matrices and a bias per layer, over the adjacency with mean normalization."""

    needs_features = True

    def __init__(
        self, operator: Operator, options: ModelOptions, dropout: Dropout, seed: int, dtype: torch.dtype
    ) -> None:
        """Initialize the weights (Glorot, uniform) from ``seed``: the same on every rank."""
        super().__init__(operator, options, dropout, dtype)
        generator = torch.Generator().manual_seed(seed)
        self.weights, self.self_weights = (
            nn.ParameterList(
                [self._held(glorot(pair, generator, dtype), layer) for layer, pair in enumerate(options.pairs)]
            )
            for _ in range(2)
        )
        self.biases = nn.ParameterList([torch.zeros(width, dtype=dtype) for _, width in options.pairs if options.bias])

    def _layer(self, inputs: Inputs, layer: int) -> Tensor:
        neighbors = self._product(inputs, self.weights[layer], layer)
        output = neighbors + self._own_product(inputs, self.self_weights[layer], layer)
        return self._with_bias(output, self.biases, layer)
