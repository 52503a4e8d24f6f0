"""SIGN (Frasca et al., GRL+ workshop at ICML 2020): relu([X W_0, A X W_1, ..., A^K X W_K] + b), then a perceptron.

The input has the features and the propagated steps side by side. The steps share the width of the first hidden layer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gnnloom.storage.matrix.ranges import split_range
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import GEMM
from gnnloom.trainer.kernels.dispatch import matmul, weight_gradient
from gnnloom.trainer.models.networks.mlp import MLP
from gnnloom.trainer.models.networks.model import Inputs, glorot

#: Columns of the input, and the columns of the output that they are multiplied into.
Part = tuple[slice, slice]


class SIGN(MLP):
    """A weight matrix per step in the first layer, side by side in one parameter; without hidden layers an MLP."""

    reuses_memory = True

    def create_parameters(self, generator: torch.Generator) -> None:
        super().create_parameters(generator)
        if self.num_layers > 1:
            parts, width = self.parts, self.options.dims[0] // self.options.num_inputs
            drawn = [glorot((width, after.stop - after.start), generator, self.place) for _, after in parts]
            self.weights[0] = nn.Parameter(torch.cat(drawn, 1))

    @property
    def parts(self) -> list[Part]:
        """The columns of every step, and the columns of its product."""
        (before, after), count = self.options.pairs[0], self.options.num_inputs
        return [
            (slice(*split_range(before, count, step)), slice(*split_range(after, count, step))) for step in range(count)
        ]

    def unbiased(self, inputs: Inputs, layer: int) -> Tensor:
        if layer > 0 or self.num_layers == 1:
            return super().unbiased(inputs, layer)
        result: Tensor = _ProductsOfSteps.apply(  # type: ignore[no-untyped-call]
            inputs.value, self.weights[0], self.parts, self.operator.grid
        )
        return result


class _ProductsOfSteps(torch.autograd.Function):
    """The product of every step with its weight, side by side. The steps are fixed and have no gradient."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, parts: list[Part], grid: ProcessGrid) -> Tensor:
        ctx.save_for_backward(features)
        ctx.parts, ctx.grid, ctx.shape = parts, grid, weight.shape
        product = grid.place.empty((len(features), weight.shape[1]), features.dtype)
        with grid.comm.traffic.timing(GEMM):
            for before, after in parts:
                matmul(features.detach()[:, before], weight.detach()[:, after], grid.place, product[:, after])
        return product

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, None, None]:
        (features,), place = ctx.saved_tensors, ctx.grid.place
        found = place.empty(ctx.shape, place.sum_dtype)
        with ctx.grid.comm.traffic.timing(GEMM):
            for before, after in ctx.parts:
                found[:, after] = weight_gradient(features[:, before], gradient[:, after], place)
        return None, found, None, None
