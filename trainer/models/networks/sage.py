"""GraphSAGE with the mean aggregator (Hamilton, Ying, Leskovec, NeurIPS 2017).

H' = relu(H W_self + mean(H of in-neighbors) W + b). The mean is over the stored in-neighbors, including a stored self
loop, as in PyG's SAGEConv on the same edges.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gnnloom.trainer.kernels.dispatch import fork
from gnnloom.trainer.models.networks.model import Inputs
from gnnloom.trainer.models.networks.rectified import RectifiedModel


class GraphSAGE(RectifiedModel):
    """Two weight matrices and a bias per layer, over the adjacency with mean normalization."""

    normalizations = ("mean",)
    keeps_product = True
    takes_blocks = True
    needs_features = True
    reuses_memory = True

    def create_parameters(self, generator: torch.Generator) -> None:
        self.weights = self.held_weights(generator)
        self.self_weights = self.held_weights(generator)
        self.biases = self.zero_biases(self.options.dims[1:])

    def unbiased(self, inputs: Inputs, layer: int) -> Tensor:
        value, own = fork(inputs.value, self.place)
        neighbors = self.product(replace(inputs, value=value), self.weights[layer], layer)
        own_rows = self.own_product(replace(inputs, value=own), self.self_weights[layer], layer)
        return self.added(neighbors, own_rows)
