"""Counts the distribution of the scores of positive and negative pairs, over all ranks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from gnnloom.trainer.comm.communicator import Communicator, Reduction
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.place.place import Place

#: Bins between the lowest and the highest score.
NUM_BINS: Final = 64


def score_distribution(comm: Communicator, place: Place, positive: Tensor, negative: Tensor) -> dict[str, Any]:
    """Count the scores of positives and of negatives in bins of equal width. Collective.

    Scores that are not finite are left out. The bins and the counts are the same on any number of ranks if the scores
    are.

    Args:
        positive, negative: scores of this rank, of any shapes.

    Returns:
        ``range``, the lowest and the highest score, and ``positive`` and ``negative``, a count for each bin; as JSON.
        Empty if no score is finite.
    """
    scores = [_finite(each) for each in (positive, negative)]
    # Negated, the smallest number becomes the largest.
    ends = place.tensor([-np.inf, -np.inf], torch.float64)
    for each in scores:
        if len(each):
            ends = torch.maximum(ends, place.tensor([-float(each.min()), float(each.max())], torch.float64))
    comm.all_reduce(ends, Kind.METRICS, Reduction.MAX)
    lowest, highest = -float(ends[0]), float(ends[1])
    if lowest > highest:
        return {}
    counts = torch.stack([_counted(each, lowest, highest) for each in scores])
    comm.all_reduce(counts, Kind.METRICS)
    positives, negatives = counts.tolist()
    return {"range": [lowest, highest], "positive": positives, "negative": negatives}


def _finite(scores: Tensor) -> Tensor:
    flat = scores.detach().reshape(-1).to(torch.float64)
    return flat[flat.isfinite()]


def _counted(scores: Tensor, lowest: float, highest: float) -> Tensor:
    # If all scores are equal, they are in the first bin.
    width = (highest - lowest) or 1.0
    bins = ((scores - lowest) / width * NUM_BINS).clamp(max=NUM_BINS - 1).to(torch.int64)
    return torch.bincount(bins, minlength=NUM_BINS)
