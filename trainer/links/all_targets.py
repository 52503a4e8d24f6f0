"""Finds the best targets of sources, and the ranks of given targets, among all vertices except known targets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.comm.exchange import collect
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.links.ranking import Higher, positive_scores
from gnnloom.trainer.links.scoring import AllTargets, Lists, SourceBlock, score_all


@dataclass(frozen=True)
class _Found:
    """Targets of the sources of a block: at most ``k`` per source, best first.

    Attributes:
        vertex: (num_sources, count) int64, -1 for none.
        score: (num_sources, count), -inf for none.
    """

    vertex: Tensor
    score: Tensor


def top_targets(targets: AllTargets, sources: NDArray[np.int64], count: int, known: Lists) -> tuple[Tensor, Tensor]:
    """The best targets of this rank's sources. Collective; ranks may have different numbers of sources.

    The source itself is never among them. A score that is not a number counts as the lowest. Scores have the same bits
    on any number of ranks, and so does the result.

    Args:
        count: targets for each source.
        known: vertices to leave out for each source.

    Returns:
        (num_sources, count) int64 vertices and (num_sources, count) their scores: highest score first, for equal scores
        the lower vertex. If there are fewer targets, -1 and -inf follow.
    """
    comm, place, dtype = targets.comm, targets.place, targets.rows.dtype
    vertex = place.lasting((len(sources), count), torch.int64)
    score = place.lasting((len(sources), count), dtype)
    for block in targets.blocks(sources, known):
        best = _best_here(targets, block, count)
        sent = best.vertex, best.score
        shapes = [[each.shape for each in sent]] * comm.size
        for _, (theirs, scores) in collect(comm, sent, shapes, place, block.rank, Kind.PREDICTION):
            source, column = (theirs >= 0).nonzero(as_tuple=True)
            best = _merged(targets, best, source, theirs[source, column], scores[source, column])
        if block.rank == comm.rank:
            span = slice(*block.span)
            vertex[span], score[span] = best.vertex, best.score
    return vertex, score


def filtered_ranks(targets: AllTargets, pairs: NDArray[np.int64], known: Lists) -> Higher:
    """Count the vertices that score higher with a pair's source than its target does. Collective.

    This is the filtered setting of Bordes, Usunier, Garcia-Duran, Weston, Yakhnenko, "Translating Embeddings for
    Modeling Multi-relational Data" (NIPS 2013), section 4.2: the source itself and its known targets do not count, and
    equal scores share the middle of their places. Scores have the same bits wherever they are computed, and the
    ranks' counts are integers, so the result is exact, ties included, and the same on any number of ranks.

    Args:
        pairs: (num_pairs, 2) int64 this rank's sources and targets; the number may differ between ranks.
        known: known targets of every pair's source; the pair's own target may be among them.

    Returns:
        Counts for this rank's pairs; see :class:`gnnloom.trainer.links.ranking.ListRanks`.
    """
    comm, place = targets.comm, targets.place
    score = positive_scores(score_all(targets.pair_rows, targets.rows, targets.decoder, pairs))
    found = place.lasting((2, len(pairs)), torch.int64)
    for block in targets.blocks(pairs[:, 0], known, pairs[:, 1]):
        own = slice(*block.span)
        limit = place.empty((len(block.rows),), score.dtype)
        if block.rank == comm.rank:
            limit.copy_(score[own])
        comm.broadcast(limit, block.rank, Kind.METRICS)
        counts, column = place.zeros((2, len(limit)), torch.int64), limit.unsqueeze(1)
        for _, scores in targets.scores(block, torch.inf):
            # Vertices that do not count have score NaN, which is neither higher nor equal.
            counts[0] += (scores > column).sum(1)
            counts[1] += (scores >= column).sum(1)
        comm.all_reduce(counts, Kind.METRICS)
        if block.rank == comm.rank:
            found[:, own] = counts
    return Higher.of(found[0], found[1], place)


def _none(targets: AllTargets, num_sources: int, count: int) -> _Found:
    place = targets.place
    vertex = place.empty((num_sources, count), torch.int64).fill_(-1)
    return _Found(vertex, place.empty((num_sources, count), targets.rows.dtype).fill_(-torch.inf))


def _best_here(targets: AllTargets, block: SourceBlock, count: int) -> _Found:
    """The best of this rank's vertices. Communicates nothing."""
    best = _none(targets, len(block.rows), count)
    ids = targets.pair_rows.layout.ids
    for start, scores in targets.scores(block, -torch.inf):
        # After the first block, few scores of a block reach the lowest of the best scores so far.
        counted = scores.masked_fill(scores.isnan(), -torch.inf)
        highest = counted.topk(min(count, scores.shape[1])).values[:, -1:]
        limit = best.score[:, -1:] if scores.shape[1] < count else torch.maximum(best.score[:, -1:], highest)
        source, column = (scores >= limit).nonzero(as_tuple=True)
        best = _merged(targets, best, source, ids[column + start], scores[source, column])
    return best


def _merged(targets: AllTargets, best: _Found, source: Tensor, vertex: Tensor, score: Tensor) -> _Found:
    """The best of the targets found so far and of further targets.

    Args:
        source: (num_further,) numbers of the targets' sources in the block.
        vertex, score: (num_further,).
    """
    held, column = (best.vertex >= 0).nonzero(as_tuple=True)
    parts = ((held, source), (best.vertex[held, column], vertex), (best.score[held, column], score))
    sources, vertices, scores = (torch.cat(both) for both in parts)
    # By source, then from the highest score on, then from the lowest vertex on: stable sorts in the reverse order.
    order = torch.argsort(vertices)
    order = order[torch.argsort(scores[order], descending=True, stable=True)]
    order = order[torch.argsort(sources[order], stable=True)]
    sources, vertices, scores = sources[order], vertices[order], scores[order]
    position = targets.place.arange(0, len(order)) - torch.searchsorted(sources, sources)
    kept = position < best.vertex.shape[1]
    found = _none(targets, *best.vertex.shape)
    found.vertex[sources[kept], position[kept]] = vertices[kept]
    found.score[sources[kept], position[kept]] = scores[kept]
    return found
