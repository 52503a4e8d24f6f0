"""Stores a part vector: tasks check and write ranges of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnnloom.pipeline.partition.native.guard import check_part
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.format.arrays import ArrayRecord, create_array, default_chunk_rows, stored_files, write_rows
from gnnloom.storage.format.files import sync_paths
from gnnloom.storage.format.memory_map import map_part_vector
from gnnloom.storage.format.task_record import merge_pieces


@dataclass(frozen=True)
class _StoreTask:
    root: Path
    part_path: Path
    parts: int
    source: str
    start: int
    stop: int


def store_part_vector(
    root: Path, part_path: Path, num_vertices: int, parts: int, source: str, cluster: Cluster
) -> ArrayRecord:
    """Store a part vector as array ``part``, and return its record.

    Args:
        root: folder of the artifact.
        part_path: file of the (num_vertices,) int32 parts, which the tasks map.
        parts: number of parts P.
        source: what made the parts, for errors.

    Raises:
        PartitionerError: a part is not in 0..P-1.
    """
    empty = create_array(root, "part", (num_vertices,), np.int32, ("vertex",))
    tasks = [_StoreTask(root, part_path, parts, source, start, stop) for start, stop in part_ranges(num_vertices)]
    (record,) = merge_pieces([empty, *cluster.map(_store_rows, tasks)])
    return record


def part_ranges(num_vertices: int) -> list[tuple[int, int]]:
    """The first vertex of each task that stores a part vector, and the one after its last."""
    # One chunk for each task: no chunk has two writers.
    rows = default_chunk_rows((num_vertices,), np.dtype(np.int32))
    return [(start, min(start + rows, num_vertices)) for start in range(0, num_vertices, rows)]


def _store_rows(task: _StoreTask) -> ArrayRecord:
    piece = np.array(map_part_vector(task.part_path)[task.start : task.stop])
    # The counters are compiled without bounds checks: a part out of range would make them write anywhere.
    check_part(piece, len(piece), task.parts, task.source)
    record = write_rows(task.root, "part", task.start, piece)
    # By the worker, on the machine that wrote: only it holds what has not reached the file system.
    sync_paths(stored_files(task.root, record))
    return record
