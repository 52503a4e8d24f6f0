"""Scores of attention heads and the mean of heads, in the workspace, each in one pass over the values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnloom.trainer.kernels.elementwise import add_in_order
from gnnloom.trainer.kernels.table import kernels_of
from gnnloom.trainer.place.arrays import sum_dtype
from gnnloom.trainer.place.contract import HEADS_CHUNK, HeadsPass, HeadsStep
from gnnloom.trainer.place.place import Place


def head_scores(
    values: Tensor, source: Tensor, target: Tensor | None, num_targets: int, place: Place
) -> tuple[Tensor, Tensor, Tensor]:
    """The values, for another use, and the products of every head's values with its attention vectors.

    Differentiable; the gradient of the returned values is overwritten.

    Args:
        values: (num_rows, heads, dim).
        source, target: (heads, dim) attention vectors of the dtype of sums; if ``target`` is None, no target scores are
            computed.
        num_targets: number of leading rows that are targets.

    Returns:
        The values; (num_rows, heads) scores as sources; (num_targets, heads) scores as targets, of the dtype of sums.
    """
    given = values, source, target, num_targets if target is not None else 0, place
    shared, of_source, of_target = _HeadScores.apply(*given)  # type: ignore[no-untyped-call]
    return shared, of_source, of_target


def head_mean(values: Tensor, place: Place) -> Tensor:
    """(num_rows, dim) the mean of the heads of (num_rows, heads, dim) values; differentiable."""
    result: Tensor = _HeadMean.apply(values, place)  # type: ignore[no-untyped-call]
    return result


def head_sums(first: Tensor, second: Tensor, place: Place) -> Tensor:
    """(num_rows, heads) sums over the last dimension of the product of two matrices; not differentiable.

    Args:
        first: (num_rows, heads, dim).
        second: of the same shape and dtype, or (heads, dim) of the dtype of sums.
    """
    sums = place.empty(first.shape[:2], sum_dtype(first.dtype))
    kernels_of(place).pass_heads(HeadsPass(HeadsStep.DOTS, first, second, sums), place)
    return sums


class _HeadScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, values: Tensor, source: Tensor, target: Tensor | None, num_targets: int, place: Place
    ) -> tuple[Tensor, Tensor, Tensor]:
        plain = place.contiguous(values.detach())
        ctx.save_for_backward(plain, source, target)
        ctx.place = place
        of_source, of_target = (
            place.empty((count, values.shape[1]), sum_dtype(values.dtype)) for count in (len(values), num_targets)
        )
        given = HeadsPass(HeadsStep.DOTS, plain, source.detach(), of_source)
        both = given if target is None else given._replace(other=target.detach(), other_sums=of_target)
        kernels_of(place).pass_heads(both, place)
        # A new tensor on the same memory: autograd treats a returned input as an identity.
        return plain, of_source, of_target

    @staticmethod
    def backward(ctx: Any, of_values: Tensor, of_source: Tensor, of_target: Tensor) -> tuple[Tensor | None, ...]:
        values, source, target = ctx.saved_tensors
        place = ctx.place
        of_values, of_source, of_target = map(place.contiguous, (of_values, of_source, of_target))
        # Sums over a chunk of rows; sums of very many rows, one by one, would lose digits in float32.
        partial = place.empty((-(-len(values) // HEADS_CHUNK), 2, *values.shape[1:]), of_source.dtype)
        given = HeadsPass(HeadsStep.SPREAD, values, source.detach(), of_source, gradient=of_values, partial=partial)
        both = given if target is None else given._replace(other=target.detach(), other_sums=of_target)
        kernels_of(place).pass_heads(both, place)
        total = place.zeros(partial.shape[1:], torch.float64)
        add_in_order(total, partial, place)
        vectors = total.to(of_source.dtype)
        return of_values, vectors[0], None if target is None else vectors[1], None, None


class _HeadMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, place: Place) -> Tensor:
        ctx.shape, ctx.place = values.shape, place
        return torch.mean(values, 1, out=place.empty((len(values), values.shape[2]), values.dtype))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        whole = ctx.place.empty(ctx.shape, gradient.dtype)
        return torch.div(gradient.unsqueeze(1).expand(ctx.shape), ctx.shape[1], out=whole), None
