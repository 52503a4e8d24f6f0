"""Refines parts so that fewer rows and sums are sent by an exchange that covers the blocks between parts.

Partitioners count rows or cut edges. The exchange of ``gnnloom train --exchange cover`` sends a minimum cover of each
block, as large as a maximum matching, so passes over the vertices move each one where the matchings shrink
most; see :mod:`gnnloom.pipeline.partition.model.cover_moves`. The matrix and the matchings are in memory.
"""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.cover_cost import cover_refinement_memory, most_changes
from gnnloom.pipeline.partition.measure.balance import asked_limit
from gnnloom.pipeline.partition.model.adjacency_graph import aligned_rows
from gnnloom.pipeline.partition.model.cover_moves import Around, Matchings, match_all, move_vertices
from gnnloom.pipeline.partition.model.hypergraph import vertex_weights
from gnnloom.pipeline.partition.model.moves import cooling, shuffled
from gnnloom.pipeline.partition.native.guard import check_memory
from gnnloom.pipeline.partition.partitioner import PartitionProblem
from gnnloom.pipeline.partition.settings import PartitionSettings
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.random_numbers import stream_key

LOGGER = logging.getLogger("gnnloom.pipeline")

#: Loss that the first pass accepts with a chance of about 1/e, in rows or sums.
_HEAT = 1.0
#: A pass without heat that gains less than one row in this many is the last.
_TOO_FEW = 1000


def refine_cover(problem: PartitionProblem, part: NDArray[np.int32], passes: int) -> int:
    """Improve a partition in place, within the imbalance; returns the rows and sums sent for a forward product.

    The best parts of all passes are kept, so no partition gets worse.

    Args:
        part: (num_vertices,) int32; no part is empty, and none will be.
        passes: the most passes.
    """
    graph, options = problem.graph, problem.options
    state = _state(problem, part)
    around = [_around(state, side, options.parts, graph.num_vertices) for side in (0, -1)]
    weight = vertex_weights(graph, options.weighing)
    load, size = np.zeros(options.parts, np.int64), np.bincount(part, minlength=options.parts)
    # ``bincount`` with weights would sum in float64, which is exact only up to 2^53.
    np.add.at(load, part, weight)
    limit = asked_limit(int(weight.sum()), options.parts, options.imbalance)
    least = before = _match(state, graph, around[0])
    for number, heat in enumerate(cooling(_HEAT, passes)):
        key = stream_key(options.seed, f"cover refinement {number}")
        order = shuffled(graph.num_vertices, key)
        moved = move_vertices(state, order, weight, load, size, limit, heat, key, (around[0], around[1]))
        found = _match(state, graph, around[0])
        LOGGER.info("cover refinement: moved %s vertices, %s rows and sums", f"{moved:,}", f"{found:,}")
        if found < least:
            least, part[:] = found, state.part[: len(part)]
        if heat == 0 and (before - found) * _TOO_FEW < before:
            break
        before = found
    return least


def check_cover_memory(graph: Graph, options: PartitionSettings) -> None:
    """Raise BudgetError if the matrix and the matchings do not fit in memory."""
    needed = cover_refinement_memory(graph.num_vertices, graph.nnz, options.parts, is_symmetric=graph.symmetric)
    what = f"cover passes: {graph.nnz:,} nonzeros"
    check_memory(what, needed, options.memory_limit, "leave out --cover-passes, or use more memory")


def _state(problem: PartitionProblem, part: NDArray[np.int32]) -> Matchings:
    """The nodes, their neighbors and parts, and no matchings yet."""
    graph, n = problem.graph, problem.graph.num_vertices
    matrices = [graph] if graph.symmetric else [graph, problem.transpose]
    num_nodes, num_entries = len(matrices) * n, sum(matrix.nnz for matrix in matrices)
    ids = index_dtype(num_nodes)
    offset, neighbor = np.zeros(num_nodes + 1, np.int64), np.empty(num_entries, ids)
    end = 0
    for number, matrix in enumerate(matrices):
        # The columns of the matrix are the nodes behind its rows; columns of the transpose are the rows.
        shift = n if number < len(matrices) - 1 else 0
        for first, (rows,) in aligned_rows([matrix]):
            row = np.repeat(np.arange(first, first + rows.num_rows), np.diff(rows.indptr))
            is_other = rows.indices != row
            kept = rows.indices[is_other]
            neighbor[end : end + len(kept)] = kept.astype(ids) + shift
            counts = np.bincount(row[is_other] - first, minlength=rows.num_rows)
            start = number * n + first
            offset[start + 1 : start + 1 + rows.num_rows] = end + np.cumsum(counts)
            end += len(kept)
    return Matchings(
        offset,
        neighbor[:end],
        np.tile(part, len(matrices)),
        mate=np.empty(end, ids),
        mate_part=np.empty(end, np.int32),
        num_mates=np.zeros(num_nodes, np.int32),
        seen=np.zeros(num_nodes, np.int64),
        parent=np.empty(num_nodes, ids),
        stack=np.empty(num_nodes, ids),
        # Pages that stay untouched take no memory.
        changes=np.empty((most_changes(problem.options.parts, len(matrices)), 3), np.int64),
        counter=np.zeros(2, np.int64),
    )


def _around(state: Matchings, side: int, parts: int, num_vertices: int) -> Around:
    """Memory for the neighbors of a node of the first side (0) or the last (-1)."""
    degree = np.diff(state.offset)
    most = degree[:num_vertices] if side == 0 else degree[-num_vertices:]
    room = np.empty(int(most.max(initial=0)), state.neighbor.dtype)
    start = np.zeros(parts + 1, np.int64)
    return Around(room, np.empty(parts, np.int64), start, np.zeros(parts, np.int64), np.empty(parts, np.int64))


def _match(state: Matchings, graph: Graph, around: Around) -> int:
    """Make all matchings maximum; returns the rows and sums of a product, which a symmetric matrix sends both ways."""
    by_part = np.argsort(state.part[: graph.num_vertices], kind="stable")
    return int(match_all(state, by_part, graph.symmetric, around)) * (2 if graph.symmetric else 1)
