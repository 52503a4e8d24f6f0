"""Losses over the vertices of all ranks in a split, on any layout."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from gnnloom.trainer.comm.communicator import Reduction
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.vertex_data import Labels
from gnnloom.trainer.kernels.dispatch import Workspace
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.training.own_functions import OwnFunction

#: Scores that are turned into losses and derivatives at a time, so that they stay in the caches.
_NUMBERS = 1 << 15


def build_loss(
    layout: Layout,
    labels: Labels,
    split: str = "train",
    weights: Tensor | None = None,
    own: OwnFunction | None = None,
    workspace: Workspace | None = None,
    row_weights: Tensor | None = None,
) -> MaskedLoss:
    """The loss that fits the labels, or the user's own, over the vertices of a split. Collective.

    It is the cross-entropy of one class per vertex, the binary cross-entropy of zeros and ones, or the mean squared
    error of a regression.

    Args:
        layout: layout of the scores.
        weights: (num_classes,) float64 weights of the classes; not for a regression.
        own: the user's function.
        workspace: where scores and their gradients are; of its own by default.
        row_weights: (num_rows,) float64 factors of the vertices' terms; ``num_terms`` does not depend on them.
    """
    loss = _loss(layout, labels, split, weights, own)
    loss.weigh_rows(row_weights)
    loss.workspace = workspace or loss.workspace
    return loss


def _loss(layout: Layout, labels: Labels, split: str, weights: Tensor | None, own: OwnFunction | None) -> MaskedLoss:
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
        workspace: where scores and their gradients are.
        divisor: what the sum is divided by instead of ``num_terms``, such as the terms of more vertices than these.
    """

    divisor: float | None = None
    #: Factors of the terms, of a shape that broadcasts to that of the scores in the mask; None for ones.
    _weight: Tensor | None = None

    def __init__(self, layout: Layout, mask: Tensor) -> None:
        """Count the vertices of all ranks. Collective.

        Args:
            layout: layout of the scores.
            mask: (num_rows,) bool, the vertices that contribute to the loss.
        """
        self._layout = layout
        self.workspace = Workspace()
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
        result: Tensor = _MaskedMean.apply(scores, self)  # type: ignore[no-untyped-call]
        return result

    def take_rows(self, scores: Tensor) -> Tensor:
        """(number of this rank's vertices in the mask, columns held) a copy of their scores."""
        taken = self.workspace.empty((len(self._rows), scores.shape[1]), scores.dtype)
        return torch.index_select(scores, 0, self._rows, out=taken)

    def put_rows(self, derivative: Tensor, num_rows: int) -> Tensor:
        """(num_rows, columns held) the gradient of all scores, from that of the vertices in the mask."""
        whole = self.workspace.zeros((num_rows, derivative.shape[1]), derivative.dtype)
        return whole.index_copy_(0, self._rows, derivative)

    def weigh_rows(self, weights: Tensor | None) -> None:
        """Multiply the terms of every row by a factor: (num_rows,) float64, or None for ones."""
        if weights is not None:
            factor = weights[self._rows].unsqueeze(1)
            self._weight = factor if self._weight is None else self._weight * factor

    @property
    @abstractmethod
    def num_terms(self) -> float:
        """Number of terms of the sum over all ranks, or the sum of their weights, which divides it."""

    @abstractmethod
    def parts(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of this rank's losses, and its derivative. Collective.

        Args:
            scores: (number of this rank's vertices in the mask, columns held); overwritten.

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
        weight = None if weights is None else weights[label[self._rows]]
        self._num_terms = self.num_vertices if weight is None else self._total_weight(weight)
        self._weight = None if weight is None else weight.unsqueeze(1)
        columns = layout.columns(num_classes)
        self._target = label[self._rows] - columns.start
        # Columns are split over the group, so a label lies in the columns of one rank; the others subtract 0 anywhere.
        width = columns.stop - columns.start
        held = (self._target >= 0) & (self._target < width)
        self._target = self._target.where(held, 0).unsqueeze(1)
        self._held = held.unsqueeze(1)

    @property
    def num_terms(self) -> float:
        return self._num_terms

    def parts(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of the rows' losses, and its derivative: softmax minus the indicator of the label. Collective."""
        group = self._layout.column_group
        # Subtracting the row's maximum keeps the exponentials from overflowing and does not change the softmax.
        maximum = self._row_maximum(scores)
        group.all_reduce(maximum, Kind.LOSS, Reduction.MAX)
        # One message for both sums: of the exponentials, and of the label's score. One rank of the group has that.
        total, logit = both = self.workspace.zeros((2, *maximum.shape), scores.dtype)
        if scores.shape[1]:
            torch.gather(scores, 1, self._target, out=logit).mul_(self._held)
        softmax = scores.sub_(maximum).exp_()
        torch.sum(softmax, 1, keepdim=True, out=total)
        group.all_reduce(both, Kind.LOSS)
        softmax /= total
        if scores.shape[1]:
            # Memory of the workspace, as the indicator is as long as the rows.
            indicator = self.workspace.like(total).copy_(self._held).neg_()
            softmax.scatter_add_(1, self._target, indicator)
        # The largest score of the row adds exp(0) = 1 to the total, so the logarithm is finite.
        losses = total.log_().add_(maximum).sub_(logit)
        if self._weight is not None:
            weight = self.workspace.like(losses).copy_(self._weight)
            losses.mul_(weight)
            softmax.mul_(weight)
        return losses.sum(dtype=torch.float64), softmax

    def _row_maximum(self, scores: Tensor) -> Tensor:
        maximum = self.workspace.empty((len(scores), 1), scores.dtype)
        # A rank has no column if the group has more ranks than there are classes, and amax of nothing is an error.
        if scores.shape[1] == 0:
            return maximum.fill_(-torch.inf)
        return torch.amax(scores, 1, keepdim=True, out=maximum)


class _ByElement(MaskedLoss):
    """A loss whose terms depend on one score each, so that it and its gradient are one pass over the rows."""

    def parts(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of the losses, and its derivative in the place of the scores. Communicates nothing."""
        total, step = torch.zeros((), dtype=torch.float64), max(1, _NUMBERS // max(1, scores.shape[1]))
        shape = min(step, len(scores)), scores.shape[1]
        scratch = self.workspace.empty(shape, scores.dtype), self.workspace.empty(shape, scores.dtype)
        for start in range(0, len(scores), step):
            rows = slice(start, min(start + step, len(scores)))
            some = scores[rows]
            total += self.some_parts(some, rows, (scratch[0][: len(some)], scratch[1][: len(some)]))
        return total, scores

    @abstractmethod
    def some_parts(self, scores: Tensor, rows: slice, scratch: tuple[Tensor, Tensor]) -> Tensor:
        """The () float64 sum of the losses of some rows, whose scores become its derivative.

        Args:
            rows: which of this rank's vertices in the mask.
            scratch: memory of the shape and dtype of ``scores``, twice.
        """


class MaskedBinaryCrossEntropy(_ByElement):
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
        known, target = held >= 0, held == 1
        # Unlike with the cross-entropy, every rank sums its own columns only, so one rank per piece speaks, not one per
        # row.
        self.speaks = layout.speaks_for_piece(layout.grid.axes)
        self._weight = None if weights is None else weights[columns]
        if self._weight is None:
            self._num_terms: float = self._total(int(known.sum()) if self.speaks else 0)
        else:
            self._num_terms = self._total_weight(known * self._weight)
        self._unknown = ~known
        # torch subtracts no booleans; these are the same bytes.
        self._target = target.view(torch.int8)

    @property
    def num_terms(self) -> float:
        return self._num_terms

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
        self._target = target[self._rows, layout.columns(num_targets)]
        self._unknown = self._target.isnan()
        self.speaks = layout.speaks_for_piece(layout.grid.axes)
        self._num_terms = self._total(int((~self._unknown).sum()) if self.speaks else 0)

    @property
    def num_terms(self) -> float:
        return self._num_terms

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
        weight = None if weights is None else weights[self._label]
        self._num_terms = self.num_vertices if weight is None else self._total_weight(weight)
        self._weight = None if weight is None else weight.unsqueeze(1)

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
                losses = losses * self._weight.squeeze(1).to(losses.dtype)
            total = losses.sum(dtype=torch.float64)
            (derivative,) = torch.autograd.grad(total, scores)
        # A copy, because torch may give memory that the function still needs, or the same number for all elements.
        return total.detach(), self.workspace.like(derivative).copy_(derivative)


class _MaskedMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, loss: MaskedLoss) -> Tensor:
        # Only the rows in the mask enter, so the softmax needs no memory for the others.
        total, derivative = loss.parts(loss.take_rows(scores.detach()))
        divisor = loss.num_terms if loss.divisor is None else loss.divisor
        ctx.save_for_backward(derivative.div_(divisor))
        ctx.loss, ctx.num_rows = loss, len(scores)
        return total / divisor if loss.speaks else torch.zeros((), dtype=torch.float64)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # The loss is the sum of all ranks' contributions, so every rank differentiates its own with factor 1.
        (derivative,) = ctx.saved_tensors
        return ctx.loss.put_rows(derivative, ctx.num_rows).mul_(gradient.to(derivative.dtype)), None
