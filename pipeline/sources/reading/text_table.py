"""Decides how a text file with an edge in every row is read: its separator, header, comments and the kind of its ids.

Whoever opens a file looks at its first lines once. What they show is a :class:`TextTable`; it is handed to the tasks,
and shown to the user before anything is stored. What they leave open is a question to the user, never a guess.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.lines import bad_line, whole_lines
from gnnloom.pipeline.sources.reading.name_parser import LONGEST_MISSING, is_missing
from gnnloom.pipeline.sources.reading.numerals import MISSING, REASONS
from gnnloom.pipeline.sources.reading.text_layout import is_number, likely_separator, names_ends, split_fields
from gnnloom.pipeline.sources.reading.times import TimeForm, find_times
from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import shell_command

#: Bytes of the rows at the beginning of a file that are looked at, up to the end of a line.
SAMPLE_BYTES: Final = 1 << 16
#: Rows at the beginning of a file that show whether it is something else than a list of edges.
_LOOKED_AT: Final = 1000
#: Fields of a triple.
_TRIPLE: Final = 3
#: Separators in words.
_WORDS: Final = {
    b" ": "blanks", b"\t": "tabs", b",": "commas", b";": "semicolons", b"|": "bars", b":": "colons",
}  # fmt: skip
_BYTE_ORDER_MARK: Final = "\ufeff"
#: Name of a column that pandas gives to an index without a name, in files of other kinds than text.
PANDAS_INDEX: Final = "__index_level_0__"
#: Names of a column that pandas, Arrow and others give to the numbers of rows.
_INDEXES: Final = frozenset({"", "unnamed: 0", PANDAS_INDEX})
#: An id that is a number as it is written, perhaps as a decimal number with zeros after the point; and padded ones.
_NUMBER: Final = re.compile(r"(0|[1-9]\d{0,18})(\.0*)?", re.ASCII)
_PADDED: Final = re.compile(r"0\d+(\.0*)?", re.ASCII)
_LETTERS, _DIGITS = re.compile(r"[^\W\d]+"), re.compile(r"\d+")
_MOST_ID: Final = (1 << 63) - 1


@dataclass(frozen=True)
class Stated:
    """What the user says about text files.

    Attributes:
        header: whether the first row names the columns; None if the user did not say.
        columns: names of the columns of sources, targets and values, or their numbers from 1; none for the first ones.
        separator: what is between fields; empty if the first row decides.
        comment: the sign that begins comments, ``none``, or empty for ``#`` and ``%`` before the first row.
        valued: whether edges have weights or times.
        decimal: the character before the decimals of values.
        extra_columns: further columns are ignored rather than refused.
    """

    header: bool | None = None
    columns: tuple[str, ...] = ()
    separator: bytes = b""
    comment: str = ""
    valued: bool = False
    decimal: str = "."
    extra_columns: bool = False


@dataclass(frozen=True)
class Row:
    """A row of a text file.

    Attributes:
        line: number of its line, from 1.
        start, stop: where the line begins and ends in the file's contents, in bytes.
        text: the line, without blanks around it.
        fields: the fields of the line.
    """

    line: int
    start: int
    stop: int
    text: str
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Sample:
    """The first rows of a text file.

    Attributes:
        comments: lines before the first row that begin with a comment sign.
        rows: the rows, without lines that are comments.
        is_whole: the file has no other rows.
        separator: what is between fields.
    """

    comments: tuple[str, ...]
    rows: tuple[Row, ...]
    is_whole: bool
    separator: bytes

    @classmethod
    def of(cls, file: SourceFile, stated: Stated) -> Sample:
        """Read the first lines of a file.

        Raises:
            InputError: the file cannot be read.
        """
        signs = "" if stated.comment == "none" else stated.comment or "#%"
        separator = stated.separator
        comments: list[str] = []
        rows: list[Row] = []
        number, read, is_whole = 0, 0, True
        for start, block in whole_lines(file, block_bytes=SAMPLE_BYTES):
            offset = start
            for line in block.tobytes().split(b"\n")[:-1]:
                number, begin, offset = number + 1, offset, offset + len(line) + 1
                text = line.decode("utf-8", "replace").removeprefix(_BYTE_ORDER_MARK if number == 1 else "")
                plain = text.strip()
                if not plain:
                    continue
                # A sign after the first row begins a comment only if the user says so.
                if plain[0] in signs and (stated.comment or not rows):
                    comments.append(plain)
                    continue
                separator = separator or likely_separator(file.location, plain.encode(), stated.decimal)
                rows.append(Row(number, begin, offset, plain, _fields(text, separator)))
            # Comments may be longer than the sample.
            read += len(block) if rows else 0
            if read > SAMPLE_BYTES // 2:
                is_whole = False
                break
        return cls(tuple(comments), tuple(rows), is_whole, separator or likely_separator(file.location, b""))


def _fields(line: str, separator: bytes) -> tuple[str, ...]:
    try:
        return tuple(split_fields(line, separator))
    except csv.Error:
        # A carriage return within a line, or a field of megabytes, which the reader of the rows reports.
        return (line,)


@dataclass(frozen=True)
class TextTable:
    """How one text file of edges is read.

    Attributes:
        separator: what is between fields; a space stands for runs of blanks.
        header: names of the columns; none if the first row is an edge.
        is_recognized: the header was recognized rather than stated.
        fields: numbers of the fields of the sources, targets and values that are parsed, from 0; none for the first
            ones. A further field is refused by the parser.
        first_row: offset of the first edge in the file's contents, in bytes.
        comments: number of lines before the first row that are comments.
        has_index: the first field of each row is its number, and is skipped.
        is_symmetric: the file says that its edges have no direction, as KONECT's do with ``% sym``, and Gephi's with
            ``Undirected`` in a column ``Type``.
        times: how the times of edges are written if they are dates.
    """

    separator: bytes
    header: tuple[str, ...] = ()
    is_recognized: bool = False
    fields: tuple[int, ...] = ()
    first_row: int = 0
    comments: int = 0
    has_index: bool = False
    is_symmetric: bool = False
    times: TimeForm | None = None

    @property
    def ends(self) -> tuple[int, int]:
        """Numbers of the fields of sources and targets."""
        return (self.fields[0], self.fields[1]) if self.fields else (0, 1)


def find_table(file: SourceFile, sample: Sample, stated: Stated) -> TextTable:
    """Decide how a file is read, as far as its first lines are certain.

    Raises:
        InputError: the first row does not have one of the columns.
    """
    if not sample.rows:
        return TextTable(sample.separator, comments=len(sample.comments))
    first, rows = sample.rows[0], sample.rows[1:]
    is_index = len(first.fields) > 2 and numbers_rows(first.fields[0])
    # R writes the numbers of rows without a name for their column.
    is_shorter = bool(rows) and all(len(row.fields) == len(first.fields) + 1 for row in rows)
    is_shorter = is_shorter and not any(map(is_number, first.fields)) and _are_row_numbers(rows)
    columns, seen = stated.columns, stated.header is None
    chosen = _numbered(first.fields, columns, has_header=stated.header is True)
    ends = chosen[:2] or (0, 1)
    titles = [first.fields[at] for at in chosen] or first.fields
    recognized = seen and (is_index or is_header(titles, valued=stated.valued) or _is_over_numbers(titles, rows, ends))
    # Columns with names imply a first line with these names; columns with numbers do not.
    names = first.fields if stated.header or recognized or (seen and columns and not chosen) else ()
    has_index = bool(names) and (is_index or (is_shorter and len(names) > 1)) and not columns
    shift = 1 if is_shorter and names else 0
    indices = chosen or _named(file, first.fields, columns, named=stated.header is not False)
    fields = tuple(number + shift for number in indices)
    if has_index:
        fields = (1, 2, 3) if stated.valued else (1, 2)
        if not stated.extra_columns and all(len(row.fields) > fields[-1] + 1 for row in rows[:1]):
            # The parser refuses it as a further column.
            fields += (fields[-1] + 1,)
    _refuse_marked(file, sample)
    if not columns:
        _refuse_others(file, sample, has_header=bool(names), is_valued=stated.valued)
    return TextTable(
        sample.separator,
        names,
        recognized and (not columns or bool(chosen)),
        fields,
        first.stop if names else first.start,
        len(sample.comments),
        has_index,
        not columns and _says_undirected(file, sample, names),
    )


def _says_undirected(file: SourceFile, sample: Sample, header: Sequence[str]) -> bool:
    """Whether a file says that its edges have no direction: in its first comment, or in Gephi's column ``Type``.

    Raises:
        InputError: only some edges have a direction.
    """
    if sample.comments[:1] != () and sample.comments[0].lstrip("% ").split()[:1] == ["sym"]:
        return True
    at = next((number for number, name in enumerate(header) if name.lower() == "type"), None)
    found = {row.fields[at].lower() for row in sample.rows[1:] if at < len(row.fields)} if at is not None else set()
    if found == {"directed", "undirected"}:
        raise InputError(
            f"{file.location}: column {header[at or 0]} has directed and undirected edges; write the undirected ones in"
            " both directions, and add `--columns` with the columns that are read"
        )
    return found == {"undirected"}


def with_times(file: SourceFile, sample: Sample, table: TextTable) -> TextTable:
    """How a file is read whose third column has times: as dates if the first one is, otherwise as numbers.

    Raises:
        InputError: a date and a time of day are two fields.
    """
    fields = table.fields or (0, 1, 2)
    rows = [row for row in sample.rows[1 if table.header else 0 :] if len(row.fields) > fields[2]]
    found = find_times([row.fields[fields[2]] for row in rows])
    if found is None:
        return table
    first = rows[0].fields[fields[2] :]
    if len(first) > 1 and find_times([" ".join(first[:2])]) is not None:
        raise bad_line(
            file, rows[0].start, f"a date and a time of day between blanks; write {first[0]}T{first[1]}, or use commas"
        )
    return replace(table, fields=fields, times=found)


def _refuse_marked(file: SourceFile, sample: Sample) -> None:
    """Refuse a file whose first comment says that its lines are not edges between vertices of one kind.

    Raises:
        InputError: the file is in the format of MatrixMarket, or a bipartite graph of KONECT.
    """
    first = sample.comments[0] if sample.comments else ""
    if first.lstrip("%").lower().startswith("matrixmarket"):
        raise InputError(f"{file.location}: begins as files of MatrixMarket do; give `--format mtx`")
    if first.startswith("%") and first[1:].split()[:1] == ["bip"]:
        raise InputError(
            f"{file.location}: a bipartite graph of KONECT (`% bip`), which numbers both kinds of vertices from 1; give"
            ' them different names, for example with awk \'!/^%/ {print "u" $1, "i" $2}\', and add `--ids names`'
        )


def _refuse_others(file: SourceFile, sample: Sample, *, has_header: bool, is_valued: bool) -> None:
    """Refuse a file that is not a list of edges, though its lines could be read as edges.

    Raises:
        InputError: the file is an adjacency matrix, or has tuples in parentheses, dictionaries or triples.
    """
    first, rows = sample.rows[0], sample.rows[1 if has_header else 0 :][:_LOOKED_AT]
    firsts = [row.fields[0] for row in rows]
    is_square = len(firsts) == len(first.fields) - 1 > 1 and list(first.fields[1:]) == firsts
    if is_square and all(len(row.fields) == len(first.fields) for row in rows):
        raise InputError(
            f"{file.location}: a matrix with a row and a column per vertex, not a list of edges; convert it, for"
            " example with pandas.read_csv(file, index_col=0).stack().to_csv('edges.csv')"
        )
    if rows and all(row.text[:1] == "(" and row.text[-1:] == ")" for row in rows):
        raise bad_line(
            file, rows[0].start, "tuples in parentheses; write the ids without them, with one separator between two ids"
        )
    if rows and all("{" in row.text and row.text[-1:] == "}" for row in rows):
        raise bad_line(
            file,
            rows[0].start,
            "dictionaries after the ids, as networkx.write_edgelist writes them; write the edges with"
            " networkx.write_weighted_edgelist, or with data=False",
        )
    widths = {len(row.fields) for row in rows}
    if not is_valued and len(widths) > 2 and all(is_id(field) for row in rows for field in row.fields):
        raise bad_line(
            file,
            rows[0].start,
            f"the lines have {min(widths)} to {max(widths)} numbers, as lines of a vertex and its neighbors have, which"
            " networkx.read_adjlist reads in Python; `--columns 1,2` takes the first two of each line for an edge",
        )
    if widths == {_TRIPLE}:
        heads, relations, tails = ({row.fields[number] for row in rows} for number in range(_TRIPLE))
        # A relation is not a vertex, and a third column of vertices does not have weights.
        are_words = not any(is_id(word) or is_number(word) or find_times([word]) for word in (*relations, *tails))
        is_smaller = bool(heads & tails) or len(relations) < len(tails)
        if are_words and is_smaller and not relations & (heads | tails) and len(relations) < len(rows):
            raise bad_line(
                file,
                rows[0].start,
                "triples of head, relation and tail; `--columns 1,3` reads their ends and leaves the relation out",
            )


def refuse_counts(file: SourceFile) -> None:
    """Refuse a short file whose first line counts what follows it, unless the user says what it is.

    Raises:
        InputError: the file may be in the format of METIS, or begin with the numbers of vertices and edges.
    """
    try:
        sample = Sample.of(file, Stated())
    except InputError:
        # The reader of the rows reports it.
        return
    if not sample.is_whole or len(sample.rows) < _TRIPLE or not all(map(str.isdigit, sample.rows[0].fields)):
        return
    (first, *rows), counts = sample.rows, [int(field) for field in sample.rows[0].fields]
    if len(counts) < 2:
        return
    if len(rows) == counts[0] and sum(len(row.fields) for row in rows) == 2 * counts[1]:
        raise InputError(
            f"{file.location}: perhaps in the format of METIS, as line {first.line} states {counts[0]:,} vertices and"
            f" {counts[1]:,} edges; give `--format metis`, or `--format snap` if each line is an edge"
        )
    ids = {field for row in rows for field in row.fields[:2]}
    if len(counts) == 2 and len(rows) == counts[1] and str(counts[0]) not in ids:
        raise InputError(
            f"{file.location}: line {first.line} may state {counts[0]:,} vertices and {counts[1]:,} edges; add"
            " `--format snap --header` to skip it, or `--format snap` if it is an edge"
        )


def spelled(separator: bytes) -> str:
    """A separator in words."""
    return _WORDS.get(separator) or repr(separator.decode("latin-1"))


def headings(table: TextTable, sample: Sample) -> list[str]:
    """Names of the columns; ``column 1`` and so on in a file without a header."""
    width = max((len(row.fields) for row in sample.rows[:2]), default=0)
    # R leaves out the name of the column of row numbers.
    shift = width - len(table.header) if table.header else 0
    return [""] * shift + list(table.header) if table.header else [f"column {number + 1}" for number in range(width)]


def describe_columns(table: TextTable, sample: Sample, value: str) -> dict[str, Any]:
    """Names or numbers of the columns that are read, and of those that are not.

    Args:
        value: what the third column has; empty if it is not read.
    """
    names = headings(table, sample)
    chosen = (table.fields or (0, 1, 2))[: 3 if value else 2]
    read = [names[number] if number < len(names) else f"column {number + 1}" for number in chosen]
    source, target, *values = [*read, "", ""][: max(2, len(read))]
    known = {*chosen, 0} if table.has_index else set(chosen)
    others = [name for number, name in enumerate(names) if number not in known]
    return {
        "source": source,
        "target": target,
        **({"value": values[0]} if values else {}),
        **({"ignored": others} if others else {}),
    }


def numbers_rows(name: str) -> bool:
    """Whether a column of this name numbers the rows, as the index of a data frame does in a file."""
    return name.lower() in _INDEXES


def is_header(fields: Sequence[str], *, valued: bool) -> bool:
    """Whether a first row names the columns, as far as its own fields are certain.

    It does if its first two fields are a pair of words such as ``source,target``. With weights, the third field
    decides: a row with a number there, or something that begins as one, is an edge, whatever its first two are; a row
    with something else there is a header, unless these are both numbers.
    """
    if len(fields) < 2:
        return False
    # Numbers may stand between several separators, such as a tab and a comma.
    first, second, *others = (field.strip(",; \t") for field in fields)
    value = others[0] if valued and others else ""
    if is_number(value) or value.lstrip("+-.")[:1].isdigit():
        return False
    return names_ends(first, second) or (bool(value) and not (first.isdigit() and second.isdigit()))


def _are_row_numbers(rows: Sequence[Row]) -> bool:
    """Whether the first fields are different numbers, as R's names of rows are."""
    firsts = {row.fields[0] for row in rows}
    return len(firsts) == len(rows) and all(map(is_id, firsts))


def _is_over_numbers(titles: Sequence[str], rows: Sequence[Row], ends: tuple[int, ...]) -> bool:
    """Whether two words in the first row stand over columns that otherwise have numbers."""
    if len(rows) < 2 or any(is_number(word) or is_missing_id(word) for word in titles[:3]):
        return False
    below = [row.fields[end] if end < len(row.fields) else "" for row in rows[:_LOOKED_AT] for end in ends]
    return all(map(is_id, below))


def _named(file: SourceFile, first: Sequence[str], columns: Sequence[str], *, named: bool) -> tuple[int, ...]:
    """Indices of the fields with these names in the first row."""
    known = first if named else [str(number + 1) for number in range(len(first))]
    for column in columns:
        if column not in known:
            hint = "; if it does not name the columns, give their numbers from 1 and `--no-header`" if named else ""
            raise InputError(f"{file.location}: no column {column}; the first line has {', '.join(known)}{hint}")
    return tuple(map(known.index, columns))


def _numbered(first: Sequence[str], columns: Sequence[str], *, has_header: bool) -> tuple[int, ...]:
    """Indices of columns that are chosen by their numbers from 1; none if they are chosen by name.

    Args:
        has_header: the user says that the first row names the columns, and a column may be called 2.
    """
    numbers = [str(number) for number in range(1, len(first) + 1)]
    if any(column not in numbers or (has_header and column in first) for column in columns):
        return ()
    return tuple(map(numbers.index, columns))


@dataclass(frozen=True)
class IdKind:
    """Whether the ids at the beginning of a file are numbers or names.

    Attributes:
        are_names: they are names.
        at: number of the line that decided, from 1; -1 if all ids are numbers.
        token: the id in this line that is not a number.
        fault: why the ids can be neither; empty if they can.
    """

    are_names: bool
    at: int = -1
    token: str = ""
    fault: str = ""


def find_ids(file: SourceFile, sample: Sample, stated: Stated, table: TextTable, *, are_names: bool = False) -> IdKind:
    """Decide whether ids are numbers or names. A few words in a column of numbers do not turn all ids into names.

    Args:
        are_names: the user says that they are names, whatever they look like.

    Raises:
        InputError: an id is missing, a column has a few ids that are not numbers among others that are, or the first
            row may be a header, or a comment an edge.
    """
    rows = sample.rows[1:] if table.header else sample.rows
    if are_names:
        _check_first_lines(file, stated, sample, rows, table)
        return IdKind(are_names=True)
    # Among numbers, a line that begins with a comment sign can only be a comment.
    found = _find_kind(file, [row for row in rows if row.text[0] not in "#%"], table)
    if found.are_names:
        found = _find_kind(file, rows, table)
        _check_first_lines(file, stated, sample, rows, table)
    if found.fault:
        raise bad_line(file, rows[0].start, found.fault)
    return found


def _find_kind(file: SourceFile, rows: Sequence[Row], table: TextTable) -> IdKind:
    found = IdKind(are_names=False)
    for end in table.ends:
        chosen = [row for row in rows if len(row.fields) > end]
        kind = judge_ids([row.fields[end] for row in chosen])
        # The first row alone may be a header, which is asked about first.
        is_first = kind.at == 0 and len(chosen) > 1
        if kind.fault and not (is_first and not judge_ids([row.fields[end] for row in chosen[1:]]).are_names):
            raise bad_line(file, chosen[kind.at].start, kind.fault)
        if kind.are_names and (not found.are_names or chosen[kind.at].line < found.at):
            found = replace(kind, at=chosen[kind.at].line)
    return found


def judge_ids(cells: Sequence[str]) -> IdKind:
    """Decide whether a column of ids has numbers or names, in ``at`` by the position of a cell.

    A few words among numbers are a fault: they would turn all ids into names, and change the order of the vertices.

    >>> judge_ids(["1", "2.0", "3"]).are_names, judge_ids(["007", "7"]).are_names, judge_ids(["ann", "7"]).are_names
    (False, True, True)
    >>> judge_ids(["1", "2", "3", "x"]).fault
    "expected a number as most ids of this column are, found 'x'; correct it, or add `--ids names` if all are names"
    """
    others = [at for at, cell in enumerate(cells) if not is_id(cell)]
    for at in others:
        if is_missing_id(cells[at]):
            return IdKind(True, at, cells[at], REASONS[MISSING])
    words = [at for at in others if not _PADDED.fullmatch(cells[at])]
    if words and len(others) < len(cells) / 2:
        at = words[0]
        fault = (
            f"expected a number as most ids of this column are, found {cells[at]!r}; correct it, or add `--ids names`"
            " if all are names"
        )
        return IdKind(True, at, cells[at], fault)
    return IdKind(True, others[0], cells[others[0]]) if others else IdKind(are_names=False)


def is_id(cell: str) -> bool:
    """Whether a cell is a number below 2^63 without leading zeros, perhaps as a decimal number below 2^53.

    >>> [is_id(cell) for cell in ("0", "17", "5.0", "007", "-1", "7.9E+17")]
    [True, True, True, False, False, False]
    """
    digits, point, _ = cell.partition(".")
    return _NUMBER.fullmatch(cell) is not None and int(digits) <= (1 << 53 if point else _MOST_ID)


def is_missing_id(cell: str) -> bool:
    """Whether a cell is empty, or says that there is no id, as NULL and nan do."""
    # Calls of compiled code are slow, and a file has thousands of cells to judge.
    if not cell or len(cell) > LONGEST_MISSING:
        return not cell
    text = np.frombuffer(f"{cell}\n".encode(), np.uint8)
    return bool(is_missing(text, 0, len(text) - 1))


def _check_first_lines(file: SourceFile, stated: Stated, sample: Sample, rows: Sequence[Row], table: TextTable) -> None:
    """Refuse a first row that may be a header, and a comment that may be an edge between names."""
    columns = [[row.fields[end] for row in rows[1:] if len(row.fields) > end] for end in table.ends]
    words = {*columns[0], *columns[1]}
    if stated.header is None and not table.header and len(rows) > 1:
        first = [rows[0].fields[end] for end in table.ends if len(rows[0].fields) > end]
        is_edge = any(is_id(cell) or cell in words for cell in first) or (
            stated.valued and any(map(is_number, rows[0].fields[2:3]))
        )
        if not is_edge and not any(map(_is_alike, first, columns)):
            words_of = ", ".join(map(repr, first))
            raise InputError(
                f"{file.location}, line {rows[0].line}: no id of this line occurs again ({words_of}); pass `--header`"
                " if it names the columns, or `--no-header` if it is an edge"
            )
    if stated.comment or not rows:
        return
    words |= {cell for row in rows[:1] for cell in row.fields}
    for comment in sample.comments:
        fields = _fields(comment, table.separator)
        if comment[1:2].isspace() or comment[1:2] == comment[0] or len(fields) != len(rows[0].fields):
            continue
        if any(word.startswith(("#", "%")) for word in words) or not words.isdisjoint(fields):
            raise InputError(
                f"{file.location}: {comment!r} is a comment or an edge; pass `--comment none` if it is an edge, or"
                f" `{shell_command('--comment', comment[0])}` if all such lines are comments"
            )


def _is_alike(cell: str, others: Sequence[str]) -> bool:
    """Whether a cell is written as most others of its column are, in a way in which columns are seldom called."""
    shape = _shape(cell)
    return not shape.replace("a", "").isspace() and shape != "a" and shape == _most_common(map(_shape, others))


def _shape(cell: str) -> str:
    """A cell with its runs of letters as ``a`` and its runs of digits as ``0``."""
    return _DIGITS.sub("0", _LETTERS.sub("a", cell))


def _most_common(values: Iterable[str]) -> str | None:
    found = Counter(values).most_common(1)
    return found[0][0] if found else None
