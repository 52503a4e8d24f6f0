"""Cross-entropy over the training vertices of all ranks, on any layout."""

from __future__ import annotations

from typing import Any

import torch
from mpi4py import MPI
from torch import Tensor

from gnnloom.trainer.comm import Kind
from gnnloom.trainer.layout import Layout


class MaskedCrossEntropy:
    """Mean cross-entropy over given vertices, normalised by their number over all ranks.

    A row of scores may be split over ranks: its maximum and its sum of exponentials are then formed
    over the ranks that hold it.
    """

    def __init__(self, layout: Layout, label: Tensor, mask: Tensor, num_classes: int) -> None:
        """Count the vertices of all ranks. Collective.

        Args:
            layout: of the scores.
            label: (num_rows,) int64, below ``num_classes`` where ``mask`` is set.
            mask: (num_rows,) bool, the vertices that count.
        """
        self._layout = layout
        self._rows = mask.nonzero().squeeze(1)
        columns = layout.columns(num_classes)
        self._target = label[self._rows] - columns.start
        self._held = (self._target >= 0) & (self._target < columns.stop - columns.start)
        count = torch.tensor([len(self._rows) if layout.speaks_for_rows else 0], dtype=torch.int64)
        layout.grid.comm.all_reduce(count, Kind.SETUP)
        #: Vertices that count, over all ranks.
        self.num_vertices = int(count)

    def __call__(self, scores: Tensor) -> Tensor:
        """This rank's contribution: the contributions of all ranks add up to the loss. Collective.

        Args:
            scores: (num_rows, columns held) of the layout.
        """
        result: Tensor = _CrossEntropy.apply(scores[self._rows], self)  # type: ignore[no-untyped-call]
        return result

    def parts(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of the rows' losses, and its derivative: softmax minus the indicator of the label. Collective."""
        group = self._layout.column_group
        maximum = _row_maximum(scores)
        group.all_reduce(maximum, Kind.LOSS, MPI.MAX)
        softmax = (scores - maximum).exp_()
        total = softmax.sum(1, keepdim=True)
        held = self._held.nonzero().squeeze(1)
        logit = torch.zeros_like(total)
        logit[held, 0] = scores[held, self._target[held]]
        both = torch.stack([total, logit])
        group.all_reduce(both, Kind.LOSS)
        losses = both[0].log() + maximum - both[1]
        softmax /= both[0]
        softmax[held, self._target[held]] -= 1
        return losses.sum(dtype=torch.float64), softmax

    @property
    def speaks(self) -> bool:
        return self._layout.speaks_for_rows


def _row_maximum(scores: Tensor) -> Tensor:
    if scores.shape[1] == 0:
        return scores.new_full((len(scores), 1), -torch.inf)
    return scores.amax(1, keepdim=True)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, loss: MaskedCrossEntropy) -> Tensor:
        total, derivative = loss.parts(scores.detach())
        ctx.save_for_backward(derivative / loss.num_vertices)
        return total / loss.num_vertices if loss.speaks else torch.zeros((), dtype=torch.float64)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # The loss is the sum of all ranks' contributions, so every rank differentiates it with factor 1.
        (derivative,) = ctx.saved_tensors
        return derivative * gradient.to(derivative.dtype), None
