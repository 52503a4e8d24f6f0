"""Graph convolutional network (Kipf, Welling, ICLR 2017): H' = relu(A H W + b), any depth and widths."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnloom.trainer.models.networks.model import Inputs
from gnnloom.trainer.models.networks.rectified import RectifiedModel
from gnnloom.trainer.operators.whole_rows import RecomputedOutput


class GCN(RectifiedModel):
    """One weight matrix and bias per layer, over the normalized adjacency."""

    takes_weights = True
    keeps_product = True
    takes_blocks = True
    reuses_memory = True
    recomputes = True

    #: The outputs of hidden layers need not be formed.
    _leaves_unformed = False

    def create_parameters(self, generator: torch.Generator) -> None:
        self.weights = self.held_weights(generator)
        self.biases = self.zero_biases(self.options.dims[1:])

    def unbiased(self, inputs: Inputs, layer: int) -> Tensor:
        return self.product(inputs, self.weights[layer], layer, spends=self.spends_input(layer))

    def forward(self, inputs: Inputs) -> Tensor:
        # A caller of single layers reads their outputs.
        self._leaves_unformed = self.options.recompute and self.recomputes
        try:
            return super().forward(inputs)
        finally:
            self._leaves_unformed = False

    def hidden_layer(self, inputs: Inputs, layer: int) -> Inputs:
        options = self.options
        follows = layer + 1 < self.num_layers and not options.propagates_first(layer + 1)
        # The output (A H) W is recomputed if it is kept only to be multiplied by the next weight.
        if not (self._leaves_unformed and options.propagates_first(layer) and follows):
            return super().hidden_layer(inputs, layer)
        given = self.after_dropout(inputs, layer)
        rows = self.multiplied(given, layer, spends=self.spends_input(layer))
        weight, bias = self.weights[layer], self.bias_columns(self.biases, layer)
        mask = self.mask_before(layer + 1)
        hidden = RecomputedOutput(rows, weight, bias, mask, spends=not given.propagated)
        return Inputs(rows, dropped=True, unformed=hidden)
