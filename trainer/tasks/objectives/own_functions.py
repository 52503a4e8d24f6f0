"""Losses and metrics that a user writes: functions of one rank's rows.

    def hinge(scores, labels):
        right = scores.gather(1, labels[:, None])
        return (1 + scores - right).clamp_min(0).sum(1)

Called with ``scores`` (k, C) of k vertices whose label is known, and their labels: (k,) int64 classes, (k, C) int8 ones
and zeros with -1 for unknown, or (k, C) float with NaN for unknown. Returns (k,) numbers, one per vertex, each from its
own row only. The trainer forms their mean over the vertices of all ranks, so the result does not depend on the number
of ranks. A loss is differentiable with respect to the scores. A metric for which lower is better has the attribute
``higher_is_better = False``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gnnloom.storage.descriptors import load_named
from gnnloom.storage.errors import InputError
from gnnloom.trainer.data.vertex_data import Labels
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.tasks.objectives.masked_loss import MaskedLoss

OwnFunction = Callable[[Tensor, Tensor], Tensor]

#: Rows of the call that tries a function.
_TRIED = 3


def load_function(option: str, text: str, layout: Layout, labels: Labels, num_outputs: int) -> OwnFunction:
    """Import a function and try it on a few rows. Communicates nothing.

    Args:
        option: ``loss`` or ``metric``.
        text: ``package.module:function``.
        layout: layout of the scores.
        num_outputs: width of the scores.

    Raises:
        InputError: it cannot be imported, does not return a number per vertex, cannot be differentiated (loss), or the
            algorithm splits the columns of the scores over ranks.
    """
    function = load_named(option, text)
    if not callable(function):
        raise InputError(f"{option} {text}: expected a function of scores and labels, found {function!r}")
    if layout.column_group.size > 1:
        raise InputError(
            f"{option} {text}: a function of your own needs whole rows of scores, which this algorithm and grid split"
            f" over {layout.column_group.size} ranks; use p2p, broadcast or replicated, or a grid that keeps rows whole"
        )
    place = layout.place
    scores = place.zeros((_TRIED, num_outputs), place.sum_dtype).requires_grad_(option == "loss")
    try:
        found = function(scores, place.zeros((_TRIED, *labels.label.shape[1:]), labels.label.dtype))
    # Whatever the function raises is the user's to fix: one line says what.
    except Exception as error:
        raise InputError(f"{option} {text}: the function raises {type(error).__name__}: {error}") from error
    if not isinstance(found, Tensor) or found.shape != (_TRIED,):
        what = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else repr(found)
        raise InputError(f"{option} {text}: expected a number for each of {_TRIED} vertices, found {what}")
    if option == "loss" and not found.requires_grad:
        raise InputError(
            f"{option} {text}: the result does not depend on the scores in a way that torch can differentiate"
        )
    return function


class MaskedOwnLoss(MaskedLoss):
    """Mean of a user's loss over given vertices, normalized by their number (or weight) over all ranks.

    Every rank holds whole rows of scores (see :func:`load_function`), so the function needs no other rank.
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
        self._function, self._label = function, label[self.rows]
        weight = None if weights is None else weights[self._label]
        self.num_terms = self.num_examples if weight is None else self._total_weight(weight)
        self._weight = None if weight is None else weight.unsqueeze(1)

    def parts(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of the vertices' losses, and its derivative by automatic differentiation. Communicates nothing."""
        # A function such as a maximum may fail on no rows at all.
        if not len(scores):
            return self.place.zeros((), torch.float64), self.place.like(scores)
        with torch.enable_grad():
            scores = scores.requires_grad_()
            losses = self._function(scores, self._label)
            if self._weight is not None:
                losses = losses * self._weight.squeeze(1).to(losses.dtype)
            total = losses.sum(dtype=torch.float64)
            (derivative,) = torch.autograd.grad(total, scores)
        # A copy, because torch may give memory that the function still needs, or the same number for all elements.
        return total.detach(), self.place.like(derivative).copy_(derivative)
