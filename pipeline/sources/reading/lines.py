"""Text in blocks of whole lines, from any stream or range of bytes; counts of lines, and errors that name a line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.parsers.numerals import (
    FEED,
    HASH,
    PERCENT,
    QUOTE,
    RETURN,
    SPACE,
    is_blank,
    is_end,
    next_line,
    skip_blanks,
)
from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.source import SourceRange, even_ranges
from gnnloom.storage.errors import InputError
from gnnloom.storage.kernels import kernel

#: Number of bytes read and parsed at a time.
BLOCK_BYTES = 8 << 20
#: Bytes of a local, uncompressed file that one task reads.
RANGE_BYTES = 64 << 20
#: Maximum length of a line in bytes; a longer one means that the file is not text.
LONGEST_LINE = 4 << 20
#: Faults of lines that are not rows of their own.
_IN_QUOTES, _HAS_RETURN, _IS_HEADER = 1, 2, 3
#: Message about a line with a carriage return, which may end a row.
HAS_RETURN: Final = (
    "a carriage return within the line, which may end a row; write line feeds, for example with tr '\\r' '\\n'"
)
_TORN: Final = {
    _IN_QUOTES: (
        "a double quote opens a field and nothing closes it on this line: either the field goes on in the next line, or"
        " the quote is text; write the table without this column, or with quotes that close on their line"
    ),
    _HAS_RETURN: HAS_RETURN,
    _IS_HEADER: (
        "the line that names the columns again, as in files that were joined; remove it, for example with"
        " awk 'NR == 1 {first = $0} NR == 1 || $0 != first'"
    ),
}
#: Number of characters of a line that an error shows.
SHOWN = 60


def byte_ranges(number: int, file: SourceFile, range_bytes: int, start: int = 0) -> list[SourceRange]:
    """Ranges of a file from an offset on; one, up to -1, if it can only be read from its beginning."""
    if not file.is_seekable or file.size is None:
        return [SourceRange(number, 0, -1)]
    return even_ranges(number, file.size, range_bytes, start)


def whole_or_ranges(number: int, file: SourceFile, range_bytes: int, start: int) -> list[SourceRange]:
    """Ranges of a file from an offset on; if there is only one, it is the whole file, up to -1."""
    ranges = byte_ranges(number, file, range_bytes, start)
    return ranges if len(ranges) > 1 else [SourceRange(number, 0, -1)]


class HeadedFile(Protocol):
    """A file whose first lines state its size.

    Attributes:
        data_at: offset of the line after these in the decompressed contents.
    """

    @property
    def file(self) -> SourceFile: ...

    @property
    def data_at(self) -> int: ...


def ranges_below(headers: Sequence[HeadedFile], range_bytes: int) -> list[SourceRange]:
    """Ranges of several files below their headers; a file of one range is the whole file, up to -1."""
    return [
        span
        for number, header in enumerate(headers)
        for span in whole_or_ranges(number, header.file, range_bytes, header.data_at)
    ]


def lines_below(header: HeadedFile, span: SourceRange, block_bytes: int) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """The lines of a range without the header; as :func:`whole_lines`."""
    # A compressed stream is read from its start, and the header is cut off the first blocks.
    start = max(header.data_at, span.start) if header.file.is_seekable else 0
    stop = None if span.stop < 0 else span.stop
    for offset, block in whole_lines(header.file, start, stop, block_bytes):
        skipped = min(max(0, header.data_at - offset), len(block))
        yield offset + skipped, block[skipped:]


def checked_lines(
    file: SourceFile,
    blocks: Iterable[tuple[int, NDArray[np.uint8]]],
    separator: bytes,
    header: bytes,
    comments: bytes,
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Blocks of lines some of whose fields nothing reads, after a check that each line is a row of its own.

    Args:
        separator: characters between fields; a space stands for runs of blanks.
        header: the line that names the columns, without blanks around it; empty if there is none.
        comments: characters that begin comments.

    Raises:
        InputError: a line ends within double quotes, has a carriage return within, or is the header again.
    """
    rules = [np.frombuffer(each, np.uint8) for each in (separator, header, comments)]
    for offset, block in blocks:
        at, wrong = _find_torn(block, *rules)
        if wrong:
            raise bad_line(file, offset + at, _TORN[wrong])
        yield offset, block


@kernel
def _find_torn(text: Any, separator: Any, header: Any, comments: Any) -> tuple[int, int]:
    """The position of the first line that is not a row of its own, and its fault (0: all are rows)."""
    at = 0
    while at < len(text):
        line, begin = at, skip_blanks(text, at)
        is_comment = False
        for sign in comments:
            is_comment |= text[begin] == sign
        if is_comment:
            at = next_line(text, begin)
            continue
        same, is_first, is_quoted, closed = 0, True, False, -2
        while text[at] != FEED:
            byte = text[at]
            if byte == RETURN and text[at + 1] != FEED:
                return line, _HAS_RETURN
            if byte == QUOTE and is_quoted:
                is_quoted, closed = False, at
            elif byte == QUOTE:
                # The second of two quotes within a field opens it again.
                is_quoted = is_first or closed == at - 1
            is_first = not is_quoted and ((is_first and is_blank(byte)) or _ends_field(text, at, separator))
            same += same < header.size and byte == header[same] and at - begin == same
            at += 1
        if header.size and same == header.size and _is_blank_until(text, begin + same, at):
            return line, _IS_HEADER
        if is_quoted:
            return line, _IN_QUOTES
        at += 1
    return 0, 0


@kernel
def _ends_field(text: Any, at: int, separator: Any) -> bool:
    """Whether the separator of fields ends with a byte of a line."""
    if separator.size == 1 and separator[0] == SPACE:
        return bool(is_blank(text[at]))
    last = separator.size - 1
    if at < last:
        return False
    same = 0
    while same < separator.size and text[at - last + same] == separator[same]:
        same += 1
    return bool(same == separator.size)


@kernel
def _is_blank_until(text: Any, at: int, stop: int) -> bool:
    while at < stop and (is_blank(text[at]) or text[at] == RETURN):
        at += 1
    return bool(at == stop)


def counts_by_file(spans: Sequence[SourceRange], found: Sequence[Sequence[int]]) -> dict[int, int]:
    """Sums of the counts of ranges, by number of the file."""
    total = dict.fromkeys((span.file for span in spans), 0)
    for span, (count,) in zip(spans, found, strict=True):
        total[span.file] += count
    return total


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
        if stop is not None and offset >= stop:
            return
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


def _skip_begun_line(stream: BinaryIO, start: int) -> int:
    """Move to the first line that begins at or after ``start`` and return its offset."""
    if not start:
        return 0
    # One byte earlier: if it is a line feed, the line at ``start`` belongs to this range and nothing else is skipped.
    stream.seek(start - 1)
    return start - 1 + len(stream.readline())


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
        if not line or (line.strip() and not line.lstrip().startswith(b"%")):
            return at, line
        at += len(line)


def line_at(file: SourceFile, offset: int) -> bytes:
    """The line that begins at a byte of the decompressed contents."""
    with file.open() as stream:
        while offset and (piece := stream.read(min(BLOCK_BYTES, offset))):
            offset -= len(piece)
        return stream.readline(LONGEST_LINE)


def line_of_edge(block: NDArray[np.uint8], number: int) -> int:
    """Offset, within a block, of the line with an edge, counted from 0; comments begin with ``#`` or ``%``."""
    at = 0
    for line in block.tobytes().splitlines(keepends=True):
        is_edge = bool(line.strip()) and not line.lstrip(b" \t").startswith((b"#", b"%"))
        if is_edge and not number:
            break
        number, at = number - is_edge, at + len(line)
    return at


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


def count_data_lines(blocks: Iterable[tuple[int, NDArray[Any]]], *, has_comments: bool = True) -> int:
    """Number of lines that are neither blank nor comments.

    Args:
        blocks: offset and whole lines, (num_bytes,) uint8, of every block.
        has_comments: whether lines that begin with ``#`` or ``%`` are comments.
    """
    return sum(int(_count_data_lines(block, has_comments)) for _, block in blocks)


@kernel
def _count_data_lines(text: Any, has_comments: bool) -> int:
    count, at = 0, 0
    while at < len(text):
        first = skip_blanks(text, at)
        is_comment = has_comments and (text[first] == HASH or text[first] == PERCENT)
        count += not (is_end(text, first) or is_comment)
        at = next_line(text, at)
    return count


@kernel
def count_uncommented(text: Any, is_inside: bool, is_comment: bool) -> tuple[int, bool, bool]:
    """Count the ends of lines that are not comments, blank lines included, in a block that may begin within a line.

    Args:
        text: (num_bytes,) uint8.
        is_inside: whether something other than blanks precedes the block in its first line.
        is_comment: whether that line is a comment, which begins with ``%``.

    Returns:
        The number of lines, and both arguments for the next block.
    """
    count = 0
    for byte in text:
        if byte == FEED:
            count += not is_comment
            is_inside, is_comment = False, False
        elif not is_inside and not is_blank(byte):
            is_inside, is_comment = True, byte == PERCENT
    return count, is_inside, is_comment
