"""The exact volume of mini-batches: the rows that their induced subgraphs need from other parts, counted by tasks.

Partitions are compared on batches that no model has seen, and reported on yet other batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.raw_files import file_checksum
from gnnloom.pipeline.partition.model.hypergraph import net_matrices
from gnnloom.pipeline.partition.problem import PartitionProblem
from gnnloom.pipeline.partition.stochastic.batch_bits import DrawnBatches, is_drawn
from gnnloom.pipeline.partition.stochastic.batch_drawer import BatchDrawer
from gnnloom.pipeline.partition.stochastic.drawn_batches import MOST_BATCHES
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.format.memory_map import map_part_vector
from gnnloom.storage.matrix.ranges import split_range

#: Nonzeros of a task, times its batches and part vectors: it looks at those of drawn rows, in about a second.
_TASK_NONZEROS = 1 << 29
#: Number of batches that decide between two partitions, and of other batches on which the volume is then reported:
#: the least, the most, and the nonzeros to read, which decide in between.
_FEWEST_FRESH, _MOST_FRESH, _FRESH_NONZEROS = 20, 200, 1 << 28
#: Partitions that are compared.
PARTS_COMPARED = 2


@dataclass(frozen=True)
class _VolumeTask:
    """Counts what some batches send for the rows of a block.

    Attributes:
        start, stop: rows of the file of batches.
        part_paths: files of the parts to compare.
    """

    writer: ArtifactWriter
    name: str
    matrix_path: Path
    block: int
    drawn: DrawnBatches
    start: int
    stop: int
    part_paths: tuple[Path, ...]
    parts: int


def num_fresh(nnz: int) -> int:
    """Return the number of batches that decide, which is also that of the batches that are reported."""
    return min(_MOST_FRESH, max(_FEWEST_FRESH, _FRESH_NONZEROS // max(1, nnz)))


def fresh_volumes(
    problem: PartitionProblem, drawer: BatchDrawer, found: Mapping[str, Path]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the rows that each partition sends per batch on average: for batches that decide, and for those reported.

    Args:
        found: name to file of parts.
    """
    options, count = problem.options, num_fresh(problem.graph.nnz)
    matrices = net_matrices(problem.graph, problem.transpose, options.directions)
    drawn = DrawnBatches(problem.writer.work / "fresh", 2 * count, problem.graph.num_vertices)
    # Batches below MOST_BATCHES may have been drawn to make the hypergraph.
    drawer.draw(range(MOST_BATCHES, MOST_BATCHES + 2 * count), drawn, problem.cluster)
    sent = batch_volumes(matrices, list(found.values()), options.parts, drawn, problem.writer, problem.cluster)
    deciding, reported = (
        {name: int(rows) / count for name, rows in zip(found, series.sum(axis=0), strict=True)}
        for series in (sent[:count], sent[count:])
    )
    return deciding, reported


def batch_volumes(
    matrices: Sequence[Graph],
    part_paths: Sequence[Path],
    parts: int,
    drawn: DrawnBatches,
    writer: ArtifactWriter,
    cluster: Cluster,
) -> NDArray[np.int64]:
    """Count the rows sent for the products with the transposes of matrices, on the subgraphs that batches induce.

    Args:
        matrices: row j of one holds the vertices that need row j of H.
        part_paths: ``.npy`` files of (num_vertices,) int32 parts.
        parts: number of parts P.
        writer: of the partition; keeps the figures of finished tasks, for as long as the parts are the same.

    Returns:
        (num_batches, num_part_vectors) int64 rows, over all matrices.
    """
    # Parts that were lost and found again need not be the same, as annealing stops after some time.
    name = "batch-volume/" + "-".join(f"{file_checksum(path):08x}" for path in part_paths)
    tasks: list[_VolumeTask] = []
    for matrix in matrices:
        for block, nnz in enumerate(matrix.block_nnz):
            count = volume_tasks(nnz, drawn.num_batches, len(part_paths))
            for number in range(count):
                rows, at = split_range(drawn.num_batches, count, number), (writer, f"{name}/{len(tasks):05d}")
                tasks.append(_VolumeTask(*at, matrix.artifact.path, block, drawn, *rows, tuple(part_paths), parts))
    total = np.zeros((drawn.num_batches, len(part_paths)), dtype=np.int64)
    for task, record in zip(
        tasks, run_missing("measure batches", cluster, writer, _count_batches, tasks, "batches"), strict=True
    ):
        total[task.start : task.stop] += record.facts["sent"]
    return total


def volume_tasks(nnz: int, num_batches: int, num_part_vectors: int) -> int:
    """Return the number of tasks that count what batches send for a block of so many nonzeros."""
    return min(num_batches, max(1, -(-nnz * num_batches * num_part_vectors // _TASK_NONZEROS)))


def _count_batches(task: _VolumeTask) -> int:
    """Count what batches send; returns their number."""
    block, bits = Graph(Artifact(task.matrix_path)).block(task.block), task.drawn.bits()[task.start : task.stop]
    sent = np.zeros((len(bits), len(task.part_paths)), dtype=np.int64)
    for column, path in enumerate(task.part_paths):
        part = map_part_vector(path)
        last_row = np.full(task.parts, -1, dtype=np.int64)
        for row, batch in enumerate(bits):
            last_row[:] = -1
            sent[row, column] = _count_batch(block.row_offset, block.indptr, block.indices, part, batch, last_row)
    with task.writer.task(task.name) as output:
        output.facts["sent"] = sent.tolist()
    return len(bits)


@njit(cache=True, nogil=True)
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
