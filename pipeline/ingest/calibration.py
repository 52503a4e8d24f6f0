"""A short trial of an ingest: reads a sample of the source, scatters and sorts it, and measures both.

The sample is taken from chunks at the beginning, the middle and the end of the source, at several places of each.
For the second pass the rows of the sample are squeezed together, so that the sorted block is as dense as the blocks of
the whole graph.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import LaneSet
from gnnloom.pipeline.external_sort.radix import NUMPY_KEYS, sort_keys, unique_keys
from gnnloom.pipeline.ingest.keys.key_types import KEY_TYPES
from gnnloom.pipeline.matrix_sort.scatter import ScatterRangeTask, scatter_range
from gnnloom.pipeline.sources.names import NameChunk, Names
from gnnloom.pipeline.sources.reading.line_estimate import Estimate
from gnnloom.pipeline.sources.source import EdgeChunk, EdgeSource, SourceRange
from gnnloom.pipeline.tasks.memory import MINIMUM_MEMORY
from gnnloom.pipeline.tasks.phase import Needs
from gnnloom.storage.artifacts.block_matrix import BlockWriter, block_path
from gnnloom.storage.disk.files import sync_tree, tree_bytes
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.meters import bytes_moved

#: Bytes per second to the disk, if the sample is too small to measure it: the speed of an ordinary hard disk.
DISK_RATE = 200e6

#: Stored over plain bytes of row pointers, if the sample is too small to measure it.
ROW_RATIO = 0.2


@dataclass(frozen=True)
class Calibration:
    """Results of a calibration.

    Seconds are processor seconds, so that other work of the machine does not count.

    Attributes:
        files: files that the source names; 0 for a generator.
        ranges: ranges of the source.
        edges: edges of the whole source; an estimate unless the source states it.
        vertices: vertices of the whole source; an estimate unless the source states it.
        distinct_ids: ids that tasks would collect for ``--ids compact``; 0 if ids are kept.
        value_bytes: bytes of the weight or time of an edge; 0 if edges have none.
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
    value_bytes: int
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
    read: Read = source.read if ids == "keep" else partial(KEY_TYPES[ids].chunks, source)
    ranges = source.ranges()
    reading = _read_first(read, ranges)
    chunks = list(_sample_chunks(read, ranges))
    ends = [*(chunk.source for chunk in chunks), *(chunk.target for chunk in chunks)]
    num_ends = sum(map(len, ends))
    estimate = _estimated_edges(source, ranges, reading)
    # At least the sampled edges.
    edges = max(round(estimate.likely), num_ends // 2)
    highest = max([reading.max_id, *map(_max_id, ends)])
    if ids == "keep":
        numbers, distinct = np.concatenate([np.empty(0, np.int64), *ends]), 0
        vertices = max(1, source.num_vertices() or 0, highest + 1)
    else:
        # Counting distinct ids means sorting them, so it is left out unless ids are renumbered.
        ranks = KEY_TYPES[ids].distinct(ends)[1].astype(np.int64) if ends else np.empty(0, np.int64)
        distinct = _distinct_ids(ranks, edges, 2 * edges if ids == "names" else highest + 1)
        vertices = max(1, distinct)
        # As far apart as in the whole source.
        numbers = ranks * vertices // (int(ranks.max(initial=0)) + 1)
    weight, time = (_joined([getattr(chunk, name) for chunk in chunks]) for name in ("weight", "time"))
    source_ids, target_ids = numbers.reshape(2, -1)
    chunk = EdgeChunk(source_ids, target_ids, weight, time)
    trial = folder / f".calibration-{uuid.uuid4().hex}"
    try:
        scatter_seconds, disk_rate = _try_scatter(chunk, undirected, trial)
        sort_seconds, output_bytes, row_ratio = _try_sort(chunk, vertices, edges, undirected, codec, trial)
    finally:
        shutil.rmtree(trial, ignore_errors=True)
    return Calibration(
        files=len(source.identity().get("files", ())),
        ranges=len(ranges),
        edges=edges,
        edges_low=max(round(estimate.low), num_ends // 2),
        edges_high=max(round(estimate.high), edges),
        vertices=vertices,
        distinct_ids=distinct,
        value_bytes=chunk.value_bytes,
        scatter_seconds=reading.seconds / max(1, reading.edges) + scatter_seconds,
        sort_seconds=sort_seconds,
        output_bytes=output_bytes,
        row_ratio=row_ratio,
        disk_rate=disk_rate,
        name_bytes=sum(len(end.text) for end in ends if isinstance(end, Names)) / max(1, num_ends),
    )


def _joined(values: list[NDArray[Any] | None]) -> NDArray[Any] | None:
    """The values of all chunks; None if one has none."""
    given = [each for each in values if each is not None]
    return np.concatenate(given) if given and len(given) == len(values) else None


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
        what = (_ChunkSource(chunk), edges, undirected, False, False, memory, "trial")
        task = ScatterRangeTask(writer, f"scatter/{number}", Needs(), *what, lanes.lane(number))
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


def _try_sort(
    chunk: EdgeChunk, vertices: int, edges: int, undirected: bool, codec: str, trial: Path
) -> tuple[float, float, float]:
    """Processor seconds and stored bytes per entry of pass 2, and stored over plain bytes of row pointers."""
    keys, num_rows, bits = _squeezed(chunk, vertices, edges, undirected)
    if len(keys) <= NUMPY_KEYS:
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


def _squeezed(chunk: EdgeChunk, vertices: int, edges: int, undirected: bool) -> tuple[NDArray[np.uint64], int, int]:
    """Keys of the sample's entries, with rows squeezed together until they are as dense as in the whole graph.

    Returns:
        (num_entries,) uint64 keys, the number of rows, and the bits of a column.
    """
    source, target = chunk.source, chunk.target
    rows, columns = (
        (np.concatenate([target, source]), np.concatenate([source, target])) if undirected else (target, source)
    )
    bits = (vertices - 1).bit_length()
    # At most four rows per entry: more would nearly all be empty, and the pointers would take memory in proportion to
    # the graph.
    num_rows = max(1, min(vertices * len(source) // max(1, edges), 4 * len(rows)))
    # Fibonacci hashing (2^64 over the golden ratio; Knuth, TAOCP vol. 3, 6.4) mixes many rows of the sample in a row.
    local = (rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(20)) % np.uint64(num_rows)
    return local << np.uint64(bits) | (columns.astype(np.uint64) & np.uint64((1 << bits) - 1)), num_rows, bits


#: Maximum number of edges in the sample, 2^16 from each of three ranges: enough for times that repeat to a few percent.
SAMPLE_EDGES = 3 << 16

#: Places of a chunk from which a sample is taken.
_PLACES = 8

#: Share by which the number of edges may differ from an estimate that rests on the first range only.
_ROUGH = 0.3

#: Processor seconds (or eight times this number of seconds of waiting) after which reading a range to its end is given
#: up.
READ_SECONDS = 0.5

Chunk = EdgeChunk | NameChunk
Read = Callable[[SourceRange], Iterator[Chunk]]


def _max_id(ids: NDArray[np.int64] | Names) -> int:
    """The highest id; -1 if there is none, or if ids are names."""
    return -1 if isinstance(ids, Names) else int(ids.max(initial=-1))


def _distinct_ids(ranks: NDArray[np.int64], edges: float, most: int) -> int:
    """Estimate the distinct ids of the whole source: an id that the sample holds once stands for others too.

    Charikar, Chaudhuri, Motwani, Narasayya (PODS 2000), section 4: the GEE estimator. No estimator has a much smaller
    error in the worst case.

    Args:
        ranks: (2 * num_edges,) int64 rank of each id of the sample among its distinct ones.
        edges: edges of the whole source.
        most: maximum number of distinct ids.
    """
    counts = np.bincount(ranks)
    once = int(np.count_nonzero(counts == 1))
    estimated = len(counts) - once + int(once * (2 * edges / max(1, len(ranks))) ** 0.5)
    return min(estimated, max(1, most))


@dataclass(frozen=True)
class _Reading:
    """The first range, read to its end unless that takes long.

    Attributes:
        edges: edges that were read.
        seconds: processor seconds that it took.
        bytes: bytes that system calls read.
        whole: whether the end was reached.
        max_id: highest id that was read; -1 if none was.
    """

    edges: int
    seconds: float
    bytes: int
    whole: bool
    max_id: int


def _read_first(read: Read, ranges: Sequence[SourceRange]) -> _Reading:
    edges, whole, max_id = 0, True, -1
    # A first chunk loads or compiles the parser, which must not count.
    for _ in read(ranges[0]) if ranges else ():
        break
    before = bytes_moved()[0]
    started, worked = time.perf_counter(), time.process_time()
    for chunk in read(ranges[0]) if ranges else ():
        edges += len(chunk.source)
        max_id = max(max_id, _max_id(chunk.source), _max_id(chunk.target))
        if max(time.process_time() - worked, (time.perf_counter() - started) / 8) > READ_SECONDS:
            whole = False
            break
    return _Reading(edges, time.process_time() - worked, bytes_moved()[0] - before, whole, max_id)


def _estimated_edges(source: EdgeSource, ranges: Sequence[SourceRange], reading: _Reading) -> Estimate:
    """Edges of the source: as the source states or estimates them, or from the density of the sampled ranges."""
    stated = getattr(source, "num_edges", None)
    if isinstance(stated, int):
        return Estimate(stated, stated, stated)
    if reading.whole and len(ranges) <= 1:
        return Estimate(reading.edges, reading.edges, reading.edges)
    estimate = getattr(source, "estimate_edges", None)
    found: Estimate | None = None if estimate is None else estimate()
    if found is not None:
        return found
    sizes = [each.stop - each.start for each in ranges]
    if reading.whole and min(sizes, default=0) > 0:
        likely = reading.edges * sum(sizes) / sizes[0]
    else:
        # The ranges of a stream have no sizes to compare, but its bytes can be compared.
        file_bytes = sum(file.get("size") or 0 for file in source.identity().get("files", ()))
        likely = max(reading.edges, reading.edges * file_bytes / max(1, reading.bytes))
    return Estimate(likely, likely * (1 - _ROUGH), likely * (1 + _ROUGH))


def _sample_chunks(read: Read, ranges: Sequence[SourceRange]) -> Iterator[Chunk]:
    """The beginnings of the first, the middle and the last range, because files are often in the order of the ids."""
    chosen = sorted({0, len(ranges) // 2, len(ranges) - 1}) if ranges else []
    for number in chosen:
        for chunk in read(ranges[number]):
            # From several places of the chunk, which may be all that there is.
            for start, stop in _places(len(chunk.source), SAMPLE_EDGES // len(chosen)):
                yield chunk[start:stop]
            break


def _places(length: int, count: int) -> Iterator[tuple[int, int]]:
    """Ranges with ``count`` of ``length`` items in total, spread evenly."""
    if length <= count:
        yield 0, length
        return
    each = count // _PLACES
    for place in range(_PLACES):
        start = (length - each) * place // (_PLACES - 1)
        yield start, start + each
