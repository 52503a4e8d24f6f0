"""Sums over pairs, such as losses, and their gradients, in the memory of a few pairs at a time.

Rows of both ends of all pairs would take several times the memory of the model's output, which has one row per vertex.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gnnloom.trainer.links.bilinear import Dot
from gnnloom.trainer.links.decoder import Decoder
from gnnloom.trainer.links.losses import PairLoss
from gnnloom.trainer.links.pair_products import row_products_of_pairs
from gnnloom.trainer.place.place import Place

#: Number of rows of one end, or of all negatives, in memory at a time: they stay in the caches.
_ROWS: Final = 1 << 12
#: From a range of the pairs and the rows of every end there, the () float64 sum of the pairs' terms; differentiable.
#: Rows have the shape of their numbers, and then the width. Communicates nothing.
Terms = Callable[[slice, Sequence[Tensor]], Tensor]


def sum_over_pairs(
    rows: Tensor, ends: Sequence[NDArray[np.int64]], terms: Terms, module: nn.Module, place: Place
) -> Tensor:
    """The sum of the terms of all pairs; differentiable with respect to the rows and the module's parameters.

    The gradient is formed together with the sum, a few pairs at a time in their order, so it has the same bits in every
    run. Communicates nothing.

    Args:
        rows: (num_rows, dim).
        ends: numbers of rows: (num_pairs,) of one end, or (num_pairs, count) of several targets.
        terms: forms the terms of some pairs, with the module.

    Returns:
        () float64.
    """
    result: Tensor = _Sum.apply(rows, ends, terms, place, *module.parameters())  # type: ignore[no-untyped-call]
    return result


def pair_loss(
    decoder: Decoder,
    loss: PairLoss,
    rows: Tensor,
    ends: Sequence[NDArray[np.int64]],
    num_terms: int,
    margin: float = 1.0,
) -> Tensor:
    """This rank's contribution to a loss of pairs and their negatives; see :func:`sum_over_pairs`.

    Args:
        rows: (num_rows, dim), such as the rows of :meth:`gnnloom.trainer.links.pair_rows.PairRows.numbered`.
        ends: numbers of rows: (num_pairs,) sources, (num_pairs,) targets and (num_pairs, count) negatives, which are
            targets; then, if negatives have their own sources, (num_pairs, count) sources.
        num_terms, margin: see :class:`gnnloom.trainer.links.losses.PairLoss`.
    """
    if isinstance(decoder, Dot) and decoder.num_outputs == 1:
        source, target, negatives, *others = ends
        sides, place = decoder.both(rows), decoder.place
        if not others:
            targets = np.concatenate([target[:, None], negatives], 1)
            scores = row_products_of_pairs(*sides, source, targets, place)
            return loss(scores[:, 0], scores[:, 1:], num_terms, margin)
        of_negatives = row_products_of_pairs(*sides, others[0].reshape(-1), negatives.reshape(-1, 1), place)
        positive = row_products_of_pairs(*sides, source, target[:, None], place)
        return loss(positive[:, 0], of_negatives.view(negatives.shape), num_terms, margin)

    def terms(_: slice, rows_of: Sequence[Tensor]) -> Tensor:
        source, target, negatives, *others = rows_of
        sources = (others[0] if others else source.unsqueeze(1).expand(negatives.shape)).flatten(0, 1)
        of_negatives = decoder(sources, negatives.flatten(0, 1)).view(negatives.shape[:2])
        return loss(decoder(source, target), of_negatives, num_terms, margin)

    return sum_over_pairs(rows, ends, terms, decoder, decoder.place)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, ends: Sequence[NDArray[np.int64]], terms: Terms, place: Place, *parameters: Tensor
    ) -> Tensor:
        of_rows, *_ = needed = ctx.needs_input_grad[0], *ctx.needs_input_grad[4:]
        given, total = rows.detach(), place.zeros((), torch.float64)
        gradients = [
            place.zeros(each.shape, each.dtype) if need else None
            for each, need in zip((rows, *parameters), needed, strict=True)
        ]
        step = max(1, _ROWS // max(1, *(math.prod(each.shape[1:]) for each in ends)))
        for start in place.steps(range(0, len(ends[0]), step)):
            some = slice(start, min(start + step, len(ends[0])))
            numbers = [place.from_numpy(np.ascontiguousarray(each[some])) for each in ends]
            taken = [_taken(given, each, place).requires_grad_(of_rows) for each in numbers]
            with torch.set_grad_enabled(any(needed)):
                value = terms(some, taken)
            total += value.detach()
            _add_gradients(value, numbers, taken, parameters, gradients)
        ctx.gradients = gradients
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        # Nothing else holds the gradients, so autograd may keep them instead of copying them.
        found, ctx.gradients = ctx.gradients, None
        # Usually the sum itself is differentiated, with factor 1.
        if float(gradient) != 1:
            found = [None if each is None else each.mul_(gradient.to(each.dtype)) for each in found]
        return found[0], None, None, None, *found[1:]


def _add_gradients(
    value: Tensor,
    numbers: Sequence[Tensor],
    taken: Sequence[Tensor],
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
) -> None:
    """Add the gradient of some pairs' terms.

    Args:
        numbers, taken: numbers of rows, and copies of the rows.
        gradients: gradients of all rows and of the parameters; None if not needed.
    """
    leaves = [each for each in (*taken, *parameters) if each.requires_grad]
    if not leaves or not value.requires_grad:
        return
    found = iter(torch.autograd.grad(value, leaves, allow_unused=True))
    parts = [next(found) if each.requires_grad else None for each in (*taken, *parameters)]
    of_rows, *of_parameters = gradients
    for each, part in zip(numbers, parts[: len(taken)], strict=True):
        if of_rows is not None and part is not None:
            of_rows.index_add_(0, each.view(-1), part.view(-1, of_rows.shape[1]))
    for whole, part in zip(of_parameters, parts[len(taken) :], strict=True):
        if whole is not None and part is not None:
            whole.add_(part)


def _taken(rows: Tensor, numbers: Tensor, place: Place) -> Tensor:
    """The rows of some numbers, of the shape of the numbers and the width."""
    out = place.empty((numbers.numel(), rows.shape[1]), rows.dtype)
    return torch.index_select(rows, 0, numbers.view(-1), out=out).view(*numbers.shape, rows.shape[1])
