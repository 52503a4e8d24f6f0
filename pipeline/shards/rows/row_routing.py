"""First pass of the row shards: data that are stored by range of vertices are routed to the rank that owns them.

Each task reads one range (a row block of a matrix, or a range of vertex data), and leaves a run in which the rows of
each part lie together, ascending. Later tasks then find their rows in every range without reading those of other ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.mapped_vectors import map_vector
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.phase import Needs
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.matrix.csr import index_dtype


@dataclass(frozen=True)
class RouteBlockTask:
    """Routes one row block of a matrix by the part of each row.

    Attributes:
        part_path: mapped vector of the (num_vertices,) int32 parts.
        lane: where the run goes, relative to the work folder.
        needs: what the task will do.
    """

    writer: ArtifactWriter
    matrix_path: Path
    part_path: Path
    shuffle: Shuffle
    block: int
    lane: Lane
    needs: Needs

    @property
    def name(self) -> str:
        return f"route-{self.shuffle.name}/{self.block:05d}"


@dataclass(frozen=True)
class RouteVerticesTask:
    """Routes the vertex data of vertices ``start`` to ``stop``; attributes as of :class:`RouteBlockTask`."""

    writer: ArtifactWriter
    vertices_path: Path
    part_path: Path
    shuffle: Shuffle
    number: int
    start: int
    stop: int
    lane: Lane
    needs: Needs

    @property
    def name(self) -> str:
        return f"route-{self.shuffle.name}/{self.number:05d}"


def row_shuffle(kind: str, num_parts: int, num_vertices: int, *, weighted: bool) -> Shuffle:
    """The shuffle of a matrix's rows, by part: global ids, nonzeros, and the column ids and values of these.

    Args:
        kind: ``forward`` or ``backward``.
    """
    columns = [
        Column("row", "int64"),
        Column("nonzeros", "int64"),
        Column("indices", index_dtype(num_vertices).name, lengths="nonzeros"),
    ]
    if weighted:
        columns.append(Column("data", "float32", lengths="nonzeros"))
    return Shuffle(kind, num_parts, tuple(columns), num_parts)


def vertex_shuffle(types: Mapping[str, tuple[str, tuple[int, ...]]], num_parts: int) -> Shuffle:
    """The shuffle of vertex data, by part.

    Args:
        types: dtype and trailing shape of each array.
    """
    columns = tuple(Column(name, dtype, shape) for name, (dtype, shape) in types.items())
    return Shuffle("vertices", num_parts, columns, num_parts)


def route_block(task: RouteBlockTask) -> int:
    """Route the rows of a block; returns its nonzeros."""
    with task.writer.task(task.name) as output, task.shuffle.routed(output, task.lane) as out:
        block = Graph(Artifact(task.matrix_path)).block(task.block)
        part = map_vector(task.part_path)[block.row_offset : block.row_offset + block.num_rows]
        # A stable sort keeps the rows of each part ascending, which every later pass relies on.
        order = np.argsort(part, kind="stable")
        begin, length = block.indptr[order], np.diff(block.indptr)[order]
        values = {"row": block.row_offset + order, "nonzeros": length}
        for name, entries in (("indices", block.indices), ("data", block.data)):
            if entries is not None:
                values[name] = gather_ranges(entries, begin, length, block.nnz)
        out.add(Index.of_offsets(part_offsets(part, task.shuffle.num_positions)), values)
    return block.nnz


@njit(cache=True, nogil=True)
def gather_ranges(
    entries: NDArray[Any], begin: NDArray[np.int64], length: NDArray[np.int64], total: int
) -> NDArray[Any]:
    """(total,) entries of some ranges, one after the other.

    Args:
        begin, length: (num_ranges,) int64 first entry and number of entries of each.
        total: sum of the lengths.
    """
    gathered = np.empty(total, entries.dtype)
    end = 0
    # A loop over ranges needs no index per entry, which fancy indexing would allocate.
    for number in range(len(begin)):
        for position in range(begin[number], begin[number] + length[number]):
            gathered[end] = entries[position]
            end += 1
    return gathered


def route_vertices(task: RouteVerticesTask) -> int:
    """Route the rows of a range of vertices; returns their number."""
    with task.writer.task(task.name) as output, task.shuffle.routed(output, task.lane) as out:
        vertices = Vertices(Artifact(task.vertices_path))
        part = map_vector(task.part_path)[task.start : task.stop]
        order = np.argsort(part, kind="stable")
        names = [column.name for column in task.shuffle.columns]
        values = {name: vertices.array(name).read(task.start, task.stop)[order] for name in names}
        out.add(Index.of_offsets(part_offsets(part, task.shuffle.num_positions)), values)
    return task.stop - task.start


def part_offsets(part: NDArray[np.int32], num_parts: int) -> NDArray[np.int64]:
    """Compute where each part begins after sorting by part, as (num_parts + 1,) int64.

    Args:
        part: (num_entries,) int32, all in 0..num_parts-1.
    """
    return np.concatenate([[0], np.cumsum(np.bincount(part, minlength=num_parts))]).astype(np.int64)
