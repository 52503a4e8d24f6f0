"""The degrees of a graph's vertices.

Their chunks are larger than a small row block and cut across the blocks, so they have tasks of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.tasks.phase import Needs
from gnnloom.pipeline.tasks.progress import Done
from gnnloom.storage.artifacts.graph import block_path
from gnnloom.storage.format.arrays import CHUNK_BYTES, ArrayReader, ArrayRecord, create_array, write_rows
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.matrix.ranges import Span

#: Vertices of a chunk of int64.
CHUNK_VERTICES = CHUNK_BYTES // 8

#: Vertices of a task: whole chunks, so that no two tasks write the same one.
TASK_VERTICES = 4 * CHUNK_VERTICES


@dataclass(frozen=True)
class DegreeTask:
    """Writes the degrees of a range of vertices.

    Attributes:
        vertices: first and last (exclusive) vertex.
        blocks: number, first row and last (exclusive) row of the blocks that have these vertices.
    """

    writer: ArtifactWriter
    number: int
    vertices: Span
    blocks: Sequence[tuple[int, int, int]]
    needs: Needs = field(default_factory=Needs)

    @property
    def name(self) -> str:
        return f"vertex/{self.number:05d}"


def create_degree_array(writer: ArtifactWriter, num_vertices: int, codec: str) -> None:
    """Create the array that the tasks fill, unless it exists."""
    # Creating an array deletes its chunks, and an earlier command may have recorded some of them.
    if not (writer.path / "degree" / "zarr.json").exists():
        create_array(writer.path, "degree", (num_vertices,), "int64", ("vertex",), CHUNK_VERTICES, codec)


def write_degrees(task: DegreeTask) -> Done:
    """Write the degrees of a range of vertices; returns the number of vertices."""
    with task.writer.task(task.name) as output:
        output.add(write_rows(task.writer.path, "degree", task.vertices[0], _degrees(task)))
    return Done(task.vertices[1] - task.vertices[0])


def _degrees(task: DegreeTask) -> NDArray[np.int64]:
    """(num_vertices,) row lengths, from the row pointers of the blocks that overlap the range."""
    start, stop = task.vertices
    degrees = np.empty(stop - start, dtype=np.int64)
    for number, first_row, stop_row in task.blocks:
        first, last = max(start, first_row), min(stop, stop_row)
        # The task knows the shape of the pointers, so no metadata has to be read per block.
        record = ArrayRecord(f"{block_path(number)}/indptr", (stop_row - first_row + 1,), "int64", ("row+1",), ())
        indptr = ArrayReader(task.writer.path, record).read(first - first_row, last - first_row + 1)
        np.subtract(indptr[1:], indptr[:-1], out=degrees[first - start : last - start])
    return degrees
