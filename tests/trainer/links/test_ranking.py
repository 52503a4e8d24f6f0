"""Figures of ranks equal brute force and the evaluators' formulas, to the bit on any number of ranks, ties included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.links.ranking import (
    ListRanks,
    PoolRanks,
    count_higher,
    exact_sum,
    exact_totals,
)
from gnnloom.trainer.place.place import Place
from support.covering import few_of
from support.lone import LoneCommunicator
from support.thread_ranks import on_thread_ranks
from support.tolerance import assert_close

PLACE = Place()


def drawn(name: str, count: int, seed: int) -> Tensor:
    """Scores of a kind: all different, with many ties, all equal, or with infinite ones and both zeros."""
    rng = np.random.default_rng(seed)
    kinds = {
        "different": rng.standard_normal(count),
        "tied": rng.integers(-3, 4, count),
        "equal": np.full(count, 0.5),
        "special": rng.choice([np.inf, -np.inf, 0.0, -0.0, 1.0, 2.0], count),
    }
    return torch.from_numpy(kinds[name].astype(np.float32))


KINDS = ["different", "tied", "equal", "special"]


def auc(positive: np.ndarray, negative: np.ndarray) -> float:
    """By all pairs of a positive and a negative."""
    wins = (positive[:, None] > negative).sum() + 0.5 * (positive[:, None] == negative).sum()
    return float(wins / (len(positive) * len(negative)))


def average_precision(positive: np.ndarray, negative: np.ndarray) -> float:
    """Sum over the thresholds, from the highest on, of the recall gained times the precision, as scikit-learn does."""
    found, recall = 0.0, 0.0
    for threshold in np.unique(np.concatenate([positive, negative]))[::-1]:
        right, wrong = (positive >= threshold).sum(), (negative >= threshold).sum()
        found += (right / len(positive) - recall) * right / (right + wrong)
        recall = right / len(positive)
    return found


def ogb_hits(positive: Tensor, negative: Tensor, count: int) -> float:
    """``Evaluator._eval_hits`` of ogb 1.3.6, the branch for torch."""
    if len(negative) < count:
        return 1.0
    kth_score_in_negative_edges = torch.topk(negative, count)[0][-1]
    return float(torch.sum(positive > kth_score_in_negative_edges).cpu()) / len(positive)


def ogb_mrr(positive: Tensor, negative: Tensor) -> dict[str, Tensor]:
    """``Evaluator._eval_mrr`` of ogb 1.3.6, the branch for torch."""
    column = positive.view(-1, 1)
    optimistic_rank = (negative > column).sum(dim=1)
    pessimistic_rank = (negative >= column).sum(dim=1)
    ranking_list = 0.5 * (optimistic_rank + pessimistic_rank) + 1
    return {
        "hits@1": (ranking_list <= 1).to(torch.float),
        "hits@3": (ranking_list <= 3).to(torch.float),
        "hits@10": (ranking_list <= 10).to(torch.float),
        "mrr": 1.0 / ranking_list.to(torch.float),
    }


def shares(count: int, ranks: int, seed: int) -> list[np.ndarray]:
    """A share of some rows for every rank; of several ranks the last one has none."""
    owner = np.random.default_rng(seed).integers(0, max(1, ranks - 1), count)
    return [np.flatnonzero(owner == rank) for rank in range(ranks)]


def same_on_ranks(function: Callable[[Communicator], Any]) -> Any:
    """What a function returns on every rank of 1 to 4, which must be the same."""
    found = [each for ranks in (1, 2, 3, 4) for each in on_thread_ranks(ranks, function)]
    assert all(each == found[0] for each in found)
    return found[0]


@pytest.mark.parametrize(("kind", "block", "ranks"), few_of(KINDS, [1, 7, 1 << 20], [1, 2, 3, 4], together=2))
def test_counts_are_those_of_all_comparisons(kind: str, block: int, ranks: int) -> None:
    scores, others = drawn(kind, 40, 1), drawn(kind, 33, 2)
    of_scores, of_others = shares(40, ranks, 3), shares(33, ranks, 4)[::-1]

    def on_rank(comm: Communicator) -> None:
        mine = scores[of_scores[comm.rank]]
        found = count_higher(comm, PLACE, mine, others[of_others[comm.rank]], block)
        assert np.array_equal(found.above, (others > mine[:, None]).sum(1).numpy())
        assert np.array_equal(found.at_least, (others >= mine[:, None]).sum(1).numpy())

    on_thread_ranks(ranks, on_rank)


@pytest.mark.parametrize("kind", KINDS)
def test_figures_of_a_pool_are_those_of_the_formulas(kind: str) -> None:
    positive, negative = drawn(kind, 60, 1), drawn(kind, 45, 2)
    counts = (1, 2, 10, 44, 45, 46, 100)

    def on_rank(comm: Communicator) -> list[float | None]:
        mine = positive[shares(60, comm.size, 5)[comm.rank]], negative[shares(45, comm.size, 6)[comm.rank]]
        ranks = PoolRanks.of(comm, PLACE, *mine, block=16)
        return [ranks.auc(), ranks.average_precision(), *(ranks.hits(count) for count in counts)]

    found = same_on_ranks(on_rank)
    arrays = positive.numpy(), negative.numpy()
    assert_close(found[:2], [auc(*arrays), average_precision(*arrays)])
    assert found[2:] == [ogb_hits(positive, negative, count) for count in counts]


@pytest.mark.parametrize("kind", KINDS)
def test_figures_of_lists_are_those_of_the_evaluator(kind: str) -> None:
    positive, negative = drawn(kind, 50, 1), drawn(kind, 50 * 20, 2).view(50, 20)

    def on_rank(comm: Communicator) -> list[float | None]:
        chosen = shares(50, comm.size, 5)[comm.rank]
        ranks = ListRanks.of_scores(comm, PLACE, positive[chosen], negative[chosen])
        return [ranks.mean_reciprocal_rank(), *(ranks.hits(count) for count in (1, 3, 10))]

    expected = ogb_mrr(positive, negative)
    found = same_on_ranks(on_rank)
    # The evaluator computes in float32.
    assert_close(found, [float(expected[name].mean()) for name in ("mrr", "hits@1", "hits@3", "hits@10")], dtype="f4")


@pytest.mark.parametrize("kind", KINDS)
def test_figures_are_those_of_the_evaluators_of_ogb(kind: str) -> None:
    """By the evaluators themselves, where ogb is installed; of tensors, as their branch for NumPy fails."""
    evaluator = pytest.importorskip("ogb.linkproppred").Evaluator
    lone, positive, negative = LoneCommunicator(), drawn(kind, 300, 1), drawn(kind, 200, 2)
    pool, given = PoolRanks.of(lone, PLACE, positive, negative), {"y_pred_pos": positive, "y_pred_neg": negative}
    for name, count in (("ogbl-ddi", 20), ("ogbl-collab", 50), ("ogbl-ppa", 100)):
        assert pool.hits(count) == evaluator(name=name).eval(given)[f"hits@{count}"]
    if kind != "special":
        # scikit-learn refuses infinite scores.
        assert_close(pool.auc() or 0, evaluator(name="ogbl-vessel").eval(given)["rocauc"])
    many = drawn(kind, 300 * 40, 3).view(300, 40)
    lists = ListRanks.of_scores(lone, PLACE, positive, many)
    found = evaluator(name="ogbl-citation2").eval({"y_pred_pos": positive, "y_pred_neg": many})
    expected = [float(found[f"{name}_list"].double().mean()) for name in ("mrr", "hits@1", "hits@3", "hits@10")]
    # The evaluator computes ranks in float32.
    figures = [lists.mean_reciprocal_rank() or 0, *(lists.hits(count) or 0 for count in (1, 3, 10))]
    assert_close(figures, expected, dtype="f4")


def test_what_is_not_a_number_never_helps() -> None:
    lone, nan = LoneCommunicator(), float("nan")
    positive, negative = torch.tensor([nan, 1.0, 3.0]), torch.tensor([2.0, nan, -torch.inf, 0.0])
    ranks = PoolRanks.of(lone, PLACE, positive, negative)
    # The first one counts as -inf and ties with the third negative; the second negative is above all.
    assert ranks.auc() == (0.5 + 2 + 3) / 12
    assert [ranks.hits(count) for count in (1, 2, 3, 4, 5)] == [0, 1 / 3, 2 / 3, 2 / 3, 1]
    assert_close(ranks.average_precision() or 0, (3 / 7 + 2 / 4 + 1 / 2) / 3)
    lists = ListRanks.of_scores(lone, PLACE, torch.tensor([nan, 1.0]), torch.tensor([[0.0, nan], [nan, 1.0]]))
    assert lists.rank.tolist() == [3, 2.5]
    # A model that scores nothing as a number is as bad as can be.
    nothing = torch.full((4,), nan)
    assert PoolRanks.of(lone, PLACE, nothing, nothing).auc() == 0
    assert ListRanks.of_scores(lone, PLACE, nothing, nothing.repeat(2, 1).T).rank.tolist() == [3] * 4


def test_without_pairs_there_is_no_figure() -> None:
    lone, none, some = LoneCommunicator(), torch.zeros(0), torch.zeros(3)
    ranks = PoolRanks.of(lone, PLACE, none, some)
    assert (ranks.auc(), ranks.average_precision(), ranks.hits(1)) == (None, None, None)
    ranks = PoolRanks.of(lone, PLACE, some, none)
    assert (ranks.auc(), ranks.average_precision(), ranks.hits(1)) == (None, 1, 1)
    lists = ListRanks.of_scores(lone, PLACE, none, torch.zeros(0, 5))
    assert (lists.mean_reciprocal_rank(), lists.hits(1)) == (None, None)


def test_sums_beyond_64_bits_are_exact() -> None:
    large = np.array([2**63 - 1, 2**63 - 2, 5], np.int64)
    assert exact_sum(large) == 2**64 + 2

    def on_rank(comm: Communicator) -> list[int]:
        share = (2**100 + 1, 3) if comm.rank == 0 else (0, 0)
        return exact_totals(comm, PLACE, share)

    assert same_on_ranks(on_rank) == [2**100 + 1, 3]
    assert on_thread_ranks(3, lambda comm: exact_totals(comm, PLACE, [2**62 + comm.rank])) == [[3 * 2**62 + 3]] * 3
