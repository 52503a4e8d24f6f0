"""Vertex data in a permuted order: each bucket of positions is gathered and written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.shards.grid.grid_vertex_plan import Bucket, VertexPlan, row_bytes
from gnnloom.pipeline.shards.grid.grid_vertex_routing import StoredVertexRows
from gnnloom.pipeline.shuffle.gathered import Gathered
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.phase import Needs
from gnnloom.storage.artifacts.grid_shards import crop_chunk_rows, order_path
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.arrays import create_array, write_rows
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.format.groups import write_group
from gnnloom.storage.format.schema import SCHEMAS
from gnnloom.storage.matrix.ranges import split_range


@dataclass(frozen=True)
class WriteBucketTask:
    """Writes the vertex data of one bucket of positions.

    Attributes:
        order: ``rows`` or ``columns``.
        shuffle: of the order; None for the order of the ids.
        needs: what the task will do.
    """

    writer: ArtifactWriter
    order: str
    table: StoredVertexRows
    plan: VertexPlan
    shuffle: Shuffle | None
    bucket: Bucket
    needs: Needs

    @property
    def name(self) -> str:
        return f"{bucket_prefix(self.order)}{self.bucket.row:03d}/{self.bucket.number:05d}"


def bucket_prefix(order: str) -> str:
    """How the names of an order's tasks begin."""
    return f"bucket/{order}/"


def create_order(path: Path, order: str, plan: VertexPlan) -> None:
    """Create the arrays of an order, without chunks; those that exist are emptied.

    Args:
        path: folder of the artifact.
        order: ``rows`` or ``columns``.
    """
    write_group(path / "order", {})
    write_group(path / "order" / order, {})
    for row in range(plan.grid_rows):
        first, last = split_range(plan.num_vertices, plan.grid_rows, row)
        folder = order_path(order, row)
        write_group(path / folder, {"encoding-type": "gnnloom-vertex-rows", "row_offset": first})
        for name, (dtype, trailing) in plan.types.items():
            dims = SCHEMAS["shards"][f"order/*/*/{name}"].dims
            chunk_rows = crop_chunk_rows(last - first, row_bytes(plan.types, name))
            create_array(path, f"{folder}/{name}", (last - first, *trailing), dtype, dims, chunk_rows)


def write_bucket(task: WriteBucketTask) -> int:
    """Gather and write the rows of one bucket; returns their number."""
    plan = task.plan
    first, last = split_range(plan.num_vertices, plan.grid_rows, task.bucket.row)
    with task.writer.task(task.name) as output, OpenFiles(task.writer.work) as files:
        read = task.table.read if task.shuffle is None else _reader(task, task.shuffle, files)
        for name in plan.types:
            start, stop = plan.written(task.bucket, name)
            # An array without rows still needs its record.
            if start < stop or first == last:
                path = f"{order_path(task.order, task.bucket.row)}/{name}"
                output.add(write_rows(task.writer.path, path, start - first, read(name, start, stop)))
    return task.bucket.stop - task.bucket.start


def _reader(task: WriteBucketTask, shuffle: Shuffle, files: OpenFiles) -> Callable[[str, int, int], NDArray[Any]]:
    """A function that reads the rows of an array with positions ``start`` to ``stop``."""
    rows = shuffle.rows(task.writer.work, files)

    # Most arrays of a bucket have the same range.
    @lru_cache(maxsize=1)
    def gathered(start: int, stop: int) -> Gathered:
        found = rows.read(start, stop)
        if found.num_rows != stop - start:
            raise CorruptError(
                f"{task.writer.work}: {found.num_rows:,} rows for positions {start:,} to {stop:,} of order"
                f" {task.order}; remove the unfinished artifact and start again"
            )
        return found

    return lambda name, start, stop: gathered(start, stop).column(name)
