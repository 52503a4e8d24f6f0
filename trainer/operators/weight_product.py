"""Products of a rank's rows with a weight, timed, and the choice between two ways to compute a weight's gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import GEMM
from gnnloom.trainer.kernels.dispatch import matmul, seconds_of_weight_gradients, weight_gradient


def timed_product(features: Tensor, weight: Tensor, grid: ProcessGrid, *, spends: bool = False) -> Tensor:
    """``features`` times ``weight``, timed forward and backward; differentiable. Communicates nothing.

    Args:
        features: (num_rows, input dim).
        weight: (input dim, output dim).
        spends: nothing else needs the features; backward, their gradient takes their memory.

    Returns:
        (num_rows, output dim).
    """
    result: Tensor = _Product.apply(features, weight, grid, spends)  # type: ignore[no-untyped-call]
    return result


def transposed_is_faster(features: Tensor, gradient: Tensor, grid: ProcessGrid) -> bool:
    """Whether (dQ^T H)^T takes less time than H^T dQ, summed over all ranks. Collective; the same on every rank.

    Ranjan et al., "Plexus" (SC 2025), section 5.

    Args:
        features: (num_rows, input dim) H of this rank.
        gradient: (num_rows, output dim) dQ of this rank.
    """
    # One choice for all ranks, since each waits for the slowest.
    straight, transposed = grid.comm.gather_numbers(seconds_of_weight_gradients(features, gradient, grid.place)).sum(0)
    return bool(transposed < straight)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, grid: ProcessGrid, spends: bool) -> Tensor:
        ctx.save_for_backward(features, weight)
        ctx.grid, ctx.spends = grid, spends
        with grid.comm.traffic.timing(GEMM):
            return matmul(features.detach(), weight.detach(), grid.place)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        features, weight = ctx.saved_tensors
        # Fixed input features need no gradient, which saves one of the two products in the first layer.
        of_features, of_weight, *_ = ctx.needs_input_grad
        back: Tensor | None = None
        with ctx.grid.comm.traffic.timing(GEMM):
            # First, as the other product may overwrite the features.
            found = weight_gradient(features, gradient, ctx.grid.place) if of_weight else None
            if of_features:
                back = matmul(gradient, weight.T, ctx.grid.place, features.detach() if ctx.spends else None)
        return back, found, None, None
