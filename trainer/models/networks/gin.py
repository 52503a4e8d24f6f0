"""Graph isomorphism network (Xu, Hu, Leskovec, Jegelka, ICLR 2019): H' = MLP((1 + epsilon) H + A H).

A H sums the stored in-neighbors. A stored self loop counts as an in-neighbor, so a vertex with a loop has the factor 2
+ epsilon, as in PyG's GINConv on the same edges. Ingest with ``--self-loops remove`` to get the paper's factor.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnnloom.trainer.algorithms.algorithm import ONE_LAYOUT
from gnnloom.trainer.kernels.dispatch import fork, rectify, scaled_sum
from gnnloom.trainer.models.networks.model import Inputs
from gnnloom.trainer.models.networks.rectified import RectifiedModel


class GIN(RectifiedModel):
    """A learned epsilon and a two-layer perceptron per layer.

    Both perceptron layers have the layer's width, but in the last layer the inner one is as wide as the input: the
    number of classes would be a narrow bottleneck, in which a ReLU can zero everything.
    """

    normalizations = ("none",)
    needs = frozenset({ONE_LAYOUT})
    keeps_product = True
    takes_blocks = True
    needs_features = True
    reuses_memory = True

    def create_parameters(self, generator: torch.Generator) -> None:
        before, outer = self.options.dims[:-1], self.options.dims[1:]
        inner = [*outer[:-1], outer[-2] if len(outer) > 1 else outer[-1]]
        self.epsilons = nn.ParameterList([self.place.lasting((1,), self.dtype) for _ in outer])
        self.weights = self.whole_weights(zip(before, inner, strict=True), generator)
        self.outer_weights = self.whole_weights(zip(inner, outer, strict=True), generator)
        self.biases, self.outer_biases = self.zero_biases(inner), self.zero_biases(outer)

    @property
    def last_biases(self) -> nn.ParameterList:
        return self.outer_biases

    def unbiased(self, inputs: Inputs, layer: int) -> Tensor:
        inner, bias = self._inner(inputs, layer), self.bias_columns(self.biases, layer)
        inner = rectify(inner, bias, None, self.place, in_place=True, spends_gradient=True)
        return self.operator.transform(inner, self.outer_weights[layer], layer, spends=True)

    def _inner(self, inputs: Inputs, layer: int) -> Tensor:
        """The perceptron's first product; it is linear in H, so it may come before the sum over the neighbors."""
        own, weight, factor = inputs.features, self.weights[layer], 1 + self.epsilons[layer]
        if inputs.propagated:
            return self.operator.transform(self._sum(own, factor, inputs.value), weight, layer, spends=True)
        if self.options.propagates_first(layer, weight.shape[1]):
            return self.operator.transform(self._with_neighbors(own, factor, layer), weight, layer, spends=True)
        return self._with_neighbors(self.operator.transform(own, weight, layer), factor, layer)

    def _with_neighbors(self, features: Tensor, factor: Tensor, layer: int) -> Tensor:
        """The features times a factor, plus the sums over the neighbors. Collective."""
        own, source = fork(features, self.place)
        aligned = self.operator.align(own, *self.operator.product_layouts(layer), features.shape[1])
        return self._sum(aligned, factor, self.operator.propagate(source, layer))

    def _sum(self, own: Tensor, factor: Tensor, neighbors: Tensor) -> Tensor:
        return scaled_sum(own, factor, neighbors, self.place)
