"""Keys of edges: a random number for each, which any task can compute, and by which edges are chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.permutation import GOLDEN, mix
from gnnloom.storage.shards.block_ranges import RANGE_BYTES, row_ranges

#: Entries of a block that are read at a time, unless a stored chunk has more.
STEP_ENTRIES: Final = 1 << 20
#: Bytes that a task holds while it reads the pairs of a block: row pointers, and for each entry row, column, weight,
#: source, target, key and a copy.
READING_BYTES: Final = RANGE_BYTES + 64 * STEP_ENTRIES
#: Bits of a key.
KEY_BITS: Final = 64


@dataclass(frozen=True)
class EdgeKeys:
    """The edges of a stored graph with their keys; small and picklable.

    Edges of a symmetric graph are counted once, from the smaller vertex to the larger. Loops are left out.

    Attributes:
        path: folder of the graph artifact.
        stream: key of the stream of random numbers.
    """

    path: Path
    stream: int

    def read(self, block: int) -> Iterator[KeyedPairs]:
        """The edges of a row block, by row and column, some at a time."""
        graph = Graph(Artifact(self.path))
        columns, weights = graph.columns(block), graph.weights(block)
        for span in row_ranges(graph, block):
            for start, stop in columns.ranges(STEP_ENTRIES, int(span.pointers[0]), int(span.pointers[-1])):
                column = columns.read(start, stop)
                count, loops, source, target, chosen = _pairs(span.first, span.pointers, start, column, graph.symmetric)
                source, target = source[:count], target[:count]
                weight = None if weights is None else weights.read(start, stop)[chosen[:count]]
                yield KeyedPairs(source, target, pair_keys(np.uint64(self.stream), source, target), weight, loops)


@dataclass(frozen=True)
class KeyedPairs:
    """Some edges.

    Attributes:
        source, target: (num_pairs,) int64 ends of each.
        key: (num_pairs,) uint64.
        weight: (num_pairs,) weights, or None for a pattern.
        num_loops: loops among the entries that were read for them.
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    key: NDArray[np.uint64]
    weight: NDArray[Any] | None
    num_loops: int


def pair_keys(stream: np.uint64, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.uint64]:
    """(num_pairs,) uint64 keys: number ``target`` of the stream whose key is number ``source`` of a stream.

    Two pairs have equal keys with a probability of 2^-64.
    """
    keys = np.empty(len(source), np.uint64)
    _fill_keys(stream, source, target, keys)
    return keys


@njit(cache=True, nogil=True)
def _fill_keys(
    stream: np.uint64, source: NDArray[np.int64], target: NDArray[np.int64], out: NDArray[np.uint64]
) -> None:
    for k in range(len(out)):
        # Of each end one more, as ``mix`` maps 0 to itself.
        own = mix(stream + (np.uint64(source[k]) + np.uint64(1)) * GOLDEN)
        out[k] = mix(own + (np.uint64(target[k]) + np.uint64(1)) * GOLDEN)


@njit(cache=True, nogil=True)
def _pairs(
    first_row: int, pointers: NDArray[np.int64], start: int, columns: NDArray[Any], symmetric: bool
) -> tuple[int, int, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The edges among consecutive entries of a block.

    Args:
        first_row: row of the matrix to which the first pointer belongs.
        pointers: (num_rows + 1,) int64 positions of rows.
        start: position of the first of these entries, which may lie within a row.
        columns: (num_entries,) their columns.

    Returns:
        How many there are, how many loops there are besides, and arrays of at least as many as edges: source, target,
        and place among the entries.
    """
    source = np.empty(len(columns), np.int64)
    target, chosen = np.empty_like(source), np.empty_like(source)
    row, count, loops = 0, 0, 0
    for k in range(len(columns)):
        while pointers[row + 1] <= start + k:
            row += 1
        here, column = first_row + row, np.int64(columns[k])
        # The entry (row, column) is the edge column -> row.
        if column < here or (column > here and not symmetric):
            source[count], target[count], chosen[count] = column, here, k
            count += 1
        elif column == here:
            loops += 1
    return count, loops, source, target, chosen
