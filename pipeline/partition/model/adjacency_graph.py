"""The graph model of a stored matrix, which METIS cuts: an approximation of the rows that are sent.

Vertices i and j are joined if a product exchanges their rows in either direction.  The edge cut counts every such
pair, whereas a row that several vertices of one part need is sent, and counted by the hypergraph's connectivity, only
once.  So a partitioner of this graph does not minimize the communication itself.

Demirci, Haldar, Ferhatosmanoglu (PVLDB 16(4), 2022), section 4.1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.hypergraph import vertex_weights
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.offsets import check_offsets, check_some_offsets
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.csr import CSR, index_dtype
from gnnloom.storage.shards.block_ranges import RANGE_ROWS

#: Most entries of rows that are in memory at a time, unless a single row has more: 64 MiB of int64.
STEP_ENTRIES = 1 << 23


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
    # The union of two rows has at most the entries of both; the arrays are cut to the filled length.
    num_entries = graph.nnz if graph.symmetric else graph.nnz + transpose.nnz
    offset = np.zeros(graph.num_vertices + 1, dtype=np.int64)
    neighbor = np.empty(num_entries, dtype=index_dtype(graph.num_vertices))
    # One byte per entry is enough for 1 or 2; the writers of the programs' files widen it.
    edge_weight = np.empty(num_entries, dtype=np.int8)
    # A symmetric graph is its own transpose, and is read once.
    for first, found in aligned_rows([graph] if graph.symmetric else [graph, transpose]):
        rows, columns = found[0], found[-1]
        _append_neighbors(
            first, rows.indptr, rows.indices, columns.indptr, columns.indices, offset, neighbor, edge_weight
        )
    size = int(offset[-1])
    return AdjacencyGraph(vertex_weights(graph, weights), offset, neighbor[:size], edge_weight[:size])


def aligned_rows(
    matrices: Sequence[Graph], rows: range | None = None, most_entries: int = STEP_ENTRIES
) -> Iterator[tuple[int, list[CSR]]]:
    """Iterate over the same rows of some matrices, by default all, as (first row, the rows of each matrix).

    At most ``most_entries`` entries of all matrices together are read at a time, or a single row.
    """
    rows = range(matrices[0].num_vertices) if rows is None else rows
    # Cutting at the block bounds of all matrices keeps each range within one block of each.
    inner = {bound for matrix in matrices for bound in matrix.block_rows if rows.start < bound < rows.stop}
    for start, stop in pairwise(sorted(inner | {rows.start, rows.stop})):
        for first in range(start, stop, RANGE_ROWS):
            pointers = [_pointers(matrix, first, min(stop, first + RANGE_ROWS)) for matrix in matrices]
            ends, begin = np.add.reduce(pointers), 0
            while begin < len(ends) - 1:
                fitting = int(np.searchsorted(ends, ends[begin] + most_entries, side="right")) - 1
                end = max(fitting, begin + 1)
                pairs = zip(matrices, pointers, strict=True)
                yield first + begin, [_rows(matrix, first + begin, own[begin : end + 1]) for matrix, own in pairs]
                begin = end


def _pointers(matrix: Graph, first: int, stop: int) -> NDArray[np.int64]:
    """Read the pointers of some rows of one block, with the end of the last row."""
    number = _block_of(matrix, first)
    stored, before = matrix.stored_pointers(number), matrix.block_rows[number]
    pointers = stored.read(first - before, stop - before + 1)
    is_whole = (first, stop) == tuple(matrix.block_rows[number : number + 2])
    check = check_offsets if is_whole else check_some_offsets
    check(stored.where, pointers, matrix.stored_nonzeros(number))
    return pointers


def _rows(matrix: Graph, first: int, pointers: NDArray[np.int64]) -> CSR:
    columns = matrix.columns(_block_of(matrix, first)).read(int(pointers[0]), int(pointers[-1]))
    return CSR(first, pointers - pointers[0], columns, None, matrix.num_vertices)


def _block_of(matrix: Graph, row: int) -> int:
    return bisect_right(matrix.block_rows, row) - 1


@kernel
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
        # A merge of two ascending lists; a column in both lists is taken once, with weight 2.
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
