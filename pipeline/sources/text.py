"""SNAP-style text: one edge per line, as two ids and optionally a weight.

Lines that begin with ``#`` or ``%`` are comments, and blank lines are ignored. Columns are separated by blanks, tabs or
one comma; with ``columns``, ``delimiter`` or semicolons, fields are found first
(:mod:`gnnloom.pipeline.sources.reading.fields`). Lines end with LF or CR LF; the last line may end with neither. An id
consists of digits and is below 2^63.

A line with more columns than expected is refused. Otherwise weights or times would be lost unnoticed, and the size line
of another format would be read as an edge. ``extra_columns`` ignores further columns instead.

If ids are names, :mod:`gnnloom.pipeline.sources.reading.name_parser` defines how lines are split.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.format import COLUMNS, TIMES, WEIGHTS, Format, check_values, column_names
from gnnloom.pipeline.sources.names import HINT, NameChunk, Names
from gnnloom.pipeline.sources.reading import name_parser
from gnnloom.pipeline.sources.reading.fields import TextBlock, chosen_fields
from gnnloom.pipeline.sources.reading.files import SourceFile, open_files
from gnnloom.pipeline.sources.reading.line_estimate import Estimate, estimate_lines
from gnnloom.pipeline.sources.reading.lines import BLOCK_BYTES, RANGE_BYTES, bad_line, byte_ranges, count_data_lines
from gnnloom.pipeline.sources.reading.numerals import EXTRA, NEGATIVE, NO_ID, REASONS, SEMICOLON, TAB, TOO_LARGE
from gnnloom.pipeline.sources.reading.parse import parse_edges
from gnnloom.pipeline.sources.reading.text_layout import begins_with_header, data_blocks, first_lines, separator_of
from gnnloom.pipeline.sources.source import EdgeChunk, SourceRange
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Option

#: Length of the shortest line with an edge: two digits, a separator and a line feed.
_SHORTEST_LINE = 4
_ANY_ID = np.iinfo(np.int64).max
#: Bytes at the beginning of a file, up to the end of a line, that decide whether ids are names.
_FIRST_BYTES = 1 << 16

#: Faults of lines with ids that may be names.
_MAY_BE_NAME = frozenset({NO_ID, NEGATIVE, TOO_LARGE})
_HEADER_HINT = "; if the first line names the columns, add `--header`"
_HINTS = {
    EXTRA: (
        "; read the third column as weights (`--weights`), ignore further columns (`--extra-columns`), or choose other"
        " columns for the ids (`--columns`; by number with `--no-header`)"
    ),
    NO_ID: HINT,
    NEGATIVE: HINT,
    TOO_LARGE: HINT,
}


@dataclass(frozen=True)
class TextEdges:
    """Edges from text files; implements :class:`~gnnloom.pipeline.sources.names.NamedEdgeSource`.

    Attributes:
        files: local uncompressed files are read in ranges of ``range_bytes``, each other file as a whole.
        weights: whether the third column contains float32 weights.
        times: whether it contains float64 times.
        header: whether the first line of each file that is not a comment names the columns; None if the user did not
            say.
        headers: numbers of the files whose first line was recognized as a header, because the user did not say.
        columns: names of the columns of sources, targets and, if weighted, weights, or their numbers from 1 if
            ``header`` is False; none for the first ones.
        delimiter: what separates fields; by default blanks, a tab, a comma or a semicolon.
        separators: for each file, the byte that separates fields; a space stands for runs of blanks.
        fields: for each file, numbers of the fields of these columns; none if the parser finds them itself.
        extra_columns: whether to ignore further columns rather than refuse them.
        stated_vertices: the number of vertices, if something other than the file states it.
        range_bytes: size of a range.
        block_bytes: number of bytes parsed at a time.
    """

    files: tuple[SourceFile, ...]
    weights: bool = False
    header: bool | None = None
    extra_columns: bool = False
    times: bool = False
    headers: tuple[int, ...] = ()
    columns: tuple[str, ...] = ()
    delimiter: str = ""
    separators: tuple[int, ...] = ()
    fields: tuple[tuple[int, ...], ...] = ()
    stated_vertices: int | None = None
    range_bytes: int = RANGE_BYTES
    block_bytes: int = BLOCK_BYTES

    @classmethod
    def open(
        cls,
        locations: Sequence[str],
        *,
        weights: bool = False,
        header: bool | None = None,
        extra_columns: bool = False,
        columns: str | Sequence[str] = (),
        delimiter: str = "",
        times: bool = False,
    ) -> TextEdges:
        """Find the files.

        Args:
            columns: names of the source, target and optionally weight columns in the first line, or their numbers from
                1 if ``header`` is False; a text separates them by commas. Three columns imply ``weights``, unless they
                have ``times``.
            delimiter: one character between fields, or ``tab``.

        Raises:
            NotFoundError: a file does not exist, or a glob matches nothing.
            InputError: a file is empty, or its first line does not have one of the columns.
        """
        check_values(weights=weights, times=times)
        files, wanted = open_files(locations), column_names(columns, weights=weights, times=times)
        if delimiter and delimiter != "tab" and (len(delimiter) > 1 or not delimiter.isascii() or delimiter.isalnum()):
            raise InputError(f"delimiter {delimiter!r}: expected one character such as ';', or tab")
        for file in files:
            if file.size == 0:
                raise _no_edges(file)
        if wanted:
            weights, header, extra_columns = not times and len(wanted) == 3, header is not False, True
        given = ord("\t" if delimiter == "tab" else delimiter) if delimiter else 0
        separators = tuple(given or separator_of(file) for file in files)
        read = list(enumerate(zip(files, separators, strict=True)))
        valued = weights or times
        found = tuple(number for number, (file, at) in read if header is None and begins_with_header(file, valued, at))
        fields = tuple(_fields_of(file, at, wanted, named=bool(header)) for _, (file, at) in read if wanted)
        return cls(files, weights, header, extra_columns, times, found, wanted, delimiter, separators, fields)

    @property
    def recognized_headers(self) -> tuple[str, ...]:
        """Locations of the files whose first line was recognized as a header."""
        return tuple(self.files[number].location for number in self.headers)

    def identity(self) -> dict[str, Any]:
        return {
            "format": "snap",
            "weights": self.weights,
            **({"times": True} if self.times else {}),
            "header": self._header_identity(),
            "extra_columns": self.extra_columns,
            **({"columns": list(self.columns)} if self.columns else {}),
            **({"delimiter": self.delimiter} if self.delimiter else {}),
            "files": [file.identity() for file in self.files],
        }

    def _header_identity(self) -> bool | list[int]:
        """What is recognized counts as given, unless it is true of some files only."""
        if self.headers and len(self.headers) < len(self.files):
            return list(self.headers)
        return bool(self.header) or bool(self.headers)

    def num_vertices(self) -> int | None:
        return self.stated_vertices

    def estimate_edges(self) -> Estimate | None:
        """The number of edges, from samples of the files; None if nothing is known about a file's length."""
        return estimate_lines(self.files)

    def ranges(self) -> Sequence[SourceRange]:
        return [span for number, file in enumerate(self.files) for span in byte_ranges(number, file, self.range_bytes)]

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        """Read one range; a ``stop`` of -1 stands for the end of the file.

        Raises:
            InputError: a line is not an edge, a whole file has no edges, or compressed data is damaged.
        """
        file, num_edges = self.files[span.file], 0
        for block in self._blocks(span):
            chunk, at, wrong = self._parse(block.text)
            if wrong:
                # A source that states its number of vertices uses numbers as ids.
                hint = _HINTS.get(wrong, "") if self.stated_vertices is None or wrong == EXTRA else ""
                is_first = not (span.start or num_edges or len(chunk.source) or span.file in self.headers)
                if wrong == NO_ID and hint and is_first and not self.header and not self._is_valued:
                    hint = _HEADER_HINT + hint
                raise bad_line(file, block.place(at), REASONS[wrong] + hint)
            yield chunk
            num_edges += len(chunk.source)
        self._check_edges(span, num_edges)

    def read_names(self, span: SourceRange) -> Iterator[NameChunk]:
        """Read one range, with ids as names.

        Raises:
            InputError: a line is not an edge between names, a whole file has no edges, or compressed data is damaged.
        """
        num_edges = 0
        for block in self._blocks(span):
            chunk = self._parse_names(span.file, block)
            yield chunk
            num_edges += len(chunk.source)
        self._check_edges(span, num_edges)

    def _check_edges(self, span: SourceRange, found: int) -> None:
        file = self.files[span.file]
        if not found and span.start == 0 and span.stop in {-1, file.size}:
            raise _no_edges(file)

    def count_lines(self, span: SourceRange) -> int:
        """Number of lines of a range that should be edges."""
        return count_data_lines((block.offset, block.text) for block in self._blocks(span))

    def _blocks(self, span: SourceRange, block_bytes: int = 0) -> Iterator[TextBlock]:
        """Lines of a range, in the form that parsers read, in blocks of the usual size by default."""
        number, stop = span.file, None if span.stop < 0 else span.stop
        file, size = self.files[number], block_bytes or self.block_bytes
        blocks = data_blocks(file, bool(self.header) or number in self.headers, span.start, stop, size)
        if self._is_plain(number):
            return (TextBlock(text, offset) for offset, text in blocks)
        return chosen_fields(file, blocks, self.separators[number], self.fields[number] if self.fields else ())

    def _is_plain(self, number: int) -> bool:
        """Whether parsers read the text of a file as it is."""
        return not self.columns and not self.delimiter and self.separators[number] != SEMICOLON

    @property
    def _is_valued(self) -> bool:
        """Whether edges have weights or times."""
        return self.weights or self.times

    def _parse(self, block: NDArray[np.uint8]) -> tuple[EdgeChunk, int, int]:
        """The edges, the position of the line that stopped the parser, and its fault (0: everything is parsed)."""
        most = len(block) // _SHORTEST_LINE + 1
        source, target = np.empty(most, np.int64), np.empty(most, np.int64)
        values = self._room(most) if self._is_valued else None
        last_id = _ANY_ID if self.stated_vertices is None else self.stated_vertices - 1
        count, at, wrong = parse_edges(block, self.extra_columns, last_id, source, target, values)
        found = None if values is None else values[:count]
        return EdgeChunk.valued(source[:count], target[:count], found, times=self.times), at, wrong

    def _room(self, most: int) -> NDArray[Any]:
        """(most,) where parsers put weights or times."""
        return np.empty(most, np.float64 if self.times else np.float32)

    def begins_with_names(self) -> bool:
        """Whether an id in the first 64 KiB of lines of a file is not a number, so that the ids are names.

        Raises:
            InputError: only first lines have such ids, and the user did not say whether they are headers; or a line is
                not an edge.
        """
        doubtful: list[SourceFile] = []
        has_numbers = False
        for number, file in enumerate(self.files):
            lines = self._lines_of_names(number)
            # Numbers in quotes are names too. A first line with a weight or a time is an edge.
            if lines and (lines[0] or not all(lines[1:]) or self._is_valued):
                return True
            has_numbers |= len(lines) != 1
            if lines:
                doubtful.append(file)
        if doubtful and has_numbers and self.header is None:
            raise InputError(
                f"{doubtful[0].location}: only the first line holds ids that are not numbers; pass `--header` if it"
                " names the columns, or `--no-header` if it is an edge and all ids are names"
            )
        return bool(doubtful)

    def _lines_of_names(self, number: int) -> list[bool]:
        """Whether both names are numbers, for each of the first lines of a file; empty if they are read as numbers."""
        for block in self._blocks(SourceRange(number, 0, -1), _FIRST_BYTES):
            chunk, _, wrong = self._parse(block.text)
            if wrong in _MAY_BE_NAME:
                named = self._parse_names(number, block)
                ends = zip(named.source, named.target, strict=True)
                return [_is_number(source) and _is_number(target) for source, target in ends]
            # Any other fault is reported by whoever reads the edges.
            if wrong or len(chunk.source):
                break
        return []

    def _parse_names(self, number: int, block: TextBlock) -> NameChunk:
        file, text = self.files[number], block.text
        most = len(text) // _SHORTEST_LINE + 1
        source, target = np.empty(len(text), np.uint8), np.empty(len(text), np.uint8)
        source_offset, target_offset = np.empty(most + 1, np.int64), np.empty(most + 1, np.int64)
        values, line_at = self._room(most if self._is_valued else 0), np.empty(most, np.int64)
        count, at, wrong = name_parser.parse_names(
            text,
            self.separators[number] if self._is_plain(number) else TAB,
            self._is_valued,
            self.extra_columns,
            source,
            source_offset,
            target,
            target_offset,
            values,
            line_at,
        )
        sources, targets = Names(source_offset[: count + 1], source), Names(target_offset[: count + 1], target)
        for names in (sources, targets):
            edge, reason = names.first_wrong()
            if edge >= 0:
                raise bad_line(file, block.place(int(line_at[edge])), reason)
        if wrong:
            reason = name_parser.REASONS.get(wrong) or REASONS[wrong] + _HINTS.get(wrong, "")
            raise bad_line(file, block.place(at), reason)
        return NameChunk.valued(sources, targets, values[:count] if self._is_valued else None, times=self.times)

    def with_vertices(self, num_vertices: int) -> TextEdges:
        """The same edges, but with ids that must be below ``num_vertices``."""
        return replace(self, stated_vertices=num_vertices)


def _fields_of(file: SourceFile, separator: int, columns: Sequence[str], *, named: bool) -> tuple[int, ...]:
    """Indices of the fields with these names in the first line or, without names, with these numbers from 1.

    Raises:
        InputError: the line does not have one of them.
    """
    fields = first_lines(file, separator)[0]
    names = fields if named else [str(number) for number, _ in enumerate(fields, start=1)]
    for name in columns:
        if name not in names:
            hint = "; if it does not name the columns, give their numbers from 1 and `--no-header`" if named else ""
            raise InputError(f"{file.location}: no column {name}; the first line has {', '.join(names)}{hint}")
    return tuple(map(names.index, columns))


def _is_number(name: bytes) -> bool:
    """Whether a name is a number below 2^63."""
    digits = name.lstrip(b"0") or name[:1]
    return digits.isdigit() and len(digits) <= len(str(_ANY_ID)) and int(digits) <= _ANY_ID


def _no_edges(file: SourceFile) -> InputError:
    return InputError(f"{file.location}: the file is empty or contains only comments; expected a line per edge")


FORMAT = Format(
    name="snap",
    order=10,
    help="text of two or three columns: SNAP, CSV, TSV; plain, .gz or .zst",
    open_edges=TextEdges.open,
    options=(
        WEIGHTS,
        TIMES,
        Option(
            "header", bool, "Whether the first line names the columns; by default, if it is recognized.", deniable=True
        ),
        Option("extra_columns", bool, "Ignore columns after those that are needed."),
        COLUMNS,
        Option("delimiter", str, "What separates fields: one character, or tab; by default, it is recognized."),
    ),
    is_fallback=True,
)
