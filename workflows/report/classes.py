"""How well each class is predicted: the confusion matrix, and the scores of every class."""

from __future__ import annotations

import numpy as np
from matplotlib.ticker import PercentFormatter

from gnnloom.workflows.report.facts import RunFacts
from gnnloom.workflows.report.page import card, table
from gnnloom.workflows.report.pictures.heat import draw_matrix
from gnnloom.workflows.report.pictures.hover import Spot
from gnnloom.workflows.report.pictures.style import HEAT_HEIGHT, Picture, new_axes

#: Matrices of at most this many classes show a cell's counts under the pointer.
_HOVERED = 32


def confusion_picture(facts: RunFacts) -> Picture | None:
    """Draw which classes are taken for which; None if the run did not record it."""
    stored = facts.result.get("confusion")
    if not stored:
        return None
    counts = np.array(stored, np.int64)
    sums = counts.sum(1, keepdims=True)
    # Shares of the true class, or a large class would outshine all others.
    shares = counts / np.maximum(1, sums)
    figure, axes = new_axes(height=HEAT_HEIGHT)
    # Whole percentages fit into the cells.
    bar = draw_matrix(figure, axes, (100 * shares).round(), "share of the true class")
    bar.ax.yaxis.set_major_formatter(PercentFormatter(100, decimals=0))
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    right = np.trace(counts)
    note = f"Percentages of the true class{_epoch(facts)}. The diagonal has {right:,} of {counts.sum():,} labels."
    return Picture("confusion", "Confusion matrix", figure, note, _spots(counts, shares))


def _spots(counts: np.ndarray, shares: np.ndarray) -> list[Spot]:
    if len(counts) > _HOVERED:
        return []
    return [
        Spot(
            (column - 0.5, column + 0.5),
            (row + 0.5, row - 0.5),
            (f"class {row} predicted as {column}", f"{count:,} labels, {shares[row, column]:.1%}"),
        )
        for (row, column), count in np.ndenumerate(counts)
    ]


def classes_card(facts: RunFacts) -> str | None:
    """Build a table of precision, recall and F1 of every class; None if the run did not record them."""
    classes = facts.result.get("per_class")
    if not classes:
        return None
    rows = [
        (str(each["class"]), *(f"{each[name]:.2%}" for name in ("precision", "recall", "f1")), f"{each['support']:,}")
        for each in classes
    ]
    content = table(("class", "precision", "recall", "F1", "labels"), rows)
    return card(f"Scores by class{_epoch(facts)}", content, kind="table tall")


def _epoch(facts: RunFacts) -> str:
    """Say which epoch's model was scored."""
    return f" after epoch {facts.result['class_epoch']:,}"
