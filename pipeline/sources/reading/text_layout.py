"""The layout of a text file: its byte order mark, its header and its separator."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.reading.compressed import SUFFIXES
from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.lines import BLOCK_BYTES, LONGEST_LINE, whole_lines
from gnnloom.pipeline.sources.reading.numerals import COMMA, SPACE, TAB

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def data_blocks(
    file: SourceFile, header: bool, start: int = 0, stop: int | None = None, block_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Like :func:`gnnloom.pipeline.sources.reading.lines.whole_lines`, but without byte order mark and header.

    Args:
        header: whether the first line that is neither blank nor a comment is a header.

    Yields:
        Offset of a block in the decompressed contents, and the block, (num_bytes,) uint8; it may be empty.
    """
    # Every task finds the header itself, so a range need not know what an earlier one read.
    first_line = _after_header(file) if header else 0
    for offset, block in whole_lines(file, start, stop, block_bytes):
        mark = 0 if offset else _mark_bytes(block)
        skipped = min(max(mark, first_line - offset), len(block))
        yield offset + skipped, block[skipped:]


def _mark_bytes(block: NDArray[np.uint8]) -> int:
    """Length of the byte order mark at the start of a file; 0 if there is none."""
    return len(_BYTE_ORDER_MARK) if block[: len(_BYTE_ORDER_MARK)].tobytes() == _BYTE_ORDER_MARK else 0


def _after_header(file: SourceFile) -> int:
    """Offset of the line after the first one that is neither blank nor a comment."""
    end = 0
    for offset, block in whole_lines(file):
        text, at, end = block.tobytes(), 0 if offset else _mark_bytes(block), offset + len(block)
        while at < len(text):
            stop = text.index(b"\n", at) + 1
            line = text[at:stop].strip()
            if line and not line.startswith((b"#", b"%")):
                return offset + stop
            at = stop
    return end


def first_data_line(file: SourceFile) -> bytes:
    """The first line that is neither blank nor a comment, without a byte order mark; empty if there is none."""
    with file.open() as stream:
        line = stream.readline(LONGEST_LINE).removeprefix(_BYTE_ORDER_MARK)
        while line.startswith((b"#", b"%")) or (line and not line.strip()):
            line = stream.readline(LONGEST_LINE)
    return line


def separator_of(file: SourceFile) -> int:
    """The byte that separates the fields of a file with names; a space stands for runs of blanks.

    The suffixes ``.csv`` and ``.tsv`` decide. In other files it is a tab if the first line has one, else a comma if
    the first line has one, else a space.
    """
    name = file.location
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    if name.endswith((".csv", ".tsv")):
        return COMMA if name.endswith(".csv") else TAB
    line = first_data_line(file)
    return TAB if b"\t" in line else COMMA if b"," in line else SPACE


def is_number(field: str) -> bool:
    """Whether Python reads a field as a number."""
    try:
        float(field)
    except ValueError:
        return False
    return True
