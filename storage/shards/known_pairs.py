"""Pairs that are known to be true: the edges of the message graph, and the pairs of all splits.

Everything that leaves out true pairs uses this definition: ranks among all vertices, the best targets of a vertex, and
hard negatives. Pairs may not be edges of any graph, such as pairs from files; held-out edges are no edges of the
message graph, but pairs. In a symmetric graph, and where links hold both directions of an edge out together, a pair is
known if its reverse is.

Training knows less: the edges of the message graph and the training pairs. Negatives that avoided the pairs for
validation and testing would reveal these pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.block_matrix import BlockMatrix
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.artifacts.mapped_links import map_links, pair_keys
from gnnloom.storage.artifacts.whole_graph import map_whole_graph
from gnnloom.storage.format.schema import LINK_SPLITS
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.distinct import distinct
from gnnloom.storage.matrix.removal import entry_positions
from gnnloom.storage.shards.block_ranges import row_ranges

#: Entries of the graph and pointers of its rows, and pairs of links, that are read at a time.
_ENTRIES: Final = 1 << 20
_PAIRS: Final = 1 << 18
#: Vertices per search for known targets. Every search reads all edges once, which takes much less time than to score
#: that many vertices with all others.
SOURCES_AT_ONCE: Final = 1 << 14
#: Cells of the table that most vertices are looked up in.
_CELLS: Final = 1 << 20
#: Bytes of memory to read pairs: the pairs as read, a mask of the wanted pairs, and the table.
PAIR_BYTES: Final = 48 * _PAIRS + _CELLS

#: Where the list of each vertex begins in an array of vertices, where it ends, and the array.
VertexLists = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def known_targets(graph: BlockMatrix, links: Links, sources: NDArray[np.int64]) -> VertexLists:
    """The known targets of some sources; reads all edges and pairs once, some at a time.

    Args:
        graph: the message graph of the links, or their relation in it.
        sources: (num_sources,) int64, possibly with repeats.

    Returns:
        (num_sources,) int64 where the list of each source begins, (num_sources,) where it ends, and (num_listed,) int64
        targets, ascending and different within a list.
    """
    found = _Partners(sources, links.num_vertices)
    for block in range(graph.num_blocks if len(sources) else 0):
        columns = graph.columns(block)
        for span in row_ranges(graph, block, _ENTRIES):
            for start, stop in columns.ranges(_ENTRIES, int(span.pointers[0]), int(span.pointers[-1])):
                # The row of an entry is the last one that begins at or before it; empty rows begin where others do.
                row_of, column = _rows(span.first, span.pointers, start), columns.read(start, stop)
                found.add(column, row_of)
                if links.together:
                    found.add(row_of(np.arange(len(column))), column.take)
    splits = [split for split in LINK_SPLITS if split != "train" or not links.trains_on_edges]
    found.add_pairs(links, splits, end=0)
    return found.lists()


def _rows(first: int, pointers: NDArray[np.int64], start: int) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
    return lambda place: first + np.searchsorted(pointers, start + place, "right") - 1


def partners_in_pairs(links: Links, splits: Iterable[str], vertices: NDArray[np.int64], end: int) -> VertexLists:
    """The other ends of the pairs of some splits that have some vertices as one end; reads all pairs once.

    Args:
        vertices: (num_vertices,) int64, possibly with repeats.
        end: which end the vertices are, 0 for the source. They are either if reverses count.

    Returns:
        As :func:`known_targets`.
    """
    found = _Partners(vertices, links.num_vertices)
    found.add_pairs(links, splits, end)
    return found.lists()


class _Partners:
    """The other ends of pairs that have some vertices at one end, from pairs in any order."""

    def __init__(self, vertices: NDArray[np.int64], num_vertices: int) -> None:
        self._vertices, self._num_vertices, self._wanted = vertices, num_vertices, distinct(vertices)
        # Most vertices are not wanted: a small table says so at once, whatever the number of vertices.
        self._may_be = np.zeros(_CELLS, np.bool_)
        self._may_be[self._wanted % _CELLS] = True
        self._keys = [np.empty(0, np.int64)]

    def add(self, ends: NDArray[Any], others_of: Callable[[NDArray[np.int64]], NDArray[Any]]) -> None:
        """Add some pairs.

        Args:
            ends: (num_pairs,) the ends that may be wanted.
            others_of: from positions of pairs, their other ends.
        """
        place = np.flatnonzero(self._may_be[ends % _CELLS])
        at = np.searchsorted(self._wanted, ends[place])
        found = self._wanted[np.minimum(at, len(self._wanted) - 1)] == ends[place]
        self._keys.append(at[found] * self._num_vertices + others_of(place[found]))

    def add_pairs(self, links: Links, splits: Iterable[str], end: int) -> None:
        """Add the pairs of some splits; see :func:`partners_in_pairs`."""
        for split in splits if len(self._wanted) else ():
            for start in range(0, links.num_pairs[split], _PAIRS):
                pairs = links.pair(split, start, min(start + _PAIRS, links.num_pairs[split]))
                for each in (0, 1) if links.counts_reverses else (end,):
                    self.add(pairs[:, each], pairs[:, 1 - each].take)

    def lists(self) -> VertexLists:
        """The list of each vertex."""
        keys = distinct(np.concatenate(self._keys), overwrite=True)
        bounds = np.searchsorted(keys, np.arange(len(self._wanted) + 1) * self._num_vertices)
        number = np.searchsorted(self._wanted, self._vertices)
        return bounds[number], bounds[number + 1], keys % self._num_vertices


@dataclass(frozen=True)
class KnownInTraining:
    """Finds the pairs that are known in training; see the module.

    Attributes:
        matrix: the message graph, or the relation of the pairs in it.
        num_vertices: vertices of the whole graph.
        key: (num_keys,) int64 ascending :func:`pair_keys` of training pairs; empty if they are edges of the graph.
        symmetric: a pair and its reverse are the same.
        together: a pair is known if its reverse is, which is another pair.
    """

    matrix: CSR
    num_vertices: int
    key: NDArray[np.int64]
    symmetric: bool
    together: bool

    @classmethod
    def of(cls, graph: Graph | CSR, links: Links) -> KnownInTraining:
        """Map what is known.

        Args:
            graph: the message graph of the links, or its matrix, or the matrix of their relation in it.
        """
        # Copies of pairs are made only if they are read.
        key = None if links.trains_on_edges else map_links(links)["train"].key
        matrix = map_whole_graph(graph).matrix if isinstance(graph, Graph) else graph
        keys = np.empty(0, np.int64) if key is None else key
        return cls(matrix, links.num_vertices, keys, links.symmetric, links.together)

    def __call__(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(num_pairs,) bool, whether pairs of (num_pairs,) sources and targets are known. Communicates nothing."""
        found = self._has(sources, targets)
        return found | self._has(targets, sources) if self.together else found

    def _has(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.bool_]:
        # The edge u -> v is the entry A[v, u].
        found: NDArray[np.bool_] = entry_positions(self.matrix, targets, sources) >= 0
        if len(self.key):
            key = pair_keys(sources, targets, self.num_vertices, symmetric=self.symmetric)
            at = np.searchsorted(self.key, key)
            found |= self.key[np.minimum(at, len(self.key) - 1)] == key
        return found
