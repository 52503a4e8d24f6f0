"""The loss of one class per row."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnloom.trainer.comm.communicator import Reduction
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.tasks.objectives.masked_loss import MaskedLoss


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
        self._num_terms = self.num_examples if weight is None else self._total_weight(weight)
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
        total, logit = both = self.place.zeros((2, *maximum.shape), scores.dtype)
        if scores.shape[1]:
            torch.gather(scores, 1, self._target, out=logit).mul_(self._held)
        softmax = scores.sub_(maximum).exp_()
        torch.sum(softmax, 1, keepdim=True, out=total)
        group.all_reduce(both, Kind.LOSS)
        softmax /= total
        if scores.shape[1]:
            # Memory of the workspace, as the indicator is as long as the rows.
            indicator = self.place.like(total).copy_(self._held).neg_()
            softmax.scatter_add_(1, self._target, indicator)
        # The largest score of the row adds exp(0) = 1 to the total, so the logarithm is finite.
        losses = total.log_().add_(maximum).sub_(logit)
        if self._weight is not None:
            weight = self.place.like(losses).copy_(self._weight)
            losses.mul_(weight)
            softmax.mul_(weight)
        return losses.sum(dtype=torch.float64), softmax

    def _row_maximum(self, scores: Tensor) -> Tensor:
        maximum = self.place.empty((len(scores), 1), scores.dtype)
        # A rank has no column if the group has more ranks than there are classes, and amax of nothing is an error.
        if scores.shape[1] == 0:
            return maximum.fill_(-torch.inf)
        return torch.amax(scores, 1, keepdim=True, out=maximum)
