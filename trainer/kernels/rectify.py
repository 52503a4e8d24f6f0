"""Bias, ReLU and dropout of a layer's output in one pass, forward and backward.

The backward pass needs to know which features the layer let through: one bit each, packed. Neither the layer's output
nor its result is kept for it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnloom.trainer.kernels.arrays import sum_dtype
from gnnloom.trainer.kernels.contract import LANES, Mask, RowPass, Step
from gnnloom.trainer.kernels.dropout import Dropout
from gnnloom.trainer.kernels.elementwise import column_sums
from gnnloom.trainer.kernels.row_pass import run_pass


def rectify(
    output: Tensor,
    bias: Tensor | None,
    mask: Mask | None,
    dropout: Dropout,
    *,
    in_place: bool = False,
    spends_gradient: bool = False,
) -> Tensor:
    """The dropout of relu(output + bias); differentiable.

    Args:
        output: (num_rows, dim) float32, float64 or bfloat16.
        bias: (dim,) of the same dtype, or float32 for bfloat16; None for zeros.
        mask: which features to drop; None for none of them.
        dropout: has the threads and the workspace.
        in_place: overwrite ``output``, which nothing else may need: neither another operation nor the backward pass of
            the one that formed it.
        spends_gradient: backward, overwrite the gradient of the result, which autograd must not pass to another
            operation as well.

    Returns:
        (num_rows, dim).
    """
    result: Tensor = _Rectify.apply(output, bias, mask, dropout, in_place, spends_gradient)  # type: ignore[no-untyped-call]
    return result


class _Rectify(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        output: Tensor,
        bias: Tensor | None,
        mask: Mask | None,
        dropout: Dropout,
        in_place: bool,
        spends_gradient: bool,
    ) -> Tensor:
        space = dropout.workspace
        in_place = in_place and output.is_contiguous()
        source = space.contiguous(output.detach())
        result = output if in_place else space.like(source)
        num_rows, dim = source.shape
        # torch has no unsigned words that the workspace could hand out; the kernel reads the same bits.
        passed = space.empty((num_rows, -(-dim // LANES)), torch.int32)
        added = torch.zeros(dim, dtype=sum_dtype(source.dtype)) if bias is None else bias.detach().contiguous()
        scale = 1.0 if mask is None else mask.scale
        run_pass(RowPass(Step.RECTIFY, source, result.detach(), added, passed, mask, scale), dropout.threads)
        ctx.given = dropout, scale, bias is not None, spends_gradient
        ctx.save_for_backward(passed)
        if in_place:
            ctx.mark_dirty(output)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        dropout, scale, has_bias, spends_gradient = ctx.given
        space, (passed,) = dropout.workspace, ctx.saved_tensors
        given = space.contiguous(gradient)
        result = given if spends_gradient else space.like(given)
        run_pass(RowPass(Step.SELECT, given, result, passed=passed, scale=scale), dropout.threads)
        return result, column_sums(result, space) if has_bias else None, None, None, None, None
