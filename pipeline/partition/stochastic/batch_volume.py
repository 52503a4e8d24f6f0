"""The exact volume of mini-batches: the rows that their induced subgraphs need from other parts, counted by tasks.

Partitions are compared on batches that no model has seen, and reported on yet other batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.partition.stochastic.batch_drawer import BatchBits, draw_phase, is_drawn
from gnnloom.pipeline.partition.stochastic.drawn_batches import MOST_BATCHES
from gnnloom.pipeline.partition.stochastic.restricted_nets import DrawnProblem, NetPiece
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.mapped_vectors import map_vector, vector_checksum
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Needs, Phase, run
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.ranges import split_range

#: Nonzeros of a task, times its batches and part vectors: it looks at the nonzeros of drawn rows, in about a second.
_TASK_NONZEROS = 1 << 29
#: Number of batches that decide between two partitions, and of other batches on which the volume is then reported:
#: the least, the most, and the nonzeros to read, which decide in between.
_FEWEST_FRESH, _MOST_FRESH, _FRESH_NONZEROS = 20, 200, 1 << 28


@dataclass(frozen=True)
class _VolumeTask:
    """Counts what some batches send for the rows of a block.

    Attributes:
        start, stop: rows of the file of batches.
        part_paths: mapped vectors of the parts to compare.
        sent: rows that each batch sends with each vector of parts.
        lane: lane that the task writes.
    """

    writer: ArtifactWriter
    piece: NetPiece
    bits: BatchBits
    start: int
    stop: int
    part_paths: tuple[Path, ...]
    parts: int
    sent: Shuffle
    lane: Lane
    needs: Needs

    @property
    def name(self) -> str:
        return f"{self.sent.name}/{self.piece.number:05d}-{self.start:05d}"


def fresh_volumes(
    problem: DrawnProblem, found: Mapping[str, Path], parts: int, nnz: int, cluster: Cluster
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the rows that each partition sends per batch on average: for batches that decide, and for those reported.

    Args:
        found: name to mapped vector of parts.
        parts: number of parts P.
        nnz: nonzeros of the graph.
    """
    sent, count = batch_volumes(problem, list(found.values()), parts, num_fresh(nnz), cluster), num_fresh(nnz)
    deciding, reported = (
        {name: int(rows) / count for name, rows in zip(found, series.sum(axis=0), strict=True)}
        for series in (sent[:count], sent[count:])
    )
    return deciding, reported


def num_fresh(nnz: int) -> int:
    """Return the number of batches that decide, which is also the number of batches that are reported."""
    return min(_MOST_FRESH, max(_FEWEST_FRESH, _FRESH_NONZEROS // max(1, nnz)))


def batch_volumes(
    problem: DrawnProblem, part_paths: Sequence[Path], parts: int, count: int, cluster: Cluster
) -> NDArray[np.int64]:
    """Count the rows sent for the products with the transposes of matrices, on the subgraphs that batches induce.

    Args:
        problem: row j of a piece holds the vertices that need row j of H.
        part_paths: mapped vectors of the (num_vertices,) int32 parts.
        parts: number of parts P.
        count: batches that decide, and batches that are reported.

    Returns:
        (2 * count, num_part_vectors) int64 rows, over all matrices.
    """
    # Parts that were lost and computed again may differ, as annealing stops after some time.
    tag = "-".join(f"{vector_checksum(path):08x}" for path in part_paths)
    run(volume_phases(problem, tuple(part_paths), parts, count, tag), cluster, problem.writer)
    total = np.zeros((2 * count, len(part_paths)), dtype=np.int64)
    with OpenFiles(problem.writer.work) as files:
        shuffle = _sent_shuffle(tag, 2 * count, len(part_paths))
        for section in shuffle.rows(problem.writer.work, files).sections(0, 2 * count):
            total[section.position()] += section.read("sent")
    return total


def volume_phases(
    problem: DrawnProblem, part_paths: tuple[Path, ...], parts: int, count: int, tag: str = ""
) -> list[Phase]:
    """The phases that draw fresh batches, and count what they send with some parts.

    Args:
        tag: of the parts, for the names of tasks.
    """
    # Batches below MOST_BATCHES may have been drawn to make the hypergraph.
    numbers = range(MOST_BATCHES, MOST_BATCHES + 2 * count)
    draw, bits = draw_phase(problem.writer, problem.drawer, numbers, "draw fresh batches")
    spans = [
        (piece, *split_range(bits.num_batches, tasks, number))
        for piece in problem.pieces
        # Of about _TASK_NONZEROS nonzeros.
        for work in [piece.nnz * bits.num_batches * len(part_paths)]
        for tasks in [min(bits.num_batches, max(1, -(-work // _TASK_NONZEROS)))]
        for number in range(tasks)
    ]
    plan = ShufflePlan.unmerged(problem.writer, _sent_shuffle(tag, 2 * count, len(part_paths)), len(spans))
    tasks = [
        _VolumeTask(
            problem.writer, piece, bits, start, stop, part_paths, parts, plan.shuffle, plan.lane(number),
            _needs(problem, piece, stop - start, len(part_paths)),
        )
        for number, (piece, start, stop) in enumerate(spans)
    ]  # fmt: skip
    arrays = 1 + len(part_paths)
    measure = Phase("measure batches", count_batches, tasks, "batches", (bits,), (plan.files,), arrays=arrays)
    return [draw, measure]


def _needs(problem: DrawnProblem, piece: NetPiece, batches: int, num_vectors: int) -> Needs:
    # The bits of all rows; bits and parts of drawn rows and of their columns.
    drawn = int(5 * problem.rate * (piece.num_rows + piece.nnz))
    mapped = problem.drawer.num_vertices * (batches // 8 + 4 * num_vectors)
    return Needs(
        piece.num_bytes + num_vectors * batches * (piece.num_rows // 8 + drawn),
        8 * num_vectors * batches,
        1 + num_vectors,
        piece.num_bytes + mapped,
    )


def _sent_shuffle(tag: str, num_batches: int, num_vectors: int) -> Shuffle:
    """Number of rows that each batch sends, for each vector of parts; the client reads all numbers."""
    return Shuffle(f"batch-volume/{tag}", num_batches, (Column("sent", "int64", (num_vectors,)),), 1)


def count_batches(task: _VolumeTask) -> int:
    """Count what batches send; returns their number."""
    block = Graph(Artifact(task.piece.matrix_path)).block(task.piece.block)
    bits = task.bits.read(task.start, task.stop)
    sent = np.zeros((len(bits), len(task.part_paths)), dtype=np.int64)
    for column, path in enumerate(task.part_paths):
        part = map_vector(path)
        last_row = np.full(task.parts, -1, dtype=np.int64)
        for row, batch in enumerate(bits):
            last_row[:] = -1
            sent[row, column] = _count_batch(block.row_offset, block.indptr, block.indices, part, batch, last_row)
    with task.writer.task(task.name) as output, task.sent.routed(output, task.lane) as out:
        out.add(Index.of_positions(np.arange(task.start, task.stop)), {"sent": sent})
    return len(bits)


@kernel
def _count_batch(
    first_row: int,
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    part: NDArray[np.int32],
    bits: NDArray[np.uint8],
    last_row: NDArray[np.int64],
) -> int:
    """Count, for each drawn row, the other parts with a drawn vertex that needs it.

    Args:
        bits: (num_bytes,) of the batch.
        last_row: (num_parts,) int64 last row that was sent to each part, or -1; changed.
    """
    sent = 0
    # ``last_row`` finds repeated parts without clearing a set for each row; the own part counts as seen.
    for row in range(len(indptr) - 1):
        vertex = first_row + row
        # Only drawn vertices take part, as owners and as receivers.
        if not is_drawn(bits, vertex):
            continue
        last_row[part[vertex]] = vertex
        for position in range(indptr[row], indptr[row + 1]):
            column = indices[position]
            if is_drawn(bits, column) and last_row[part[column]] != vertex:
                last_row[part[column]] = vertex
                sent += 1
    return sent
