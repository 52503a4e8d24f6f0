"""Text in blocks of whole lines, from any stream or range of bytes, and errors that name a line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.storage.errors import InputError

#: Number of bytes read and parsed at a time.
BLOCK_BYTES = 8 << 20
#: Maximum length of a line in bytes; a longer one means that the file is not text.
LONGEST_LINE = 4 << 20
#: Number of characters of a line that an error shows.
SHOWN = 60


def whole_lines(
    file: SourceFile, start: int = 0, stop: int | None = None, block_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Read the lines that begin at bytes ``start`` to ``stop``, in blocks.

    However a file is divided into ranges, every line belongs to exactly one range.

    Args:
        start: offset into the decompressed contents; must be 0 unless ``file.is_seekable``.
        stop: None for the end of the file.

    Yields:
        Offset of a block in the decompressed contents, and the block, (num_bytes,) uint8. It ends with a line feed
        even if the file does not. It is valid until the next block is requested.

    Raises:
        InputError: a line is longer than ``LONGEST_LINE``, or compressed data is damaged.
    """
    with file.open() as stream:
        offset = _skip_begun_line(stream, start)
        if stop is None or offset < stop:
            yield from _blocks(file, stream, offset, stop, block_bytes)


def _skip_begun_line(stream: BinaryIO, start: int) -> int:
    """Move to the first line that begins at or after ``start`` and return its offset."""
    if not start:
        return 0
    # One byte earlier: if it is a line feed, the line at ``start`` belongs to this range and nothing else is skipped.
    stream.seek(start - 1)
    return start - 1 + len(stream.readline())


def _blocks(
    file: SourceFile, stream: BinaryIO, offset: int, stop: int | None, block_bytes: int
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    # Enough for a begun line of the greatest length, and after it a block or the rest of that line.
    buffer = bytearray(max(block_bytes, LONGEST_LINE) + LONGEST_LINE + 2)
    view, block = memoryview(buffer), np.frombuffer(buffer, np.uint8)
    begun = 0  # number of bytes at the front of the buffer that belong to an incomplete line
    while True:
        wanted = block_bytes if stop is None else min(block_bytes, stop - offset - begun)
        got = stream.readinto(view[begun : begun + wanted]) or 0 if wanted > 0 else 0  # type: ignore[attr-defined]
        end = begun + got
        if not got:
            break
        # The bytes before ``begun`` have no line feed: they were searched in the last round.
        cut = buffer.rfind(b"\n", begun, end) + 1
        if cut:
            yield offset, block[:cut]
            buffer[: end - cut] = buffer[cut:end]
            offset += cut
        begun = end - cut
        _check_length(file, offset, begun)
    # The last line began before ``stop``, so all of it belongs to this range; only the end of the file lacks a line
    # feed.
    if begun:
        rest = stream.readline(LONGEST_LINE + 1).rstrip(b"\n") + b"\n"
        _check_length(file, offset, begun + len(rest))
        buffer[begun : begun + len(rest)] = rest
        yield offset, block[: begun + len(rest)]


def _check_length(file: SourceFile, offset: int, length: int) -> None:
    if length > LONGEST_LINE:
        raise bad_line(file, offset, f"expected text, found a line of more than {LONGEST_LINE:,} bytes")


def check_ends_with_feed(file: SourceFile) -> None:
    """Check that the last line is complete, where nothing else would show that a number in it was cut.

    Compressed files have a checksum, which is compared when they are read.

    Raises:
        InputError: the last byte of a local, uncompressed file is not a line feed.
    """
    if not file.is_seekable:
        return
    with file.open() as stream:
        if stream.seek(0, os.SEEK_END) == 0:
            return
        stream.seek(-1, os.SEEK_END)
        if stream.read(1) == b"\n":
            return
    raise InputError(
        f"{file.location}: the last line has no line feed, so the file may have been cut off within a number; fetch it"
        " again, or add a line feed if it is complete"
    )


def first_line(stream: BinaryIO, at: int = 0) -> tuple[int, bytes]:
    """Read up to the next line that is neither blank nor a ``%`` comment.

    Args:
        at: current offset of the stream, which not every stream can report.

    Returns:
        Offset of the line, and the line; empty at the end of the stream.
    """
    while True:
        line = stream.readline(LONGEST_LINE)
        if not line or (line.strip() and not line.startswith(b"%")):
            return at, line
        at += len(line)


def bad_line(file: SourceFile, offset: int, reason: str) -> InputError:
    """The error for the line that begins at a byte of the decompressed contents.

    Counts lines from the start of the file, which is slow for large files but only done for errors.
    """
    number, position = 1, 0
    with file.open() as stream:
        while position < offset:
            piece = stream.read(min(BLOCK_BYTES, offset - position))
            if not piece:
                break
            number += piece.count(b"\n")
            position += len(piece)
        line = stream.readline(SHOWN + 1)
    text = line.decode("utf-8", "replace").rstrip("\r\n")
    shown = repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")
    return InputError(f"{file.location}, line {number:,}: {reason}: {shown}")
