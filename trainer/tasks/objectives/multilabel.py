"""Several labels per vertex."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import NO_LABEL
from gnnloom.storage.wording import counted
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.open_shards import VertexRows
from gnnloom.trainer.data.vertex_data import Labels, read_array
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.tasks.objectives.by_element import MaskedBinaryCrossEntropy
from gnnloom.trainer.tasks.objectives.masked_loss import MaskedLoss
from gnnloom.trainer.tasks.objectives.objective import Metrics
from gnnloom.trainer.tasks.objectives.vertex_objective import VertexObjective, scores_by_class
from gnnloom.trainer.tasks.task import CODES


@dataclass(frozen=True)
class Multilabel(VertexObjective):
    """Labels are (num_rows, num_outputs) int8, 1 or 0, -1 for unknown; labels with positive scores are predicted."""

    def read_label(self, rows: VertexRows) -> NDArray[Any]:
        label, num_classes = read_array(rows, self.task.array), rows.shards.num_classes
        where = f"{rows.shards.artifact.path}/{rows.prefix}/multilabel"
        if label.shape[1] != num_classes:
            raise InputError(
                f"{where}: {counted(label.shape[1], 'column')}, expected the {num_classes} classes of the dataset"
            )
        if label.size and not NO_LABEL <= int(label.min()) <= int(label.max()) <= 1:
            found = f"labels from {int(label.min())} to {int(label.max())}"
            raise InputError(f"{where}: {found}, expected 0, 1 or {NO_LABEL}")
        return label

    def task_loss(self, layout: Layout, labels: Labels, mask: Tensor) -> MaskedLoss:
        return MaskedBinaryCrossEntropy(layout, labels.label, mask, self.num_outputs, self.class_weights)

    def metrics(self, layout: Layout, labels: Labels) -> Metrics:
        return LabelScores(layout, labels, self.num_outputs)

    def details(self, layout: Layout, labels: Labels, scores: Tensor) -> dict[str, Any]:
        """``per_class``; see :func:`gnnloom.trainer.tasks.objectives.objective.scores_by_class`."""
        counts = LabelScores(layout, labels, self.num_outputs).counts(scores)
        hits, missed, wrong, _ = counts[list(CODES).index("test")]
        return scores_by_class(hits, hits + wrong, hits + missed)

    def predict(self, layout: Layout, scores: Tensor) -> dict[str, Tensor]:
        whole = self.whole(layout, scores)
        return {"multilabel": (whole > 0).to(torch.int8), "score": whole}

    def class_counts(self, label: Tensor) -> Tensor:
        return (label == 1).sum(0)


@dataclass(frozen=True)
class LabelScores:
    """Accuracy and F1 of each split over the known labels.

    ``f1`` counts all classes together (micro-averaged). ``macro_f1`` is the mean over the classes, with 0 for a class
    that neither occurs nor is predicted. A label is predicted if its score, a logit, is positive.

    Attributes:
        layout: layout of the scores.
    """

    layout: Layout
    labels: Labels
    num_classes: int

    def __call__(self, scores: Tensor) -> dict[str, float | None]:
        """The metrics over all ranks; None for a split without known labels. Collective."""
        by_split = dict(zip(CODES, map(_figures, self.counts(scores)), strict=True))
        figures = enumerate(("accuracy", "f1", "macro_f1"))
        return {f"{prefix}_{figure}": by_split[prefix][number] for number, figure in figures for prefix in CODES}

    def counts(self, scores: Tensor) -> Tensor:
        """(splits, 4, num_classes) int64 over all ranks, in the order that ``_figures`` expects. Collective."""
        counts = self.layout.place.zeros((len(CODES), 4, self.num_classes), torch.int64)
        if self.layout.speaks_for_piece(self.layout.grid.axes):
            columns = self.layout.columns(self.num_classes)
            label, predicted = self.labels.label[:, columns], scores > 0
            for number, code in enumerate(CODES.values()):
                of_split = (self.labels.split == code)[:, None]
                # An unknown label (-1) matches neither 1 nor 0.
                outcomes = [(label == wanted) & (predicted == bool(said)) for wanted in (1, 0) for said in (1, 0)]
                counts[number, :, columns] = torch.stack([(outcome & of_split).sum(0) for outcome in outcomes])
        self.layout.grid.comm.all_reduce(counts, Kind.METRICS)
        return counts


def _figures(counts: Tensor) -> tuple[float, float, float] | tuple[None, None, None]:
    """Accuracy, micro F1 and macro F1; None without any label.

    Args:
        counts: (4, num_classes) numbers of true positives, false negatives, false positives and true negatives.
    """
    if not int(counts.sum()):
        return None, None, None
    true_positives, false_negatives, false_positives, true_negatives = counts.to(torch.float64)
    twice = 2 * true_positives
    # F1 = 2 TP / (2 TP + FN + FP); without any positive both sides are 0, and so is the result.
    total = twice + false_negatives + false_positives
    by_class = twice / total.clamp_min(1)
    micro = twice.sum() / total.sum().clamp_min(1)
    accuracy = (true_positives + true_negatives).sum() / counts.sum()
    return float(accuracy), float(micro), float(by_class.mean())
