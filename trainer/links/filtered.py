"""Ranks of targets among all vertices but the known targets of their sources: the filtered setting.

Bordes, Usunier, Garcia-Duran, Weston, Yakhnenko, "Translating Embeddings for Modeling Multi-relational Data" (NIPS
2013), section 4.2. Equal scores share the middle of their places.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.links.ranking import Higher, positive_scores
from gnnloom.trainer.links.scoring import AllTargets, Lists, score_all


def filtered_ranks(targets: AllTargets, pairs: NDArray[np.int64], known: Lists) -> Higher:
    """Count the vertices that score higher with a pair's source than its target does. Collective.

    The source itself and its known targets do not count. Scores have the same bits wherever they are computed, and the
    ranks' counts are integers, so the result is exact, ties included, and the same on any number of ranks.

    Args:
        pairs: (num_pairs, 2) int64 this rank's sources and targets, any number of them.
        known: known targets of every pair's source; the pair's own target may be among them.

    Returns:
        Counts for this rank's pairs; see :class:`gnnloom.trainer.links.ranking.ListRanks`.
    """
    comm, place = targets.comm, targets.place
    score = positive_scores(score_all(targets.pair_rows, targets.rows, targets.decoder, pairs))
    found = np.zeros((2, len(pairs)), np.int64)
    for block in targets.blocks(pairs[:, 0], known, pairs[:, 1]):
        own = slice(*block.span)
        limit = place.empty((len(block.rows),), score.dtype)
        if block.rank == comm.rank:
            limit.copy_(score[own])
        comm.broadcast(limit, block.rank, Kind.METRICS)
        counts, column = place.zeros((2, len(limit)), torch.int64), limit.unsqueeze(1)
        for _, scores in targets.scores(block, torch.inf):
            # Vertices that do not count have a score that is not a number, which is neither above nor as high.
            counts[0] += (scores > column).sum(1)
            counts[1] += (scores >= column).sum(1)
        comm.all_reduce(counts, Kind.METRICS)
        if block.rank == comm.rank:
            found[:, own] = counts
    return Higher(*found)
