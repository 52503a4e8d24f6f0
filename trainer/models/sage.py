"""GraphSAGE with the mean aggregator (Hamilton, Ying, Leskovec, NeurIPS 2017).

H' = relu(H W_self + mean(H of in-neighbors) W + b). The mean is over the stored in-neighbors, including a stored self
loop, as in PyG's SAGEConv on the same edges.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gnnloom.trainer.models.model import Inputs, Model


class GraphSAGE(Model):
    """Two weight matrices and a bias per layer, over the adjacency with mean normalization."""

    needs_features = True

    def _create_parameters(self, generator: torch.Generator) -> None:
        self.weights = self._held_weights(generator)
        self.self_weights = self._held_weights(generator)
        self.biases = self._biases(self.options.dims[1:])

    def _layer(self, inputs: Inputs, layer: int) -> Tensor:
        neighbors = self._product(inputs, self.weights[layer], layer)
        output = neighbors + self._own_product(inputs, self.self_weights[layer], layer)
        return self._with_bias(output, self.biases, layer)
