"""Pass 1 of the bucket sort: a range of the source becomes spill files of matrix entries, scattered by row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, LaneWriter, writable
from gnnloom.pipeline.external_sort.spill import MAX_VERTICES, KeyForm, SpillFile, value_dtype
from gnnloom.pipeline.shuffle.run_list import LaneRuns
from gnnloom.pipeline.sources.source import CHUNK_EDGES, EdgeChunk, EdgeSource, SourceRange
from gnnloom.pipeline.tasks.memory import gathered_memory
from gnnloom.pipeline.tasks.phase import Task
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.errors import InputError
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.csr import WEIGHT_BYTES
from gnnloom.storage.meters import Done

#: Bytes of the ids of an edge.
_IDS_BYTES = 16


@dataclass(frozen=True)
class ScatterRangeTask(Task):
    """Reads one range of the source and writes its spill files.

    Attributes:
        undirected: also spill the reverse of every edge.
        drop_loops: leave out edges from a vertex to itself.
        marks: mark the reverses of edges with values.
        memory: bytes that the worker may use.
        spill: name of the shuffle of the spill files, which ends with a digest of all ranges.
        lane: where they go, relative to the work folder.
        is_square: whether rows and columns are numbered alike.
    """

    source: EdgeSource
    range: SourceRange
    undirected: bool
    drop_loops: bool
    marks: bool
    memory: int
    spill: str
    lane: Lane
    is_square: bool = True


def range_name(number: int, source_range: SourceRange) -> str:
    """Name of a range of a source in the names of tasks: a record of another range is not about it."""
    return f"{number:06d}-{source_range.file}-{source_range.start}-{source_range.stop}"


def scatter_range(task: ScatterRangeTask) -> Done:
    """Scatter one range; returns its number of edges.

    Raises:
        InputError: the source cannot be read, an id is negative or too large to be kept, or only some of the edges
            have a weight.
    """
    with task.writer.task(task.name) as output, writable(task.writer.work, task.lane) as lane:
        totals, files, end = _Totals(), 0, 0
        for chunks in _gathered(task):
            totals.count(chunks)
            file = _write_spill(task, lane, chunks, totals, end)
            totals.entries += file.entries
            if file.entries:
                files, end = files + 1, file.stop
        output.facts = {
            "edges": totals.edges,
            "self_loops": totals.self_loops,
            "min_id": totals.min_id,
            "max_id": totals.max_id,
            "value_bytes": totals.value_bytes,
            "num_files": files,
            "runs": {task.spill: LaneRuns(task.lane, end, totals.entries).to_json()},
        }
    return Done(totals.edges)


@dataclass
class _Totals:
    """Counts over a range; ``value_bytes`` is None until the first chunk, and so is ``min_id``."""

    edges: int = 0
    entries: int = 0
    self_loops: int = 0
    min_id: int | None = None
    max_id: int = -1
    value_bytes: int | None = None

    def count(self, chunks: list[EdgeChunk]) -> None:
        self.edges += sum(len(chunk.source) for chunk in chunks)
        for chunk in chunks:
            if self.value_bytes not in {None, chunk.value_bytes}:
                raise InputError("some edges of the source have a weight and some have none")
            self.value_bytes = chunk.value_bytes


def _gathered(task: ScatterRangeTask) -> Iterator[list[EdgeChunk]]:
    """The chunks of the range, in groups that become one spill file each."""
    group: list[EdgeChunk] = []
    edges = 0
    for whole in task.source.read(task.range):
        limit = spill_edges(task.memory, task.undirected, whole.value_bytes, task.writer.scratch)
        for start in range(0, len(whole.source), limit):
            chunk = _normalized(whole, start, start + limit)
            # A group ends before the chunk that would exceed the limit, so that its buffers fit in memory at once.
            if edges + len(chunk.source) > limit:
                yield group
                group, edges = [], 0
            group.append(chunk)
            edges += len(chunk.source)
    if group:
        yield group


def spill_edges(memory: int, undirected: bool, value_bytes: int, scratch: Scratch) -> int:
    """Edges of a spill file, on a worker that may use ``memory`` bytes."""
    most = scratch.spill_entries // (2 if undirected else 1)
    return min(gathered_memory(memory) // _edge_bytes(undirected, value_bytes), most)


def scatter_memory(edges: int, memory: int, undirected: bool, value_bytes: int, scratch: Scratch) -> int:
    """Bytes that a task holds that scatters ``edges`` edges: a spill file, a chunk, and pages of a mapped source."""
    # Such pages count as the worker's own until the range is done.
    held = min(edges, spill_edges(memory, undirected, value_bytes, scratch))
    mapped = min(edges, scratch.spill_entries)
    chunk = (_IDS_BYTES + max(WEIGHT_BYTES, value_bytes)) * min(edges, CHUNK_EDGES)
    return held * _edge_bytes(undirected, value_bytes) + chunk + 16 * mapped


def _edge_bytes(undirected: bool, value_bytes: int) -> int:
    """Bytes of an edge of a spill file: its ids and value, and an entry and its value in each direction."""
    # As if all edges had weights: it is not known before they are read.
    value = max(WEIGHT_BYTES, value_bytes)
    return _IDS_BYTES + value + (8 + value) * (2 if undirected else 1)


def _normalized(chunk: EdgeChunk, start: int, stop: int) -> EdgeChunk:
    """Edges ``start`` to ``stop`` of a chunk as contiguous arrays of the expected types."""
    source = np.ascontiguousarray(chunk.source[start:stop], dtype=np.int64)
    target = np.ascontiguousarray(chunk.target[start:stop], dtype=np.int64)
    weight = None if chunk.weight is None else np.ascontiguousarray(chunk.weight[start:stop], np.float32)
    time = None if chunk.time is None else np.ascontiguousarray(chunk.time[start:stop], np.float64)
    return EdgeChunk(source, target, weight, time)


def _write_spill(
    task: ScatterRangeTask, lane: LaneWriter, chunks: list[EdgeChunk], totals: _Totals, start: int
) -> SpillFile:
    """Write the entries of some chunks, in the order of their buckets, as a spill file that begins at a byte."""
    value_bytes, min_id, max_row = chunks[0].value_bytes, *_checked_bounds(chunks)
    totals.min_id = min_id if totals.min_id is None else min(totals.min_id, min_id)
    totals.max_id = max(totals.max_id, max_row)
    if task.is_square:
        form = KeyForm(max_row + 1, task.marks and value_bytes > 0)
    else:
        max_row = max(int(chunk.target.max()) for chunk in chunks)
        form = KeyForm(max_row + 1, other_columns=max(int(chunk.source.max()) for chunk in chunks) + 1)
    shift = form.shift
    counts = np.zeros((max_row >> shift) + 1, dtype=np.int64)
    for chunk in chunks:
        totals.self_loops += _count_rows(chunk.source, chunk.target, shift, task.undirected, task.drop_loops, counts)
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    file = SpillFile(start, int(offsets[-1]), shift, form.column_bits, len(counts), value_bytes)
    if not file.entries:
        return file
    low = np.empty(file.entries, dtype=np.uint32)
    high = np.empty(file.entries if file.high_dtype else 0, dtype=file.high_dtype or np.uint8)
    values = np.empty(file.entries if value_bytes else 0, value_dtype(value_bytes))
    ids = (file.shift, file.column_bits, int(form.marked), task.undirected, task.drop_loops)
    none = np.empty(0, values.dtype)
    # Advances chunk by chunk, so that the entries of each bucket stay in the order of the source.
    position = offsets[:-1].copy()
    for chunk in chunks:
        given = none if chunk.values is None else chunk.values
        _scatter_edges(chunk.source, chunk.target, given, *ids, position, low, high, values)
    file.begin(lane, offsets)
    end = file.low_at
    for array in (low, high, values):
        end = lane.write(end, array)
    return file


def _checked_bounds(chunks: list[EdgeChunk]) -> tuple[int, int]:
    """Lowest and highest id."""
    bounds = [_id_bounds(chunk.source, chunk.target) for chunk in chunks]
    lowest, highest = min(low for low, _ in bounds), max(high for _, high in bounds)
    if lowest < 0:
        raise InputError(f"vertex id {lowest}: ids start at 0")
    if highest >= MAX_VERTICES:
        raise InputError(
            f"vertex id {highest}: ids that are kept must be below {MAX_VERTICES:,}; renumber them with `--ids compact`"
        )
    return int(lowest), int(highest)


@kernel
def _id_bounds(source: NDArray[np.int64], target: NDArray[np.int64]) -> tuple[int, int]:
    """Lowest and highest id of at least one edge."""
    low, high = source[0], source[0]
    for k in range(source.size):
        low = min(low, source[k], target[k])
        high = max(high, source[k], target[k])
    return low, high


@kernel
def _count_rows(
    source: NDArray[np.int64],
    target: NDArray[np.int64],
    shift: int,
    undirected: bool,
    drop_loops: bool,
    counts: NDArray[np.int64],
) -> int:
    """Add the number of entries of each bucket to ``counts``; return the number of self loops."""
    self_loops = 0
    # Counting first costs a second read of the ids, but lets the scatter write every entry to its final position.
    for k in range(source.size):
        loop = source[k] == target[k]
        self_loops += loop
        if not (loop and drop_loops):
            # The entry A[i, j] is the edge j -> i, so the target is the row. A loop is its own reverse and is stored
            # once.
            counts[target[k] >> shift] += 1
            if undirected and not loop:
                counts[source[k] >> shift] += 1
    return self_loops


@kernel
def _scatter_edges(
    source: NDArray[np.int64],
    target: NDArray[np.int64],
    weight: NDArray[np.floating[Any]],
    shift: int,
    column_bits: int,
    mark_bits: int,
    undirected: bool,
    drop_loops: bool,
    position: NDArray[np.int64],
    low: NDArray[np.uint32],
    high: NDArray[Any],
    weights: NDArray[np.floating[Any]],
) -> None:
    """Write the entries of a chunk to the positions of their buckets, which advance."""
    row_mask = (1 << shift) - 1
    # Both directions of an edge are written one after the other, so that a bucket keeps the order of the source, on
    # which merging by "first", and the rounding of sums, depend.
    for k in range(source.size):
        row, column = target[k], source[k]
        if row == column and drop_loops:
            continue
        at = position[row >> shift]
        position[row >> shift] = at + 1
        # At most 64 bits for ids below ``MAX_VERTICES``; only the stored bits matter, not the sign.
        entry = ((row & row_mask) << column_bits) | (column << mark_bits)
        low[at] = entry & 0xFFFFFFFF
        if high.size:
            high[at] = entry >> 32
        if weight.size:
            weights[at] = weight[k]
        if undirected and row != column:
            at = position[column >> shift]
            position[column >> shift] = at + 1
            # The mark of a reverse is 1, if there are marks.
            entry = ((column & row_mask) << column_bits) | (row << mark_bits) | mark_bits
            low[at] = entry & 0xFFFFFFFF
            if high.size:
                high[at] = entry >> 32
            if weight.size:
                weights[at] = weight[k]
