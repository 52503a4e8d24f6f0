"""The product of a rank's rows with a weight, its time counted forward and backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnloom.trainer.comm import GEMM, Traffic


def timed_product(features: Tensor, weight: Tensor, traffic: Traffic) -> Tensor:
    """(num_rows, output dim) ``features`` times ``weight``; differentiable."""
    result: Tensor = _Product.apply(features, weight, traffic)  # type: ignore[no-untyped-call]
    return result


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, traffic: Traffic) -> Tensor:
        ctx.save_for_backward(features, weight)
        ctx.traffic = traffic
        with traffic.timing(GEMM):
            return features @ weight

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        features, weight = ctx.saved_tensors
        of_features, of_weight, _ = ctx.needs_input_grad
        with ctx.traffic.timing(GEMM):
            return (
                gradient @ weight.T if of_features else None,
                features.T @ gradient if of_weight else None,
                None,
            )
