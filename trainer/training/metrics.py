"""Accuracy, F1 and errors over the vertices of all ranks, on any layout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from gnnloom.trainer.comm.communicator import Reduction
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.vertex_data import Labels
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.training.regression_errors import RegressionErrors
from gnnloom.trainer.training.splits import ACCURACIES


class Metrics(Protocol):
    """Figures of every split.

    Attributes:
        names: keys of the result, such as ``val_accuracy``; those of one figure are in the order of the splits.
    """

    @property
    def names(self) -> tuple[str, ...]: ...

    def __call__(self, scores: Tensor) -> dict[str, float | None]:
        """The figures over all ranks; None for a split without a known label. Collective.

        Args:
            scores: (num_rows, columns held) of the layout.
        """
        ...


def build_metrics(layout: Layout, labels: Labels) -> Metrics:
    """The metrics that fit the labels. Collective.

    Args:
        layout: layout of the scores.
    """
    if labels.is_regression:
        return RegressionErrors(layout, labels)
    kind = LabelScores if labels.is_multilabel else Accuracy
    return kind(layout, labels.label, labels.split, labels.num_classes)


@dataclass(frozen=True)
class Accuracy:
    """Share of each split's labeled vertices whose highest score is that of their label.

    Attributes:
        layout: layout of the scores.
        label: (num_rows,) int64, -1 for none.
        split: (num_rows,) uint8.
    """

    layout: Layout
    label: Tensor
    split: Tensor
    num_classes: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(ACCURACIES)

    def __call__(self, scores: Tensor) -> dict[str, float | None]:
        """The accuracies over all ranks; None for a split without labeled vertices. Collective."""
        right = predicted_class(self.layout, scores, self.num_classes) == self.label
        # Integer counts, not shares, are summed over the ranks: the result is exact for any number of ranks.
        counts = torch.zeros(len(ACCURACIES), 2, dtype=torch.int64)
        if self.layout.speaks_for_rows:
            for number, value in enumerate(ACCURACIES.values()):
                chosen = (self.split == value) & (self.label >= 0)
                counts[number, 0] = (right & chosen).sum()
                counts[number, 1] = chosen.sum()
        self.layout.grid.comm.all_reduce(counts, Kind.METRICS)
        pairs = zip(ACCURACIES, counts.tolist(), strict=True)
        return {name: correct / count if count else None for name, (correct, count) in pairs}


@dataclass(frozen=True)
class LabelScores:
    """Accuracy and F1 of each split over the known labels.

    ``f1`` counts all classes together (micro-averaged). ``macro_f1`` is the mean over the classes, with 0 for a class
    that neither occurs nor is predicted. A label is predicted if its score, a logit, is positive.

    Attributes:
        layout: layout of the scores.
        label: (num_rows, num_classes) int8, 1 or 0, -1 for unknown.
        split: (num_rows,) uint8.
    """

    layout: Layout
    label: Tensor
    split: Tensor
    num_classes: int

    @property
    def names(self) -> tuple[str, ...]:
        averages = (name.replace("accuracy", figure) for figure in ("f1", "macro_f1") for name in ACCURACIES)
        return (*ACCURACIES, *averages)

    def __call__(self, scores: Tensor) -> dict[str, float | None]:
        """The metrics over all ranks; None for a split without known labels. Collective."""
        counts = self.counts(scores)
        found: dict[str, float | None] = {}
        for name, of_split in zip(ACCURACIES, counts, strict=True):
            figures = _figures(of_split) if int(of_split.sum()) else (None, None, None)
            for figure, value in zip(("accuracy", "f1", "macro_f1"), figures, strict=True):
                found[name.replace("accuracy", figure)] = value
        return {name: found[name] for name in self.names}

    def counts(self, scores: Tensor) -> Tensor:
        """(splits, 4, num_classes) int64 over all ranks, in the order that ``_figures`` expects. Collective."""
        counts = torch.zeros(len(ACCURACIES), 4, self.num_classes, dtype=torch.int64)
        if self.layout.speaks_for_piece(self.layout.grid.axes):
            columns = self.layout.columns(self.num_classes)
            label, predicted = self.label[:, columns], scores > 0
            for number, code in enumerate(ACCURACIES.values()):
                of_split = (self.split == code)[:, None]
                # An unknown label (-1) matches neither 1 nor 0.
                outcomes = [(label == wanted) & (predicted == bool(said)) for wanted in (1, 0) for said in (1, 0)]
                counts[number, :, columns] = torch.stack([(outcome & of_split).sum(0) for outcome in outcomes])
        self.layout.grid.comm.all_reduce(counts, Kind.METRICS)
        return counts


def _figures(counts: Tensor) -> tuple[float, float, float]:
    """Accuracy, micro F1 and macro F1.

    Args:
        counts: (4, num_classes) numbers of true positives, false negatives, false positives and true negatives.
    """
    true_positives, false_negatives, false_positives, true_negatives = counts.to(torch.float64)
    twice = 2 * true_positives
    # F1 = 2 TP / (2 TP + FN + FP); without any positive both sides are 0, and so is the result.
    total = twice + false_negatives + false_positives
    by_class = twice / total.clamp_min(1)
    micro = twice.sum() / total.sum().clamp_min(1)
    accuracy = (true_positives + true_negatives).sum() / counts.sum()
    return float(accuracy), float(micro), float(by_class.mean())


def predicted_class(layout: Layout, scores: Tensor, num_classes: int) -> Tensor:
    """(num_rows,) int64, the class with the highest score; of equal ones the lowest. Collective.

    Args:
        scores: (num_rows, columns held) of the layout.
    """
    group = layout.column_group
    # Not a number counts as the highest score, wherever the columns are: MPI leaves its maximum undefined.
    if torch.isnan(scores).any():
        scores = scores.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
    if group.size == 1:
        return scores.argmax(1)
    highest = scores.amax(1) if scores.shape[1] else scores.new_full((len(scores),), -torch.inf)
    # First the ranks agree on the highest score, then on the lowest class that has it.
    overall = highest.clone()
    group.all_reduce(overall, Kind.METRICS, Reduction.MAX)
    # A number above all classes, so a rank without the highest score does not change the minimum.
    winner = torch.full((len(scores),), num_classes, dtype=torch.int64)
    if scores.shape[1]:
        mine = highest == overall
        winner[mine] = scores[mine].argmax(1) + layout.columns(num_classes).start
    group.all_reduce(winner, Kind.METRICS, Reduction.MIN)
    return winner
