"""Write the column-net hypergraph of a stored graph to disk, by tasks over row blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.adjacency_graph import aligned_rows
from gnnloom.pipeline.partition.model.hypergraph import net_matrices, row_weights
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.incidence import Incidence, IncidenceWriter
from gnnloom.pipeline.partition.multilevel.join_lists import join_lists
from gnnloom.pipeline.partition.multilevel.vectors import create_vector, map_vector
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.artifacts.block_ranges import row_ranges
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.csr import index_dtype


@dataclass(frozen=True)
class _RowsTask:
    """Writes the rows of a block, each with its own number among the columns."""

    matrix_path: Path
    block: int
    number: int
    folder: Path


@dataclass(frozen=True)
class _BothTask:
    """Writes the nets of the rows of a block for both directions."""

    matrix_path: Path
    transpose_path: Path
    block: int
    folder: Path


@dataclass(frozen=True)
class _WeightTask:
    """Writes the weights of the rows of a block."""

    graph_path: Path
    block: int
    weights: str
    weight_path: Path


def store_hypergraph(
    folder: Path,
    graph: Graph,
    transpose: Graph,
    cluster: Cluster,
    weights: str = "nonzeros",
    directions: str = "forward",
) -> DiskHypergraph:
    """Write the column-net hypergraph of a graph.

    Unlike :func:`~gnnloom.pipeline.partition.model.hypergraph.column_net_hypergraph` it keeps nets of one pin, so net j
    of the product with the matrix is always row j of the transpose, with j itself.

    Args:
        folder: for the two incidences.
        graph: its rows are the vertices.
        transpose: the transpose of ``graph``; ``graph`` itself if symmetric.
        cluster: runs the tasks, each with one row block in memory, or with at most two of each matrix for ``both``.
        weights: of the vertices; see :func:`gnnloom.pipeline.partition.model.hypergraph.row_weights`.
        directions: ``forward``, or ``both`` to add the nets of the product with the transpose.
    """
    path = folder / "weight.npy"
    total, heaviest = store_weights(path, graph, weights, cluster)
    matrices = net_matrices(graph, transpose, directions)
    nets = store_rows(folder / "nets", matrices, cluster)
    if graph.symmetric:
        # The pins of net j are the nets of vertex j, so one set of files is enough.
        vertices = nets
    elif len(matrices) == 1:
        # The nets of one product: vertex i is a pin of net j if row i has a nonzero in column j.
        vertices = store_rows(folder / "vertices", [graph], cluster)
    else:
        vertices = _nets_of_both(folder / "vertices", graph, transpose, cluster)
    return DiskHypergraph(nets, vertices, path, None, total, heaviest)


def store_weights(path: Path, graph: Graph, weights: str, cluster: Cluster) -> tuple[int, int]:
    """Write the (num_vertices,) int64 weights of the rows to a file; returns the sum and the largest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    create_vector(path, (graph.num_vertices,), np.dtype(np.int64))
    tasks = [_WeightTask(graph.artifact.path, block, weights, path) for block in range(graph.num_blocks)]
    found = list(cluster.map(_store_weights, tasks))
    return sum(total for total, _ in found), max((heaviest for _, heaviest in found), default=0)


def store_rows(folder: Path, matrices: Sequence[Graph], cluster: Cluster) -> Incidence:
    """Write the rows of matrices, one matrix after the other, each row with its own number."""
    blocks = [(matrix.artifact.path, block) for matrix in matrices for block in range(matrix.num_blocks)]
    tasks = [_RowsTask(path, block, number, _piece(folder, number)) for number, (path, block) in enumerate(blocks)]
    pieces = dict(cluster.map(_store_rows, tasks))
    return join_lists([pieces[task.number] for task in tasks], folder, cluster)


def _piece(folder: Path, number: int) -> Path:
    """Folder for the lists that a task writes."""
    return folder / f"block-{number:05d}"


def _store_rows(task: _RowsTask) -> tuple[int, Incidence]:
    graph = Graph(Artifact(task.matrix_path))
    block = graph.block(task.block)
    with IncidenceWriter(task.folder, index_dtype(graph.num_vertices)) as writer:
        writer.append(*_with_owner(block.row_offset, block.indptr, block.indices))
        return task.number, writer.close()


def _store_weights(task: _WeightTask) -> tuple[int, int]:
    stored, total, heaviest = map_vector(task.weight_path, "r+"), 0, 0
    for rows in row_ranges(Graph(Artifact(task.graph_path)), task.block):
        weight = row_weights(rows.nonzeros, task.weights)
        stored[rows.first : rows.first + len(weight)] = weight
        total += int(weight.sum())
        heaviest = max(heaviest, int(weight.max(initial=0)))
    return total, heaviest


def _nets_of_both(folder: Path, graph: Graph, transpose: Graph, cluster: Cluster) -> Incidence:
    """Write the nets of every vertex for both directions: the columns of its row, and n plus those of its column."""
    paths = graph.artifact.path, transpose.artifact.path
    tasks = [_BothTask(*paths, block, _piece(folder, block)) for block in range(graph.num_blocks)]
    pieces = dict(cluster.map(_store_both, tasks))
    return join_lists([pieces[task.block] for task in tasks], folder, cluster)


def _store_both(task: _BothTask) -> tuple[int, Incidence]:
    graph, transpose = Graph(Artifact(task.matrix_path)), Graph(Artifact(task.transpose_path))
    n, own = graph.num_vertices, range(*graph.block_rows[task.block : task.block + 2])
    with IncidenceWriter(task.folder, index_dtype(2 * n)) as writer:
        for first, rows, columns in aligned_rows(graph, transpose, own):
            offset, ids = _with_owner(first, rows.indptr, rows.indices)
            other_offset, other = _with_owner(first, columns.indptr, columns.indices)
            # Nets of the second product are numbered from n on; the int64 scalar widens int32 ids before the sum.
            writer.append(offset + other_offset, _interleave(offset, ids, other_offset, other + np.int64(n)))
        return task.block, writer.close()


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
