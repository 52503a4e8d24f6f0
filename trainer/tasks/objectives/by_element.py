"""Losses whose terms depend on one score each: of zeros and ones, and of numbers."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.tasks.objectives.masked_loss import MaskedLoss

#: Number of scores that are turned into losses and derivatives at a time, so that they stay in the caches.
_NUMBERS = 1 << 15


class _ByElement(MaskedLoss):
    """A loss whose terms depend on one score each, so that it and its gradient are one pass over the rows."""

    def parts(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of the losses, and its derivative in the place of the scores. Communicates nothing."""
        total, step = self.place.zeros((), torch.float64), max(1, _NUMBERS // max(1, scores.shape[1]))
        shape = min(step, len(scores)), scores.shape[1]
        scratch = self.place.empty(shape, scores.dtype), self.place.empty(shape, scores.dtype)
        for start in self.place.steps(range(0, len(scores), step)):
            rows = slice(start, min(start + step, len(scores)))
            some = scores[rows]
            total += self.some_parts(some, rows, (scratch[0][: len(some)], scratch[1][: len(some)]))
        return total, scores

    @abstractmethod
    def some_parts(self, scores: Tensor, rows: slice, scratch: tuple[Tensor, Tensor]) -> Tensor:
        """The () float64 sum of the losses of some rows, whose scores become its derivative.

        Args:
            rows: positions among this rank's vertices in the mask.
            scratch: memory of the shape and dtype of ``scores``, twice.
        """


class MaskedBinaryCrossEntropy(_ByElement):
    """Mean binary cross-entropy of the logits, over the rows and classes with known labels.

    If all are known, it equals ``torch.nn.BCEWithLogitsLoss``. Columns are independent, so ranks that hold different
    columns of the same rows exchange nothing.
    """

    def __init__(
        self, layout: Layout, label: Tensor, mask: Tensor, num_classes: int, weights: Tensor | None = None
    ) -> None:
        """Count the vertices and labels of all ranks. Collective.

        Args:
            layout: layout of the scores.
            label: (num_rows, num_classes) int8, 1 or 0, -1 for unknown.
            mask: (num_rows,) bool, the vertices that contribute to the loss.
            weights: (num_classes,) float64 weights of the classes.
        """
        super().__init__(layout, mask)
        columns = layout.columns(num_classes)
        held = label[self.rows, columns]
        known, target = held >= 0, held == 1
        # Unlike in the cross-entropy, every rank sums only its own columns, so one rank per piece speaks, not one per
        # row.
        self.speaks = layout.speaks_for_piece(layout.grid.axes)
        self._weight = None if weights is None else weights[columns]
        if self._weight is None:
            self.num_terms = self._total(int(known.sum()) if self.speaks else 0)
        else:
            self.num_terms = self._total_weight(known * self._weight)
        self._unknown = ~known
        # torch subtracts no booleans; these are the same bytes.
        self._target = target.view(torch.int8)

    def some_parts(self, scores: Tensor, rows: slice, scratch: tuple[Tensor, Tensor]) -> Tensor:
        # log(1 + e^x) - t x, written as max(x, 0) + log(1 + e^-|x|) - t x, which cannot overflow.
        losses, other = scratch
        torch.abs(scores, out=other).neg_().exp_().log1p_()
        torch.clamp_min(scores, 0, out=losses).add_(other)
        losses -= other.copy_(scores).masked_fill_(self._target[rows] == 0, 0)
        scores.sigmoid_().sub_(self._target[rows])
        weight = None if self._weight is None else _of_rows(self._weight, rows).to(scores.dtype)
        for each in (losses, scores):
            each.masked_fill_(self._unknown[rows], 0)
            if weight is not None:
                each.mul_(weight)
        return losses.sum(dtype=torch.float64)


class MaskedSquaredError(_ByElement):
    """Mean squared error over the rows and columns whose target is known.

    Columns are independent, so ranks that hold different columns of the same rows exchange nothing.
    """

    def __init__(self, layout: Layout, target: Tensor, mask: Tensor, num_targets: int) -> None:
        """Count the known targets of all ranks. Collective.

        Args:
            layout: layout of the scores.
            target: (num_rows, num_targets) float, NaN for unknown.
            mask: (num_rows,) bool, the vertices that contribute to the loss.
        """
        super().__init__(layout, mask)
        self._target = target[self.rows, layout.columns(num_targets)]
        self._unknown = self._target.isnan()
        self.speaks = layout.speaks_for_piece(layout.grid.axes)
        self.num_terms = self._total(int((~self._unknown).sum()) if self.speaks else 0)

    def some_parts(self, scores: Tensor, rows: slice, scratch: tuple[Tensor, Tensor]) -> Tensor:
        squares, error = scratch
        scores.sub_(self._target[rows]).masked_fill_(self._unknown[rows], 0)
        if self._weight is None:
            torch.square(scores, out=squares)
        else:
            error.copy_(scores)
            torch.mul(error, scores.mul_(_of_rows(self._weight, rows).to(scores.dtype)), out=squares)
        scores.mul_(2)
        return squares.sum(dtype=torch.float64)


def _of_rows(weight: Tensor, rows: slice) -> Tensor:
    """The factors of some rows, unless they are the same in every row."""
    return weight if weight.dim() == 1 else weight[rows]
