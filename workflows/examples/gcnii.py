"""GCNII (Chen et al., ICML 2020, equation 5): deep layers that return to the first one and stay near the identity.

gnnloom train cora --ranks 4 --hidden 64,64,64 --model gnnloom.workflows.examples.gcnii:GCNII --model-options alpha=0.2
"""

import math
from typing import ClassVar

import torch
from torch import Tensor

from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Option
from gnnloom.trainer.algorithms.algorithm import ONE_LAYOUT
from gnnloom.trainer.models.networks.model import Inputs, Model


class GCNII(Model):
    """H' = relu(S ((1 - b) I + b W)) with S = (1 - a) A H + a H0, between a dense first and a dense last layer."""

    needs = frozenset({ONE_LAYOUT})
    own_options: ClassVar = {
        "alpha": Option(default=0.1, help="Share of the first layer's output in every layer", below=1.0),
        "theta": Option(default=0.5, help="Strength of the weights, which falls with the depth", below=math.inf),
    }

    def create_parameters(self, generator: torch.Generator) -> None:
        if len(set(self.options.dims[1:-1])) != 1:
            raise InputError("model GCNII: expected hidden layers of one width, such as --hidden 64,64,64")
        self.weights, self.biases = self.held_weights(generator), self.zero_biases(self.options.dims[1:])

    def layer(self, inputs: Inputs, layer: int) -> Tensor:
        transformed = self.operator.transform
        if layer in {0, self.num_layers - 1}:
            output = self.with_bias(transformed(inputs.value, self.weights[layer], layer), self.biases, layer)
            self.first: Tensor = output.relu() if layer == 0 else self.first
            return output
        alpha, beta = self.options.own["alpha"], math.log(self.options.own["theta"] / layer + 1)
        mixed: Tensor = (1 - alpha) * self.operator.propagate(inputs.value, layer) + alpha * self.first
        return mixed.lerp(transformed(mixed, self.weights[layer], layer), beta)
