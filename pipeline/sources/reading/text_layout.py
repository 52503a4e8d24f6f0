"""The layout of a text file: its byte order mark, its header and its separator."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.reading.files import SUFFIXES, SourceFile
from gnnloom.pipeline.sources.reading.lines import BLOCK_BYTES, whole_lines
from gnnloom.pipeline.sources.reading.numerals import COMMA, SEMICOLON, SPACE, TAB
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import VertexArray

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
#: The beginning of a line that is neither blank nor a comment.
_DATA = re.compile(rb"^[ \t\r\v\f]*+[^\s#%]", re.MULTILINE)
#: Number of bytes in which it is looked for at a time: it is mostly the first line.
_FIRST_BYTES = 1 << 16
#: Pairs of words that name the two ends of an edge, without what follows them in a column's name.
_PAIRS = frozenset({
    ("source", "target"), ("source", "destination"), ("src", "dst"), ("src", "dest"), ("src", "tgt"), ("from", "to"),
    ("head", "tail"), ("tail", "head"), ("start", "end"), ("sender", "receiver"), ("follower", "followee"),
    ("caller", "callee"), ("citing", "cited"),
})  # fmt: skip
#: What may follow or precede such a word: FromNodeId, source_id, src_node.
_EXTRAS = re.compile(r"(node|vertex|user|id|name|idx|index)+$")


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
    first_line = _first_data(file)[0] if header else 0
    for offset, block in whole_lines(file, start, stop, block_bytes):
        mark = 0 if offset else _mark_bytes(block)
        skipped = min(max(mark, first_line - offset), len(block))
        yield offset + skipped, block[skipped:]


def _mark_bytes(block: NDArray[np.uint8]) -> int:
    """Length of the byte order mark at the start of a file; 0 if there is none."""
    return len(_BYTE_ORDER_MARK) if block[: len(_BYTE_ORDER_MARK)].tobytes() == _BYTE_ORDER_MARK else 0


def first_data_line(file: SourceFile) -> bytes:
    """The first line that is neither blank nor a comment, without a byte order mark; empty if there is none."""
    return _first_data(file)[1]


def _first_data(file: SourceFile) -> tuple[int, bytes]:
    """Offset of the end of the first line that is neither blank nor a comment, and that line.

    Without such a line, the offset of the end of the file, and nothing.
    """
    end = 0
    for offset, block in whole_lines(file, block_bytes=_FIRST_BYTES):
        text, end = block[0 if offset else _mark_bytes(block) :].tobytes(), offset + len(block)
        if found := _DATA.search(text):
            line = text[found.start() : text.index(b"\n", found.start()) + 1]
            return end - len(text) + found.start() + len(line), line
    return end, b""


def separator_of(file: SourceFile) -> int:
    """The byte that separates the fields of a file with names; a space stands for runs of blanks.

    The suffixes ``.csv`` and ``.tsv`` decide, except that a ``.csv`` whose first line has semicolons and no commas has
    semicolons. In other files it is a tab or a comma if the first line has one, a semicolon if it has one and no
    blanks, else a space; so it is in a file that cannot be read, which whoever reads its edges reports.
    """
    name = file.location
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    if name.endswith(".tsv"):
        return TAB
    try:
        line = first_data_line(file)
    except InputError:
        line = b""
    if name.endswith(".csv"):
        return SEMICOLON if b";" in line and b"," not in line else COMMA
    is_one = len(line.split()) == 1
    return TAB if b"\t" in line else COMMA if b"," in line else SEMICOLON if is_one and b";" in line else SPACE


def first_lines(file: SourceFile, separator: int, count: int = 1) -> list[list[str]]:
    """The fields of the first lines that are neither blank nor comments, without quotes around them."""
    found: list[list[str]] = []
    for _, block in data_blocks(file, False, block_bytes=_FIRST_BYTES):
        for line in block.tobytes().decode("utf-8", "replace").split("\n"):
            text = line.strip()
            if text and text[0] not in "#%":
                fields = text.split() if separator == SPACE else next(csv.reader([text], delimiter=chr(separator)), [])
                found.append([field.strip().strip('"') for field in fields])
                if len(found) == count:
                    return found
    return found or [[]]


def is_number(field: str) -> bool:
    """Whether Python reads a field as a number."""
    try:
        float(field)
    except ValueError:
        return False
    return True


def has_names(cells: Sequence[str], array: VertexArray) -> bool:
    """Whether cells of a line name columns: one is neither empty nor a number, nor a word that the array knows."""
    return any(cell and not is_number(cell) and cell.lower() not in array.words for cell in cells)


def names_ids(cell: str) -> bool:
    """Whether a name of a column ends as those of ids do: node, user_id, Index."""
    return _EXTRAS.search(re.sub(r"[^a-z]", "", cell.lower())) is not None


def begins_with_header(file: SourceFile, weights: bool, separator: int) -> bool:
    """Whether the first line that is not a comment names the columns, as far as that is certain.

    It is if its first two fields are a pair of words such as ``source,target``. With weights, the third field decides:
    a line with a number there is an edge, whatever its first two are; a line with something else there is a header,
    unless these are both numbers.
    """
    try:
        # Numbers may stand between several separators, such as a tab and a comma.
        first, second, *others = (field.strip(",; \t") for field in first_lines(file, separator)[0])
    except (InputError, csv.Error, ValueError):
        # A file that cannot be read is reported by whoever reads its edges. A carriage return within a line, a field of
        # megabytes or a single field are no names of columns.
        return False
    value = others[0] if weights and others else ""
    if is_number(value):
        return False
    if (_word(first), _word(second)) in _PAIRS:
        return True
    return bool(value) and not (first.isdigit() and second.isdigit())


def _word(field: str) -> str:
    letters = re.sub(r"[^a-z]", "", field.lower())
    return _EXTRAS.sub("", letters)
