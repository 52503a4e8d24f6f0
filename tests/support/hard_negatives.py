"""The scores and ranks of hard negatives in plain Python."""

from __future__ import annotations

from collections import deque

import numpy as np

from gnnloom.pipeline.links.hard_negatives import RETURN, THRESHOLD


def neighbors_of(dense: np.ndarray) -> list[list[int]]:
    """The neighbors of each vertex of a matrix, in either direction and without loops."""
    either = dense | dense.T
    np.fill_diagonal(either, val=False)
    return [np.flatnonzero(row).tolist() for row in either]


def allocation(neighbors: list[list[int]], vertex: int) -> np.ndarray:
    """Resource allocation of a vertex with all others."""
    out = np.zeros(len(neighbors))
    for middle in neighbors[vertex]:
        for end in neighbors[middle]:
            out[end] += 1 / len(neighbors[middle])
    return out


def pushed(neighbors: list[list[int]], vertex: int) -> np.ndarray:
    """Approximate PageRank, in the order of a queue."""
    rank, residual, queue = np.zeros(len(neighbors)), np.zeros(len(neighbors)), deque([vertex])
    residual[vertex] = 1
    while queue:
        here = queue.popleft()
        amount, residual[here] = residual[here], 0
        if not neighbors[here]:
            rank[here] += amount
            continue
        rank[here] += RETURN * amount
        for end in neighbors[here]:
            residual[end] += (1 - RETURN) * amount / len(neighbors[here])
            if end not in queue and residual[end] >= THRESHOLD * len(neighbors[end]):
                queue.append(end)
    return rank


def cosines(feature: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Cosines of the rows of features with a vector; 0 with a vector of zeros."""
    feature, own = feature.astype(np.float64), own.astype(np.float64)
    lengths = np.sqrt((feature**2).sum(1)) * np.sqrt((own**2).sum())
    found: np.ndarray = np.divide(feature @ own, lengths, out=np.zeros(len(feature)), where=lengths > 0)
    return found


def ranked(scores: list[float]) -> list[int]:
    """Ranks of scores: 1 and how many are higher; zeros and less come right after the last rank of the others."""
    positive = [score for score in scores if score > 0]
    ranks = [1 + sum(other > score for other in positive) for score in positive]
    last = max(ranks, default=0) + 1
    return [1 + sum(other > score for other in positive) if score > 0 else last for score in scores]
