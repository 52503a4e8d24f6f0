"""Cuts text files into the ranges that tasks read."""

from __future__ import annotations

from collections.abc import Iterator

from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.source import SourceRange

#: Bytes of a local, uncompressed file that one task reads.
RANGE_BYTES = 64 << 20


def byte_ranges(number: int, file: SourceFile, range_bytes: int, start: int = 0) -> Iterator[SourceRange]:
    """Ranges of a file from an offset on; one, up to -1, if it can only be read from its beginning."""
    size = file.size if file.is_seekable else None
    if size is None:
        yield SourceRange(number, 0, -1)
        return
    for begin in range(start, size, range_bytes):
        yield SourceRange(number, begin, min(begin + range_bytes, size))


def whole_or_ranges(number: int, file: SourceFile, range_bytes: int, start: int) -> list[SourceRange]:
    """Ranges of a file from an offset on; if there is only one, it is the whole file, up to -1."""
    ranges = list(byte_ranges(number, file, range_bytes, start))
    return ranges if len(ranges) > 1 else [SourceRange(number, 0, -1)]
