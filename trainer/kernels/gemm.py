"""The product of a rank's rows with a weight, its time counted forward and backward."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from gnnloom.trainer.comm.communicator import GEMM, Communicator, Traffic

_TRIALS = 3


def timed_product(features: Tensor, weight: Tensor, traffic: Traffic) -> Tensor:
    """(num_rows, output dim) ``features`` times ``weight``; differentiable."""
    result: Tensor = _Product.apply(features, weight, traffic)  # type: ignore[no-untyped-call]
    return result


def transposed_product(features: Tensor, gradient: Tensor, *, turned: bool) -> Tensor:
    """H^T dQ, or the same as (dQ^T H)^T (``turned``); (input dim, output dim) contiguous."""
    return (gradient.T @ features).T.contiguous() if turned else features.T @ gradient


def turned_is_faster(features: Tensor, gradient: Tensor, comm: Communicator) -> bool:
    """Measure both ways of :func:`transposed_product`; the ranks' sum decides for all of them. Collective.

    Singh et al., "Plexus" (SC 2025), section 5: libraries differ up to several times between the two.
    """
    seconds = [_seconds(features, gradient, turned=turned) for turned in (False, True)]
    straight, turned = comm.gather_numbers(seconds).sum(0)
    return bool(turned < straight)


def _seconds(features: Tensor, gradient: Tensor, *, turned: bool) -> float:
    """Of the fastest of a few products."""
    found = []
    for _ in range(_TRIALS):
        started = time.perf_counter()
        transposed_product(features, gradient, turned=turned)
        found.append(time.perf_counter() - started)
    return min(found)


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
