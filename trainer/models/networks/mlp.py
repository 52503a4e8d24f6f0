"""Multilayer perceptron: H' = relu(H W + b), any depth and widths; no layer multiplies by the adjacency."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnloom.trainer.algorithms.algorithm import ONE_LAYOUT
from gnnloom.trainer.models.networks.model import Inputs
from gnnloom.trainer.models.networks.rectified import RectifiedModel


class MLP(RectifiedModel):
    """One weight matrix and bias per layer."""

    normalizations = ("none",)
    needs = frozenset({ONE_LAYOUT})
    takes_weights = True
    multiplies = False
    is_rowwise = True
    reuses_memory = True

    def create_parameters(self, generator: torch.Generator) -> None:
        self.weights = self.whole_weights(self.options.pairs, generator)
        self.biases = self.zero_biases(self.options.dims[1:])

    def unbiased(self, inputs: Inputs, layer: int) -> Tensor:
        return self.operator.transform(inputs.value, self.weights[layer], layer, spends=self.spends_input(layer))
