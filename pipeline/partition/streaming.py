"""Partitions that need no hypergraph: computed in one or two passes over the rows, in bounded memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.measure.balance import fill_empty_parts
from gnnloom.pipeline.partition.model.hypergraph import row_nonzeros, row_weights
from gnnloom.storage.artifacts.graph import Graph

#: Vertices that are hashed at a time: 8 MiB for each temporary array of uint64.
_CHUNK_VERTICES = 1 << 20
_MASK = (1 << 64) - 1
#: 2^64 over the golden ratio, the step of SplitMix64.
_GOLDEN = 0x9E3779B97F4A7C15


def random_partition(part: NDArray[np.int32], parts: int, seed: int) -> None:
    """Fill ``part`` with a keyed hash of each vertex, which depends on nothing but its id and the seed.

    Each part gets n/P vertices, plus or minus a few square roots of that; small graphs may leave parts empty.

    Steele, Lea, Flood (OOPSLA 2014), the finalizer of SplitMix64, applied first to the seed and then to the id.

    Args:
        part: (num_vertices,) int32, filled with 0..parts-1.
    """
    # Seeds are hashed as well: otherwise neighboring seeds would do little more than swap the parts of neighboring ids.
    key = int(_mix(np.array([seed & _MASK], dtype=np.uint64))[0])
    for start in range(0, len(part), _CHUNK_VERTICES):
        stop = min(start + _CHUNK_VERTICES, len(part))
        hashed = _mix(np.arange(start, stop, dtype=np.uint64) ^ np.uint64(key))
        # The high 32 bits times P, shifted back: maps to 0..P-1 without the bias of a modulo.
        part[start:stop] = ((hashed >> np.uint64(32)) * np.uint64(parts)) >> np.uint64(32)


def fill_empty(part: NDArray[np.int32], graph: Graph, parts: int) -> None:
    """Fill empty parts, which only small graphs have; reads the weights of the vertices only then.

    Args:
        part: (num_vertices,) int32, changed in place.
    """
    if np.bincount(part, minlength=parts).all():
        return
    fill_empty_parts(part, np.concatenate([nonzeros for _, nonzeros in row_nonzeros(graph)]), parts)


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of SplitMix64; its shifts and multipliers come from the paper."""
    value = value + np.uint64(_GOLDEN)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def block_partition(part: NDArray[np.int32], graph: Graph, parts: int, weights: str = "nonzeros") -> None:
    """Fill ``part`` with contiguous, non-empty ranges of rows of about equal weight.

    Args:
        part: (num_vertices,) int32; num_vertices is at least ``parts``.
        weights: weights of the rows; see :func:`gnnloom.pipeline.partition.model.hypergraph.row_weights`.
    """
    boundary = _block_boundaries(graph, parts, weights)
    for number in range(parts):
        part[boundary[number] : boundary[number + 1]] = number


def _block_boundaries(graph: Graph, parts: int, weights: str) -> NDArray[np.int64]:
    """(parts + 1,) int64 first rows, strictly ascending, and the number of rows.

    Part p begins at the row before which the weight is nearest to p total / P.  Takes two passes over the rows: one
    for the total, one for the boundaries.
    """
    # Rows are read twice instead of keeping n weights in memory.
    total = sum(int(row_weights(graph, start, nonzeros, weights).sum()) for start, nonzeros in row_nonzeros(graph))
    number = np.arange(1, parts, dtype=np.int64)
    # p * total / P, computed in two steps because p * total could overflow.
    wanted = number * (total // parts) + number * (total % parts) // parts
    # The number of rows marks a boundary that no block so far contains; the first block that does decides.
    found = np.full(parts - 1, graph.num_vertices, dtype=np.int64)
    before = 0
    for start, nonzeros in row_nonzeros(graph):
        weight = row_weights(graph, start, nonzeros, weights)
        # A part begins at the first row whose middle reaches the weight wanted before it.
        middle = before + np.cumsum(weight) - (weight + 1) // 2
        before += int(weight.sum())
        rows = start + np.searchsorted(middle, wanted)
        found = np.where((found == graph.num_vertices) & (rows < start + len(weight)), rows, found)
    # Heavy rows can make ranges empty: push the boundaries apart, first up, then back below the end.
    ascending = np.maximum.accumulate(found - number) + number
    boundary = np.minimum(ascending, graph.num_vertices - parts + number)
    boundary = np.maximum(boundary, number)
    return np.concatenate([[0], boundary, [graph.num_vertices]])
