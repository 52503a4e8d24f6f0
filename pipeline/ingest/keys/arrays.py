"""The keys of a graph's vertices as arrays of its artifact: original ids; or where each name begins, and the text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.ingest.keys.table import KeyTable
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.progress import Done
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.format.arrays import CHUNK_BYTES, create_array, write_rows
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord

#: Bytes of a chunk, and chunks that one task writes.
_CHUNK_BYTES, _TASK_CHUNKS = CHUNK_BYTES, 4


@dataclass(frozen=True)
class KeyArray:
    """One of the arrays.

    Attributes:
        name: name in the artifact.
        dtype: of its elements.
        dim: name of its dimension.
        stored: number of the array in which the keys are stored that it is made of.
        before: whether it has a 0 in front of the stored elements: it holds where names begin, and not where they end.
    """

    name: str
    dtype: str
    dim: str
    stored: int
    before: bool = False

    @property
    def chunk(self) -> int:
        """Elements of a chunk."""
        return _CHUNK_BYTES // np.dtype(self.dtype).itemsize

    @property
    def task_elements(self) -> int:
        """Elements that one task writes: whole chunks, so that no two tasks write the same one."""
        return _TASK_CHUNKS * self.chunk

    def size(self, table: KeyTable) -> int:
        return table.firsts(self.stored)[-1] + self.before

    def read(self, table: KeyTable, work: Path, start: int, stop: int) -> NDArray[np.int64] | NDArray[np.uint8]:
        """(stop - start,) elements."""
        if not self.before:
            return table.read(work, self.stored, start, stop)
        found = table.read(work, self.stored, max(start - 1, 0), stop - 1)
        return found if start else np.concatenate([[0], found])


#: The arrays by the type of the keys.
KEY_ARRAYS = {
    "compact": (KeyArray("original_id", "int64", "vertex", 0),),
    "names": (
        KeyArray("original_name_offset", "int64", "vertex+1", 0, before=True),
        KeyArray("original_name", "uint8", "byte", 1),
    ),
}


@dataclass(frozen=True)
class KeyArrayTask:
    """Writes elements ``start`` to ``stop`` of one array.

    Attributes:
        table: file of the table of the keys.
    """

    writer: ArtifactWriter
    table: Path
    array: KeyArray
    start: int
    stop: int

    @property
    def name(self) -> str:
        return f"{self.array.name}/{self.start:015d}"


def write_key_arrays(writer: ArtifactWriter, table_path: Path, codec: str, cluster: Cluster) -> list[TaskRecord]:
    """Write the elements that are not recorded; returns the records of all tasks.

    Args:
        writer: artifact of the graph.
        table_path: file of the table of the keys.
        codec: compression of the arrays.
        cluster: where the tasks run.
    """
    table = KeyTable.load(table_path)
    tasks: list[KeyArrayTask] = []
    for array in KEY_ARRAYS[table.ids]:
        size, step = array.size(table), array.task_elements
        # Creating an array deletes its chunks, and an earlier command may have recorded some of them.
        if not (writer.path / array.name / "zarr.json").exists():
            create_array(writer.path, array.name, (size,), array.dtype, (array.dim,), array.chunk, codec)
        starts = range(0, size, step)
        tasks += [KeyArrayTask(writer, table_path, array, start, min(start + step, size)) for start in starts]
    return run_missing("write keys", cluster, writer, write_key_array, tasks, "elements")


def write_key_array(task: KeyArrayTask) -> Done:
    """Write the elements of one task; returns their number."""
    table = KeyTable.load(task.table)
    with task.writer.task(task.name) as output:
        found = task.array.read(table, task.writer.work, task.start, task.stop)
        output.add(write_rows(task.writer.path, task.array.name, task.start, found))
    return Done(task.stop - task.start)
