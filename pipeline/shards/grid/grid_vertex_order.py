"""Vertex data in a permuted order: each bucket of positions is gathered from the routed files and written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.shards.grid.grid_vertex_levels import routed_list
from gnnloom.pipeline.shards.grid.grid_vertex_plan import Bucket, VertexPlan, row_bytes
from gnnloom.pipeline.shards.grid.grid_vertex_routing import VertexTable
from gnnloom.pipeline.shards.grid.routed_rows import Gathered, RoutedFile
from gnnloom.pipeline.shards.lane_records import lanes_of_spans
from gnnloom.storage.artifacts.grid_shards import crop_chunk_rows, order_path
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.arrays import create_array, write_rows
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.format.groups import write_group
from gnnloom.storage.format.schema import SCHEMAS
from gnnloom.storage.matrix.ranges import Span, split_range


@dataclass(frozen=True)
class WriteBucketTask:
    """Writes the vertex data of one bucket of positions.

    Attributes:
        order: ``rows`` or ``columns``.
    """

    writer: ArtifactWriter
    order: str
    table: VertexTable
    plan: VertexPlan
    bucket: Bucket

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
    with task.writer.task(task.name) as output, OpenFiles(task.writer.work) as opened:
        sections = _Sections(task, opened)
        for name in plan.types:
            start, stop = plan.written(task.bucket, name)
            # An array without rows still needs its record.
            if start < stop or first == last:
                rows = task.table.read(name, start, stop) if plan.is_identity else sections.rows(name, (start, stop))
                path = f"{order_path(task.order, task.bucket.row)}/{name}"
                output.add(write_rows(task.writer.path, path, start - first, rows))
    return task.bucket.stop - task.bucket.start


class _Sections:
    """The routed files that hold a bucket's rows."""

    def __init__(self, task: WriteBucketTask, opened: OpenFiles) -> None:
        """Open the files of all spans that the bucket's arrays need."""
        self._task = task
        spans = task.plan.spans_of(task.bucket)
        # Nothing is routed in the order of the ids.
        lanes = lanes_of_spans(routed_list(task.writer.work, task.order), spans) if spans else {}
        self._files = {
            span: [RoutedFile(opened.lane(lane), task.plan.types) for lane in each] for span, each in lanes.items()
        }
        self._gathered: dict[Span, Gathered] = {}

    def rows(self, name: str, positions: Span) -> NDArray[Any]:
        """All rows of an array at a range of positions.

        Raises:
            CorruptError: the files lack some.
        """
        # Most arrays of a bucket have the same range.
        if positions not in self._gathered:
            self._gathered = {positions: self._gather(positions)}
        return self._gathered[positions].rows(name)

    def _gather(self, positions: Span) -> Gathered:
        task, plan = self._task, self._task.plan
        files = [file for span in plan.spans(plan.levels[-1], positions) for file in self._files[span]]
        gathered = Gathered.of(files, plan.types, positions)
        if len(gathered.position) != positions[1] - positions[0]:
            raise CorruptError(
                f"{task.writer.work}: {len(gathered.position):,} rows for positions {positions[0]:,} to"
                f" {positions[1]:,} of order {task.order}; remove the unfinished artifact and start again"
            )
        return gathered
