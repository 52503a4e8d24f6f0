"""The exact volume of mini-batches: the rows that their induced subgraphs need from other parts, counted by tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.measure.kept_results import keep_results, kept_results
from gnnloom.pipeline.partition.stochastic.batch_bits import DrawnBatches, is_drawn
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.memory_map import map_part_vector
from gnnloom.storage.matrix.ranges import split_range

#: Nonzeros of a task, times its batches and part vectors: it looks at those of drawn rows, in about a second.
_TASK_NONZEROS = 1 << 29


@dataclass(frozen=True)
class _VolumeTask:
    """Counts what some batches send for the rows of a block.

    Attributes:
        start, stop: rows of the file of batches.
        part_paths: files of the parts to compare.
    """

    matrix_path: Path
    block: int
    drawn: DrawnBatches
    start: int
    stop: int
    part_paths: tuple[Path, ...]
    parts: int
    result_path: Path


def batch_volumes(
    matrices: Sequence[Graph],
    part_paths: Sequence[Path],
    parts: int,
    drawn: DrawnBatches,
    work: Path,
    cluster: Cluster,
) -> NDArray[np.int64]:
    """Count the rows sent for the products with the transposes of matrices, on the subgraphs that batches induce.

    Args:
        matrices: row j of one holds the vertices that need row j of H.
        part_paths: ``.npy`` files of (num_vertices,) int32 parts.
        parts: number of parts P.
        work: folder for the tasks' results.

    Returns:
        (num_batches, num_part_vectors) int64 rows, over all matrices.
    """
    work.mkdir(parents=True, exist_ok=True)
    tasks: list[_VolumeTask] = []
    for matrix in matrices:
        for block, nnz in enumerate(matrix.block_nnz):
            count = volume_tasks(nnz, drawn.num_batches, len(part_paths))
            for number in range(count):
                rows, path = split_range(drawn.num_batches, count, number), work / f"{len(tasks):05d}.npy"
                tasks.append(_VolumeTask(matrix.artifact.path, block, drawn, *rows, tuple(part_paths), parts, path))
    total = np.zeros((drawn.num_batches, len(part_paths)), dtype=np.int64)
    for task, sent in zip(tasks, kept_results(_count_batches, tasks, cluster), strict=True):
        total[task.start : task.stop] += sent
    return total


def volume_tasks(nnz: int, num_batches: int, num_part_vectors: int) -> int:
    """Return the number of tasks that count what batches send for a block of so many nonzeros."""
    return min(num_batches, max(1, -(-nnz * num_batches * num_part_vectors // _TASK_NONZEROS)))


def _count_batches(task: _VolumeTask) -> None:
    block, bits = Graph(Artifact(task.matrix_path)).block(task.block), task.drawn.bits()[task.start : task.stop]
    sent = np.zeros((len(bits), len(task.part_paths)), dtype=np.int64)
    for column, path in enumerate(task.part_paths):
        part = map_part_vector(path)
        last_row = np.full(task.parts, -1, dtype=np.int64)
        for row, batch in enumerate(bits):
            last_row[:] = -1
            sent[row, column] = _count_batch(block.row_offset, block.indptr, block.indices, part, batch, last_row)
    keep_results(task.result_path, [sent])


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
