"""Losses over the vertices of all ranks in a split, on any layout."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from gnnloom.trainer.comm.communicator import Reduction
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.vertex_data import Labels
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.training.own_functions import OwnFunction


def build_loss(
    layout: Layout, labels: Labels, split: str = "train", weights: Tensor | None = None, own: OwnFunction | None = None
) -> MaskedLoss:
    """The loss that fits the labels, or the user's own, over the vertices of a split. Collective.

    It is the cross-entropy of one class per vertex, the binary cross-entropy of zeros and ones, or the mean squared
    error of a regression.

    Args:
        layout: layout of the scores.
        weights: (num_classes,) float64 weights of the classes; not for a regression.
        own: the user's function.
    """
    mask = labels.known(split)
    if own is not None:
        return MaskedOwnLoss(layout, labels.label, mask, own, weights)
    if labels.is_regression:
        return MaskedSquaredError(layout, labels.label, mask, labels.num_classes)
    kind = MaskedBinaryCrossEntropy if labels.is_multilabel else MaskedCrossEntropy
    return kind(layout, labels.label, mask, labels.num_classes, weights)


class MaskedLoss(ABC):
    """A mean over the known labels of given vertices, normalized over all ranks.

    Attributes:
        num_vertices: number of these vertices over all ranks.
        speaks: this rank adds its sum to the loss; ranks that hold copies of the same scores do not.
    """

    def __init__(self, layout: Layout, mask: Tensor) -> None:
        """Count the vertices of all ranks. Collective.

        Args:
            layout: layout of the scores.
            mask: (num_rows,) bool, the vertices that contribute to the loss.
        """
        self._layout = layout
        self._rows = mask.nonzero().squeeze(1)
        self.num_vertices = self._total(len(self._rows) if layout.speaks_for_rows else 0)
        self.speaks = layout.speaks_for_rows

    def _total(self, number: int) -> int:
        count = torch.tensor([number], dtype=torch.int64)
        self._layout.grid.comm.all_reduce(count, Kind.SETUP)
        return int(count)

    def _total_weight(self, weights: Tensor) -> float:
        """The sum of the weights of all ranks. Collective."""
        total = weights.sum(dtype=torch.float64).reshape(1) if self.speaks else torch.zeros(1, dtype=torch.float64)
        self._layout.grid.comm.all_reduce(total, Kind.SETUP)
        return float(total)

    def __call__(self, scores: Tensor) -> Tensor:
        """This rank's contribution; the sum of all ranks' contributions is the loss. Collective.

        Args:
            scores: (num_rows, columns held) of the layout.
        """
        # Only the rows in the mask enter, so the softmax needs no memory for the others.
        result: Tensor = _MaskedMean.apply(scores[self._rows], self)  # type: ignore[no-untyped-call]
        return result

    @property
    @abstractmethod
    def num_terms(self) -> float:
        """Number of terms of the sum over all ranks, or the sum of their weights, which divides it."""

    @abstractmethod
    def parts(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of this rank's losses, and its derivative. Collective.

        Args:
            scores: (number of this rank's vertices in the mask, columns held).

        Returns:
            () float64, and a tensor of the shape and dtype of ``scores``.
        """


class MaskedCrossEntropy(MaskedLoss):
    """Mean cross-entropy over given vertices, normalized by their number (or weight) over all ranks.

    With weights, it equals ``torch.nn.CrossEntropyLoss(weight)``. A row of scores may be split over ranks: its maximum
    and its sum of exponentials are then formed over the ranks that hold it.
    """

    def __init__(
        self, layout: Layout, label: Tensor, mask: Tensor, num_classes: int, weights: Tensor | None = None
    ) -> None:
        """Count the vertices of all ranks. Collective.

        Args:
            layout: layout of the scores.
            label: (num_rows,) int64, below ``num_classes`` where ``mask`` is set.
            mask: (num_rows,) bool, the vertices that contribute to the loss.
            weights: (num_classes,) float64 weights of the classes.
        """
        super().__init__(layout, mask)
        self._weight = None if weights is None else weights[label[self._rows]]
        self._num_terms = self.num_vertices if self._weight is None else self._total_weight(self._weight)
        columns = layout.columns(num_classes)
        self._target = label[self._rows] - columns.start
        # Columns are split over the group, so a label lies in the columns of one rank.
        self._held = (self._target >= 0) & (self._target < columns.stop - columns.start)

    @property
    def num_terms(self) -> float:
        return self._num_terms

    def parts(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of the rows' losses, and its derivative: softmax minus the indicator of the label. Collective."""
        group = self._layout.column_group
        # Subtracting the row's maximum keeps the exponentials from overflowing and does not change the softmax.
        maximum = _row_maximum(scores)
        group.all_reduce(maximum, Kind.LOSS, Reduction.MAX)
        softmax = (scores - maximum).exp_()
        total = softmax.sum(1, keepdim=True)
        # Exactly one rank of the group holds the label's column; the others add 0.
        held = self._held.nonzero().squeeze(1)
        logit = torch.zeros_like(total)
        logit[held, 0] = scores[held, self._target[held]]
        # One message for both sums.
        both = torch.stack([total, logit])
        group.all_reduce(both, Kind.LOSS)
        # The largest score of the row adds exp(0) = 1 to the total, so the logarithm is finite.
        losses = both[0].log() + maximum - both[1]
        softmax /= both[0]
        softmax[held, self._target[held]] -= 1
        if self._weight is not None:
            weight = self._weight.to(scores.dtype).unsqueeze(1)
            losses, softmax = losses * weight, softmax * weight
        return losses.sum(dtype=torch.float64), softmax


class MaskedBinaryCrossEntropy(MaskedLoss):
    """Mean binary cross-entropy of the logits, over the rows and classes whose label is known.

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
        held = label[self._rows, columns]
        self._known, self._target = held >= 0, held == 1
        # Unlike with the cross-entropy, every rank sums its own columns only, so one rank per piece speaks, not one per
        # row.
        self.speaks = layout.speaks_for_piece(layout.grid.axes)
        self._weight = None if weights is None else weights[columns]
        if self._weight is None:
            self._num_terms: float = self._total(int(self._known.sum()) if self.speaks else 0)
        else:
            self._num_terms = self._total_weight(self._known * self._weight)

    @property
    def num_terms(self) -> float:
        return self._num_terms

    def parts(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of the losses, and its derivative: the sigmoid minus the label. Communicates nothing."""
        # log(1 + e^x) - t x, written as max(x, 0) + log(1 + e^-|x|) - t x, which cannot overflow.
        losses = scores.clamp_min(0) + scores.abs().neg_().exp_().log1p_()
        losses -= torch.where(self._target, scores, 0)
        derivative = scores.sigmoid() - self._target.to(scores.dtype)
        losses[~self._known] = 0
        derivative[~self._known] = 0
        if self._weight is not None:
            weight = self._weight.to(scores.dtype)
            losses, derivative = losses * weight, derivative * weight
        return losses.sum(dtype=torch.float64), derivative


class MaskedSquaredError(MaskedLoss):
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
        self._target = target[self._rows, layout.columns(num_targets)]
        self._known = ~self._target.isnan()
        self.speaks = layout.speaks_for_piece(layout.grid.axes)
        self._num_terms = self._total(int(self._known.sum()) if self.speaks else 0)

    @property
    def num_terms(self) -> float:
        return self._num_terms

    def parts(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of the squared errors, and its derivative. Communicates nothing."""
        error = torch.where(self._known, scores - self._target, 0).to(scores.dtype)
        return error.square().sum(dtype=torch.float64), 2 * error


class MaskedOwnLoss(MaskedLoss):
    """Mean of a user's loss over given vertices, normalized by their number (or weight) over all ranks.

    Every rank holds whole rows of scores (see :mod:`gnnloom.trainer.training.own_functions`), so the function needs no
    other rank.
    """

    def __init__(
        self, layout: Layout, label: Tensor, mask: Tensor, function: OwnFunction, weights: Tensor | None = None
    ) -> None:
        """Count the vertices of all ranks. Collective.

        Args:
            layout: layout of the scores.
            label: labels of this rank's rows, as in :class:`~gnnloom.trainer.data.vertex_data.Labels`.
            mask: (num_rows,) bool, the vertices that contribute to the loss.
            function: the loss of each vertex.
            weights: (num_classes,) float64 weights of the classes of one class per vertex.
        """
        super().__init__(layout, mask)
        self._function, self._label = function, label[self._rows]
        self._weight = None if weights is None else weights[self._label]
        self._num_terms = self.num_vertices if self._weight is None else self._total_weight(self._weight)

    @property
    def num_terms(self) -> float:
        return self._num_terms

    def parts(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of the vertices' losses, and its derivative by automatic differentiation. Communicates nothing."""
        # A function such as a maximum may fail on no rows at all.
        if not len(scores):
            return torch.zeros((), dtype=torch.float64), torch.zeros_like(scores)
        with torch.enable_grad():
            scores = scores.requires_grad_()
            losses = self._function(scores, self._label)
            if self._weight is not None:
                losses = losses * self._weight.to(losses.dtype)
            total = losses.sum(dtype=torch.float64)
            (derivative,) = torch.autograd.grad(total, scores)
        return total.detach(), derivative


def _row_maximum(scores: Tensor) -> Tensor:
    # A rank has no column if the group has more ranks than there are classes, and amax of nothing is an error.
    if scores.shape[1] == 0:
        return scores.new_full((len(scores), 1), -torch.inf)
    return scores.amax(1, keepdim=True)


class _MaskedMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, loss: MaskedLoss) -> Tensor:
        total, derivative = loss.parts(scores.detach())
        ctx.save_for_backward(derivative / loss.num_terms)
        return total / loss.num_terms if loss.speaks else torch.zeros((), dtype=torch.float64)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # The loss is the sum of all ranks' contributions, so every rank differentiates its own with factor 1.
        (derivative,) = ctx.saved_tensors
        return derivative * gradient.to(derivative.dtype), None
