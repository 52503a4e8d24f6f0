"""A little of a source, read before an ingest: how long reading takes, how many edges there are, and some of them.

The sample is taken from chunks at the beginning, the middle and the end of the source, at several places of each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.ingest.keys.key_types import KEY_TYPES
from gnnloom.pipeline.sources.names import NameChunk, Names
from gnnloom.pipeline.sources.reading.line_estimate import Estimate
from gnnloom.pipeline.sources.source import EdgeChunk, EdgeSource, SourceRange
from gnnloom.storage.meters import bytes_moved

#: Maximum number of edges in the sample, 2^16 from each of three ranges: enough for times that repeat to a few percent.
SAMPLE_EDGES = 3 << 16

#: Places of a chunk from which a sample is taken.
_PLACES = 8

#: Share by which the number of edges may differ from an estimate that rests on the first range only.
_ROUGH = 0.3

#: Processor seconds (or eight times as many of waiting) after which reading a range to its end is given up.
READ_SECONDS = 0.5

Chunk = EdgeChunk | NameChunk
Read = Callable[[SourceRange], Iterator[Chunk]]


@dataclass(frozen=True)
class EdgeSample:
    """Some edges of a source, and what is expected of all of them.

    Attributes:
        ranges: ranges of the source.
        files: files that the source names.
        chunk: the edges. If ids are renumbered, these have numbers as far apart as in the whole source.
        edges: number of edges of the whole source.
        vertices: number of vertices of the whole source.
        distinct_ids: number of distinct ids of the whole source; 0 if ids are kept.
        name_bytes: average bytes of a name; 0 if ids are numbers.
        read_seconds: processor seconds of reading, per edge.
    """

    ranges: int
    files: int
    chunk: EdgeChunk
    edges: Estimate
    vertices: int
    distinct_ids: int
    name_bytes: float
    read_seconds: float


def sample_edges(source: EdgeSource, ids: str) -> EdgeSample:
    """Read a sample.

    Args:
        source: edges to read.
        ids: ``keep``; ``compact``, if numbers will be renumbered; or ``names``.

    Raises:
        InputError: the sample cannot be read.
    """
    read: Read = source.read if ids == "keep" else partial(KEY_TYPES[ids].chunks, source)
    ranges = source.ranges()
    reading = _read_first(read, ranges)
    chunks = list(_sample_chunks(read, ranges))
    ends = [*(chunk.source for chunk in chunks), *(chunk.target for chunk in chunks)]
    edges = _total_edges(source, ranges, reading, sum(map(len, ends)) // 2)
    highest = max([reading.max_id, *map(_max_id, ends)])
    if ids == "keep":
        numbers, distinct = np.concatenate([np.empty(0, np.int64), *ends]), 0
        vertices = max(1, source.num_vertices() or 0, highest + 1)
    else:
        # Counting distinct ids means sorting them, so it is left out unless ids are renumbered.
        ranks = KEY_TYPES[ids].distinct(ends or [np.empty(0, np.int64)])[1].astype(np.int64)
        distinct = _distinct_ids(ranks, edges.likely, 2 * round(edges.likely) if ids == "names" else highest + 1)
        vertices = max(1, distinct)
        numbers = ranks * vertices // (int(ranks.max(initial=0)) + 1)
    source_ids, target_ids = numbers.reshape(2, -1)
    return EdgeSample(
        ranges=len(ranges),
        files=len(source.identity().get("files", ())),
        chunk=EdgeChunk(source_ids, target_ids, _weights(chunks)),
        edges=edges,
        vertices=vertices,
        distinct_ids=distinct,
        name_bytes=sum(len(end.text) for end in ends if isinstance(end, Names)) / max(1, sum(map(len, ends))),
        read_seconds=reading.seconds / max(1, reading.edges),
    )


def _weights(chunks: Sequence[Chunk]) -> NDArray[np.float32] | None:
    weights = [chunk.weight for chunk in chunks if chunk.weight is not None]
    return np.concatenate(weights) if weights and len(weights) == len(chunks) else None


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


def _total_edges(source: EdgeSource, ranges: Sequence[SourceRange], reading: _Reading, sampled: int) -> Estimate:
    """Edges of the source, at least those that were sampled."""
    found = _estimated_edges(source, ranges, reading)
    likely = max(round(found.likely), sampled)
    return Estimate(likely, max(round(found.low), sampled), max(round(found.high), likely))


def _estimated_edges(source: EdgeSource, ranges: Sequence[SourceRange], reading: _Reading) -> Estimate:
    """Edges of the source: as the source states them, as it estimates them, or from the density of what was read."""
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
