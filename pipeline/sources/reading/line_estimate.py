"""Estimates the number of lines in text files from samples, without reading every file.

A plain file is sampled at places that are spread evenly over it. A compressed file can only be read from its start, so
its beginning is decompressed for a limited time; the length of its contents comes from the end of a gzip file, or else
from the share of the stored bytes that were read.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnloom.pipeline.sources.reading.files import SourceFile

#: Places at which a plain file is sampled, and bytes of each sample.
PLACES, SAMPLE_BYTES = 48, 1 << 17
#: Number of compressed and remote files to sample, and seconds of reading for all files together.
STREAMS, STREAM_SECONDS = 8, 1.0
#: Bytes of a stream between two looks at the clock.
_STEP = 1 << 20
#: The smallest error of an estimate, as a share.
_LEAST_ERROR = 0.02
#: The same for the unread part of a stream.
_STREAM_ERROR = 0.08


@dataclass(frozen=True)
class Estimate:
    """A count, and the range in which it is expected; the three are equal if it is exact."""

    likely: float
    low: float
    high: float

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.likely + other.likely, self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> Estimate:
        return Estimate(self.likely * factor, self.low * factor, self.high * factor)


_NOTHING = Estimate(0.0, 0.0, 0.0)


def estimate_lines(files: Sequence[SourceFile]) -> Estimate | None:
    """Lines that are neither blank nor comments; None if a server does not report the size of its file."""
    if any(file.size is None for file in files):
        return None
    plain = [file for file in files if file.is_seekable]
    streams = [file for file in files if not file.is_seekable]
    found = sum((_sampled(file) for file in plain), _NOTHING)
    if not streams:
        return found
    # Of many files only some are read; their stored bytes stand for the bytes of the others.
    step = max(1, -(-len(streams) // STREAMS))
    chosen = streams[::step]
    read = sum((_begun(file, STREAM_SECONDS / len(chosen)) for file in chosen), _NOTHING)
    stored, of_chosen = (sum(file.size or 0 for file in group) for group in (streams, chosen))
    others = read.times(stored / max(1, of_chosen))
    spread = 0.0 if len(chosen) == len(streams) else 0.1
    return found + Estimate(others.likely, others.low * (1 - spread), others.high * (1 + spread))


def _lines_of(data: bytes) -> int:
    """Lines of whole lines that are not comments."""
    comments = data.count(b"\n#") + data.count(b"\n%") + data.startswith((b"#", b"%"))
    return data.count(b"\n") + (not data.endswith(b"\n")) - comments - data.count(b"\n\n") if data else 0


def _sampled(file: SourceFile) -> Estimate:
    size = file.size or 0
    with file.open_stored() as stream:
        if size <= PLACES * SAMPLE_BYTES:
            return _exactly(_lines_of(stream.read()))
        densities = []
        for place in range(PLACES):
            stream.seek((size - SAMPLE_BYTES) * place // (PLACES - 1))
            data = stream.read(SAMPLE_BYTES)
            densities.append((data.count(b"\n") - data.count(b"\n#") - data.count(b"\n%")) / len(data))
    likely = size * float(np.mean(densities))
    # Three standard errors of the mean of evenly spread samples.
    error = max(_LEAST_ERROR, 3 * float(np.std(densities)) / PLACES**0.5 / max(1e-12, float(np.mean(densities))))
    return Estimate(likely, likely * (1 - error), likely * (1 + error))


def _exactly(count: int) -> Estimate:
    return Estimate(count, count, count)


def _begun(file: SourceFile, seconds: float) -> Estimate:
    """Read a stream from its start, for a limited time, and extrapolate."""
    lines: list[int] = []
    sizes: list[int] = []
    ended = time.process_time() + seconds
    limit = time.perf_counter() + 8 * seconds
    with file.open_stored(streaming=True) as stored:
        if file.is_compressed:
            with file.decoded(stored) as stream:
                whole = _count(stream, lines, sizes, ended, limit)
                position = stored.tell()
        else:
            whole = _count(stored, lines, sizes, ended, limit)
            position = sum(sizes)
    if whole or not sizes:
        return _exactly(sum(lines))
    length = _contents(file, sum(sizes), position)
    rest = max(0.0, length - sum(sizes))
    # Ids often grow along a file, which makes its lines longer: the last quarter says more about the rest, and the
    # change from the whole to the quarter goes on.
    quarter = max(1, len(lines) // 4)
    overall, recent = max(1, sum(lines)) / sum(sizes), max(1, sum(lines[-quarter:])) / sum(sizes[-quarter:])
    density = recent * (recent / overall) ** 0.5
    error = max(_STREAM_ERROR, 3 * abs(recent - overall) / overall)
    read = sum(lines)
    return Estimate(read + rest * density, read + rest * density * (1 - error), read + rest * density * (1 + error))


def _count(stream: object, lines: list[int], sizes: list[int], ended: float, limit: float) -> bool:
    """Count the lines of steps of a stream until it ends or time is up; returns whether it ended."""
    last = b"\n"
    while time.process_time() < ended and time.perf_counter() < limit:
        data = stream.read(_STEP)  # type: ignore[attr-defined]
        if not data:
            # The last line may end without a line feed.
            if lines and last != b"\n":
                lines[-1] += 1
            return True
        # The byte before decides whether the first line of this step is a comment or blank.
        comments = (last + data).count(b"\n#") + (last + data).count(b"\n%") + (last + data).count(b"\n\n")
        lines.append(data.count(b"\n") - comments)
        sizes.append(len(data))
        last = data[-1:]
    return False


def _contents(file: SourceFile, read: int, position: int) -> float:
    """Estimated bytes of the contents of a stream, given that ``read`` bytes took ``position`` stored bytes."""
    by_share = read * (file.size or 0) / max(1, position)
    if not (file.coding == "gzip" and file.is_local):
        return by_share
    # A gzip file ends with the length of its contents modulo 2^32 (RFC 1952). If it was joined from several, that is
    # the length of the last one only, which the share of the stored bytes shows.
    with file.open_stored() as stored:
        stored.seek(-4, 2)
        stated = int.from_bytes(stored.read(4), "little")
    length = stated + round((by_share - stated) / 2**32) * 2**32
    return float(length) if 0.6 * by_share < length < 1.6 * by_share else by_share
