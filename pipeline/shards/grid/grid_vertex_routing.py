"""Vertex data of the grid shards: ranges are routed to their positions, and buckets of positions are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.shards.grid.grid_vertex_plan import Bucket, Types, VertexPlan, row_bytes
from gnnloom.pipeline.shards.grid.part_order import Order
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.section_rows import SectionRows
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.phase import Task
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.disk.groups import write_group
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.arrays import create_array, write_rows
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.schema import SCHEMAS
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.storage.shards.grid_shards import crop_chunk_rows, order_path
from gnnloom.storage.wording import counted


@dataclass(frozen=True)
class StoredVertexRows:
    """The per-vertex arrays to permute.

    Attributes:
        vertices_path: artifact of the vertex data; None if there are only degrees.
        types: name to dtype and trailing shape of each array.
    """

    graph_path: Path
    vertices_path: Path | None
    types: Mapping[str, tuple[str, tuple[int, ...]]]

    def read(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Read vertices ``start`` to ``stop`` of an array, in the order of the ids."""
        if name == "vertex":
            return np.arange(start, stop, dtype=np.int64)
        if name != "degree":
            return Vertices(Artifact(self.vertices_path or Path())).array(name).read(start, stop)
        graph = Graph(Artifact(self.graph_path))
        return _weighted_degree(graph, start, stop) if graph.weighted else graph.degree(start, stop)


@dataclass(frozen=True)
class RouteRangeTask(Task):
    """Sorts one range of vertices by their positions in an order.

    Attributes:
        shuffle: of the order.
        number: number of the range.
        permutation: of the order; a plan that is only counted may lack it.
        lane: where its rows go, relative to the work folder.
    """

    shuffle: Shuffle
    permutation: Order | None
    table: StoredVertexRows
    plan: VertexPlan
    number: int
    lane: Lane


def vertex_types(given: Types, *, weighted: bool, with_ids: bool) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Types of the arrays to permute: those given, and the degrees.

    The degree of a row is its number of nonzeros (int64), or the sum of its weights (float64).
    """
    types: dict[str, tuple[str, tuple[int, ...]]] = {"degree": ("float64" if weighted else "int64", ())}
    if with_ids:
        types["vertex"] = ("int64", ())
    return {**types, **given}


def route_range(task: RouteRangeTask) -> int:
    """Sort a range's rows by position and write them; returns the number of rows."""
    with task.writer.task(task.name) as output, task.shuffle.routed(output, task.lane) as out:
        start, stop = task.plan.vertices_of(task.number)
        position = np.arange(start, stop, dtype=np.int64)
        if task.permutation is not None:
            position = task.permutation.forward(position)
        # Positions are distinct, so any sort gives the same order.
        order = np.argsort(position)
        out.add_columns(Index.of_positions(position[order]), lambda name: task.table.read(name, start, stop)[order])
    return stop - start


def _weighted_degree(graph: Graph, start: int, stop: int) -> NDArray[np.float64]:
    """Sum the weights of rows ``start`` to ``stop``."""
    # Sums of float32 weights lose digits in rows with many entries, so they are kept in float64.
    sums = np.zeros(stop - start, dtype=np.float64)
    for block in range(graph.num_blocks):
        first, last = max(start, graph.block_rows[block]), min(stop, graph.block_rows[block + 1])
        if first < last:
            csr = graph.block(block)
            rows = np.repeat(np.arange(csr.num_rows) + csr.row_offset, np.diff(csr.indptr))
            inside = (rows >= first) & (rows < last)
            values = csr.data if csr.data is not None else np.ones(csr.nnz)
            sums += np.bincount(rows[inside] - start, weights=values[inside], minlength=stop - start)
    return sums


@dataclass(frozen=True)
class WriteBucketTask(Task):
    """Writes the vertex data of one bucket of positions.

    Attributes:
        order: ``rows`` or ``columns``.
        shuffle: of the order; None for the order of the ids.
    """

    order: str
    table: StoredVertexRows
    plan: VertexPlan
    shuffle: Shuffle | None
    bucket: Bucket


def bucket_prefix(order: str) -> str:
    """Prefix of the names of an order's tasks."""
    return f"bucket/{order}/"


def create_order(path: Path, order: str, plan: VertexPlan) -> None:
    """Create the arrays of an order, without chunks; existing arrays are emptied.

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
    def gathered(start: int, stop: int) -> SectionRows:
        found = rows.read(start, stop)
        if found.num_rows != stop - start:
            raise CorruptError(
                f"{task.writer.work}: {counted(found.num_rows, 'row')} for positions {start:,} to {stop:,} of order"
                f" {task.order}; remove the unfinished artifact and start again"
            )
        return found

    return lambda name, start, stop: gathered(start, stop).column(name)
