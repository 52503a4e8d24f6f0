"""A short trial of an ingest: reads a little of the source, scatters and sorts it, and measures both.

For the second pass the rows of the sample are squeezed together, so that the sorted block is as dense as the blocks of
the whole graph.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import LaneSet
from gnnloom.pipeline.external_sort.radix import sort_keys, unique_keys
from gnnloom.pipeline.ingest.sample import SAMPLE_EDGES, EdgeSample, sample_edges
from gnnloom.pipeline.matrix_sort.scatter import ScatterRangeTask, scatter_range
from gnnloom.pipeline.sources.source import EdgeChunk, EdgeSource, SourceRange
from gnnloom.pipeline.tasks.memory import MINIMUM_MEMORY
from gnnloom.storage.artifacts.graph import BlockWriter, block_path
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.format.files import sync_tree, tree_bytes
from gnnloom.storage.matrix.csr import index_dtype

#: Bytes per second to the disk, if the sample is too small to measure it: those of an ordinary hard disk.
DISK_RATE = 200e6

#: Stored over plain bytes of row pointers, if the sample is too small to measure it.
ROW_RATIO = 0.2


@dataclass(frozen=True)
class Calibration:
    """What a trial found.

    Seconds are processor seconds, so that other work of the machine does not count.

    Attributes:
        files: files that the source names; 0 for a generator.
        ranges: ranges of the source.
        edges: edges of the whole source; an estimate unless the source states it.
        vertices: vertices of the whole source; an estimate unless the source states it.
        distinct_ids: ids that tasks would collect for ``--ids compact``; 0 if ids are kept.
        weighted: whether edges have weights.
        scatter_seconds: seconds of pass 1 per edge, reading included.
        sort_seconds: seconds of pass 2 per entry.
        output_bytes: stored bytes per entry.
        row_ratio: stored bytes of row pointers over plain ones.
        disk_rate: bytes per second that reach the disk.
        name_bytes: bytes per name; 0 if ids are numbers.
        edges_low, edges_high: range in which the number of edges is expected; 0 if it is exact.
    """

    files: int
    ranges: int
    edges: int
    vertices: int
    distinct_ids: int
    weighted: bool
    scatter_seconds: float
    sort_seconds: float
    output_bytes: float
    row_ratio: float
    disk_rate: float
    name_bytes: float = 0.0
    edges_low: int = 0
    edges_high: int = 0


def calibrate(source: EdgeSource, undirected: bool, ids: str, codec: str, folder: Path) -> Calibration:
    """Try both passes on a sample.

    Args:
        source: edges to try.
        undirected: whether every edge would be stored in both directions.
        ids: ``keep``; ``compact``, if numbers would be renumbered; or ``names``.
        codec: compression of the arrays.
        folder: where the trial writes its files, which it removes.

    Raises:
        InputError: the sample cannot be read.
    """
    found = sample_edges(source, ids)
    trial = folder / f".calibration-{uuid.uuid4().hex}"
    try:
        scatter_seconds, disk_rate = _try_scatter(found.chunk, undirected, trial)
        sort_seconds, output_bytes, row_ratio = _try_sort(found, undirected, codec, trial)
    finally:
        shutil.rmtree(trial, ignore_errors=True)
    return Calibration(
        files=found.files,
        ranges=found.ranges,
        edges=round(found.edges.likely),
        edges_low=round(found.edges.low),
        edges_high=round(found.edges.high),
        vertices=found.vertices,
        distinct_ids=found.distinct_ids,
        weighted=found.chunk.weight is not None,
        scatter_seconds=found.read_seconds + scatter_seconds,
        sort_seconds=sort_seconds,
        output_bytes=output_bytes,
        row_ratio=row_ratio,
        disk_rate=disk_rate,
        name_bytes=found.name_bytes,
    )


@dataclass(frozen=True)
class _ChunkSource:
    """One chunk as a source of edges; implements :class:`~gnnloom.pipeline.sources.source.EdgeSource`."""

    chunk: EdgeChunk

    def identity(self) -> dict[str, Any]:
        return {"format": "chunk"}

    def num_vertices(self) -> int | None:
        return None

    def ranges(self) -> Sequence[SourceRange]:
        return [SourceRange(0, 0, len(self.chunk.source))]

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        yield self.chunk[span.start : span.stop]


def _try_scatter(chunk: EdgeChunk, undirected: bool, trial: Path) -> tuple[float, float]:
    """Processor seconds per edge of pass 1 after reading, and bytes per second to the disk."""
    num_edges = len(chunk.source)
    if not num_edges:
        return 0.0, DISK_RATE
    writer = ArtifactWriter(trial, "graph", "trial")
    lanes, elapsed = LaneSet.create(writer.work, "spill", 2), 0.0
    # Twice: the first call loads or compiles the kernels.
    for number, count in enumerate((1, num_edges)):
        edges, memory = SourceRange(0, 0, count), 2 * MINIMUM_MEMORY
        task = ScatterRangeTask(
            writer, number, _ChunkSource(chunk), edges, undirected, False, memory, "trial", lanes.lane(number)
        )
        started = time.process_time()
        scatter_range(task)
        elapsed = time.process_time() - started
    # Fewer bytes than this measure the latency of the disk rather than its rate.
    if num_edges < SAMPLE_EDGES:
        return elapsed / num_edges, DISK_RATE
    # Wall time, because waiting for the disk takes no processor time.
    started = time.perf_counter()
    sync_tree(trial)
    return elapsed / num_edges, tree_bytes(trial) / (time.perf_counter() - started)


def _try_sort(found: EdgeSample, undirected: bool, codec: str, trial: Path) -> tuple[float, float, float]:
    """Processor seconds and stored bytes per entry of pass 2, and stored over plain bytes of row pointers."""
    vertices = found.vertices
    keys, num_rows, bits = _squeezed(found, undirected)
    if len(keys) < SAMPLE_EDGES // 16:
        return 0.0, 4.0, ROW_RATIO
    none = np.empty(0, dtype=np.float32)
    count = len(keys)
    # A first call loads or compiles the kernel.
    sort_keys(keys[:64].copy(), none, np.empty(64, np.uint64), none, 64)
    started = time.process_time()
    sort_keys(keys, none, np.empty_like(keys), none, 64)
    kept = keys[: unique_keys(keys)]
    indptr = np.zeros(num_rows + 1, dtype=np.int64)
    np.cumsum(np.bincount((kept >> np.uint64(bits)).astype(np.int64), minlength=num_rows), out=indptr[1:])
    output = BlockWriter(trial, 0, vertices, None, codec)
    output.append((kept & np.uint64((1 << bits) - 1)).astype(index_dtype(vertices)), None)
    output.close(0, indptr)
    elapsed = time.process_time() - started
    stored = {name: tree_bytes(trial / block_path(0) / name) for name in ("indices", "indptr")}
    return elapsed / count, stored["indices"] / count, stored["indptr"] / indptr.nbytes


def _squeezed(found: EdgeSample, undirected: bool) -> tuple[NDArray[np.uint64], int, int]:
    """Keys of the sample's entries, with rows squeezed together until they are as dense as in the whole graph.

    Returns:
        (num_entries,) uint64 keys, the number of rows, and the bits of a column.
    """
    source, target, vertices = found.chunk.source, found.chunk.target, found.vertices
    rows, columns = (
        (np.concatenate([target, source]), np.concatenate([source, target])) if undirected else (target, source)
    )
    bits = (vertices - 1).bit_length()
    # At most four rows per entry: more would nearly all be empty, and the pointers would take memory in proportion to
    # the graph.
    num_rows = max(1, min(vertices * len(source) // max(1, round(found.edges.likely)), 4 * len(rows)))
    # Fibonacci hashing (2^64 over the golden ratio; Knuth, TAOCP vol. 3, 6.4) mixes many rows of the sample in a row.
    local = (rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(20)) % np.uint64(num_rows)
    return local << np.uint64(bits) | (columns.astype(np.uint64) & np.uint64((1 << bits) - 1)), num_rows, bits
