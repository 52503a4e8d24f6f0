"""The graph model of a stored matrix, which METIS cuts: an approximation of what has to be sent.

Vertices i and j are joined if a product exchanges their rows in either direction.  The edge cut counts every such
pair, whereas a row that several vertices of one part need is sent, and counted by the hypergraph's connectivity, only
once.  So a partitioner of this graph does not minimize the communication itself.

Demirci, Haldar, Ferhatosmanoglu (PVLDB 16(4), 2022), section 4.1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.hypergraph import vertex_weights
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.matrix.csr import CSR, index_dtype


@dataclass(frozen=True)
class AdjacencyGraph:
    """A symmetric graph without loops.

    Attributes:
        vertex_weight: (num_vertices,) int64, at least 1.
        offset: (num_vertices + 1,) int64; vertex i has the neighbors offset[i]..offset[i+1].
        neighbor: (num_entries,) int32 or int64, ascending for each vertex; every edge is listed at both its ends.
        edge_weight: (num_entries,) int8, 1 or 2: the number of directions of the edge.
    """

    vertex_weight: NDArray[np.int64]
    offset: NDArray[np.int64]
    neighbor: NDArray[Any]
    edge_weight: NDArray[np.int8]

    @property
    def num_vertices(self) -> int:
        return len(self.vertex_weight)

    @property
    def size(self) -> int:
        """Number of entries, twice the number of edges: what a partitioner's time and memory grow with."""
        return len(self.neighbor)


def adjacency_graph(graph: Graph, transpose: Graph, weights: str = "nonzeros") -> AdjacencyGraph:
    """Build the graph model in memory: 5 bytes for each entry (9 beyond 2^31 vertices) and 16 for each vertex.

    Args:
        transpose: the transpose of ``graph``; ``graph`` itself if symmetric.
        weights: weights of the vertices; see :func:`gnnloom.pipeline.partition.model.hypergraph.vertex_weights`.
    """
    # The union of two rows has at most the entries of both; the arrays are cut to what was filled.
    num_entries = graph.nnz if graph.symmetric else graph.nnz + transpose.nnz
    offset = np.zeros(graph.num_vertices + 1, dtype=np.int64)
    neighbor = np.empty(num_entries, dtype=index_dtype(graph.num_vertices))
    # One byte per entry is enough for 1 or 2; the writers of the programs' files widen it.
    edge_weight = np.empty(num_entries, dtype=np.int8)
    for first, rows, columns in aligned_rows(graph, transpose):
        _append_neighbors(
            first, rows.indptr, rows.indices, columns.indptr, columns.indices, offset, neighbor, edge_weight
        )
    size = int(offset[-1])
    return AdjacencyGraph(vertex_weights(graph, weights), offset, neighbor[:size], edge_weight[:size])


def aligned_rows(one: Graph, other: Graph, rows: range | None = None) -> Iterator[tuple[int, CSR, CSR]]:
    """Iterate over rows of two matrices together, by default all, as (first row, rows of one, rows of the other).

    Each range lies within one block of both matrices, whose last block is held until the next one has been read.
    """
    rows = range(one.num_vertices) if rows is None else rows
    # Cutting at the block bounds of both matrices keeps each range within one block of either.
    inner = {bound for bound in (*one.block_rows, *other.block_rows) if rows.start < bound < rows.stop}
    bounds = sorted(inner | {rows.start, rows.stop})
    # A symmetric graph is its own transpose: one reader serves both sides, so each block is read once.
    readers = [_BlockRows(one), _BlockRows(other)] if other is not one else [_BlockRows(one)]
    for first, stop in pairwise(bounds):
        ranges = [reader.rows(first, stop) for reader in readers]
        yield first, ranges[0], ranges[-1]


class _BlockRows:
    """Reads ranges of rows, each of which lies within one block, and keeps the block of the last."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._block: CSR | None = None

    def rows(self, first: int, stop: int) -> CSR:
        block = self._block
        if block is None or not block.row_offset <= first < block.row_offset + block.num_rows:
            block = self._block = self._graph.block(bisect_right(self._graph.block_rows, first) - 1)
        indptr = block.indptr[first - block.row_offset : stop - block.row_offset + 1]
        return CSR(first, indptr - indptr[0], block.indices[indptr[0] : indptr[-1]], None, block.num_columns)


@njit(cache=True, nogil=True)
def _append_neighbors(
    first_row: int,
    one_indptr: NDArray[np.int64],
    one: NDArray[Any],
    other_indptr: NDArray[np.int64],
    other: NDArray[Any],
    offset: NDArray[np.int64],
    neighbor: NDArray[Any],
    edge_weight: NDArray[np.int8],
) -> None:
    """Append the union of the columns of the same rows of two matrices, without self loops.

    Args:
        one_indptr, one: rows of the first matrix, with ascending columns.
        other_indptr, other: the same rows of the second matrix.
        offset, neighbor, edge_weight: arrays of the graph, filled up to ``first_row``.
    """
    for row in range(len(one_indptr) - 1):
        vertex = first_row + row
        k, end = one_indptr[row], one_indptr[row + 1]
        m, other_end = other_indptr[row], other_indptr[row + 1]
        # A merge of two ascending lists; a column in both of them is taken once, with weight 2.
        position = offset[vertex]
        while k < end or m < other_end:
            # Both flags are set for a column in both lists, which advances both; the sum of the flags is its weight.
            takes_one = k < end and (m == other_end or one[k] <= other[m])
            takes_other = m < other_end and (k == end or other[m] <= one[k])
            column = one[k] if takes_one else other[m]
            k += takes_one
            m += takes_other
            # No partition cuts a self loop, and METIS does not accept any.
            if column != vertex:
                neighbor[position] = column
                edge_weight[position] = np.int8(takes_one) + np.int8(takes_other)
                position += 1
        offset[vertex + 1] = position
