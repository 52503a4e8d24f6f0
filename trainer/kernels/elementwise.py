"""Sums of matrices, differentiable, in place or in the workspace.

Nothing else may need a matrix that is overwritten: neither another operation nor the backward pass of the one that
formed it. Products with a matrix or with the adjacency need their inputs or nothing, never their output.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnloom.trainer.kernels.workspace import Workspace


def add_bias(output: Tensor, bias: Tensor) -> Tensor:
    """``output`` plus the bias in every row, in place.

    Args:
        output: (num_rows, dim).
        bias: (dim,).
    """
    result: Tensor = _AddBias.apply(output, bias)  # type: ignore[no-untyped-call]
    return result


def add_to(output: Tensor, other: Tensor) -> Tensor:
    """``output`` plus another matrix of its shape, in place."""
    result: Tensor = _AddTo.apply(output, other)  # type: ignore[no-untyped-call]
    return result


def scaled_sum(matrix: Tensor, factor: Tensor, other: Tensor, workspace: Workspace) -> Tensor:
    """``factor`` times a matrix, plus another one of its shape.

    Args:
        factor: (1,).
    """
    result: Tensor = _ScaledSum.apply(matrix, factor, other, workspace)  # type: ignore[no-untyped-call]
    return result


def fork(matrix: Tensor, workspace: Workspace) -> tuple[Tensor, Tensor]:
    """A matrix for two uses, whose gradients are then summed in the workspace instead of by autograd."""
    if not matrix.requires_grad:
        return matrix, matrix
    first, second = _Fork.apply(matrix, workspace)  # type: ignore[no-untyped-call]
    return first, second


class _Fork(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, workspace: Workspace) -> tuple[Tensor, Tensor]:
        ctx.workspace = workspace
        # The same memory in other tensors: autograd takes an input that is returned for an identity.
        return matrix.detach(), matrix.detach()

    @staticmethod
    def backward(ctx: Any, first: Tensor, second: Tensor) -> tuple[Tensor, None]:
        return torch.add(first, second, out=ctx.workspace.like(first)), None


class _AddBias(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, output: Tensor, bias: Tensor) -> Tensor:
        ctx.mark_dirty(output)
        return output.add_(bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG004
        return gradient, gradient.sum(0)


class _AddTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, output: Tensor, other: Tensor) -> Tensor:
        ctx.mark_dirty(output)
        return output.add_(other)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG004
        return gradient, gradient


class _ScaledSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, factor: Tensor, other: Tensor, workspace: Workspace) -> Tensor:
        ctx.workspace = workspace
        ctx.save_for_backward(matrix, factor)
        return torch.mul(matrix, factor.detach(), out=workspace.like(matrix)).add_(other.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        matrix, factor = ctx.saved_tensors
        scratch = ctx.workspace.like(gradient)
        of_factor = torch.mul(gradient, matrix, out=scratch).sum((0, 1)).reshape(1)
        of_matrix = torch.mul(gradient, factor, out=scratch) if ctx.needs_input_grad[0] else None
        return of_matrix, of_factor, gradient, None
