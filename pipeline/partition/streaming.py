"""Partitions that need no hypergraph: computed in one pass over the rows, in bounded memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.hypergraph import row_nonzeros, row_weights
from gnnloom.storage.artifacts.graph import Graph

_CHUNK_VERTICES = 1 << 20
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def random_partition(part: NDArray[np.int32], parts: int, seed: int) -> None:
    """Fill ``part`` with a keyed hash of the vertex modulo ``parts``: independent of everything but id and seed.

    Parts get n/P vertices, give or take a few square roots of that.

    Steele, Lea, Flood (OOPSLA 2014), the finalizer of SplitMix64, applied to seed and id in turn.
    """
    key = int(_mix(np.array([seed & _MASK], dtype=np.uint64))[0])
    for start in range(0, len(part), _CHUNK_VERTICES):
        stop = min(start + _CHUNK_VERTICES, len(part))
        hashed = _mix(np.arange(start, stop, dtype=np.uint64) ^ np.uint64(key))
        # The high bits times P, shifted back: a range reduction without the bias of a modulo.
        part[start:stop] = ((hashed >> np.uint64(32)) * np.uint64(parts)) >> np.uint64(32)


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = value + np.uint64(_GOLDEN)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def block_partition(part: NDArray[np.int32], graph: Graph, parts: int, weights: str = "nonzeros") -> None:
    """Fill ``part`` with contiguous ranges of rows of about the same weight each, none empty.

    Args:
        part: (num_vertices,) int32; num_vertices is at least ``parts``.
        weights: of the rows; see :func:`gnnloom.pipeline.partition.hypergraph.row_weights`.
    """
    boundary = _block_boundaries(graph, parts, weights)
    for number in range(parts):
        part[boundary[number] : boundary[number + 1]] = number


def _block_boundaries(graph: Graph, parts: int, weights: str) -> NDArray[np.int64]:
    """(parts + 1,) first rows, ascending, no repeats: where the weight before a row comes nearest to p total / P."""
    total = sum(int(row_weights(nonzeros, weights).sum()) for _, nonzeros in row_nonzeros(graph))
    number = np.arange(1, parts, dtype=np.int64)
    # Split so that p * total does not overflow.
    wanted = number * (total // parts) + number * (total % parts) // parts
    found = np.full(parts - 1, graph.num_vertices, dtype=np.int64)
    before = 0
    for start, nonzeros in row_nonzeros(graph):
        weight = row_weights(nonzeros, weights)
        middle = before + np.cumsum(weight) - (weight + 1) // 2
        before += int(weight.sum())
        rows = start + np.searchsorted(middle, wanted)
        found = np.where((found == graph.num_vertices) & (rows < start + len(weight)), rows, found)
    # Heavy rows can make ranges empty: push the boundaries apart, first upwards, then back below the end.
    ascending = np.maximum.accumulate(found - number) + number
    boundary = np.minimum(ascending, graph.num_vertices - parts + number)
    boundary = np.maximum(boundary, number)
    return np.concatenate([[0], boundary, [graph.num_vertices]])
