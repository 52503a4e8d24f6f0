"""Attention heads' scores of their values, and their mean, in the workspace.

Intermediate results as large as the values are computed for a few rows at a time, so that they stay in the caches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from gnnloom.trainer.place.place import Place

#: Numbers that are formed at a time.
_NUMBERS = 1 << 17


def head_scores(
    values: Tensor, source: Tensor, target: Tensor | None, num_targets: int, place: Place
) -> tuple[Tensor, Tensor, Tensor]:
    """The values for one more use, and the products of every head's values with its attention vectors.

    Differentiable; the gradient of the returned values is overwritten.

    Args:
        values: (num_rows, heads, dim).
        source, target: (heads, dim) attention vectors; if ``target`` is None, no target scores are computed.
        num_targets: number of leading rows that are targets.

    Returns:
        The values; (num_rows, heads) scores as sources; (num_targets, heads) scores as targets.
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
        second: of the same shape, or (heads, dim).
    """
    sums = place.empty(first.shape[:2], first.dtype)
    for rows, scratch in _chunks(first, place):
        factor = second if second.dim() == 2 else second[rows]
        torch.sum(torch.mul(first[rows], factor, out=scratch), 2, out=sums[rows])
    return sums


def _chunks(values: Tensor, place: Place) -> Iterator[tuple[slice, Tensor]]:
    """Ranges of rows, and memory for as many of them."""
    step = max(1, _NUMBERS // max(1, values[:1].numel()))
    scratch = place.empty((min(step, len(values)), *values.shape[1:]), values.dtype)
    for start in range(0, len(values), step):
        rows = slice(start, min(start + step, len(values)))
        yield rows, scratch[: rows.stop - rows.start]


class _HeadScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, values: Tensor, source: Tensor, target: Tensor | None, num_targets: int, place: Place
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(values, source, target)
        ctx.place = place
        plain = values.detach()
        of_source = head_sums(plain, source.detach(), place)
        of_target = head_sums(plain[:num_targets], (source if target is None else target).detach(), place)
        # A new tensor on the same memory: autograd treats a returned input as an identity.
        return plain, of_source, of_target

    @staticmethod
    def backward(ctx: Any, of_values: Tensor, of_source: Tensor, of_target: Tensor) -> tuple[Tensor | None, ...]:
        values, source, target = ctx.saved_tensors
        place = ctx.place
        for vector, gradient in ((source, of_source), (target, of_target)):
            if vector is not None:
                for rows, scratch in _chunks(of_values[: len(gradient)], place):
                    of_values[rows] += torch.mul(gradient[rows].unsqueeze(2), vector, out=scratch)
        of_source_vector = _vector_gradient(values, of_source, place)
        of_target_vector = None if target is None else _vector_gradient(values, of_target, place)
        return of_values, of_source_vector, of_target_vector, None, None


def _vector_gradient(values: Tensor, gradient: Tensor, place: Place) -> Tensor:
    """(heads, dim) the sum over the rows of the values times the gradient of their scores."""
    values = values[: len(gradient)]
    # The sums of very many ranges of rows are added one by one, which would lose digits in float32.
    total = place.zeros(values.shape[1:], torch.float64)
    for rows, scratch in _chunks(values, place):
        total += torch.mul(gradient[rows].unsqueeze(2), values[rows], out=scratch).sum(0)
    return total.to(values.dtype)


class _HeadMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, place: Place) -> Tensor:
        ctx.shape, ctx.place = values.shape, place
        return torch.mean(values, 1, out=place.empty((len(values), values.shape[2]), values.dtype))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        whole = ctx.place.empty(ctx.shape, gradient.dtype)
        return torch.div(gradient.unsqueeze(1).expand(ctx.shape), ctx.shape[1], out=whole), None
