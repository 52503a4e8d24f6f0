"""Precision, recall and F1 of every class."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def scores_by_class(hits: Tensor, predicted: Tensor, support: Tensor) -> dict[str, Any]:
    """The figures of every class; empty if no row has a class or was predicted to have one.

    Args:
        hits: (num_classes,) int64 rows of each class that were predicted to be of it.
        predicted: (num_classes,) int64 rows that were predicted to be of each class.
        support: (num_classes,) int64 rows of each class.

    Returns:
        ``per_class``: for each class its number ``class``, ``precision``, ``recall``, ``f1`` (0 where undefined) and
        ``support``.
    """
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
