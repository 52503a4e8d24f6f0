"""A loss that a user writes, over rows of all ranks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.tasks.objectives.masked_loss import MaskedLoss

#: Scores and labels of some rows to a number for each row.
OwnFunction = Callable[[Tensor, Tensor], Tensor]


class MaskedOwnLoss(MaskedLoss):
    """Mean of a user's loss over given vertices, normalized by their number (or weight) over all ranks.

    Every rank holds whole rows of scores (see :mod:`gnnloom.trainer.tasks.objectives.own_functions`), so the function
    needs no other rank.
    """

    def __init__(
        self, layout: Layout, label: Tensor, mask: Tensor, function: OwnFunction, weights: Tensor | None = None
    ) -> None:
        """Count the vertices of all ranks. Collective.

        Args:
            layout: layout of the scores.
            label: labels of this rank's rows, as in :class:`~gnnloom.trainer.data.labels.Labels`.
            mask: (num_rows,) bool, the vertices that contribute to the loss.
            function: the loss of each vertex.
            weights: (num_classes,) float64 weights of the classes of one class per vertex.
        """
        super().__init__(layout, mask)
        self._function, self._label = function, label[self._rows]
        weight = None if weights is None else weights[self._label]
        self._num_terms = self.num_examples if weight is None else self._total_weight(weight)
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
