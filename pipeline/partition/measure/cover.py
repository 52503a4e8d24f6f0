"""The rows and partial sums that parts exchange if a sum may replace several rows, counted on the stored matrix.

Between two parts, the minimum cover of the nonzeros determines the rows and sums that are sent; see
:mod:`gnnloom.storage.shards.row_cover`. A shuffle brings the nonzeros between two parts together, and tasks cover one
pair of parts after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.partition.measure.volume import PartExchange, pair_shuffle, read_exchange
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.mapped_vectors import map_vector
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.memory import MINIMUM_MEMORY, working_memory
from gnnloom.pipeline.tasks.phase import Needs, Phase
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.errors import BudgetError
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.matrix.cover import minimum_cover
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.ranges import Span, split_range
from gnnloom.storage.shards.block_ranges import RANGE_BYTES, row_ranges

#: Name of the exchange among the exchanges of a partition.
COVER: Final = "cover"
#: Nonzeros that are routed at a time, unless a stored chunk has more, and bytes of memory for each.
_ROUTED_NONZEROS, _ROUTED_BYTES = 1 << 20, 96
#: Bytes of memory for each nonzero between two parts: its ends, sorted and numbered, and what a cover takes.
_COVERED_BYTES: Final = 112
#: Nonzeros between parts for a task that covers, about.
_TASK_NONZEROS: Final = 1 << 23


@dataclass(frozen=True)
class _RouteTask:
    """Routes the nonzeros of a block whose row and column belong to different parts.

    Attributes:
        part_path: mapped vector of the (num_vertices,) int32 parts.
        cut: the nonzeros, by ``part of the row * P + part of the column``.
        lane: where the task writes them.
    """

    writer: ArtifactWriter
    graph_path: Path
    part_path: Path
    num_parts: int
    block: int
    cut: Shuffle
    lane: Lane
    needs: Needs

    @property
    def name(self) -> str:
        return f"parts/cut/{self.block:05d}"


@dataclass(frozen=True)
class _CoverTask:
    """Covers the nonzeros of some pairs of parts.

    Attributes:
        memory: bytes that it may use.
        positions: first and last (exclusive) pair.
        is_symmetric: whether a pair stands for both directions.
        pairs: the rows and sums that each pair of parts exchanges, by pair.
        lane: where the task writes them.
    """

    writer: ArtifactWriter
    num_parts: int
    memory: int
    number: int
    positions: Span
    is_symmetric: bool
    cut: Shuffle
    pairs: Shuffle
    lane: Lane
    needs: Needs

    @property
    def name(self) -> str:
        return f"parts/cover/{self.number:05d}"


def cover_phases(
    writer: ArtifactWriter, graph_path: Path, part_path: Path, sizes: GraphSizes, num_parts: int, memory: int
) -> list[Phase]:
    """The phases that count the rows and sums that the product with a matrix sends between parts.

    The last phase raises BudgetError if the nonzeros between two parts do not fit in the memory.

    Args:
        part_path: mapped vector of the (num_vertices,) int32 parts.
        memory: bytes that a worker may use.
    """
    room = working_memory(max(memory, MINIMUM_MEMORY))
    count = max(1, min(num_parts**2, -(-sizes.nnz // _TASK_NONZEROS)))
    ids = index_dtype(sizes.num_vertices)
    cut = Shuffle("parts/cut", num_parts**2, (Column("row", ids.name), Column("column", ids.name)), count)
    keys = sum(min(num_parts**2, nnz) for nnz in sizes.block_nnz)
    plan = ShufflePlan(writer, cut, sizes.num_blocks, 2 * ids.itemsize * sizes.nnz, keys)
    route = [
        _RouteTask(
            writer,
            graph_path,
            part_path,
            num_parts,
            block,
            cut,
            plan.lane(block),
            Needs(
                # Columns and row pointers, and the part of every row and column.
                reads=sizes.entry_bytes * nnz + 8 * (rows + 1) + 4 * (rows + nnz),
                # All nonzeros may lie between parts. A key and an offset for each pair.
                writes=2 * ids.itemsize * nnz + 16 * min(num_parts**2, nnz),
                opens=1,
                memory=RANGE_BYTES + _ROUTED_BYTES * _ROUTED_NONZEROS + 4 * sizes.num_vertices,
            ),
        )
        for block, (rows, nnz) in enumerate(zip(sizes.block_rows, sizes.block_nnz, strict=True))
    ]
    pairs = ShufflePlan.unmerged(writer, pair_shuffle(COVER, num_parts), count)
    cover = []
    for number in range(count):
        positions, share = split_range(num_parts**2, count, number), -(-sizes.nnz // count)
        needs = Needs(
            reads=2 * ids.itemsize * share,
            writes=16 * min(-(-(num_parts**2) // count), share),
            opens=plan.opens(positions),
            memory=room,
        )
        where = cut, pairs.shuffle, pairs.lane(number)
        cover.append(_CoverTask(writer, num_parts, room, number, positions, sizes.symmetric, *where, needs))
    return [
        Phase("route cut nonzeros", _route, route, files=(plan.files,), at_most=True),
        *plan.merges("merge cut nonzeros"),
        Phase("cover pairs of parts", _cover, cover, reads=(plan.read_files,), files=(pairs.files,), arrays=2),
    ]


def read_cover(writer: ArtifactWriter, num_parts: int) -> PartExchange:
    """Read what :func:`cover_phases` counted: a sum counts like a row."""
    return read_exchange(writer, COVER, num_parts)


def _route(task: _RouteTask) -> int:
    """Route the nonzeros of a block; returns its nonzeros."""
    graph, num_parts = Graph(Artifact(task.graph_path)), task.num_parts
    indices, part = graph.columns(task.block), map_vector(task.part_path)
    ids = index_dtype(graph.num_vertices)
    with task.writer.task(task.name) as output, task.cut.routed(output, task.lane) as out:
        for rows in row_ranges(graph, task.block):
            for start, stop in indices.ranges(_ROUTED_NONZEROS, int(rows.pointers[0]), int(rows.pointers[-1])):
                column = indices.read(start, stop)
                # The nonzeros may begin and end within a row.
                first, last = np.searchsorted(rows.pointers, [start, stop - 1], side="right") - 1
                bounds: NDArray[np.int64] = np.clip(rows.pointers[first : last + 2], start, stop)
                lengths = bounds[1:] - bounds[:-1]
                row = np.repeat(np.arange(rows.first + first, rows.first + last + 1, dtype=ids), lengths)
                receiver, sender = part[row], part[column]
                # Of a symmetric matrix, the block of two parts is the transpose of the other one.
                is_cut = receiver < sender if graph.symmetric else receiver != sender
                row, column, receiver, sender = (each[is_cut] for each in (row, column, receiver, sender))
                pair = receiver.astype(np.int64) * num_parts + sender
                order = np.argsort(pair, kind="stable")
                out.add(Index.of_positions(pair[order]), {"row": row[order], "column": column[order]})
    return int(graph.block_nnz[task.block])


def _cover(task: _CoverTask) -> int:
    """Cover the nonzeros of some pairs of parts; returns their number."""
    total, found = 0, dict[int, int]()
    with OpenFiles(task.writer.work) as files:
        for position, row, column in _pairs(task, files):
            total += len(row)
            receiver, sender = divmod(position, task.num_parts)
            found[sender * task.num_parts + receiver] = size = _cover_size(row, column)
            if task.is_symmetric:
                found[position] = size
    with task.writer.task(task.name) as output, task.pairs.routed(output, task.lane) as out:
        pair = np.array(sorted(found), np.int64)
        out.add(Index.of_positions(pair), {"rows": np.array([found[each] for each in pair.tolist()], np.int64)})
    return total


def _pairs(task: _CoverTask, files: OpenFiles) -> Iterator[tuple[int, NDArray[Any], NDArray[Any]]]:
    """Read the nonzeros of every pair of parts that has any: the pair, and their rows and columns.

    Raises:
        BudgetError: the nonzeros of a pair do not fit in the memory.
    """
    limit = task.memory // _COVERED_BYTES
    row_bytes = sum(column.num_bytes for column in task.cut.columns) + 8
    for step in task.cut.rows(task.writer.work, files).steps(limit * row_bytes, *task.positions):
        if step.num_rows > limit:
            receiver, sender = divmod(step.positions[0], task.num_parts)
            raise BudgetError(
                f"exchange cover: {step.num_rows:,} nonzeros between parts {receiver} and {sender} need"
                f" {step.num_rows * _COVERED_BYTES >> 20} MiB of memory to be covered, but a task has"
                f" {task.memory >> 20}; give workers more (--memory), or do not count the cover (--exchange rows)"
            )
        position, row, column = step.position, step.column("row"), step.column("column")
        begin = np.flatnonzero(np.diff(position, prepend=-1))
        for start, stop in pairwise([*begin.tolist(), len(position)]):
            yield int(position[start]), row[start:stop], column[start:stop]


def _cover_size(row: NDArray[Any], column: NDArray[Any]) -> int:
    """Number of rows and columns that hold all of some nonzeros."""
    (rows, row), (columns, column) = (np.unique(each, return_inverse=True) for each in (row, column))
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=len(rows)), out=indptr[1:])
    indices = column[np.argsort(row, kind="stable")].astype(index_dtype(len(columns)))
    cover = minimum_cover(indptr[:-1], indptr[1:], indices, (0, len(columns)))
    return int(np.count_nonzero(cover.row) + np.count_nonzero(cover.column))
