"""SNAP-style text: one edge per line, as two ids and perhaps a weight.

Lines that begin with ``#`` or ``%`` are comments; blank lines count nothing; columns are separated
by blanks, tabs or one comma; lines end with LF or CR LF, the last perhaps with neither.  An id is
digits only, below 2^63.  A line with more columns than are asked for is refused, so that nobody
loses weights or times unawares, or reads the size line of another format as an edge;
``extra_columns`` ignores them instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.base import EdgeChunk, SourceRange
from gnnloom.pipeline.sources.files import SourceFile, open_files
from gnnloom.pipeline.sources.lines import BLOCK_BYTES, bad_line, whole_lines
from gnnloom.pipeline.sources.numerals import EXTRA, NO_ID, REASONS
from gnnloom.pipeline.sources.parse import parse_edges
from gnnloom.storage.errors import InputError

#: Bytes of a local plain file that one task reads.
RANGE_BYTES = 64 << 20
#: The shortest line of an edge: two digits, a separator and a line feed.
_SHORTEST_LINE = 4
_ANY_ID = np.iinfo(np.int64).max
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_HINTS = {
    EXTRA: "; read the third column as weight (`--weights`), or ignore further columns (`--extra-columns`)",
    NO_ID: "; if the first line names the columns, say so (`--header`)",
}


@dataclass(frozen=True)
class TextEdges:
    """Edges from text files; implements :class:`~gnnloom.pipeline.sources.base.EdgeSource`.

    Attributes:
        files: plain local files are read in ranges of ``range_bytes``, others each as a whole.
        weights: the third column holds float32 weights.
        header: the first line of each file that is no comment names the columns.
        extra_columns: columns after those asked for are ignored rather than refused.
        stated_vertices: the number of vertices, where something beside the file states it.
    """

    files: tuple[SourceFile, ...]
    weights: bool = False
    header: bool = False
    extra_columns: bool = False
    stated_vertices: int | None = None
    range_bytes: int = RANGE_BYTES
    block_bytes: int = BLOCK_BYTES

    @classmethod
    def open(
        cls, locations: Sequence[str], *, weights: bool = False, header: bool = False, extra_columns: bool = False
    ) -> TextEdges:
        """Find the files.

        Raises:
            NotFoundError: a file is not there, or a glob matches nothing.
            InputError: a file is empty.
        """
        files = open_files(locations)
        for file in files:
            if file.size == 0:
                raise _no_edges(file)
        return cls(files, weights, header, extra_columns)

    def identity(self) -> dict[str, Any]:
        return {
            "format": "snap",
            "weights": self.weights,
            "header": self.header,
            "extra_columns": self.extra_columns,
            "files": [file.identity() for file in self.files],
        }

    def num_vertices(self) -> int | None:
        return self.stated_vertices

    def ranges(self) -> Sequence[SourceRange]:
        return [part for number, file in enumerate(self.files) for part in self._ranges_of(number, file)]

    def _ranges_of(self, number: int, file: SourceFile) -> Iterator[SourceRange]:
        if not file.is_seekable or file.size is None:
            yield SourceRange(number, 0, -1)
            return
        for start in range(0, file.size, self.range_bytes):
            yield SourceRange(number, start, min(start + self.range_bytes, file.size))

    def read(self, part: SourceRange) -> Iterator[EdgeChunk]:
        """Chunks of one range; ``part.stop`` of -1 stands for the end of the file.

        Raises:
            InputError: a line is no edge, a whole file has none, or compressed data is damaged.
        """
        file = self.files[part.file]
        stop = None if part.stop < 0 else part.stop
        first_line = _after_header(file) if self.header else 0
        num_edges = 0
        for offset, block in whole_lines(file, part.start, stop, self.block_bytes):
            mark = 0 if offset else _mark_bytes(block)
            skipped = min(max(mark, first_line - offset), len(block))
            chunk = self._parse(file, offset + skipped, block[skipped:])
            num_edges += len(chunk.source)
            yield chunk
        if not num_edges and part.start == 0 and (stop is None or stop == file.size):
            raise _no_edges(file)

    def _parse(self, file: SourceFile, offset: int, block: NDArray[np.uint8]) -> EdgeChunk:
        most = len(block) // _SHORTEST_LINE + 1
        source, target = np.empty(most, np.int64), np.empty(most, np.int64)
        weight = np.empty(most if self.weights else 0, np.float32)
        last_id = _ANY_ID if self.stated_vertices is None else self.stated_vertices - 1
        count, at, wrong = parse_edges(block, self.weights, self.extra_columns, last_id, source, target, weight)
        if wrong:
            raise bad_line(file, offset + at, REASONS[wrong] + _HINTS.get(wrong, ""))
        return EdgeChunk(source[:count], target[:count], weight[:count] if self.weights else None)

    def with_vertices(self, num_vertices: int) -> TextEdges:
        """The same edges, with ids that must be below ``num_vertices``."""
        return replace(self, stated_vertices=num_vertices)


def _mark_bytes(block: NDArray[np.uint8]) -> int:
    """Bytes of a byte order mark at a file's start."""
    return len(_BYTE_ORDER_MARK) if block[: len(_BYTE_ORDER_MARK)].tobytes() == _BYTE_ORDER_MARK else 0


def _after_header(file: SourceFile) -> int:
    """Where the line after the first that is neither blank nor a comment begins."""
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


def _no_edges(file: SourceFile) -> InputError:
    return InputError(f"{file.location}: the file is empty or has comments only; expected a line per edge")
