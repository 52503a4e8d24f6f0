"""Vertex data in a permuted order: rows are routed to buckets of places, and each range of places is put together.

A bucket is as many places as fit a small buffer, so that the random order within it costs memory
that is bounded, whatever the number of vertices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.spill import read_bytes, write_file
from gnnloom.pipeline.shards.part_order import Order
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.grid_shards import crop_chunk_rows, order_path
from gnnloom.storage.format.arrays import ArrayAppender
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.format.groups import write_group
from gnnloom.storage.matrix.ranges import split_range

#: Bytes of rows that are routed, or put together, at a time.
BUFFER_BYTES = 32 << 20

NAMES = ("feature", "label", "multilabel", "split")
_DIMS = {
    "feature": ("row", "feature"),
    "label": ("row",),
    "multilabel": ("row", "class"),
    "split": ("row",),
    "degree": ("row",),
    "vertex": ("row",),
}


@dataclass(frozen=True)
class RowTable:
    """What one vertex has, as arrays by name, and how many rows go into a buffer.

    Attributes:
        types: dtype and trailing shape of each array.
    """

    graph_path: Path
    vertices_path: Path | None
    num_vertices: int
    rows: int
    types: Mapping[str, tuple[str, tuple[int, ...]]]

    @property
    def num_ranges(self) -> int:
        """Ranges of vertices, and buckets of places."""
        return -(-self.num_vertices // self.rows)

    def span(self, number: int) -> tuple[int, int]:
        return number * self.rows, min((number + 1) * self.rows, self.num_vertices)

    def row_bytes(self, name: str) -> int:
        dtype, trailing = self.types[name]
        return np.dtype(dtype).itemsize * int(np.prod(trailing, dtype=np.int64))


@dataclass(frozen=True)
class RouteTask:
    """Routes one range of vertices to the buckets of an order."""

    writer: ArtifactWriter
    order: str
    permutation: Order | None
    table: RowTable
    number: int

    @property
    def name(self) -> str:
        return f"route/{self.order}/{self.number:05d}"


@dataclass(frozen=True)
class OrderTask:
    """Writes the vertex data of one range of places."""

    writer: ArtifactWriter
    order: str
    row: int
    num_rows: int
    table: RowTable

    @property
    def name(self) -> str:
        return order_name(self.order, self.row)


def order_name(order: str, row: int) -> str:
    """Part that writes range ``row`` of an order."""
    return f"order/{order}/{row:03d}"


def route_table(graph: Graph, vertices: Artifact | None, *, with_ids: bool = False) -> RowTable:
    """What there is to permute: degrees always, and the arrays of the vertices artifact.

    The degree of a row is its number of nonzeros, or its sum of weights.

    Args:
        with_ids: the vertices' ids too, for an order that cannot be computed.
    """
    types: dict[str, tuple[str, tuple[int, ...]]] = {"degree": ("float64" if graph.weighted else "int64", ())}
    if with_ids:
        types["vertex"] = ("int64", ())
    for name in NAMES:
        if vertices is not None and name in vertices:
            record = vertices.records[name]
            types[name] = (record.dtype, record.shape[1:])
    table = RowTable(graph.artifact.path, vertices.path if vertices else None, graph.num_vertices, 1, types)
    rows = max(1, BUFFER_BYTES // max(8, sum(map(table.row_bytes, types))))
    return RowTable(table.graph_path, table.vertices_path, table.num_vertices, rows, types)


def _spill_path(work: Path, order: str, number: int, name: str) -> Path:
    return work / "rows" / order / f"{number:05d}.{name}"


def route_rows(task: RouteTask) -> None:
    """Sort a range's rows by their place and write them, with the number that goes to each bucket."""
    with task.writer.task(task.name):
        start, stop = task.table.span(task.number)
        ids = np.arange(start, stop, dtype=np.int64)
        place = task.permutation.forward(ids) if task.permutation else ids
        by_place = np.argsort(place)
        bounds = np.arange(task.table.num_ranges + 1, dtype=np.int64) * task.table.rows
        offsets = np.searchsorted(place[by_place], bounds).astype(np.int64)
        work = task.writer.work
        write_file(_spill_path(work, task.order, task.number, "place"), [offsets, place[by_place]])
        for name in task.table.types:
            write_file(
                _spill_path(work, task.order, task.number, name), [_read_rows(task.table, name, start, stop)[by_place]]
            )


def _read_rows(table: RowTable, name: str, start: int, stop: int) -> NDArray[Any]:
    if name == "vertex":
        return np.arange(start, stop, dtype=np.int64)
    if name != "degree":
        return Artifact(table.vertices_path or Path()).array(name).read(start, stop)
    graph = Graph(Artifact(table.graph_path))
    return _weighted_degree(graph, start, stop) if graph.weighted else graph.degree(start, stop)


def _weighted_degree(graph: Graph, start: int, stop: int) -> NDArray[np.float64]:
    """Sums of weights of rows ``start`` to ``stop``."""
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


def write_order(task: OrderTask) -> None:
    """Put together the rows of one range of places, bucket by bucket."""
    table = task.table
    first, last = split_range(table.num_vertices, task.num_rows, task.row)
    path = order_path(task.order, task.row)
    with task.writer.task(task.name) as output:
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


def _ordered_rows(task: OrderTask, name: str, first: int, last: int) -> Iterator[NDArray[Any]]:
    """Rows of the places ``first`` to ``last`` in order, a bucket at a time."""
    table = task.table
    dtype, trailing = table.types[name]
    for bucket in range(first // table.rows, -(-last // table.rows) if last > first else 0):
        start, stop = table.span(bucket)
        rows = np.empty((stop - start, *trailing), dtype=dtype)
        for number in range(table.num_ranges):
            place, values = _routed(task, name, number, bucket)
            rows[place - start] = values
        yield rows[max(first, start) - start : min(last, stop) - start]


def _routed(task: OrderTask, name: str, number: int, bucket: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Places and values that range ``number`` sent to a bucket."""
    table, work = task.table, task.writer.work
    dtype, trailing = table.types[name]
    place_path = _spill_path(work, task.order, number, "place")
    bounds = np.empty(2, dtype=np.int64)
    read_bytes(place_path, 8 * bucket, bounds)
    count = int(bounds[1] - bounds[0])
    place, values = np.empty(count, dtype=np.int64), np.empty((count, *trailing), dtype=dtype)
    read_bytes(place_path, 8 * (table.num_ranges + 1 + int(bounds[0])), place)
    if values.size:
        read_bytes(_spill_path(work, task.order, number, name), table.row_bytes(name) * int(bounds[0]), values)
    return place, values
