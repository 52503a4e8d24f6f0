"""Names of negative samplers and of losses of pairs, with their help. Loads neither torch nor numba."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Classes in :mod:`gnnloom.trainer.feed.negatives`.
NEGATIVE_SAMPLERS: Final[Mapping[str, str]] = {
    "uniform": "any vertex but the source",
    "pairs": "pairs of any two vertices, also with other sources",
    "joint": "any vertex; pairs of a group share their negatives",
    "degree": "ends of training pairs, so in proportion to the degree",
}
#: Functions in :mod:`gnnloom.trainer.links.losses`.
PAIR_LOSSES: Final[Mapping[str, str]] = {
    "bce": "binary cross-entropy of all pairs, positive and negative",
    "bpr": "Bayesian personalized ranking: logistic loss of the difference of each positive and each of its negatives",
    "margin": "hinge loss of that difference, up to a margin",
    "ce": "cross-entropy of each positive among its negatives",
}
