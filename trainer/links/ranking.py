"""Ranks of positive pairs among negatives, and figures from these ranks: exact counts, on any number of MPI ranks.

Only integers are summed over pairs and ranks, so a figure has the same bits on any number of ranks and in any order of
    the pairs. Scores that are not a number never help: such a positive counts as the lowest score, such a negative as
the highest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.place.place import Place

#: Number of scores of another rank in memory at a time.
BLOCK: Final = 1 << 20
#: Fractions are summed as multiples of this fraction. Its inverse is the precision of float64.
_UNIT: Final = 1 << 53
#: Integers are summed over ranks in pieces of this many bits.
_BITS, _PIECES = 31, 4


@dataclass(frozen=True)
class Higher:
    """For each of this rank's scores, the number of higher scores.

    Attributes:
        above: (num_scores,) int64 number of scores above it.
        at_least: (num_scores,) int64 number of scores at least as high.
    """

    above: NDArray[np.int64]
    at_least: NDArray[np.int64]

    @classmethod
    def of(cls, above: Tensor, at_least: Tensor, place: Place) -> Higher:
        """Counts as tensors have them."""
        return cls(place.to_numpy(above), place.to_numpy(at_least))

    @classmethod
    def joined(cls, parts: Sequence[Higher]) -> Higher:
        """The counts of several parts of this rank's scores, one after the other; empty without parts."""
        nothing = np.empty(0, np.int64)
        above, at_least = ([getattr(each, name) for each in parts] for name in ("above", "at_least"))
        return cls(np.concatenate([nothing, *above]), np.concatenate([nothing, *at_least]))


def positive_scores(scores: Tensor) -> Tensor:
    """Scores of positives in the form for comparisons; see the module."""
    return scores.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)


def negative_scores(scores: Tensor) -> Tensor:
    """Scores of negatives in the form for comparisons; see the module."""
    return scores.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)


def count_higher(comm: Communicator, place: Place, scores: Tensor, others: Tensor, block: int = BLOCK) -> Higher:
    """Count the scores of all ranks that are higher than each of this rank's. Collective.

    Takes the memory of a few arrays as long as this rank's scores, and of a block of another rank's.

    Args:
        scores: (num_scores,) without NaN; the number may differ between ranks.
        others: (num_others,) of the same dtype and without NaN; this rank's part of the scores to compare with.
        block: scores that a rank sends at a time.
    """
    mine = place.to_numpy(scores)
    order = np.argsort(mine)
    ascending = mine[order]
    # Histograms of other scores by the number of this rank's scores that are lower, and that are at most as high.
    below, at_most = np.zeros((2, len(mine) + 1), np.int64)
    total = 0
    for some in _ascending_blocks(comm, place, others, block):
        total += len(some)
        below += np.bincount(np.searchsorted(ascending, some, "left"), minlength=len(below))
        at_most += np.bincount(np.searchsorted(ascending, some, "right"), minlength=len(at_most))
    above, at_least = np.empty((2, len(mine)), np.int64)
    # A score with more than k other scores below it is above number k.
    above[order] = total - np.cumsum(below)[:-1]
    at_least[order] = total - np.cumsum(at_most)[:-1]
    return Higher(above, at_least)


def _ascending_blocks(comm: Communicator, place: Place, others: Tensor, block: int) -> Iterator[NDArray[Any]]:
    """The scores of all ranks, rank after rank; each block is sorted. Collective."""
    sizes = comm.gather_numbers([len(others)])[:, 0].astype(np.int64).tolist()
    for rank, size in enumerate(sizes):
        for start in range(0, size, block):
            some = place.empty((min(block, size - start),), others.dtype)
            if rank == comm.rank:
                torch.sort(others.detach()[start : start + block], out=(some, place.empty(some.shape, torch.int64)))
            comm.broadcast(some, rank, Kind.METRICS)
            yield place.to_numpy(some)


def count_higher_in_rows(scores: Tensor, others: Tensor, place: Place) -> Higher:
    """For each score, count the higher scores in its own row of other scores. Communicates nothing.

    Args:
        scores: (num_scores,).
        others: (num_scores, count).
    """
    column = scores.detach().unsqueeze(1)
    above, at_least = (others > column).sum(1), (others >= column).sum(1)
    return Higher.of(above, at_least, place)


@dataclass(frozen=True)
class PoolRanks:
    """All positives of a split among one pool of negatives. Methods are collective.

    Attributes:
        among_negatives, among_positives: counts for this rank's positives; each counts itself as equally high.
        num_positives, num_negatives: numbers over all ranks.
    """

    comm: Communicator
    place: Place
    among_negatives: Higher
    among_positives: Higher
    num_positives: int
    num_negatives: int

    @classmethod
    def of(cls, comm: Communicator, place: Place, positive: Tensor, negative: Tensor, block: int = BLOCK) -> PoolRanks:
        """Compare the scores of all ranks. Collective.

        Args:
            positive: (num_pairs,) scores of this rank's positives.
            negative: (num_pooled,) scores of this rank's part of the pool, of the same dtype.
            block: see :func:`count_higher`.
        """
        positive, negative = positive_scores(positive), negative_scores(negative)
        counts = exact_totals(comm, place, [len(positive), len(negative)])
        among_negatives = count_higher(comm, place, positive, negative, block)
        return cls(comm, place, among_negatives, count_higher(comm, place, positive, positive, block), *counts)

    def auc(self) -> float | None:
        """Area under the receiver operating characteristic; None without positives or negatives.

        The share of pairs of a positive and a negative in which the positive has the higher score; ties count half.
        """
        if not self.num_positives * self.num_negatives:
            return None
        higher = exact_sum(self.among_negatives.above) + exact_sum(self.among_negatives.at_least)
        (lost,) = exact_totals(self.comm, self.place, [higher])
        pairs = 2 * self.num_positives * self.num_negatives
        return (pairs - lost) / pairs

    def average_precision(self) -> float | None:
        """Mean over the positives of the precision at their scores; None without positives.

        Equal scores are one threshold, as in scikit-learn's ``average_precision_score``.
        """
        positives, negatives = self.among_positives.at_least, self.among_negatives.at_least
        return self._mean(positives / np.maximum(positives + negatives, 1))

    def hits(self, count: int) -> float | None:
        """Share of the positives that are strictly above the ``count``-th highest negative; None without positives.

        If there are fewer negatives, all positives count, as in the evaluator of the Open Graph Benchmark.
        """
        if not self.num_positives:
            return None
        found = int((self.among_negatives.at_least < count).sum())
        return exact_totals(self.comm, self.place, [found])[0] / self.num_positives

    def _mean(self, fractions: NDArray[np.float64]) -> float | None:
        if not self.num_positives:
            return None
        return exact_totals(self.comm, self.place, [_in_units(fractions)])[0] / (self.num_positives * _UNIT)


@dataclass(frozen=True)
class ListRanks:
    """Positives that each have their own list of negatives. Methods are collective.

    A positive's rank is (number above + number at least as high) / 2 + 1: the middle of the places that it may take
    among equal scores. As in the evaluator of the Open Graph Benchmark, whose figures these are.

    Attributes:
        higher: of this rank's positives, among their negatives.
        num_positives: of all ranks.
    """

    comm: Communicator
    place: Place
    higher: Higher
    num_positives: int

    @classmethod
    def of(cls, comm: Communicator, place: Place, higher: Higher) -> ListRanks:
        """Ranks from counts. Collective."""
        return cls(comm, place, higher, *exact_totals(comm, place, [len(higher.above)]))

    @classmethod
    def of_scores(cls, comm: Communicator, place: Place, positive: Tensor, negative: Tensor) -> ListRanks:
        """Ranks from scores. Collective.

        Args:
            positive: (num_pairs,) scores of this rank's positives.
            negative: (num_pairs, count) scores of their negatives.
        """
        return cls.of(comm, place, count_higher_in_rows(positive_scores(positive), negative_scores(negative), place))

    @property
    def rank(self) -> NDArray[np.float64]:
        """(num_pairs,) ranks of this rank's positives, from 1. Not collective."""
        return (self.higher.above + self.higher.at_least) / 2 + 1

    def mean_reciprocal_rank(self) -> float | None:
        """Mean of 1 / rank; None without positives."""
        if not self.num_positives:
            return None
        return exact_totals(self.comm, self.place, [_in_units(1 / self.rank)])[0] / (self.num_positives * _UNIT)

    def hits(self, count: int) -> float | None:
        """Share of the positives of rank ``count`` or better; None without positives."""
        if not self.num_positives:
            return None
        found = int((self.rank <= count).sum())
        return exact_totals(self.comm, self.place, [found])[0] / self.num_positives


def exact_totals(comm: Communicator, place: Place, numbers: Sequence[int]) -> list[int]:
    """Sums over all ranks of integers from 0 to 2^124 - 1; sums may exceed 64 bits. Collective."""
    shifts = [_BITS * piece for piece in range(_PIECES)]
    pieces = [number >> shift & (1 << _BITS) - 1 for number in numbers for shift in shifts]
    # int64, because the pieces of 2^32 ranks would fit.
    totals = place.tensor(pieces, torch.int64)
    comm.all_reduce(totals, Kind.METRICS)
    rows = totals.view(len(numbers), _PIECES).tolist()
    return [sum(piece << shift for piece, shift in zip(row, shifts, strict=True)) for row in rows]


def exact_sum(counts: NDArray[np.int64]) -> int:
    """The sum of integers from 0 on, which may exceed 64 bits."""
    low = (1 << _BITS) - 1
    return (int((counts >> _BITS).sum()) << _BITS) + int((counts & low).sum())


def _in_units(fractions: NDArray[np.float64]) -> int:
    """The sum of fractions from 0 to 1, each rounded to a multiple of the unit."""
    return exact_sum(np.rint(fractions * _UNIT).astype(np.int64))
