"""Negatives are the same on any number of ranks, have the stated distribution, and are no edges on request."""

from __future__ import annotations

import numpy as np
import pytest

from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.feed import negatives
from gnnloom.trainer.feed.negatives import (
    REDRAWS,
    DegreeNegatives,
    JointNegatives,
    NegativeSampler,
    UniformNegatives,
    UniformPairs,
)
from gnnloom.trainer.feed.pair_seeds import PairSet
from gnnloom.trainer.links import choices
from support.covering import few_of
from support.lone import LoneCommunicator
from support.thread_ranks import on_thread_ranks

NUM_VERTICES, COUNT = 50, 3


def positives(num_pairs: int, seed: int = 0) -> PairSet:
    source, target = np.random.default_rng(seed).integers(0, NUM_VERTICES, (2, num_pairs))
    number = np.random.default_rng(seed).permutation(num_pairs) + 1000
    return PairSet(number, source, target, group=number // 4)


def samplers(count: int = COUNT) -> list[NegativeSampler]:
    training = positives(200, 7)

    def read_ends(numbers: np.ndarray) -> np.ndarray:
        return np.asarray(np.concatenate([training.target, training.source])[numbers])

    degree = DegreeNegatives(1, count, NUM_VERTICES, 200, read_ends, symmetric=True)
    uniform = [kind(1, count, NUM_VERTICES) for kind in (UniformNegatives, UniformPairs, JointNegatives)]
    return [*uniform, degree]


def test_every_name_has_a_sampler() -> None:
    classes = [each for each in vars(negatives).values() if isinstance(each, type)]
    assert [each.name for each in classes if hasattr(each, "name")] == list(choices.NEGATIVE_SAMPLERS)


@pytest.mark.parametrize("sampler", samplers(), ids=lambda each: each.name)
def test_a_draw_depends_on_the_epoch_and_the_pair_only(sampler: NegativeSampler) -> None:
    pairs = positives(40)
    drawn = sampler.draw(5, pairs)
    assert drawn.shape == (40, COUNT)
    assert drawn.dtype == np.int64
    for rank in range(3):
        chosen = np.flatnonzero(pairs.number % 3 == rank)[::-1]
        assert np.array_equal(sampler.draw(5, pairs.take(chosen)), drawn[chosen])
    assert sampler.draw(5, pairs.take(np.arange(0))).shape == (0, COUNT)
    assert not np.array_equal(sampler.draw(6, pairs), drawn)


def chi_square(drawn: np.ndarray, expected: np.ndarray) -> float:
    """How far counts are from expected ones; the square of a normal number for each free one."""
    counts = np.bincount(drawn.ravel(), minlength=len(expected))
    assert (counts[expected == 0] == 0).all()
    some = expected > 0
    return float((np.square(counts - expected)[some] / expected[some]).sum())


def test_vertices_are_drawn_as_stated() -> None:
    num_pairs = 20_000
    pairs = PairSet(np.arange(num_pairs), np.full(num_pairs, 7), np.full(num_pairs, 9), group=np.arange(num_pairs))
    uniform, _, joint, degree = samplers()
    even = np.full(NUM_VERTICES, float(num_pairs * COUNT))
    but_source = even / (NUM_VERTICES - 1)
    but_source[7] = 0
    training = positives(200, 7)
    ends = np.bincount(np.concatenate([training.source, training.target]), minlength=NUM_VERTICES) / 400
    expected = [but_source, even / NUM_VERTICES, ends * num_pairs * COUNT]
    for sampler, counts in zip((uniform, joint, degree), expected, strict=True):
        # 49 free counts: 49 on average, with a standard deviation of 10.
        assert chi_square(sampler.draw(0, pairs), counts) < 49 + 5 * 10
    only_targets = DegreeNegatives(1, COUNT, NUM_VERTICES, 200, lambda ends: training.target[ends], symmetric=False)
    counts = np.bincount(training.target, minlength=NUM_VERTICES) / 200 * num_pairs * COUNT
    assert chi_square(only_targets.draw(0, pairs), counts) < 49 + 5 * 10


def test_pairs_of_a_group_share_their_negatives() -> None:
    pairs = positives(40)
    assert pairs.group is not None
    drawn = samplers()[2].draw(0, pairs)
    shared = [np.unique(drawn[pairs.group == group], axis=0) for group in np.unique(pairs.group)]
    assert [len(each) for each in shared] == [1] * 10
    assert len(np.unique(np.concatenate(shared), axis=0)) == 10
    # Pairs without groups are one.
    alone = samplers()[2].draw(0, PairSet(pairs.number, pairs.source, pairs.target))
    assert len(np.unique(alone, axis=0)) == 1


def test_vertices_beyond_32_bits_are_drawn() -> None:
    large = 1 << 40
    drawn = UniformNegatives(0, COUNT, large).draw(0, positives(1000))
    assert drawn.max() > large // 2
    assert drawn.min() >= 0
    # A vertex below and one above the source, of three.
    few = UniformNegatives(0, COUNT, 3).draw(0, PairSet(*np.array([[0, 1, 2], [0, 1, 2], [1, 2, 0]])))
    assert (few != np.arange(3)[:, None]).all()


def edges(sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Six of ten pairs are edges; of vertex 3, all."""
    return np.asarray(((sources * 31 + targets * 17) % 10 > 3) | (sources == 3))


@pytest.mark.parametrize(("ranks", "number"), few_of([1, 2, 3, 4], range(4), together=1))
def test_edges_are_drawn_again_on_any_number_of_ranks(number: int, ranks: int) -> None:
    pairs = positives(60)
    sampler = samplers()[number]
    first = sampler.draw(2, pairs)
    drawn = first.copy()
    stands = sampler.redraw(2, pairs, drawn, edges, LoneCommunicator())
    own = sampler.sources(2, pairs)
    source = pairs.source[:, None] if own is None else own

    def is_bad(targets: np.ndarray) -> np.ndarray:
        is_own = (targets == pairs.target[:, None]) & (source == pairs.source[:, None])
        return np.asarray(edges(source, targets) | (targets == source) | is_own)

    kept = ~is_bad(first)
    assert 0 < kept.sum() < kept.size
    assert np.array_equal(drawn[kept], first[kept])
    assert stands == is_bad(drawn).sum() >= np.broadcast_to(source == 3, drawn.shape).sum() > 0
    # Others stand with probability 0.6^17 each.
    assert is_bad(drawn)[np.broadcast_to(source != 3, drawn.shape)].sum() <= 1

    def on_rank(comm: Communicator) -> tuple[np.ndarray, np.ndarray, int, int]:
        calls = 0

        def counted(sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
            nonlocal calls
            calls += 1
            comm.barrier()  # as if the ranks asked each other
            return edges(sources, targets)

        # The last rank has no pairs if there are several.
        chosen = np.flatnonzero(pairs.number % max(1, ranks - 1) == comm.rank)
        mine = pairs.take(chosen)
        found = sampler.draw(2, mine)
        standing = sampler.redraw(2, mine, found, counted, comm)
        return chosen, found, standing, calls

    found = on_thread_ranks(ranks, on_rank)
    for chosen, negatives_of_rank, *_ in found:
        assert np.array_equal(negatives_of_rank, drawn[chosen])
    assert sum(len(each[0]) for each in found) == 60
    assert sum(each[2] for each in found) == stands
    assert {each[3] for each in found} == {REDRAWS + 1}


def test_few_calls_if_nothing_is_refused() -> None:
    pairs, sampler, calls = positives(10), samplers()[0], list[int]()

    def none(sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        calls.append(len(sources))
        return np.zeros(len(sources), bool)

    drawn = sampler.draw(0, pairs)
    drawn[0, 0] = pairs.target[0]
    assert sampler.redraw(0, pairs, drawn, none, LoneCommunicator()) == 0
    assert drawn[0, 0] != pairs.target[0]
    assert calls[1] < calls[0] == 10 * COUNT
    assert len(calls) < 5


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(InputError, match="negatives in a graph of 1 vertex"):
        UniformNegatives(0, 1, 1)
    with pytest.raises(InputError, match="no training pairs"):
        DegreeNegatives(0, 1, 5, 0, lambda ends: ends, symmetric=False)
