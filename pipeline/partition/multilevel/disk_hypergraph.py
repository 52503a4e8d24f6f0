"""A hypergraph on disk: the pins of its nets and the nets of its vertices, each streamed in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.adjacency_graph import aligned_rows
from gnnloom.pipeline.partition.hypergraph import Hypergraph, net_matrices, vertex_weights
from gnnloom.pipeline.partition.multilevel.incidence import Incidence, IncidenceWriter
from gnnloom.pipeline.partition.multilevel.vectors import map_vector, store_vector
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.matrix.csr import index_dtype

#: Up to this many pins, one process clusters and refines: rounds of tasks take 1.7 times its processor time, and on two
#: workers were not shown to be faster below about 30 million pins.
FEW_PINS = 1 << 25


@dataclass(frozen=True)
class DiskHypergraph:
    """Vertices and nets, with both directions of their incidence on disk; small and picklable.

    Attributes:
        nets: the pins of every net; nets of one pin are allowed.
        vertices: the nets of every vertex, ascending.
        weight_path: file of ``vertex_weight``.
        net_weight_path: file of ``net_weight``; None if all are 1.
        total_weight: of all vertices.
        heaviest: weight of the heaviest vertex.
    """

    nets: Incidence
    vertices: Incidence
    weight_path: Path
    net_weight_path: Path | None
    total_weight: int
    heaviest: int

    @property
    def vertex_weight(self) -> NDArray[np.int64]:
        """Map the (num_vertices,) int64 weights, at least 1."""
        return map_vector(self.weight_path)

    @property
    def net_weight(self) -> NDArray[np.int64]:
        """Map the (num_nets,) int64 weights, at least 1; (0,) if all are 1."""
        return map_vector(self.net_weight_path) if self.net_weight_path else np.empty(0, dtype=np.int64)

    @property
    def num_vertices(self) -> int:
        return self.vertices.num_rows

    @property
    def num_nets(self) -> int:
        return self.nets.num_rows

    @property
    def num_pins(self) -> int:
        return self.nets.num_ids

    @property
    def is_for_tasks(self) -> bool:
        """Whether tasks cluster and refine it in rounds, with other results than one process."""
        return self.num_pins > FEW_PINS

    def load(self) -> Hypergraph:
        """Load the hypergraph into memory, without nets of one pin."""
        return load_nets(self.nets, np.array(self.vertex_weight), self.net_weight)


def load_nets(nets: Incidence, vertex_weight: NDArray[np.int64], net_weight: NDArray[np.int64]) -> Hypergraph:
    """Load nets into memory, without those of one pin, which no partition cuts.

    Args:
        nets: the pins of every net.
        vertex_weight: (num_vertices,) int64.
        net_weight: (num_nets,) int64, or (0,) if all are 1.
    """
    offsets, pins = [np.zeros(1, dtype=np.int64)], [np.empty(0, dtype=nets.dtype)]
    kept_nets = [np.empty(0, dtype=np.bool_)]
    for block in nets.blocks():
        size = np.diff(block.offset)
        # Native partitioners refuse nets of one pin (``check_problem``).
        kept = size > 1
        offsets.append(size[kept])
        pins.append(block.ids[np.repeat(kept, size)])
        kept_nets.append(kept)
    weight = net_weight[np.concatenate(kept_nets)] if len(net_weight) else None
    return Hypergraph(vertex_weight, np.cumsum(np.concatenate(offsets)), np.concatenate(pins), weight)


def store_hypergraph(
    folder: Path, graph: Graph, transpose: Graph, weights: str = "nonzeros", directions: str = "forward"
) -> DiskHypergraph:
    """Write the column-net hypergraph of a graph, one row block in memory at a time.

    Unlike :func:`gnnloom.pipeline.partition.hypergraph.column_net_hypergraph` it keeps nets of one pin, so net j of
    the product with the matrix is always row j of the transpose, with j itself.

    Args:
        folder: for the two incidences.
        graph: its rows are the vertices.
        transpose: the transpose of ``graph``; ``graph`` itself if symmetric.
        weights: of the vertices; see :func:`gnnloom.pipeline.partition.hypergraph.vertex_weights`.
        directions: ``forward``, or ``both`` to add the nets of the product with the transpose.
    """
    weight = vertex_weights(graph, weights)
    path, total, heaviest = store_vector(folder / "weight.npy", weight), int(weight.sum()), int(weight.max(initial=0))
    if graph.symmetric:
        # The pins of net j are the nets of vertex j, so one set of files is enough.
        both = store_rows(folder / "nets", [graph], graph.num_vertices)
        return DiskHypergraph(both, both, path, None, total, heaviest)
    matrices = net_matrices(graph, transpose, directions)
    nets = store_rows(folder / "nets", matrices, graph.num_vertices)
    vertices = _store_vertices(folder / "vertices", graph, transpose, len(matrices))
    return DiskHypergraph(nets, vertices, path, None, total, heaviest)


def store_rows(folder: Path, matrices: Sequence[Graph], num_vertices: int) -> Incidence:
    """Write the rows of matrices, one matrix after the other, each row with its own number."""
    with IncidenceWriter(folder, index_dtype(num_vertices)) as writer:
        for matrix in matrices:
            for block in matrix.blocks():
                writer.append(*_with_owner(block.row_offset, block.indptr, block.indices))
        return writer.close()


def _store_vertices(folder: Path, graph: Graph, transpose: Graph, num_matrices: int) -> Incidence:
    """Write the nets of every vertex: the columns of its row and, for both directions, n plus those of its column."""
    n = graph.num_vertices
    with IncidenceWriter(folder, index_dtype(num_matrices * n)) as writer:
        # The nets of one product: vertex i is a pin of net j if row i has a nonzero in column j.
        if num_matrices == 1:
            for block in graph.blocks():
                writer.append(*_with_owner(block.row_offset, block.indptr, block.indices))
        else:
            for first, rows, columns in aligned_rows(graph, transpose):
                offset, ids = _with_owner(first, rows.indptr, rows.indices)
                other_offset, other = _with_owner(first, columns.indptr, columns.indices)
                # Nets of the second product are numbered from n on; the int64 scalar widens int32 ids before the sum.
                writer.append(offset + other_offset, _interleave(offset, ids, other_offset, other + np.int64(n)))
        return writer.close()


@njit(cache=True, nogil=True)
def _with_owner(
    first_row: int, indptr: NDArray[np.int64], indices: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return offsets and columns of rows, ascending, each with its own number among the columns."""
    offset = np.zeros(len(indptr), np.int64)
    ids = np.empty(len(indices) + len(indptr) - 1, indices.dtype)
    end = 0
    # A vertex owns the row of H that its net sends, so it is a pin even without a self loop.
    for row in range(len(indptr) - 1):
        own = first_row + row
        has_owner = False
        for position in range(indptr[row], indptr[row + 1]):
            if not has_owner and indices[position] >= own:
                has_owner = True
                if indices[position] > own:
                    ids[end] = own
                    end += 1
            ids[end] = indices[position]
            end += 1
        if not has_owner:
            ids[end] = own
            end += 1
        offset[row + 1] = end
    return offset, ids[:end]


@njit(cache=True, nogil=True)
def _interleave(
    offset: NDArray[np.int64], ids: NDArray[Any], other_offset: NDArray[np.int64], other: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Join two lists of the same rows, row by row."""
    joined = np.empty(len(ids) + len(other), np.int64)
    end = 0
    for row in range(len(offset) - 1):
        for position in range(offset[row], offset[row + 1]):
            joined[end] = ids[position]
            end += 1
        for position in range(other_offset[row], other_offset[row + 1]):
            joined[end] = other[position]
            end += 1
    return joined
