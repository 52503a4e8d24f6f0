"""Vertex data in a permuted order: each range of positions is assembled bucket by bucket and written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.shards.grid_vertex_routing import VertexTable, routed_rows
from gnnloom.storage.artifacts.grid_shards import crop_chunk_rows, order_path
from gnnloom.storage.format.arrays import ArrayAppender
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.format.groups import write_group
from gnnloom.storage.matrix.ranges import split_range

_DIMS = {
    "feature": ("row", "feature"),
    "label": ("row",),
    "multilabel": ("row", "class"),
    "target": ("row", "target"),
    "split": ("row",),
    "degree": ("row",),
    "vertex": ("row",),
}


@dataclass(frozen=True)
class WriteOrderTask:
    """Writes the vertex data of one range of positions.

    Attributes:
        order: ``rows`` or ``columns``.
        row: number of the range, of ``num_rows`` ranges.
    """

    writer: ArtifactWriter
    order: str
    row: int
    num_rows: int
    table: VertexTable

    @property
    def name(self) -> str:
        return f"order/{self.order}/{self.row:03d}"


def write_order(task: WriteOrderTask) -> int:
    """Assemble and write the rows of one range of positions; returns their number."""
    table = task.table
    first, last = split_range(table.num_vertices, task.num_rows, task.row)
    path = order_path(task.order, task.row)
    with task.writer.task(task.name) as output:
        # Tasks of all ranges write these two groups with the same content, so they need no lock.
        write_group(task.writer.path / "order", {})
        write_group(task.writer.path / "order" / task.order, {})
        write_group(task.writer.path / path, {"encoding-type": "gnnloom-vertex-rows", "row_offset": first})
        for name, (dtype, trailing) in table.types.items():
            chunk_rows = crop_chunk_rows(last - first, table.row_bytes(name))
            shape = (last - first, *trailing)
            array = ArrayAppender(task.writer.path, f"{path}/{name}", shape, dtype, _DIMS[name], chunk_rows)
            for rows in _ordered_rows(task, name, first, last):
                array.append(rows)
            output.add(array.close())
    return last - first


def _ordered_rows(task: WriteOrderTask, name: str, first: int, last: int) -> Iterator[NDArray[Any]]:
    """Yield the rows of positions ``first`` to ``last`` in order, one bucket at a time."""
    table, work = task.table, task.writer.work
    dtype, trailing = table.types[name]
    # Ranges need not end where buckets do: the first and the last bucket are assembled whole and cropped.
    for bucket in range(first // table.rows, -(-last // table.rows) if last > first else 0):
        start, stop = table.span(bucket)
        rows = np.empty((stop - start, *trailing), dtype=dtype)
        for number in range(table.num_ranges):
            position, values = routed_rows(work, table, task.order, number, name, bucket)
            # An order is a bijection, so the ranges together fill every row of the bucket once.
            rows[position - start] = values
        yield rows[max(first, start) - start : min(last, stop) - start]
