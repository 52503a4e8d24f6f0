"""First pass of the row shards: sort data that are stored by range of vertices by the rank that owns them.

Each task reads one range (a row block of a matrix, or a range of vertex data) and leaves a spill file, in a lane of its
own, in which the rows of each part lie together, ascending. Later tasks then find their rows in every range without
reading those of other ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane
from gnnloom.pipeline.shards.lane_records import has_lane, lane_facts
from gnnloom.pipeline.shards.rows.part_file import PartColumn, part_offsets, write_part_lane
from gnnloom.pipeline.shards.rows.row_merge import VERTEX_DATA, RoutedFiles
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, TaskRecord
from gnnloom.storage.format.memory_map import map_part_vector
from gnnloom.storage.matrix.csr import CSR


@dataclass(frozen=True)
class _RouteBlockTask:
    """Routes one row block of a matrix."""

    writer: ArtifactWriter
    matrix_path: Path
    part_path: Path
    num_parts: int
    kind: str
    block: int
    lane: Lane

    @property
    def name(self) -> str:
        return _routed_name(self.kind, self.block)


@dataclass(frozen=True)
class _RouteVerticesTask:
    """Routes the vertex data of vertices ``start`` to ``stop``."""

    writer: ArtifactWriter
    vertices_path: Path
    part_path: Path
    num_parts: int
    number: int
    start: int
    stop: int
    lane: Lane

    @property
    def name(self) -> str:
        return _routed_name(VERTEX_DATA, self.number)


def _routed_name(kind: str, number: int) -> str:
    return f"route-{kind}/{number:05d}"


def route_blocks(
    writer: ArtifactWriter, files: RoutedFiles, matrix: Graph, part_path: Path, cluster: Cluster
) -> list[TaskRecord]:
    """Route every row block of a matrix whose rows an earlier run did not leave; returns the records of all."""
    lanes = files.create_lanes(writer.work, files.levels[0], files.num_files)
    tasks = [
        _RouteBlockTask(writer, matrix.artifact.path, part_path, files.num_parts, files.kind, block, lanes.lane(block))
        for block in range(files.num_files)
    ]
    return run_missing(f"route {files.kind}", cluster, writer, _route_block, tasks, is_usable=has_lane)


def route_vertices(
    writer: ArtifactWriter,
    files: RoutedFiles,
    vertices: Vertices,
    part_path: Path,
    bounds: Sequence[int],
    cluster: Cluster,
) -> list[TaskRecord]:
    """Route features, labels and split, one task per range, as :func:`route_blocks` does.

    Args:
        bounds: first vertex of each range, and the number of vertices.
    """
    path, lanes = vertices.artifact.path, files.create_lanes(writer.work, files.levels[0], files.num_files)
    tasks = [
        _RouteVerticesTask(writer, path, part_path, files.num_parts, number, start, stop, lanes.lane(number))
        for number, (start, stop) in enumerate(pairwise(bounds))
    ]
    return run_missing("route vertices", cluster, writer, _route_vertices, tasks, "vertices", is_usable=has_lane)


def _route_block(task: _RouteBlockTask) -> int:
    with task.writer.task(task.name) as output:
        block = Graph(Artifact(task.matrix_path)).block(task.block)
        part = map_part_vector(task.part_path)[block.row_offset : block.row_offset + block.num_rows]
        num_bytes = write_part_lane(task.writer.work, task.lane, _block_columns(block, part, task.num_parts))
        output.facts = lane_facts(task.lane, num_bytes)
    return block.nnz


def _block_columns(block: CSR, part: NDArray[np.int32], num_parts: int) -> list[PartColumn]:
    """Rows, their nonzeros, column ids and, if there are any, values, all sorted by the row's part."""
    # A stable sort keeps the rows of each part ascending, which every later pass relies on.
    order = np.argsort(part, kind="stable")
    # Counts rather than offsets, so that rows of several blocks can simply be joined.
    nonzeros = np.diff(block.indptr)[order]
    by_row = part_offsets(part, num_parts)
    by_nonzero = np.concatenate([[0], np.cumsum(nonzeros)])[by_row]
    columns = [
        PartColumn(block.row_offset + order, by_row),
        PartColumn(nonzeros, by_row),
        PartColumn(_gather_rows(block.indptr, block.indices, order), by_nonzero),
    ]
    if block.data is not None:
        columns.append(PartColumn(_gather_rows(block.indptr, block.data, order), by_nonzero))
    return columns


@njit(cache=True, nogil=True)
def _gather_rows(indptr: NDArray[np.int64], entries: NDArray[Any], order: NDArray[np.int64]) -> NDArray[Any]:
    """Return the entries of the rows in ``order``, one row after the other."""
    gathered = np.empty_like(entries)
    end = 0
    # A loop over rows needs no index per entry, which fancy indexing would allocate.
    for row in order:
        for position in range(indptr[row], indptr[row + 1]):
            gathered[end] = entries[position]
            end += 1
    return gathered


def _route_vertices(task: _RouteVerticesTask) -> int:
    with task.writer.task(task.name) as output:
        vertices = Vertices(Artifact(task.vertices_path))
        part = map_part_vector(task.part_path)[task.start : task.stop]
        order = np.argsort(part, kind="stable")
        offset = part_offsets(part, task.num_parts)
        arrays = (vertices.array(name) for name in vertices.names)
        columns = [PartColumn(array.read(task.start, task.stop)[order], offset) for array in arrays]
        output.facts = lane_facts(task.lane, write_part_lane(task.writer.work, task.lane, columns))
    return task.stop - task.start
