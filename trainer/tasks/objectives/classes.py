"""One class per vertex: cross-entropy, accuracy, and the figures of every class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import NO_LABEL
from gnnloom.trainer.comm.communicator import Reduction
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.open_shards import VertexRows
from gnnloom.trainer.data.vertex_data import Labels, read_array
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.tasks.objectives.masked_loss import MaskedLoss
from gnnloom.trainer.tasks.objectives.objective import Metrics
from gnnloom.trainer.tasks.objectives.vertex_objective import VertexObjective, scores_by_class
from gnnloom.trainer.tasks.task import CODES

#: Up to this many classes, the confusion matrix is formed; it grows with their square.
_CONFUSION_CLASSES = 256
#: Scores that are compared at a time.
_PART_NUMBERS = 1 << 22


@dataclass(frozen=True)
class Classes(VertexObjective):
    """Labels are (num_rows,) int64, -1 for none; the class with the highest score is predicted."""

    def read_label(self, rows: VertexRows) -> NDArray[Any]:
        # int64, because torch indexes with labels.
        label, num_classes = read_array(rows, self.task.array).astype(np.int64), rows.shards.num_classes
        if len(label) and (int(label.max()) >= num_classes or int(label.min()) < NO_LABEL):
            raise InputError(
                f"{rows.shards.artifact.path}/{rows.prefix}/label: labels from {int(label.min())} to"
                f" {int(label.max())}, expected {NO_LABEL} (none) to {num_classes - 1}"
            )
        return label

    def task_loss(self, layout: Layout, labels: Labels, mask: Tensor) -> MaskedLoss:
        return MaskedCrossEntropy(layout, labels.label, mask, self.num_outputs, self.class_weights)

    def metrics(self, layout: Layout, labels: Labels) -> Metrics:
        return Accuracy(layout, labels, self.num_outputs)

    def details(self, layout: Layout, labels: Labels, scores: Tensor) -> dict[str, Any]:
        """``per_class`` and, for at most 256 classes, ``confusion``: counts by true class (rows) and predicted class.

        See :func:`gnnloom.trainer.tasks.objectives.objective.scores_by_class`.
        """
        predicted, num_classes = predicted_class(layout, scores, self.num_outputs), self.num_outputs
        chosen = self.known(labels, "test")
        label, predicted = labels.label[chosen], predicted[chosen]
        if not layout.speaks_for_rows:
            label, predicted = label[:0], predicted[:0]
        occurs = torch.stack(
            [each.bincount(minlength=num_classes) for each in (label[label == predicted], predicted, label)]
        )
        layout.grid.comm.all_reduce(occurs, Kind.METRICS)
        found = scores_by_class(*occurs)
        if not found or num_classes > _CONFUSION_CLASSES:
            return found
        confusion = (label * num_classes + predicted).bincount(minlength=num_classes * num_classes)
        layout.grid.comm.all_reduce(confusion, Kind.METRICS)
        return {**found, "confusion": confusion.view(num_classes, num_classes).tolist()}

    def predict(self, layout: Layout, scores: Tensor) -> dict[str, Tensor]:
        whole = self.whole(layout, scores)
        return {"label": predicted_class(layout, scores, self.num_outputs).to(torch.int32), "score": whole}

    def class_counts(self, label: Tensor) -> Tensor:
        return label.bincount(minlength=self.num_outputs)


@dataclass(frozen=True)
class Accuracy:
    """Share of each split's labeled vertices whose highest score is the score of their label.

    Attributes:
        layout: layout of the scores.
    """

    layout: Layout
    labels: Labels
    num_classes: int

    def __call__(self, scores: Tensor) -> dict[str, float | None]:
        """The accuracies over all ranks; None for a split without labeled vertices. Collective."""
        label, split = self.labels.label, self.labels.split
        right = predicted_class(self.layout, scores, self.num_classes) == label
        # Integer counts, not shares, are summed over the ranks: the result is exact for any number of ranks.
        counts = self.layout.place.zeros((len(CODES), 2), torch.int64)
        if self.layout.speaks_for_rows:
            for number, code in enumerate(CODES.values()):
                chosen = (split == code) & (label >= 0)
                counts[number, 0] = (right & chosen).sum()
                counts[number, 1] = chosen.sum()
        self.layout.grid.comm.all_reduce(counts, Kind.METRICS)
        pairs = zip(CODES, counts.tolist(), strict=True)
        return {f"{prefix}_accuracy": correct / count if count else None for prefix, (correct, count) in pairs}


def predicted_class(layout: Layout, scores: Tensor, num_classes: int) -> Tensor:
    """(num_rows,) int64, the class with the highest score; of equal ones the lowest. Collective.

    Args:
        scores: (num_rows, columns held) of the layout.
    """
    group, place = layout.column_group, layout.place
    if group.size == 1:
        # Some rows at a time: the scores may be on disk, and looking for NaN takes memory.
        found = place.lasting((len(scores),), torch.int64)
        most = max(1, _PART_NUMBERS // max(1, scores.shape[1]))
        for start in place.steps(range(0, len(scores), most)):
            torch.argmax(_comparable(scores[start : start + most]), 1, out=found[start : start + most])
        return found
    # Not a number counts as the highest score, wherever the columns are: MPI leaves its maximum undefined.
    scores = _comparable(scores)
    highest = scores.amax(1) if scores.shape[1] else place.zeros((len(scores),), scores.dtype).fill_(-torch.inf)
    # First the ranks agree on the highest score, then on the lowest class that has it.
    overall = highest.clone()
    group.all_reduce(overall, Kind.METRICS, Reduction.MAX)
    # A number above all classes, so a rank without the highest score does not change the minimum.
    winner = place.zeros((len(scores),), torch.int64).fill_(num_classes)
    if scores.shape[1]:
        mine = highest == overall
        winner[mine] = scores[mine].argmax(1) + layout.columns(num_classes).start
    group.all_reduce(winner, Kind.METRICS, Reduction.MIN)
    return winner


def _comparable(scores: Tensor) -> Tensor:
    if torch.isnan(scores).any():
        return scores.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
    return scores


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
        weight = None if weights is None else weights[label[self.rows]]
        self.num_terms = self.num_examples if weight is None else self._total_weight(weight)
        self._weight = None if weight is None else weight.unsqueeze(1)
        columns = layout.columns(num_classes)
        self._target = label[self.rows] - columns.start
        # Columns are split over the group, so a label lies in the columns of one rank; the others subtract 0 anywhere.
        width = columns.stop - columns.start
        held = (self._target >= 0) & (self._target < width)
        self._target = self._target.where(held, 0).unsqueeze(1)
        self._held = held.unsqueeze(1)

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
