"""Write the column-net hypergraph of a stored graph to disk, by tasks over row blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.adjacency_graph import aligned_rows
from gnnloom.pipeline.partition.model.hypergraph import net_matrices, row_weights
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.incidence import (
    Incidence,
    IncidenceWriter,
    join_lists,
    join_phase,
    stated_pieces,
)
from gnnloom.pipeline.partition.multilevel.pieces import (
    NUMBER_BYTES,
    RangeTask,
    consecutive,
    create_vector,
    in_order,
    phase_over,
)
from gnnloom.pipeline.partition.partitioner import LEVEL_STEPS, LevelSteps
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Phase, results
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.disk.numpy_files import map_array
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.shards.block_ranges import RANGE_ROWS, row_ranges

#: A matrix, by its folder and sizes.
_Matrix = tuple[Path, GraphSizes]
#: The offsets and ids of the lists of some rows.
_Rows = tuple[NDArray[np.int64], NDArray[Any]]


@dataclass(frozen=True)
class _Lists:
    """Lists that tasks write.

    Attributes:
        blocks: matrix and number of the row block of each task.
        transpose: the other matrix, if the lists are for both.
        folder: for all files.
        read_entries: entries that a task reads at a time.
    """

    blocks: tuple[tuple[Path, int], ...]
    transpose: Path | None
    folder: Path
    read_entries: int

    def folder_of(self, number: int) -> Path:
        """For the lists that a task writes."""
        return self.folder / f"block-{number:05d}"


def store_hypergraph(
    folder: Path,
    graph: Graph,
    transpose: Graph,
    cluster: Cluster,
    weights: str = "nonzeros",
    directions: str = "forward",
    steps: LevelSteps = LEVEL_STEPS,
) -> DiskHypergraph:
    """Write the column-net hypergraph of a graph.

    Unlike :func:`~gnnloom.pipeline.partition.model.hypergraph.column_net_hypergraph` it keeps nets of one pin, so net j
    of the product with the matrix is always row j of the transpose, with j itself.

    Args:
        folder: for the two incidences.
        graph: its rows are the vertices.
        transpose: the transpose of ``graph``; ``graph`` itself if symmetric.
        cluster: runs the tasks; a task has a row block and holds a few of its rows at once.
        weights: weights of the vertices; see :func:`gnnloom.pipeline.partition.model.hypergraph.row_weights`.
        directions: ``forward``, or ``both`` to add the nets of the product with the transpose.
        steps: sizes of the steps in which tasks work on the hypergraph.
    """
    path, blocks = folder / "weight.npy", _matrix(graph)
    folder.mkdir(parents=True, exist_ok=True)
    create_vector(path, (graph.num_vertices,), np.dtype(np.int64))
    found = list(results(_weights_phase(blocks, weights, path), cluster))
    total, heaviest = sum(total for total, _ in found), max((heaviest for _, heaviest in found), default=0)
    matrices = [_matrix(each) for each in net_matrices(graph, transpose, directions)]
    nets = _store("nets", matrices, None, folder / "nets", cluster, steps)
    if graph.symmetric:
        # The pins of net j are the nets of vertex j, so one set of files is enough.
        vertices = nets
    else:
        # The nets of one product: vertex i is a pin of net j if row i has a nonzero in column j.
        other = transpose.artifact.path if len(matrices) > 1 else None
        vertices = _store("vertices", [blocks], other, folder / "vertices", cluster, steps)
    return DiskHypergraph(nets, vertices, path, None, total, heaviest, cluster.scratch, steps)


def store_rows(folder: Path, graph: Graph, cluster: Cluster) -> Incidence:
    """Write the rows of a matrix, each with its own number."""
    return _store("nets", [_matrix(graph)], None, folder, cluster, LEVEL_STEPS)


def _matrix(graph: Graph) -> _Matrix:
    return graph.artifact.path, GraphSizes.of(graph)


def _store(
    name: str,
    matrices: Sequence[_Matrix],
    transpose: Path | None,
    folder: Path,
    cluster: Cluster,
    steps: LevelSteps,
) -> Incidence:
    """Write the rows of matrices, one matrix after the other, and join the lists of all tasks."""
    pieces = in_order(results(_lists_phase(name, matrices, transpose, folder, steps), cluster))
    return join_lists(f"join {name}", pieces, folder, cluster)


def finest_level(num_vertices: int, nnz: int, directions: int, steps: LevelSteps = LEVEL_STEPS) -> DiskHypergraph:
    """The size of the hypergraph of a graph, if no row has an entry of its own vertex, which is the most."""
    num_pins = directions * (nnz + num_vertices)
    return DiskHypergraph.stated(num_vertices, directions * num_vertices, num_pins, steps=steps)


def store_phases(graph: GraphSizes, directions: int, steps: LevelSteps) -> list[Phase]:
    """The phases of :func:`store_hypergraph`; the row blocks of the transpose are taken to be alike.

    Args:
        directions: products whose nets there are, 1 or 2.
    """
    level, blocks = finest_level(graph.num_vertices, graph.nnz, directions), (Path(), graph)
    writes = [(_lists_phase("nets", [blocks] * directions, None, Path(), steps), level.nets)]
    if not graph.symmetric:
        transpose = Path() if directions > 1 else None
        writes.append((_lists_phase("vertices", [blocks], transpose, Path(), steps), level.vertices))
    phases = [_weights_phase(blocks, "", Path())]
    for write, result in writes:
        name = write.name.replace("store", "join")
        phases += [write, join_phase(name, stated_pieces(result, len(write.tasks)), result)]
    return phases


def _weights_phase(matrix: _Matrix, weights: str, path: Path) -> Phase:
    """Write the weights of the rows of each block; tasks return their sum and the largest."""
    graph_path, sizes = matrix
    size, work = NUMBER_BYTES * sizes.num_vertices, (graph_path, weights, path)
    # Pointers, including pointers read ahead, nonzeros and weights.
    held = 6 * NUMBER_BYTES * min(RANGE_ROWS, max(sizes.block_rows))
    return phase_over(
        consecutive(sizes.block_rows), "store weights", _store_weights, work, reads=size, writes=size, buffers=held
    )


def _lists_phase(
    name: str, matrices: Sequence[_Matrix], transpose: Path | None, folder: Path, steps: LevelSteps
) -> Phase:
    """Write the lists of each block of some matrices, or of both directions."""
    blocks = tuple((path, block) for path, matrix in matrices for block in range(matrix.num_blocks))
    shapes = [shape for _, each in matrices for shape in zip(each.block_rows, each.block_nnz, strict=True)]
    # The most pins of each block: no row has an entry of its own vertex.
    sizes = [rows + nnz for rows, nnz in shapes]
    # Only the sizes of one direction are known block by block.
    num_rows = sum(rows for rows, _ in shapes)
    directions, label = 2 if transpose else 1, index_dtype(matrices[0][1].num_vertices).itemsize
    reads = directions * (NUMBER_BYTES * num_rows + label * (sum(sizes) - num_rows))
    item = index_dtype(directions * num_rows).itemsize if transpose else label
    writes = NUMBER_BYTES * num_rows + item * directions * sum(sizes)
    # What is read at a time, the same with the rows' own numbers, and pointers; then the lists of both directions.
    rows = directions * min(RANGE_ROWS, max(rows for rows, _ in shapes))
    pins = min(directions * max(sizes), steps.read_entries + rows)
    held = 2 * label * pins + 5 * NUMBER_BYTES * (rows + directions) + (directions - 1) * 3 * item * pins
    work = _Lists(blocks, transpose, folder, steps.read_entries)
    return phase_over(consecutive(sizes), f"store {name}", _store_lists, work, reads=reads, writes=writes, buffers=held)


def _store_lists(task: RangeTask[_Lists]) -> tuple[int, Incidence]:
    """Write the rows of a block, each with its own number among the columns.

    With both directions, the nets of vertex v are the columns of row v of the matrix, and n plus the columns of row v
    of its transpose.
    """
    work, (path, number) = task.work, task.work.blocks[task.number]
    matrices = [Graph(Artifact(each)) for each in (path, work.transpose) if each]
    n, own = matrices[0].num_vertices, range(*matrices[0].block_rows[number : number + 2])
    with IncidenceWriter(work.folder_of(task.number), index_dtype(len(matrices) * n)) as writer:
        for first, found in aligned_rows(matrices, own, work.read_entries):
            lists = [_with_owner(first, rows.indptr, rows.indices) for rows in found]
            writer.append(*(lists[0] if len(lists) == 1 else _interleaved(lists[0], lists[1], n)))
        return task.number, writer.close()


def _store_weights(task: RangeTask[tuple[Path, str, Path]]) -> tuple[int, int]:
    graph_path, weights, weight_path = task.work
    stored, total, heaviest = map_array(weight_path, "r+"), 0, 0
    graph = Graph(Artifact(graph_path))
    for rows in row_ranges(graph, task.number):
        weight = row_weights(graph, rows.first, rows.nonzeros, weights)
        stored[rows.first : rows.first + len(weight)] = weight
        total += int(weight.sum())
        heaviest = max(heaviest, int(weight.max(initial=0)))
    return total, heaviest


@kernel
def _with_owner(first_row: int, indptr: NDArray[np.int64], indices: NDArray[Any]) -> _Rows:
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


def _interleaved(one: _Rows, other: _Rows, n: int) -> _Rows:
    """Join two lists of the same rows, row by row; ids of the other are numbered from n on."""
    (offset, ids), (other_offset, other_ids) = one, other
    joined = np.empty(len(ids) + len(other_ids), np.int64)
    # Each is as far behind its own place as there are ids of the other list before it.
    joined[np.arange(len(ids)) + np.repeat(other_offset[:-1], np.diff(offset))] = ids
    # The int64 scalar widens int32 ids before the sum.
    joined[np.arange(len(other_ids)) + np.repeat(offset[1:], np.diff(other_offset))] = other_ids + np.int64(n)
    return offset + other_offset, joined
