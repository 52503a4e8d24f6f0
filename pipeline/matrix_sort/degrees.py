"""What a graph artifact holds per vertex (degrees, original ids), in large chunks across its row blocks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.matrix_sort.id_table import IdTable
from gnnloom.pipeline.matrix_sort.sort_plan import SortPlan
from gnnloom.pipeline.tasks.progress import Done
from gnnloom.storage.artifacts.graph import block_path
from gnnloom.storage.format.arrays import CHUNK_BYTES, ArrayReader, ArrayRecord, create_array, write_rows
from gnnloom.storage.format.artifact import ArtifactWriter

#: Vertices of a chunk, and of a task: every task writes whole chunks.
CHUNK_VERTICES = CHUNK_BYTES // 8
TASK_VERTICES = 4 * CHUNK_VERTICES


@dataclass(frozen=True)
class VertexTask:
    """Writes the arrays of vertices ``number * TASK_VERTICES`` and following."""

    writer: ArtifactWriter
    number: int
    plan: Path
    id_table: Path | None


def vertex_names(plan: SortPlan) -> list[str]:
    """Names of the parts that hold the vertices' arrays."""
    return [_name(number) for number in range(-(-plan.num_vertices // TASK_VERTICES))]


def _name(number: int) -> str:
    return f"vertex/{number:05d}"


def create_vertex_arrays(writer: ArtifactWriter, plan: SortPlan, *, with_ids: bool) -> None:
    """Make the arrays that tasks fill, unless they are there."""
    for name in ("degree", "original_id") if with_ids else ("degree",):
        if not (writer.path / name / "zarr.json").exists():
            shape = (plan.num_vertices,)
            create_array(writer.path, name, shape, "int64", ("vertex",), CHUNK_VERTICES, plan.codec)


def write_vertices(task: VertexTask) -> Done:
    """Write the degrees, and original ids, of a range of vertices; returns their number."""
    plan = SortPlan.load(task.plan)
    start = task.number * TASK_VERTICES
    stop = min(start + TASK_VERTICES, plan.num_vertices)
    with task.writer.task(_name(task.number)) as output:
        output.add(write_rows(task.writer.path, "degree", start, _degrees(task.writer.path, plan, start, stop)))
        if task.id_table is not None:
            ids = IdTable(task.id_table).read(start, stop)
            output.add(write_rows(task.writer.path, "original_id", start, ids))
    return Done(stop - start)


def _degrees(root: Path, plan: SortPlan, start: int, stop: int) -> NDArray[np.int64]:
    """Row lengths of the blocks that overlap a range of rows."""
    degrees = np.empty(stop - start, dtype=np.int64)
    rows = plan.block_rows
    for number in range(plan.num_blocks):
        first, last = max(start, rows[number]), min(stop, rows[number + 1])
        if first < last:
            shape = (rows[number + 1] - rows[number] + 1,)
            record = ArrayRecord(f"{block_path(number)}/indptr", shape, "int64", ("row+1",), ())
            indptr = ArrayReader(root, record).read(first - rows[number], last - rows[number] + 1)
            np.subtract(indptr[1:], indptr[:-1], out=degrees[first - start : last - start])
    return degrees
