"""Losses of pairs: sums over this rank's pairs, divided by the number of terms of all ranks.

So the sum of all ranks' results is the loss. Sums are in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

#: From scores (num_pairs,) of positives and (num_pairs, count) of their negatives, a () float64 sum.
_Sum = Callable[[Tensor, Tensor, float], Tensor]


@dataclass(frozen=True)
class PairLoss:
    """A loss of positive pairs and their negatives.

    Attributes:
        name: as given with ``--loss``.
        sum_of: computes the sum of the terms from the scores and the margin.
        terms_per_pair: computes the number of terms of a positive pair from the number of its negatives.
    """

    name: str
    sum_of: _Sum
    terms_per_pair: Callable[[int], int]

    def num_terms(self, num_pairs: int, count: int) -> int:
        """Number of terms of positive pairs with ``count`` negatives each."""
        return num_pairs * self.terms_per_pair(count)

    def __call__(self, positive: Tensor, negative: Tensor, num_terms: int, margin: float = 1.0) -> Tensor:
        """This rank's contribution, () float64; differentiable. Communicates nothing.

        Args:
            positive: (num_pairs,) scores.
            negative: (num_pairs, count) scores of the negatives of every pair.
            num_terms: number of terms of all ranks; see :meth:`num_terms`.
            margin: margin of the loss ``margin``.
        """
        return self.sum_of(positive, negative, margin) / max(num_terms, 1)


def _binary_cross_entropy(positive: Tensor, negative: Tensor, margin: float) -> Tensor:  # noqa: ARG001
    """-log s(p) of every positive and -log(1 - s(n)) of every negative, with s the logistic function.

    The mean over all terms of both kinds, as ``torch.nn.BCEWithLogitsLoss`` of all scores in one list, which is the
    recipe of graph auto-encoders and PyG. With one negative for each pair, it is half of the mean over positives plus
    the mean over negatives, which is the recipe of the Open Graph Benchmark. With K negatives, the negatives together
    weigh K times as much as the positives.
    """
    return _total(functional.softplus(-positive)) + _total(functional.softplus(negative))


def _personalized_ranking(positive: Tensor, negative: Tensor, margin: float) -> Tensor:  # noqa: ARG001
    """-log s(p - n) of every positive and each of its negatives.

    Rendle, Freudenthaler, Gantner, Schmidt-Thieme, "BPR: Bayesian Personalized Ranking from Implicit Feedback" (UAI
    2009), section 4.
    """
    return _total(functional.softplus(negative - positive.unsqueeze(1)))


def _margin(positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """max(0, margin - p + n) of every positive and each of its negatives."""
    return _total((margin + negative - positive.unsqueeze(1)).clamp_min(0))


def _cross_entropy(positive: Tensor, negative: Tensor, margin: float) -> Tensor:  # noqa: ARG001
    """-log of the share of e^p in the sum of e^p and all e^n, of every positive with its negatives."""
    column = positive.unsqueeze(1)
    return _total(torch.logsumexp(torch.cat([column, negative], 1) - column, 1))


def _total(terms: Tensor) -> Tensor:
    return terms.sum(dtype=torch.float64)


#: The losses of :data:`gnnloom.trainer.links.choices.PAIR_LOSSES`.
LOSSES: Final[Mapping[str, PairLoss]] = MappingProxyType(
    {
        loss.name: loss
        for loss in (
            PairLoss("bce", _binary_cross_entropy, lambda count: 1 + count),
            PairLoss("bpr", _personalized_ranking, lambda count: count),
            PairLoss("margin", _margin, lambda count: count),
            PairLoss("ce", _cross_entropy, lambda count: 1),  # noqa: ARG005
        )
    }
)
