"""Chances and quantiles of the chi-squared distribution, without `scipy.stats`, which takes a second to import."""

from __future__ import annotations

import numpy as np
import scipy.special
from numpy.typing import ArrayLike


def chance(statistic: float, freedom: int) -> float:
    """Chance of a chi-squared variable with ``freedom`` degrees of freedom to exceed a statistic."""
    return float(scipy.special.chdtrc(freedom, statistic))


def quantile(probability: float, freedom: int) -> float:
    """What a chi-squared variable with ``freedom`` degrees of freedom stays below with a probability."""
    return float(scipy.special.chdtri(freedom, 1 - probability))


def chance_of_counts(counts: ArrayLike, expected: ArrayLike | None = None) -> float:
    """Chance of counts that deviate more from what is expected than these; by default, all are equally likely."""
    counts = np.asarray(counts, float)
    expected = np.full(len(counts), counts.mean()) if expected is None else np.asarray(expected, float)
    assert np.isclose(counts.sum(), expected.sum(), rtol=1e-8)
    return chance(float(((counts - expected) ** 2 / expected).sum()), len(counts) - 1)
