"""The best targets of a source are those of a sort of all scores, on any number of ranks and in any blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.links.all_targets import top_targets
from gnnloom.trainer.links.bilinear import Dot
from gnnloom.trainer.links.scoring import BlockSizes, Lists
from support.covering import few_of
from support.link_targets import NUM_VERTICES, SMALL, known_of, made, targets_of, whole
from support.thread_ranks import on_thread_ranks


def expected(rows: Tensor, source: int, count: int) -> tuple[list[int], list[float]]:
    """By a sort of the scores of all vertices."""
    exact = rows.double().numpy()
    scores = np.nan_to_num(exact @ exact[source], nan=-np.inf)
    candidates = np.setdiff1d(np.arange(NUM_VERTICES), [source, *known_of(source)])
    best = candidates[np.lexsort((candidates, -scores[candidates]))][:count]
    missing = count - len(best)
    return [*best.tolist(), *[-1] * missing], [*scores[best].tolist(), *[-np.inf] * missing]


#: How many targets, and in which blocks.
ASKED: dict[str, tuple[int, BlockSizes | None]] = {
    "best": (1, SMALL),
    "in-small-blocks": (10, SMALL),
    "in-usual-blocks": (10, None),
    "more-than-there-are": (100, SMALL),
}


@pytest.mark.parametrize(("ranks", "asked"), few_of((1, 2, 3, 4), ASKED, together=1))
def test_the_best_targets_are_those_of_a_sort(ranks: int, asked: str) -> None:
    count, sizes = ASKED[asked]
    # Of small integers, whose scores tie often; one row is no number.
    rows, decoder = whole("integers"), made(Dot)
    rows[9] = torch.nan
    sources = np.random.default_rng(5).integers(0, NUM_VERTICES, 50)
    sources[:2] = 9, 3
    # Rank 1 has none if there are several ranks.
    owner = np.arange(50) % ranks if ranks < 3 else np.arange(50) % (ranks - 1) + (np.arange(50) % (ranks - 1) > 0)

    def on_rank(comm: Communicator) -> None:
        mine = sources[owner == comm.rank]
        known = Lists.of([known_of(source) for source in mine.tolist()])
        vertex, score = top_targets(targets_of(comm, rows, decoder, sizes), mine, count, known)
        for number, source in enumerate(mine.tolist()):
            assert (vertex[number].tolist(), score[number].tolist()) == expected(rows, source, count)

    on_thread_ranks(ranks, on_rank)
