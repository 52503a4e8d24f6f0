"""Histograms of scores are those of NumPy, on any number of ranks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.links.distribution import NUM_BINS, score_distribution
from gnnloom.trainer.place.place import Place
from support.covering import few_of
from support.thread_ranks import on_thread_ranks


@pytest.mark.parametrize(("ranks", "dtype"), few_of([1, 2, 3], [torch.float32, torch.float64], together=1))
def test_scores_are_counted_as_numpy_counts_them(ranks: int, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(0)
    # Of quarters, which are exact; the last rank has none, and rank 0 some that are not finite.
    positive, negative = rng.integers(0, 65, 300) / 4.0, rng.integers(-12, 53, (100, 4)) / 4.0

    def on_rank(comm: Communicator) -> dict[str, object]:
        mine = [each[np.arange(len(each)) % max(1, ranks - 1) == comm.rank] for each in (positive, negative)]
        if comm.rank == 0:
            mine[0] = np.concatenate([mine[0], [np.nan, np.inf, -np.inf]])
        return score_distribution(comm, Place(dtype), *(torch.from_numpy(each).to(dtype) for each in mine))

    for found in on_thread_ranks(ranks, on_rank):
        ends = min(positive.min(), negative.min()), max(positive.max(), negative.max())
        assert found["range"] == list(ends)
        for name, scores in (("positive", positive), ("negative", negative)):
            assert found[name] == np.histogram(scores, NUM_BINS, ends)[0].tolist()


def test_equal_scores_are_in_one_bin_and_no_finite_score_gives_nothing() -> None:
    def on_rank(comm: Communicator) -> list[dict[str, object]]:
        place, nothing = Place(), torch.empty(0)
        equal = torch.full((3,), 2.5)
        lists = ((equal, nothing), (nothing, nothing), (nothing, torch.full((2, 2), torch.nan)))
        return [score_distribution(comm, place, *each) for each in lists]

    ((equal, none, nan),) = on_thread_ranks(1, on_rank)
    assert equal == {"range": [2.5, 2.5], "positive": [3] + [0] * 63, "negative": [0] * 64}
    assert none == nan == {}
