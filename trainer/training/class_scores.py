"""Precision, recall and F1 of every class, and the confusion matrix, on the test split."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.vertex_data import Labels
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.training.metrics import LabelScores, predicted_class
from gnnloom.trainer.training.splits import PREFIXES

#: Up to this many classes, the confusion matrix is formed; it grows with their square.
_CONFUSION_CLASSES = 256


def class_scores(layout: Layout, labels: Labels, scores: Tensor) -> dict[str, Any]:
    """Figures by class of the test split; empty for a regression, or if no vertex of the split has a label. Collective.

    Args:
        layout: layout of the scores.
        scores: (num_rows, columns held).

    Returns:
        ``per_class``: for each class its number ``class``, ``precision``, ``recall``, ``f1`` (0 where undefined) and
        ``support`` (vertices of the class). ``confusion``, for one class per vertex and at most 256 classes: counts by
        true class (rows) and predicted class (columns).
    """
    if labels.is_regression:
        return {}
    if labels.is_multilabel:
        counts = LabelScores(layout, labels.label, labels.split, labels.num_classes).counts(scores)
        hits, missed, wrong, _ = counts[list(PREFIXES).index("test")]
        return _by_class(hits, hits + wrong, hits + missed)
    predicted = predicted_class(layout, scores, labels.num_classes)
    chosen = labels.known("test")
    label, predicted, num_classes = labels.label[chosen], predicted[chosen], labels.num_classes
    if not layout.speaks_for_rows:
        label, predicted = label[:0], predicted[:0]
    occurs = torch.stack(
        [each.bincount(minlength=num_classes) for each in (label[label == predicted], predicted, label)]
    )
    layout.grid.comm.all_reduce(occurs, Kind.METRICS)
    found = _by_class(*occurs)
    if not found or num_classes > _CONFUSION_CLASSES:
        return found
    confusion = (label * num_classes + predicted).bincount(minlength=num_classes * num_classes)
    layout.grid.comm.all_reduce(confusion, Kind.METRICS)
    return {**found, "confusion": confusion.view(num_classes, num_classes).tolist()}


def _by_class(hits: Tensor, predicted: Tensor, support: Tensor) -> dict[str, Any]:
    if not int(support.sum()) and not int(predicted.sum()):
        return {}
    right = hits.to(torch.float64)
    figures = {
        "precision": right / predicted.clamp_min(1),
        "recall": right / support.clamp_min(1),
        "f1": 2 * right / (predicted + support).clamp_min(1),
        "support": support,
    }
    rows = zip(*(values.tolist() for values in figures.values()), strict=True)
    return {"per_class": [{"class": number, **dict(zip(figures, row, strict=True))} for number, row in enumerate(rows)]}
