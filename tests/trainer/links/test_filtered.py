"""Filtered ranks equal brute force, ties included, and are the same on any number of ranks and in any blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.links.all_targets import filtered_ranks
from gnnloom.trainer.links.bilinear import Cosine, DistMult, Dot
from gnnloom.trainer.links.decoder import Decoder
from gnnloom.trainer.links.perceptron import Perceptron
from gnnloom.trainer.links.ranking import ListRanks
from gnnloom.trainer.links.scoring import BlockSizes, Lists, score_all
from gnnloom.trainer.place.place import Place
from support.covering import few_of
from support.link_targets import NUM_VERTICES, SMALL, known_of, made, targets_of, whole
from support.thread_ranks import on_thread_ranks


class Distance(Decoder):
    """A class of the user: the negative distance, without a kernel of its own."""

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return -(source - target).abs().sum(1)


def given_pairs(count: int) -> np.ndarray:
    pairs = np.random.default_rng(1).integers(0, NUM_VERTICES, (count, 2))
    pairs[:3, 1] = pairs[:3, 0]
    return pairs


def on_ranks(
    ranks: int, rows: Tensor, decoder: Decoder, pairs: np.ndarray, sizes: BlockSizes | None
) -> tuple[np.ndarray, list[float | None]]:
    """(2, num_pairs) counts, and figures."""
    # Rank 0 has most of the pairs, and of several ranks the last one none.
    owner = np.minimum(np.random.default_rng(4).geometric(0.5, len(pairs)) - 1, max(0, ranks - 2))

    def on_rank(comm: Communicator) -> tuple[np.ndarray, list[float | None]]:
        mine = pairs[owner == comm.rank]
        known = Lists.of([known_of(source) for source in mine[:, 0]])
        higher = filtered_ranks(targets_of(comm, rows, decoder, sizes), mine, known)
        found = ListRanks.of(comm, Place(), higher)
        figures = [found.mean_reciprocal_rank(), found.hits(1), found.hits(10)]
        return np.stack([higher.above, higher.at_least]), figures

    found = on_thread_ranks(ranks, on_rank)
    counts = np.empty((2, len(pairs)), np.int64)
    for rank, (mine, figures) in enumerate(found):
        counts[:, owner == rank] = mine
        assert figures == found[0][1]
    return counts, found[0][1]


def brute_force(pairs: np.ndarray, scores_of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """(2, num_pairs) counts by comparison with all vertices, pair after pair."""
    every = scores_of(pairs[:, 0])
    counts = []
    for (source, target), scores in zip(pairs, every, strict=True):
        counted = np.ones(NUM_VERTICES, bool)
        counted[known_of(source)] = False
        counted[[source, target]] = False
        counts.append([(scores > scores[target])[counted].sum(), (scores >= scores[target])[counted].sum()])
    return np.array(counts).T


@cache
def counts_of_integers() -> np.ndarray:
    """Those of ten thousand pairs, for any number of ranks."""
    exact = whole("integers").double().numpy()
    return brute_force(given_pairs(10_000), lambda sources: exact[sources] @ exact.T)


#: Numbers of ranks; each promise is tested on two of them by default.
RANKS = (1, 2, 3, 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "ranks", [pytest.param(ranks, marks=[pytest.mark.long] if ranks in {2, 3} else []) for ranks in RANKS]
)
def test_ten_thousand_ranks_equal_brute_force(ranks: int) -> None:
    counts, figures = on_ranks(ranks, whole("integers"), made(Dot), given_pairs(10_000), None)
    expected = counts_of_integers()
    assert np.array_equal(counts, expected)
    assert (expected[0] < expected[1]).mean() > 0.5
    place = expected.sum(0) / 2 + 1
    assert figures[0] == pytest.approx((1 / place).mean(), rel=1e-14)
    assert figures[1:] == [(place <= count).mean() for count in (1, 10)]


def in_order(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Products of all rows, added in the order of the columns."""
    total = np.zeros((len(left), len(right)), left.dtype)
    for column in range(left.shape[1]):
        total += left[:, column, None] * right[None, :, column]
    return total


@cache
def counts_of_twins() -> np.ndarray:
    """Those of some pairs, for any number of ranks."""
    rows = whole("twice").numpy()
    return brute_force(given_pairs(200), lambda sources: in_order(rows[sources], rows))


@pytest.mark.parametrize(
    "ranks", [pytest.param(ranks, marks=[pytest.mark.long] if ranks in {1, 4} else []) for ranks in RANKS]
)
def test_rows_that_occur_twice_tie_on_any_rank(ranks: int) -> None:
    counts, _ = on_ranks(ranks, whole("twice"), made(Dot), given_pairs(200), SMALL)
    expected = counts_of_twins()
    assert np.array_equal(counts, expected)
    # The twin of most targets counts.
    assert (expected[1] - expected[0]).mean() > 0.5


@pytest.mark.parametrize(("kind", "ranks"), few_of((Cosine, DistMult, Perceptron, Distance), (2, 3, 4), together=1))
def test_ranks_are_the_same_with_every_decoder_on_any_number_of_ranks(kind: type[Decoder], ranks: int) -> None:
    rows, pairs = whole("twice"), given_pairs(60)
    first, _ = on_ranks(1, rows, made(kind), pairs, None)
    assert np.array_equal(on_ranks(ranks, rows, made(kind), pairs, SMALL)[0], first)
    assert (first[1] - first[0]).mean() > 0.5
    decoder, exact = made(kind).double(), rows.double()

    def scores_of(sources: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            scores = [decoder(exact[source].expand_as(exact), exact).numpy() for source in sources.tolist()]
        # Twins tie, wherever torch computed them.
        return np.round(scores, 9)

    # In float32, scores that differ may tie or change places, but few do.
    expected = brute_force(pairs, scores_of)
    assert (first == expected).mean() > 0.95


def test_what_is_not_a_number_never_helps() -> None:
    rows, pairs = whole("integers"), np.array([[0, 1], [2, 3]])
    rows[1] = torch.nan
    rows[4] = torch.nan
    counts, _ = on_ranks(2, rows, made(Dot), pairs, SMALL)
    known = [{0, 1, *known_of(0).tolist()}, {2, 3, *known_of(2).tolist()}]
    # All others are above the first target; the vertices 1 and 4 are above the second.
    assert counts[:, 0].tolist() == [NUM_VERTICES - len(known[0])] * 2
    exact = rows.double().numpy()
    others = [exact[2] @ exact[v] > exact[2] @ exact[3] for v in range(NUM_VERTICES) if v not in known[1] | {1, 4}]
    assert counts[0, 1] == sum(others) + len({1, 4} - known[1])


@pytest.mark.parametrize("ranks", [1, 3])
def test_scores_of_pairs_are_those_of_blocks(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnloom.trainer.links.scoring._PAIRS", 11)
    rows, pairs, decoder = whole("twice"), given_pairs(100), made(Cosine)

    def on_rank(comm: Communicator) -> None:
        mine = pairs[comm.rank :: comm.size][: 100 * comm.rank if comm.size > 1 else 100]
        targets = targets_of(comm, rows, decoder)
        found = score_all(targets.pair_rows, targets.rows, decoder, mine)
        block = decoder.scores_of_block(rows, rows)
        assert torch.equal(found, block[mine[:, 0], mine[:, 1]])

    on_thread_ranks(ranks, on_rank)


def test_blocks_are_cut_by_sources_and_by_their_lists() -> None:
    sizes = BlockSizes(sources=3, listed=10)
    assert sizes.cut(np.array([0])) == []
    assert sizes.cut(np.arange(8)) == [(0, 3), (3, 6), (6, 7)]
    # A list of 50 is alone; the next two have 10 together.
    assert sizes.cut(np.array([0, 4, 54, 58, 64, 65])) == [(0, 1), (1, 2), (2, 4), (4, 5)]
