"""Pass 1 of the bucket sort: a range of the source becomes runs of matrix entries, scattered by row."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.spill import MAX_VERTICES, Run, unit_shift, write_file
from gnnloom.pipeline.matrix_sort.id_table import IdTable
from gnnloom.pipeline.sources.source import EdgeChunk, EdgeSource, SourceRange
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.progress import Done
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import ArtifactWriter

#: Most entries of a run; larger ones gain nothing.
MAX_RUN_ENTRIES = 1 << 23


@dataclass(frozen=True)
class ScatterTask:
    """Reads one range of the source and writes its runs.

    Attributes:
        id_table: where ``--ids compact`` keeps the distinct ids; None where ids stay as they are.
    """

    writer: ArtifactWriter
    number: int
    source: EdgeSource
    part: SourceRange
    undirected: bool
    drop_loops: bool
    memory: int
    id_table: Path | None = None

    @property
    def name(self) -> str:
        return scatter_name(self.number)


def scatter_name(number: int) -> str:
    """Part that records the runs of range ``number``."""
    return f"scatter/{number:05d}"


def scatter_range(task: ScatterTask) -> Done:
    """Scatter one range; returns its number of edges.

    Raises:
        InputError: the source's, and ids too large for ``--ids keep``, and weights for some edges only.
    """
    started = time.perf_counter()
    with task.writer.task(task.name) as output:
        table = IdTable(task.id_table) if task.id_table else None
        totals = _Totals()
        runs = []
        for chunks in _gathered(task, table):
            totals.count(chunks)
            runs.append(_write_run(task, chunks, totals))
        output.facts = {
            "range": [task.part.file, task.part.start, task.part.stop],
            "edges": totals.edges,
            "self_loops": totals.self_loops,
            "max_id": totals.max_id,
            "weighted": totals.weighted,
            "runs": [run.to_json() for run in runs if run.entries],
            "bytes_written": sum(run.size for run in runs),
            "seconds": round(time.perf_counter() - started, 4),
        }
    return Done(totals.edges)


@dataclass
class _Totals:
    """What a range is found to hold."""

    edges: int = 0
    self_loops: int = 0
    max_id: int = -1
    weighted: bool | None = None

    def count(self, chunks: list[EdgeChunk]) -> None:
        self.edges += sum(len(chunk.source) for chunk in chunks)
        for chunk in chunks:
            if self.weighted not in {None, chunk.weight is not None}:
                raise InputError("some edges of the source have a weight and some have none")
            self.weighted = chunk.weight is not None


def _gathered(task: ScatterTask, table: IdTable | None) -> Iterator[list[EdgeChunk]]:
    """The range's chunks in groups that make one run each."""
    limit = _run_edges(task)
    group: list[EdgeChunk] = []
    edges = 0
    for whole in task.source.read(task.part):
        for start in range(0, len(whole.source), limit):
            chunk = _normalized(whole, start, start + limit, table)
            if edges + len(chunk.source) > limit:
                yield group
                group, edges = [], 0
            group.append(chunk)
            edges += len(chunk.source)
    if group:
        yield group


def _run_edges(task: ScatterTask) -> int:
    """Edges of a run: an edge's ids and weight (20 bytes) and its entries (12 each) take a quarter of the memory."""
    directions = 2 if task.undirected else 1
    fitting = working_memory(task.memory) // 4 // (20 + 12 * directions)
    return min(fitting, MAX_RUN_ENTRIES // directions)


def _normalized(chunk: EdgeChunk, start: int, stop: int, table: IdTable | None) -> EdgeChunk:
    source = np.ascontiguousarray(chunk.source[start:stop], dtype=np.int64)
    target = np.ascontiguousarray(chunk.target[start:stop], dtype=np.int64)
    weight = None
    if chunk.weight is not None:
        weight = np.ascontiguousarray(chunk.weight[start:stop], dtype=np.float32)
    if table is not None:
        source, target = table.positions(source), table.positions(target)
    return EdgeChunk(source, target, weight)


def _write_run(task: ScatterTask, chunks: list[EdgeChunk], totals: _Totals) -> Run:
    max_id = _checked_max_id(chunks)
    totals.max_id = max(totals.max_id, max_id)
    shift = unit_shift(max_id)
    counts = np.zeros((max_id >> shift) + 1, dtype=np.int64)
    for chunk in chunks:
        totals.self_loops += _count_rows(chunk.source, chunk.target, shift, task.undirected, task.drop_loops, counts)
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    weighted = chunks[0].weight is not None
    path = f"spill/{task.number:05d}-{uuid.uuid4().hex}.run"
    run = Run(path, int(offsets[-1]), shift, max_id.bit_length(), len(counts), weighted)
    if run.entries:
        write_file(task.writer.work / path, [offsets, *_scattered(task, chunks, run, offsets)])
    return run


def _checked_max_id(chunks: list[EdgeChunk]) -> int:
    bounds = [_id_bounds(chunk.source, chunk.target) for chunk in chunks]
    lowest, highest = min(low for low, _ in bounds), max(high for _, high in bounds)
    if lowest < 0:
        raise InputError(f"vertex id {lowest}: ids start at 0")
    if highest >= MAX_VERTICES:
        raise InputError(
            f"vertex id {highest}: ids that are kept must be below {MAX_VERTICES:,}; renumber them with `--ids compact`"
        )
    return int(highest)


def _scattered(
    task: ScatterTask, chunks: list[EdgeChunk], run: Run, offsets: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], NDArray[Any], NDArray[np.float32]]:
    """Low and high bits of the entries, and their weights, in the order of the buckets."""
    position = offsets[:-1].copy()
    low = np.empty(run.entries, dtype=np.uint32)
    high = np.empty(run.entries if run.high_dtype else 0, dtype=run.high_dtype or np.uint8)
    weights = np.empty(run.entries if run.weighted else 0, dtype=np.float32)
    none = np.empty(0, dtype=np.float32)
    for chunk in chunks:
        _scatter_edges(
            chunk.source,
            chunk.target,
            none if chunk.weight is None else chunk.weight,
            run.shift,
            run.column_bits,
            task.undirected,
            task.drop_loops,
            position,
            low,
            high,
            weights,
        )
    return low, high, weights


@njit(cache=True, nogil=True)
def _id_bounds(source: NDArray[np.int64], target: NDArray[np.int64]) -> tuple[int, int]:
    low, high = source[0], source[0]
    for k in range(source.size):
        low = min(low, source[k], target[k])
        high = max(high, source[k], target[k])
    return low, high


@njit(cache=True, nogil=True)
def _count_rows(
    source: NDArray[np.int64],
    target: NDArray[np.int64],
    shift: int,
    undirected: bool,
    drop_loops: bool,
    counts: NDArray[np.int64],
) -> int:
    """Add the entries of each bucket to ``counts``; returns the number of self loops."""
    self_loops = 0
    for k in range(source.size):
        loop = source[k] == target[k]
        self_loops += loop
        if not (loop and drop_loops):
            counts[target[k] >> shift] += 1
            if undirected and not loop:
                counts[source[k] >> shift] += 1
    return self_loops


@njit(cache=True, nogil=True)
def _scatter_edges(
    source: NDArray[np.int64],
    target: NDArray[np.int64],
    weight: NDArray[np.float32],
    shift: int,
    column_bits: int,
    undirected: bool,
    drop_loops: bool,
    position: NDArray[np.int64],
    low: NDArray[np.uint32],
    high: NDArray[Any],
    weights: NDArray[np.float32],
) -> None:
    """Place the entries of a chunk; an edge's two directions one after the other, so that order is the source's."""
    row_mask = (1 << shift) - 1
    for k in range(source.size):
        row, column = target[k], source[k]
        if row == column and drop_loops:
            continue
        place = position[row >> shift]
        position[row >> shift] = place + 1
        entry = ((row & row_mask) << column_bits) | column
        low[place] = entry & 0xFFFFFFFF
        if high.size:
            high[place] = entry >> 32
        if weight.size:
            weights[place] = weight[k]
        if undirected and row != column:
            place = position[column >> shift]
            position[column >> shift] = place + 1
            entry = ((column & row_mask) << column_bits) | row
            low[place] = entry & 0xFFFFFFFF
            if high.size:
                high[place] = entry >> 32
            if weight.size:
                weights[place] = weight[k]
