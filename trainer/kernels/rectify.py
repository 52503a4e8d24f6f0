"""Bias, ReLU and dropout of a layer's output in one pass, forward and backward.

The backward pass needs to know which features the layer let through: one bit each, packed. Neither the layer's output
nor its result is kept for it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnloom.trainer.kernels.contract import LANES, Mask, RowPass, Step
from gnnloom.trainer.kernels.elementwise import column_sums
from gnnloom.trainer.kernels.row_pass import run_pass
from gnnloom.trainer.place.arrays import sum_dtype
from gnnloom.trainer.place.place import Place


def rectify(
    output: Tensor,
    bias: Tensor | None,
    mask: Mask | None,
    place: Place,
    *,
    in_place: bool = False,
    spends_gradient: bool = False,
) -> Tensor:
    """The dropout of relu(output + bias); differentiable.

    Args:
        output: (num_rows, dim) float32, float64 or bfloat16.
        bias: (dim,) of the same dtype, or float32 for bfloat16; None for zeros.
        mask: which features to drop; None for none of them.
        in_place: overwrite ``output``, which nothing else may need: neither another operation nor the backward pass of
            the one that formed it.
        spends_gradient: backward, overwrite the gradient of the result, which autograd must not pass to another
            operation as well.

    Returns:
        (num_rows, dim).
    """
    result: Tensor = _Rectify.apply(output, bias, mask, place, in_place, spends_gradient)  # type: ignore[no-untyped-call]
    return result


class _Rectify(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        output: Tensor,
        bias: Tensor | None,
        mask: Mask | None,
        place: Place,
        in_place: bool,
        spends_gradient: bool,
    ) -> Tensor:
        in_place = in_place and output.is_contiguous()
        source = place.contiguous(output.detach())
        result = output if in_place else place.like(source)
        num_rows, dim = source.shape
        # torch has no unsigned words that the workspace could hand out; the kernel reads the same bits.
        passed = place.empty((num_rows, -(-dim // LANES)), torch.int32)
        added = place.zeros((dim,), sum_dtype(source.dtype)) if bias is None else bias.detach().contiguous()
        scale = 1.0 if mask is None else mask.scale
        run_pass(RowPass(Step.RECTIFY, source, result.detach(), added, passed, mask, scale), place)
        ctx.given = place, scale, bias is not None, spends_gradient
        ctx.save_for_backward(passed)
        if in_place:
            ctx.mark_dirty(output)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        place, scale, has_bias, spends_gradient = ctx.given
        (passed,) = ctx.saved_tensors
        given = place.contiguous(gradient)
        result = given if spends_gradient else place.like(given)
        run_pass(RowPass(Step.SELECT, given, result, passed=passed, scale=scale), place)
        return result, column_sums(result, place) if has_bias else None, None, None, None, None
