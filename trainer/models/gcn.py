"""Graph convolutional network (Kipf, Welling, ICLR 2017): H' = relu(A H W + b), any depth and widths."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnloom.trainer.models.model import Inputs, Model


class GCN(Model):
    """One weight matrix and bias per layer, over the normalized adjacency."""

    def _create_parameters(self, generator: torch.Generator) -> None:
        self.weights = self._held_weights(generator)
        self.biases = self._biases(self.options.dims[1:])

    def _layer(self, inputs: Inputs, layer: int) -> Tensor:
        output = self._product(inputs, self.weights[layer], layer)
        return self._with_bias(output, self.biases, layer)
