"""Graph convolutional network (Kipf, Welling, ICLR 2017): H' = relu(A H W + b), any depth and widths."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnloom.trainer.models.networks.model import Inputs
from gnnloom.trainer.models.networks.rectified import RectifiedModel


class GCN(RectifiedModel):
    """One weight matrix and bias per layer, over the normalized adjacency."""

    takes_weights = True
    keeps_product = True
    takes_blocks = True
    reuses_memory = True

    def create_parameters(self, generator: torch.Generator) -> None:
        self.weights = self.held_weights(generator)
        self.biases = self.zero_biases(self.options.dims[1:])

    def unbiased(self, inputs: Inputs, layer: int) -> Tensor:
        return self.product(inputs, self.weights[layer], layer, spends=self.spends_input(layer))
