"""A mean over given rows of all ranks, on any layout: what all losses share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.layout.layout import Layout


class MaskedLoss(ABC):
    """A mean over the known labels of given vertices, normalized over all ranks.

    Attributes:
        rows: (number of such vertices of this rank,) int64 their rows of the scores.
        num_examples: number of such vertices over all ranks.
        speaks: this rank adds its sum to the loss; ranks that hold copies of the same scores do not.
        num_terms: number of terms of the sum over all ranks, or the sum of their weights, which divides it; set by a
            subclass.
        divisor: what the sum is divided by instead of ``num_terms``, such as the terms of more vertices than these.
    """

    num_terms: float
    divisor: float | None = None
    #: Factors of the terms, of a shape that broadcasts to the shape of the scores in the mask; None for ones.
    _weight: Tensor | None = None

    def __init__(self, layout: Layout, mask: Tensor) -> None:
        """Count the vertices of all ranks. Collective.

        Args:
            layout: layout of the scores.
            mask: (num_rows,) bool, the vertices that contribute to the loss.
        """
        self._layout, self.place = layout, layout.place
        self.rows = mask.nonzero().squeeze(1)
        self.num_examples = self._total(len(self.rows) if layout.speaks_for_rows else 0)
        self.speaks = layout.speaks_for_rows

    def _total(self, number: int) -> int:
        count = self.place.tensor([number], torch.int64)
        self._layout.grid.comm.all_reduce(count, Kind.SETUP)
        return int(count)

    def _total_weight(self, weights: Tensor) -> float:
        """The sum of the weights of all ranks. Collective."""
        total = weights.sum(dtype=torch.float64).reshape(1) if self.speaks else self.place.zeros((1,), torch.float64)
        self._layout.grid.comm.all_reduce(total, Kind.SETUP)
        return float(total)

    def __call__(self, scores: Tensor) -> Tensor:
        """This rank's contribution; the sum of all ranks' contributions is the loss. Collective.

        Args:
            scores: (num_rows, columns held) of the layout.
        """
        result: Tensor = _MaskedMean.apply(scores, self)  # type: ignore[no-untyped-call]
        return result

    def take_rows(self, scores: Tensor) -> Tensor:
        """(number of this rank's vertices in the mask, columns held) a copy of their scores."""
        taken = self.place.empty((len(self.rows), scores.shape[1]), scores.dtype)
        return torch.index_select(scores, 0, self.rows, out=taken)

    def weigh_rows(self, weights: Tensor | None) -> None:
        """Multiply the terms of every row by a factor: (num_rows,) float64, or None for ones."""
        if weights is not None:
            factor = weights[self.rows].unsqueeze(1)
            self._weight = factor if self._weight is None else self._weight * factor

    @abstractmethod
    def parts(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of this rank's losses, and its derivative. Collective.

        Args:
            scores: (number of this rank's vertices in the mask, columns held); overwritten.

        Returns:
            () float64, and a tensor of the shape and dtype of ``scores``.
        """


class _MaskedMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, loss: MaskedLoss) -> Tensor:
        # Only the rows in the mask enter, so the softmax needs no memory for the others.
        total, derivative = loss.parts(loss.take_rows(scores.detach()))
        divisor = loss.num_terms if loss.divisor is None else loss.divisor
        ctx.save_for_backward(derivative.div_(divisor))
        ctx.loss, ctx.num_rows = loss, len(scores)
        return total / divisor if loss.speaks else loss.place.zeros((), torch.float64)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # The loss is the sum of all ranks' contributions, so every rank differentiates its own with factor 1.
        (derivative,) = ctx.saved_tensors
        whole = ctx.loss.place.zeros((ctx.num_rows, derivative.shape[1]), derivative.dtype)
        return whole.index_copy_(0, ctx.loss.rows, derivative).mul_(gradient.to(derivative.dtype)), None
