"""SNAP-style text: one edge per line, as two ids and optionally a weight.

Blank lines are ignored, and so are lines before the first edge that begin with ``#`` or ``%``; after it, such a line is
an edge if ids are names. Columns are separated by blanks, tabs or one comma; with other separators, and with
``columns``, fields are found first (:mod:`gnnloom.pipeline.sources.reading.fields`). Lines end with LF or CR LF; the
last line may end with neither. An id consists of digits and is below 2^63; it may be in double quotes, or be followed
by a point and zeros. :mod:`gnnloom.pipeline.sources.reading.text_table` decides what the first lines show.

A line with more columns than expected is refused. Otherwise weights or times would be lost unnoticed, and the size line
of another format would be read as an edge. ``extra_columns`` ignores further columns instead.

If ids are names, :mod:`gnnloom.pipeline.sources.parsers.name_parser` defines how lines are split.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.format import (
    COLUMNS,
    TIMES,
    WEIGHTS,
    Format,
    check_headless,
    check_parts,
    check_values,
    column_names,
)
from gnnloom.pipeline.sources.names import HINT, NameChunk, Names
from gnnloom.pipeline.sources.parsers import name_parser
from gnnloom.pipeline.sources.parsers.name_parser import DOUBTFUL
from gnnloom.pipeline.sources.parsers.numerals import (
    EXTRA,
    NEGATIVE,
    NO_ID,
    ONE_ID,
    OPEN_COMMENT,
    PADDED,
    REASONS,
    TOO_LARGE,
)
from gnnloom.pipeline.sources.reading.description import Reading, describe_text
from gnnloom.pipeline.sources.reading.fields import PLAIN, TextBlock, chosen_fields
from gnnloom.pipeline.sources.reading.files import SourceFile, open_files
from gnnloom.pipeline.sources.reading.first_lines import FirstLines, Suggestion, in_one_unit
from gnnloom.pipeline.sources.reading.line_estimate import Estimate, estimate_lines
from gnnloom.pipeline.sources.reading.lines import (
    BLOCK_BYTES,
    RANGE_BYTES,
    bad_line,
    byte_ranges,
    checked_lines,
    count_data_lines,
    line_at,
)
from gnnloom.pipeline.sources.reading.name_ids import IdKind, id_fault
from gnnloom.pipeline.sources.reading.others.margins import footer_of, numbered_columns
from gnnloom.pipeline.sources.reading.parse import parse_edges
from gnnloom.pipeline.sources.reading.text_layout import (
    SAMPLE_BYTES,
    Sample,
    Stated,
    likely_separator,
    row_blocks,
    separator_of,
    split_fields,
)
from gnnloom.pipeline.sources.reading.text_table import (
    TextTable,
    check_first_rows,
    find_table,
    with_times,
)
from gnnloom.pipeline.sources.source import EdgeChunk, SourceRange
from gnnloom.pipeline.sources.understood import Understood
from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.ticks import floats_of_ticks
from gnnloom.storage.option import Option
from gnnloom.storage.wording import shell_command

#: Length of the shortest line with an edge: two digits, a separator and a line feed.
_SHORTEST_LINE = 4
_ANY_ID = np.iinfo(np.int64).max
#: The statements of a user who gives no option.
_NOTHING: Final = Stated()
_HEADER_HINT = "; if the first line names the columns, add `--header`"
_HINTS = {
    NO_ID: HINT,
    NEGATIVE: HINT,
    TOO_LARGE: HINT,
    PADDED: HINT,
}


@dataclass(frozen=True)
class TextEdges:
    """Edges from text files; implements :class:`~gnnloom.pipeline.sources.names.NamedEdgeSource`.

    Attributes:
        files: local uncompressed files are read in ranges of ``range_bytes``, each other file as a whole.
        tables: how each file is read.
        stated: what the user says about the files.
        weights: whether the third column contains float32 weights.
        times: whether it contains float64 times.
        extra_columns: whether to ignore further columns rather than refuse them.
        delimiter: the option.
        any_name: whether all ids are names, whatever they look like.
        stated_vertices: the number of vertices, if something other than the file states it.
        width: number of fields of every line; 0 if lines may have further fields.
        range_bytes: size of a range.
        block_bytes: number of bytes parsed at a time.
        opened: facts from the first lines of each file; empty in tasks, which do not need them.
    """

    files: tuple[SourceFile, ...]
    tables: tuple[TextTable, ...]
    stated: Stated = _NOTHING
    weights: bool = False
    times: bool = False
    extra_columns: bool = False
    delimiter: str = ""
    any_name: bool = False
    stated_vertices: int | None = None
    width: int = 0
    range_bytes: int = RANGE_BYTES
    block_bytes: int = BLOCK_BYTES
    opened: tuple[FirstLines, ...] = field(default=(), repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the first lines."""
        return {**vars(self), "opened": ()}

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
        comment: str = "",
        decimal: str = ".",
    ) -> TextEdges:
        """Find the files, and decide how they are read.

        Args:
            columns: names of the source, target and optionally weight columns in the first line, or their numbers from
                1; a text separates them by commas. Three columns imply ``weights``, unless they have ``times``.
            delimiter: one or more characters between fields, or ``tab``.
            comment: a character that begins comments, or ``none``.
            decimal: the character before the decimals of weights and times.

        Raises:
            NotFoundError: a file does not exist.
            InputError: a file is empty, its first line does not have one of the columns, or the first lines of two
                files name other columns.
        """
        check_values(weights=weights, times=times)
        files, wanted = open_files(locations), column_names(columns, weights=weights, times=times)
        if comment != "none" and (len(comment) > 1 or not comment.isascii() or comment.isalnum()):
            raise InputError(f"comment {comment!r}: expected one character such as '#', or none")
        for file in files:
            if file.size == 0:
                raise _no_edges(file)
        if wanted:
            weights, extra_columns = not times and len(wanted) == 3, True
        stated = Stated(
            header, wanted, separator_of(delimiter), comment, weights or times, decimal, extra_columns, are_edges=True
        )
        found = [_look(file, stated, times=times) for file in files]
        tables, opened = tuple(table for table, _ in found), tuple(lines for _, lines in found)
        if times:
            tables = in_one_unit(files, tables)
        if not wanted:
            named = [
                (file.location, [lines.headings[end] for end in table.ends if end < len(lines.headings)])
                for file, table, lines in zip(files, tables, opened, strict=True)
                if table.header and lines.headings
            ]
            joins = "; if only the first file has a header, join the files, as with cat" if header else ""
            check_parts(named, f"; to read all files by position, add `--columns 1,2`{joins}")
            check_headless(
                [(file.location, bool(each.header), each.ends) for file, each in zip(files, tables, strict=True)]
            )
        return cls(files, tables, stated, weights, times, extra_columns, delimiter, opened=opened)

    @property
    def recognized_headers(self) -> tuple[str, ...]:
        """Locations of the files whose first line was recognized as a header."""
        tables = zip(self.files, self.tables, strict=True)
        return tuple(file.location for file, table in tables if table.is_recognized)

    @property
    def header_hint(self) -> str:
        """Suggestion for an error about the first row; empty if the first file has a header, or the user said so."""
        return _HEADER_HINT if self.stated.header is None and not self.tables[0].header else ""

    @property
    def says_undirected(self) -> str:
        """Location of a file that says that its edges have no direction; empty if none does."""
        tables = zip(self.files, self.tables, strict=True)
        return next((file.location for file, table in tables if table.is_symmetric), "")

    @property
    def two_types(self) -> str:
        """The file that says that sources and targets are of two types; empty if none does."""
        tables = zip(self.files, self.tables, strict=True)
        location = next((file.location for file, table in tables if table.is_bipartite), "")
        return f"{location}: a bipartite graph of KONECT (`% bip`)" if location else ""

    @property
    def type_sizes(self) -> None:
        """Nothing states how many vertices there are."""
        return

    @property
    def time_unit(self) -> str:
        """The unit of times that are dates; empty if there are none, or numbers."""
        return next((table.times.unit for table in self.tables if table.times is not None), "")

    def identity(self) -> dict[str, Any]:
        columns, comment = self.stated.columns, self.stated.comment
        return {
            "format": "snap",
            "weights": self.weights,
            **({"times": True} if self.times else {}),
            "header": self._header_identity(),
            "extra_columns": self.extra_columns,
            **({"columns": list(columns)} if columns else {}),
            **({"delimiter": self.delimiter} if self.delimiter else {}),
            **({"comment": comment} if comment else {}),
            **({"decimal": self.stated.decimal} if self.stated.decimal != "." else {}),
            "files": [file.identity() for file in self.files],
        }

    def _header_identity(self) -> bool | list[int]:
        """Identity of the header: a recognized header counts as given, unless only some files have one."""
        found = [number for number, table in enumerate(self.tables) if table.is_recognized]
        if found and len(found) < len(self.files):
            return found
        # A first line that has the columns by name counts as stated; columns of single digits may have none.
        is_named = (
            bool(self.stated.columns) and self.stated.header is None and all(table.header for table in self.tables)
        )
        return bool(found) or bool(self.stated.header) or is_named

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
        num_edges = 0
        for block in self._blocks(span, is_read=True):
            chunk, at, wrong = self._parse(block)
            if wrong:
                is_first = not (span.start or num_edges or len(chunk.source) or self.tables[span.file].header)
                raise self._error(span.file, block.place(at), wrong, is_first=is_first)
            yield chunk
            num_edges += len(chunk.source)
        self._check_edges(span, num_edges)

    def _error(self, number: int, offset: int, wrong: int, *, is_first: bool) -> InputError:
        """The error of a line whose ids should be numbers.

        Args:
            offset: of the line in the file's contents, in bytes.
            is_first: no line before it is an edge or a header.
        """
        file, hint = self.files[number], ""
        # A source that states its number of vertices uses numbers as ids.
        if self.stated_vertices is None or wrong == EXTRA:
            hint = self._hint(number, wrong)
        if wrong in {NO_ID, ONE_ID} and (fault := self._id_fault(number, offset)):
            return bad_line(file, offset, fault)
        if wrong == NO_ID and hint and is_first and not self.stated.header and not self._is_valued:
            hint = _HEADER_HINT + hint
        if wrong == NO_ID and hint and not is_first:
            hint = f"; remove the line if it is not an edge{hint}"
        return bad_line(file, offset, REASONS[wrong] + hint)

    def _hint(self, number: int, wrong: int) -> str:
        """Suggestion to the user about a fault of a line."""
        if wrong != EXTRA:
            return _HINTS.get(wrong, "")
        return self._first_lines(number).suggestion.hint

    def _first_lines(self, number: int) -> FirstLines:
        """Facts from the first lines of a file.

        Raises:
            InputError: the file cannot be read.
        """
        file, table = self.files[number], self.tables[number]
        return (
            self.opened[number]
            if self.opened
            else FirstLines.of(file, Sample.of(file, self.stated), self.stated, table)
        )

    def _id_fault(self, number: int, offset: int) -> str:
        """The fault of an id in the line at an offset; empty if the ids do not show it."""
        table = self.tables[number]
        try:
            fields = split_fields(line_at(self.files[number], offset).decode("utf-8", "replace"), table.separator)
        except csv.Error:
            return ""
        return next((fault for end in table.ends if end < len(fields) and (fault := id_fault(fields[end]))), "")

    def check_beginning(self, *, are_names: bool) -> None:
        """Read the first lines of each file as edges.

        Raises:
            InputError: a line is not an edge.
        """
        source = replace(self, block_bytes=SAMPLE_BYTES, range_bytes=SAMPLE_BYTES)
        for span in source.ranges():
            if not span.start:
                next(source.read_names(span) if are_names else source.read(span), None)

    def read_names(self, span: SourceRange) -> Iterator[NameChunk]:
        """Read one range, with ids as names.

        Raises:
            InputError: a line is not an edge between names, a whole file has no edges, or compressed data is damaged.
        """
        num_edges, last = 0, None
        for block in self._blocks(span, comments=self._comments, refused=b"\t", is_read=True):
            chunk = self._parse_names(span.file, block)
            yield chunk
            num_edges += len(chunk.source)
            last = chunk if len(chunk.source) else last
        self._check_edges(span, num_edges)
        # The ends of other files were looked at when they were opened.
        if last is None or num_edges < 2 or self.files[span.file].is_seekable or self.stated.by_number:
            return
        name, fault = footer_of(last.source, last.target)
        option = numbered_columns(self.tables[span.file].fields, valued=self._is_valued)
        reason = f"{fault}, or add `{option}`"
        if fault and (error := self.id_error(span, name, (0, 1), f"{reason} if it is an edge")) is not None:
            raise error

    def _check_edges(self, span: SourceRange, found: int) -> None:
        file = self.files[span.file]
        if not found and span.start == 0 and span.stop in {-1, file.size}:
            raise _no_edges(file)

    def id_error(self, span: SourceRange, name: str, ends: Sequence[int], reason: str) -> InputError | None:
        """The error for the first line of a range with an id; None if no line has the id.

        Args:
            name: the id, as a name or as digits.
            ends: columns of ids to look at: 0 for sources, 1 for targets.
            reason: the fault of the id.
        """
        between = self.tables[span.file].separator if self._is_plain(span.file) else b"\t"
        for block in self._blocks(span, comments=self._comments, refused=b"\t"):
            at = 0
            for line in block.text.tobytes().split(b"\n"):
                fields = line.split(between) if between in {b"\t", b","} else line.split()
                found = [fields[end].strip(b' "\r').decode("utf-8", "replace") for end in ends if end < len(fields)]
                if name in found or (name.isdigit() and name in [each.rstrip("0").rstrip(".") for each in found]):
                    return bad_line(self.files[span.file], block.place(at), reason)
                at += len(line) + 1
        return None

    def count_lines(self, span: SourceRange) -> int:
        """Number of lines of a range that should be edges."""
        return count_data_lines((block.offset, block.text) for block in self._blocks(span))

    @property
    def _comments(self) -> bytes:
        """Bytes that begin comments among lines whose ids are names."""
        return b"" if self.stated.comment in {"", "none"} else self.stated.comment.encode()

    def _blocks(
        self, span: SourceRange, comments: bytes = b"#%", refused: bytes = b", \t", *, is_read: bool = False
    ) -> Iterator[TextBlock]:
        """Lines of a range, in the form that parsers read.

        Args:
            refused: bytes that ids must not have: the separators of parsers.
            is_read: edges are read, so that lines that are not rows of their own are refused.
        """
        number, stop = span.file, None if span.stop < 0 else span.stop
        file, table = self.files[number], self.tables[number]
        if table.question:
            raise InputError(table.question)
        blocks = row_blocks(file, table.first_row, span.start, stop, self.block_bytes)
        # Parsers of numbers find such lines themselves, unless they ignore fields.
        if is_read and (self.extra_columns or (table.header_line and comments == self._comments)):
            blocks = checked_lines(file, blocks, table.separator, table.header_line, comments + self._comments)
        if self._is_plain(number):
            return (TextBlock(text, offset) for offset, text in blocks)
        return chosen_fields(
            file,
            blocks,
            table.separator,
            table.fields,
            comments=comments + self._comments,
            decimal=self.stated.decimal,
            times=table.times,
            extra_columns=self.extra_columns,
            refused=refused,
            valued=self._is_valued and table.times is None,
            width=self.width,
        )

    def _is_plain(self, number: int) -> bool:
        """Whether parsers read the text of a file as it is."""
        table = self.tables[number]
        return not (table.fields or self.delimiter or self.stated.decimal != ".") and table.separator in PLAIN

    @property
    def _is_valued(self) -> bool:
        """Whether edges have weights or times."""
        return self.weights or self.times

    def _parse(self, block: TextBlock) -> tuple[EdgeChunk, int, int]:
        """The edges, the position of the line that stopped the parser, and its fault (0: everything is parsed)."""
        most = len(block.text) // _SHORTEST_LINE + 1
        source, target = np.empty(most, np.int64), np.empty(most, np.int64)
        values = self._room(most) if self._is_valued and block.ticks is None else None
        is_stated = self.stated_vertices is not None
        last_id = self.stated_vertices - 1 if self.stated_vertices is not None else _ANY_ID
        comment = self._comments[0] if self._comments else 0
        rules = self.extra_columns, last_id, not is_stated, comment
        count, at, wrong = parse_edges(block.text, *rules, source, target, values)
        found = None if values is None else values[:count]
        if block.ticks is not None:
            found = floats_of_ticks(block.ticks[:count])
        return EdgeChunk.valued(source[:count], target[:count], found, times=self.times), at, wrong

    def _room(self, most: int) -> NDArray[Any]:
        """(most,) where parsers put weights or times."""
        return np.empty(most, np.float64 if self.times else np.float32)

    def begins_with_names(self) -> bool:
        """Whether an id in the first 64 KiB of lines of a file is not a number, so that the ids are names.

        Raises:
            InputError: the first lines leave open what they are; see
                :func:`gnnloom.pipeline.sources.reading.text_table.find_ids`.
        """
        return any(kind.are_names for kind in self.id_kinds())

    def id_kinds(self) -> list[IdKind]:
        """Kind of the ids at the beginning of each file; raises as :meth:`begins_with_names` does."""
        return [self._first_lines(number).kind(are_names=self.any_name) for number in range(len(self.files))]

    def understood(self) -> list[Understood]:
        """Describes how each file is read, judging by its first lines."""
        return [self._understood(number) for number in range(len(self.files))]

    def _understood(self, number: int) -> Understood:
        file, table, lines = self.files[number], self.tables[number], self._first_lines(number)
        value = "time" if self.times else "weight" if self.weights else ""
        return describe_text(
            file.location,
            table,
            lines,
            Reading(
                value,
                are_names=self.any_name,
                is_stated=bool(self.stated.columns) or self._is_valued,
                extra_columns=self.extra_columns,
                has_size=self.stated_vertices is not None,
            ),
        )

    def titled(self, titles: tuple[str, ...]) -> TextEdges:
        """The same edges of files without a header, whose columns another file names."""
        return replace(self, opened=tuple(replace(lines, titles=titles) for lines in self.opened))

    def as_named(self) -> TextEdges:
        return replace(self, any_name=True)

    def _parse_names(self, number: int, block: TextBlock) -> NameChunk:
        file, text = self.files[number], block.text
        most = len(text) // _SHORTEST_LINE + 1
        source, target = np.empty(len(text), np.uint8), np.empty(len(text), np.uint8)
        source_offset, target_offset = np.empty(most + 1, np.int64), np.empty(most + 1, np.int64)
        is_valued = self._is_valued and block.ticks is None
        values, line_at = self._room(most if is_valued else 0), np.empty(most, np.int64)
        comment = self._comments[0] if self._comments else 0 if self.stated.comment else DOUBTFUL
        count, at, wrong = name_parser.parse_names(
            text,
            (self.tables[number].separator if self._is_plain(number) else b"\t")[0],
            is_valued,
            self.extra_columns,
            comment,
            not self.any_name,
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
            reason = name_parser.REASONS.get(wrong) or REASONS[wrong] + self._hint(number, wrong)
            if wrong == OPEN_COMMENT:
                sign = text[at:].tobytes().lstrip()[:1].decode()
                reason += (
                    f"; add `{shell_command('--comment', sign)}` to skip such lines, or `--comment none` to read them"
                )
            raise bad_line(file, block.place(at), reason)
        given = floats_of_ticks(block.ticks[:count]) if block.ticks is not None else values[:count]
        return NameChunk.valued(sources, targets, given if self._is_valued else None, times=self.times)

    def followed_by(self, others: TextEdges) -> TextEdges:
        """The edges of this source and then of ``others``, which have the same columns."""
        files, tables = (*self.files, *others.files), (*self.tables, *others.tables)
        return replace(self, files=files, tables=tables, opened=(*self.opened, *others.opened))

    def of_width(self, width: int) -> TextEdges:
        """The same edges of chosen columns, but lines with more or fewer fields are refused."""
        return replace(self, width=width)

    def with_vertices(self, num_vertices: int) -> TextEdges:
        """The same edges, but with ids that must be below ``num_vertices``."""
        return replace(self, stated_vertices=num_vertices)


def _look(file: SourceFile, stated: Stated, *, times: bool = False) -> tuple[TextTable, FirstLines]:
    """Reading of a file, and facts from its first lines; the reader of the edges reports a file that cannot be read."""
    try:
        sample = Sample.of(file, stated)
    except InputError as error:
        if stated.columns:
            raise
        table = TextTable(stated.separator or likely_separator(file.location, b""))
        return table, FirstLines((), (), str(error), str(error), Suggestion())
    table = find_table(file, sample, stated)
    if sample.is_whole and len(sample.rows) <= bool(table.header):
        is_doubtful = len(sample.comments) > 1 and not (sample.rows or stated.comment)
        raise _no_edges(file, "; add `--comment none` if the lines with # or % are edges" if is_doubtful else "")
    if not times:
        check_first_rows(file, sample, stated, table)
    table = with_times(file, sample, table) if times else table
    return table, FirstLines.of(file, sample, stated, table)


def _no_edges(file: SourceFile, hint: str = "") -> InputError:
    return InputError(f"{file.location}: the file is empty or contains only comments; expected a line per edge{hint}")


FORMAT = Format(
    name="snap",
    order=10,
    help="text of two or three columns: SNAP, CSV, TSV; plain, .gz or .zst",
    open_edges=TextEdges.open,
    options=(
        WEIGHTS,
        TIMES,
        Option("header", bool, "Whether the first line names the columns; detected by default.", deniable=True),
        Option("extra_columns", bool, "Ignore further columns."),
        COLUMNS,
        Option("delimiter", str, "Separator between fields, or tab; detected by default."),
        Option("comment", str, "Character that starts a comment, or none; by default, # and % before the first edge."),
        Option("decimal", str, "Decimal separator of weights and times.", default=".", choices=(".", ",")),
    ),
    is_fallback=True,
)
