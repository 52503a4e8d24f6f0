"""Pictures of the scores of pairs."""

from __future__ import annotations

import numpy as np

from gnnloom.storage.wording import counted
from gnnloom.workflows.report.facts import RunFacts, scored_epoch
from gnnloom.workflows.report.pictures.hover import column_spots
from gnnloom.workflows.report.pictures.style import Picture, color, draw_grid, draw_legend, new_axes

#: Colors of the histograms, which lie on top of each other.
_COLORS = {"positive": "blue", "negative": "orange"}
_LABELS = {"positive": "test pairs", "negative": "negatives"}


def distribution_picture(facts: RunFacts) -> Picture | None:
    """Draw how the scores of test pairs and of their negatives are distributed; None if the run did not count them."""
    found = facts.result.get("score_distribution")
    if not found:
        return None
    shares = {name: 100 * np.array(found[name], np.float64) / max(1, sum(found[name])) for name in _COLORS}
    num_bins = len(found["positive"])
    lowest, highest = found["range"]
    # If all scores are equal, the bin still has some width.
    edges = np.linspace(lowest, highest if highest > lowest else lowest + 1, num_bins + 1)
    figure, axes = new_axes()
    for name, share in shares.items():
        axes.stairs(share, edges, fill=True, color=color(_COLORS[name]), alpha=0.45, label=_LABELS[name])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("score")
    axes.set_ylabel("% of the pairs")
    draw_grid(axes)
    draw_legend(axes)
    middles = (edges[1:] + edges[:-1]) / 2
    lines = [
        (f"score {middle:.4g}", *(f"{_LABELS[name]}  {shares[name][number]:.3g} %" for name in _COLORS))
        for number, middle in enumerate(middles.tolist())
    ]
    pairs, negatives = counted(sum(found["positive"]), "test pair"), counted(sum(found["negative"]), "negative")
    note = f"{pairs} and {negatives}{scored_epoch(facts)}."
    return Picture("scores", "Distribution of scores", figure, note, column_spots(middles, lines))
