"""The names of a graph's vertices as arrays of its artifact: where each name begins, and the text of all names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gnnloom.pipeline.ingest.names.table import NameTable
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.progress import Done
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.format.arrays import CHUNK_BYTES, create_array, write_rows
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord

#: Elements of a chunk of each array.
_CHUNK = {"original_name_offset": CHUNK_BYTES // 8, "original_name": CHUNK_BYTES}
#: Chunks that one task writes.
_TASK_CHUNKS = 4
_DIMS = {"original_name_offset": ("vertex+1",), "original_name": ("byte",)}
_DTYPES = {"original_name_offset": "int64", "original_name": "uint8"}


@dataclass(frozen=True)
class NameArrayTask:
    """Writes elements ``start`` to ``stop`` of one of the two arrays.

    Attributes:
        table: file of the name table.
    """

    writer: ArtifactWriter
    table: Path
    array: str
    start: int
    stop: int

    @property
    def name(self) -> str:
        return f"{self.array}/{self.start:015d}"


def write_name_arrays(writer: ArtifactWriter, table_path: Path, codec: str, cluster: Cluster) -> list[TaskRecord]:
    """Write the elements that are not recorded; returns the records of all tasks.

    Args:
        writer: artifact of the graph.
        table_path: file of the name table.
        codec: compression of the arrays.
        cluster: where the tasks run.
    """
    table = NameTable.load(table_path)
    tasks: list[NameArrayTask] = []
    for array, size in (("original_name_offset", table.num_names + 1), ("original_name", table.num_bytes)):
        # Creating an array deletes its chunks, among them those of recorded tasks.
        if not (writer.path / array / "zarr.json").exists():
            create_array(writer.path, array, (size,), _DTYPES[array], _DIMS[array], _CHUNK[array], codec)
        step = task_elements(array)
        tasks += [
            NameArrayTask(writer, table_path, array, start, min(start + step, size)) for start in range(0, size, step)
        ]
    return run_missing("write names", cluster, writer, write_name_array, tasks, "elements")


def task_elements(array: str) -> int:
    """Elements of an array that one task writes: whole chunks, so that no two tasks write the same one."""
    return _TASK_CHUNKS * _CHUNK[array]


def write_name_array(task: NameArrayTask) -> Done:
    """Write the elements of one task; returns their number."""
    table = NameTable.load(task.table)
    read = table.read_offsets if task.array == "original_name_offset" else table.read_text
    with task.writer.task(task.name) as output:
        found = read(task.writer.work, task.start, task.stop)
        output.add(write_rows(task.writer.path, task.array, task.start, found))
    return Done(task.stop - task.start)
