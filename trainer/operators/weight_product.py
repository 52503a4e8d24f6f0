"""Products of a rank's rows with a weight, timed, and the choice between two ways to compute a weight's gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.traffic import GEMM, Traffic
from gnnloom.trainer.kernels.dispatch import Workspace, matmul, seconds_of_weight_gradients, weight_gradient


def timed_product(
    features: Tensor, weight: Tensor, traffic: Traffic, workspace: Workspace, *, spends: bool = False
) -> Tensor:
    """``features`` times ``weight``, timed forward and backward; differentiable. Communicates nothing.

    Args:
        features: (num_rows, input dim).
        weight: (input dim, output dim).
        spends: nothing else needs the features; backward, their gradient takes their memory.

    Returns:
        (num_rows, output dim).
    """
    result: Tensor = _Product.apply(features, weight, traffic, workspace, spends)  # type: ignore[no-untyped-call]
    return result


def transposed_is_faster(features: Tensor, gradient: Tensor, comm: Communicator, workspace: Workspace) -> bool:
    """Whether (dQ^T H)^T takes less time than H^T dQ, summed over all ranks. Collective; the same on every rank.

    Ranjan et al., "Plexus" (SC 2025), section 5.

    Args:
        features: (num_rows, input dim) H of this rank.
        gradient: (num_rows, output dim) dQ of this rank.
    """
    # One choice for all ranks, since each waits for the slowest.
    straight, transposed = comm.gather_numbers(seconds_of_weight_gradients(features, gradient, workspace)).sum(0)
    return bool(transposed < straight)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, traffic: Traffic, workspace: Workspace, spends: bool
    ) -> Tensor:
        ctx.save_for_backward(features, weight)
        ctx.traffic, ctx.workspace, ctx.spends = traffic, workspace, spends
        with traffic.timing(GEMM):
            return matmul(features.detach(), weight.detach(), workspace)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        features, weight = ctx.saved_tensors
        # Fixed input features need no gradient, which saves one of the two products in the first layer.
        of_features, of_weight, *_ = ctx.needs_input_grad
        back: Tensor | None = None
        with ctx.traffic.timing(GEMM):
            # First, as the other product may overwrite the features.
            found = weight_gradient(features, gradient, ctx.workspace) if of_weight else None
            if of_features:
                back = matmul(gradient, weight.T, ctx.workspace, features.detach() if ctx.spends else None)
        return back, found, None, None, None
