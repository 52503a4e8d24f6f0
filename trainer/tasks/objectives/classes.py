"""One class per vertex."""

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
from gnnloom.trainer.data.vertex_data import Labels, read_array
from gnnloom.trainer.data.vertex_rows import VertexRows
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.tasks.objectives.by_class import scores_by_class
from gnnloom.trainer.tasks.objectives.cross_entropy import MaskedCrossEntropy
from gnnloom.trainer.tasks.objectives.masked_loss import MaskedLoss
from gnnloom.trainer.tasks.objectives.objective import Metrics, Objective
from gnnloom.trainer.tasks.splits import CODES

#: Up to this many classes, the confusion matrix is formed; it grows with their square.
_CONFUSION_CLASSES = 256


@dataclass(frozen=True)
class Classes(Objective):
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

        See :func:`gnnloom.trainer.tasks.objectives.by_class.scores_by_class`.
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

    def refused_weights(self, *, own_loss: bool) -> str:  # noqa: ARG002 - any loss of a vertex can be weighted
        return ""

    def class_counts(self, label: Tensor) -> Tensor:
        return label.bincount(minlength=self.num_outputs)


@dataclass(frozen=True)
class Accuracy:
    """Share of each split's labeled vertices whose highest score is that of their label.

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
    # Not a number counts as the highest score, wherever the columns are: MPI leaves its maximum undefined.
    if torch.isnan(scores).any():
        scores = scores.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
    if group.size == 1:
        return scores.argmax(1)
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
