"""The degrees of a graph's vertices.

Their chunks are larger than a small row block and cut across the blocks, so they have tasks of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.matrix_sort.sort_plan import SortPlan
from gnnloom.pipeline.tasks.progress import Done
from gnnloom.storage.artifacts.graph import block_path
from gnnloom.storage.format.arrays import CHUNK_BYTES, ArrayReader, ArrayRecord, create_array, write_rows
from gnnloom.storage.format.artifact import ArtifactWriter

#: Vertices of a chunk of int64.
CHUNK_VERTICES = CHUNK_BYTES // 8

#: Vertices of a task: whole chunks, so that no two tasks write the same one.
TASK_VERTICES = 4 * CHUNK_VERTICES


@dataclass(frozen=True)
class DegreeTask:
    """Writes the elements of vertices ``number * TASK_VERTICES`` to ``(number + 1) * TASK_VERTICES``.

    Attributes:
        plan: file of the sort plan.
    """

    writer: ArtifactWriter
    number: int
    plan: Path

    @property
    def name(self) -> str:
        return f"vertex/{self.number:05d}"


def num_degree_tasks(plan: SortPlan) -> int:
    """Number of tasks that cover all vertices."""
    return -(-plan.num_vertices // TASK_VERTICES)


def create_degree_array(writer: ArtifactWriter, plan: SortPlan) -> None:
    """Create the array that the tasks fill, unless it exists."""
    # Creating an array deletes its chunks, and an earlier command may have recorded some of them.
    if not (writer.path / "degree" / "zarr.json").exists():
        shape = (plan.num_vertices,)
        create_array(writer.path, "degree", shape, "int64", ("vertex",), CHUNK_VERTICES, plan.codec)


def write_degrees(task: DegreeTask) -> Done:
    """Write the degrees of a range of vertices; returns the number of vertices."""
    plan = SortPlan.load(task.plan)
    start = task.number * TASK_VERTICES
    stop = min(start + TASK_VERTICES, plan.num_vertices)
    with task.writer.task(task.name) as output:
        output.add(write_rows(task.writer.path, "degree", start, _degrees(task.writer.path, plan, start, stop)))
    return Done(stop - start)


def _degrees(root: Path, plan: SortPlan, start: int, stop: int) -> NDArray[np.int64]:
    """(stop - start,) row lengths, from the row pointers of the blocks that overlap the range."""
    degrees = np.empty(stop - start, dtype=np.int64)
    rows = plan.block_rows
    for number in range(plan.num_blocks):
        first, last = max(start, rows[number]), min(stop, rows[number + 1])
        if first < last:
            shape = (rows[number + 1] - rows[number] + 1,)
            # The plan gives the shape of the pointers, so no metadata has to be read per block.
            record = ArrayRecord(f"{block_path(number)}/indptr", shape, "int64", ("row+1",), ())
            indptr = ArrayReader(root, record).read(first - rows[number], last - rows[number] + 1)
            np.subtract(indptr[1:], indptr[:-1], out=degrees[first - start : last - start])
    return degrees
