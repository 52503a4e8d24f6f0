"""Vertex data on their way to a permuted order: each range of vertices is sorted into buckets of positions.

A bucket has as many positions as fit a small buffer.  Rows arrive in a bucket in random order, so the pass that
assembles one needs the buffer and no more memory, whatever the number of vertices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.spill import read_bytes, write_file
from gnnloom.pipeline.shards.part_order import Order
from gnnloom.pipeline.shards.vertex_arrays import VERTEX_ARRAYS
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter

#: Bytes of rows that are routed, or assembled, at a time.
BUFFER_BYTES = 32 << 20


@dataclass(frozen=True)
class VertexTable:
    """The per-vertex arrays to permute, and how many of their rows go into a buffer.

    Attributes:
        vertices_path: artifact of the vertex data; None if there are only degrees.
        rows: vertices of a range, and positions of a bucket.
        types: name to dtype and trailing shape of each array.
    """

    graph_path: Path
    vertices_path: Path | None
    num_vertices: int
    rows: int
    types: Mapping[str, tuple[str, tuple[int, ...]]]

    @property
    def num_ranges(self) -> int:
        """Number of ranges of vertices, and of buckets of positions."""
        return -(-self.num_vertices // self.rows)

    def span(self, number: int) -> tuple[int, int]:
        """Return first and last (exclusive) vertex of a range, or position of a bucket."""
        return number * self.rows, min((number + 1) * self.rows, self.num_vertices)

    def row_bytes(self, name: str) -> int:
        """Return the bytes of one vertex in an array."""
        dtype, trailing = self.types[name]
        return np.dtype(dtype).itemsize * int(np.prod(trailing, dtype=np.int64))


@dataclass(frozen=True)
class RouteRowsTask:
    """Routes one range of vertices to the buckets of an order.

    Attributes:
        order: ``rows`` or ``columns``.
        permutation: None for the order of the ids.
        number: of the range.
    """

    writer: ArtifactWriter
    order: str
    permutation: Order | None
    table: VertexTable
    number: int

    @property
    def name(self) -> str:
        return f"route/{self.order}/{self.number:05d}"


def vertex_table(graph: Graph, vertices: Artifact | None, *, with_ids: bool = False) -> VertexTable:
    """Describe the arrays to permute: the degrees, and those of the vertices artifact.

    The degree of a row is its number of nonzeros (int64), or the sum of its weights (float64).

    Args:
        with_ids: also store the ids of the vertices, for an order that cannot be computed.
    """
    types: dict[str, tuple[str, tuple[int, ...]]] = {"degree": ("float64" if graph.weighted else "int64", ())}
    if with_ids:
        types["vertex"] = ("int64", ())
    for name in VERTEX_ARRAYS:
        if vertices is not None and name in vertices:
            record = vertices.records[name]
            types[name] = (record.dtype, record.shape[1:])
    table = VertexTable(graph.artifact.path, vertices.path if vertices else None, graph.num_vertices, 1, types)
    return replace(table, rows=buffered_rows(sum(map(table.row_bytes, types))))


def buffered_rows(row_bytes: int) -> int:
    """Rows of a buffer; the widths of all arrays decide, so that every array is cut at the same positions."""
    return max(1, BUFFER_BYTES // max(8, row_bytes))


def route_rows(task: RouteRowsTask) -> int:
    """Sort a range's rows by position and write them with the bounds of each bucket; returns the number of rows."""
    table, work = task.table, task.writer.work
    # Each file gets its final name when it is complete, and the record comes after all of them.
    with task.writer.task(task.name):
        start, stop = table.span(task.number)
        ids = np.arange(start, stop, dtype=np.int64)
        position = task.permutation.forward(ids) if task.permutation else ids
        # Positions are distinct, so any sort gives the same order.
        by_position = np.argsort(position)
        bounds = np.arange(table.num_ranges + 1, dtype=np.int64) * table.rows
        offsets = np.searchsorted(position[by_position], bounds).astype(np.int64)
        write_file(_spill_path(work, task.order, task.number, "place"), [offsets, position[by_position]])
        for name in table.types:
            rows = _read_rows(table, name, start, stop)[by_position]
            write_file(_spill_path(work, task.order, task.number, name), [rows])
    return stop - start


def routed_rows(
    work: Path, table: VertexTable, order: str, number: int, name: str, bucket: int
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Read what range ``number`` sent to a bucket.

    Returns:
        (num_rows,) int64 positions, ascending, and the (num_rows, ...) rows of array ``name``.
    """
    dtype, trailing = table.types[name]
    position_path = _spill_path(work, order, number, "place")
    bounds = np.empty(2, dtype=np.int64)
    read_bytes(position_path, 8 * bucket, bounds)
    count = int(bounds[1] - bounds[0])
    position, rows = np.empty(count, dtype=np.int64), np.empty((count, *trailing), dtype=dtype)
    # The positions follow the (num_ranges + 1) offsets of the buckets.
    read_bytes(position_path, 8 * (table.num_ranges + 1 + int(bounds[0])), position)
    if rows.size:
        read_bytes(_spill_path(work, order, number, name), table.row_bytes(name) * int(bounds[0]), rows)
    return position, rows


def _spill_path(work: Path, order: str, number: int, name: str) -> Path:
    return work / "rows" / order / f"{number:05d}.{name}"


def _read_rows(table: VertexTable, name: str, start: int, stop: int) -> NDArray[Any]:
    """Read vertices ``start`` to ``stop`` of an array of the table, in the order of the ids."""
    if name == "vertex":
        return np.arange(start, stop, dtype=np.int64)
    if name != "degree":
        return Artifact(table.vertices_path or Path()).array(name).read(start, stop)
    graph = Graph(Artifact(table.graph_path))
    return _weighted_degree(graph, start, stop) if graph.weighted else graph.degree(start, stop)


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
