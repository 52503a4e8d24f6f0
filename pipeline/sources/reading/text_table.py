"""Decides how a text file with an edge in every row is read: its separator, header, comments and the kind of its ids.

Opening a file reads its first lines once. The result is a :class:`TextTable`; it is handed to the tasks,
and shown to the user before anything is stored. Ambiguity is a question to the user, never a guess.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gnnloom.pipeline.sources.reading.directions import says_undirected
from gnnloom.pipeline.sources.reading.ends import fields_by_name, have_times, named_fields, numbered_fields, open_ends
from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.lines import HAS_RETURN, bad_line
from gnnloom.pipeline.sources.reading.name_ids import IdKind, find_name_fault, is_id, is_missing_id, judge_ids
from gnnloom.pipeline.sources.reading.others.margins import refuse_footer
from gnnloom.pipeline.sources.reading.others.other_rows import refuse_drawn, refuse_marked, refuse_others, refuse_wide
from gnnloom.pipeline.sources.reading.text_layout import (
    DECIMAL_COMMA,
    Row,
    Sample,
    Stated,
    fields_of,
    find_ends,
    is_count,
    is_grouped,
    is_number,
    names_ends,
    names_ids,
    numbers_rows,
)
from gnnloom.pipeline.sources.reading.times import TimeForm, find_times, find_whole
from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import shell_command

#: Rows at the beginning of a file whose cells show what their columns have.
_LOOKED_AT: Final = 1000
#: A name of a column of ids: user_id, itemId, "Customer ID".
_CALLED_ID: Final = re.compile(r"(?:[a-z]|[\W_])I[dD]$|[\W_]id$")
#: Fields of a triple.
_TRIPLE: Final = 3
#: Signs of comments in formats other than SNAP and MatrixMarket.
_COMMENTS: Final = ("//", "--", "!", ";", "/*")
#: Separators in words.
_WORDS: Final = {
    b" ": "blanks", b"\t": "tabs", b",": "commas", b";": "semicolons", b"|": "bars", b":": "colons",
}  # fmt: skip
#: A field in quotes at the beginning of a line.
_FIRST_QUOTED: Final = re.compile(r'"(?:[^"]|"")*"')
#: A word with a number or a letter at its end: node1, user_a.
_NUMBERED: Final = re.compile(r"(.*\D)\d+|(.*[a-z])[A-Z]|(.*[\W_])[A-Za-z]")
_LETTERS, _DIGITS = re.compile(r"[^\W\d]+"), re.compile(r"\d+")


@dataclass(frozen=True)
class TextTable:
    """Reading of one text file of edges.

    Attributes:
        separator: separator of fields; a space stands for runs of blanks.
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
        is_counted: the first line is the number of the others.
        is_bipartite: the file says that sources and targets are vertices of two types, as KONECT's do with ``% bip``.
        question: question about the columns that the first lines leave open, and the options that answer it.
        header_line: the line that names the columns, without blanks around it; empty if none does.
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
    is_counted: bool = False
    is_bipartite: bool = False
    question: str = ""
    header_line: bytes = b""

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
    refuse_drawn(file, sample)
    if not stated.columns:
        refuse_wide(file, sample.rows[0].text.encode())
    first, rows = sample.rows[0], sample.rows[1:]
    # A column without a name that is empty in every row has no numbers of rows.
    is_index = len(first.fields) > 2 and numbers_rows(first.fields[0]) and any(row.fields[0] for row in rows)
    columns, seen = stated.columns, stated.header is None
    is_short, question = is_short_header(sample) and len(first.fields) > 1, ""
    # A first line with the number of the others has none of their columns.
    has_count = stated.header is True and len(first.fields) == 1 and bool(rows) and is_count(first.fields[0])
    width = len(rows[0].fields) if has_count else len(first.fields) + is_short
    chosen = numbered_fields(first.fields, width, columns, has_header=stated.header is True and not has_count)
    # A user who chooses columns by number, without the first column, says that the first column has no name.
    has_row_names = is_short and (0 not in chosen if chosen else _begins_with_row_names(sample, stated.valued))
    if has_row_names is None:
        has_row_names, question = True, _row_names_question(file, sample, stated)
    cells = ("", *first.fields) if has_row_names else first.fields
    ends = chosen[:2] or ((1, 2) if has_row_names else (0, 1))
    titles = [cells[at] if at < len(cells) else "" for at in chosen] or first.fields
    is_over = _is_over_numbers(titles, rows, ends) or (not columns and _is_over_values(cells, rows, ends))
    is_over |= _are_called_ids(cells, rows, ends) or (not columns and _are_called_ends(cells))
    recognized = seen and (is_index or is_header(titles, valued=stated.valued) or is_over)
    pairs = [ends, *find_ends(cells)]
    recognized = recognized and not any(_are_numbered_vertices(cells, rows, pair) for pair in pairs)
    # Columns with names imply a first line with these names; columns with numbers do not.
    names = cells if stated.header or recognized or (seen and columns and not chosen) else ()
    has_index = bool(names) and (is_index or has_row_names) and not columns
    if has_count:
        names = tuple(f"column {number + 1}" for number in range(width))
    fields = chosen or named_fields(file, cells if names else first.fields, columns, named=stated.header is not False)
    if has_index:
        fields = (1, 2, 3) if stated.valued else (1, 2)
        if not stated.extra_columns and all(len(row.fields) > fields[-1] + 1 for row in rows[:1]):
            # The parser refuses it as a further column.
            fields += (fields[-1] + 1,)
    question = question if names else ""
    if names and "\r" in first.text:
        raise bad_line(file, first.start, HAS_RETURN)
    titles = names or sample.commented_titles
    named_ends = () if columns else find_ends(titles)
    if not columns and (
        by_name := fields_by_name(file.location, titles, fields[:2] or (0, 1), valued=stated.valued, numbered=not names)
    ):
        fields, open_names = by_name
        question = question or open_names
        if not stated.extra_columns:
            fields += tuple(at for at in range(int(has_index), len(titles)) if at not in fields)[:1]
    refuse_marked(file, sample)
    if not (columns or question):
        likely, question = open_ends(file, sample, stated, names, (fields[0], fields[1]) if fields else (0, 1))
        fields = _with_ends(fields, likely, valued=stated.valued) if question else fields
    if not columns:
        refuse_others(file, sample, named_ends, stated, has_header=bool(names))
    if not stated.by_number:
        refuse_footer(file, sample, fields, valued=stated.valued)
    return TextTable(
        sample.separator,
        names,
        recognized and (not columns or bool(chosen)),
        fields,
        first.stop if names else first.start,
        len(sample.comments),
        has_index,
        not columns and says_undirected(file, sample, names),
        is_counted=has_count,
        is_bipartite=sample.comments[:1] != () and sample.comments[0].lstrip("% ").split()[:1] == ["bip"],
        question=question,
        header_line=first.text.encode() if names and not has_count else b"",
    )


def _with_ends(fields: tuple[int, ...], ends: tuple[int, int], *, valued: bool) -> tuple[int, ...]:
    """Fields with other ends. A value is in the next column unless the fields say where it is."""
    if ends == (fields[:2] or (0, 1)):
        return fields
    return (*ends, *(fields[2:] or ([max(ends) + 1] if valued else [])))


def check_first_rows(file: SourceFile, sample: Sample, stated: Stated, table: TextTable) -> None:
    """Refuse first rows whose values have separators of thousands, or whose names may have the separator of fields.

    Raises:
        InputError: a row is such; the message says what to write.
    """
    rows = sample.rows[1 if table.header else 0 :]
    fields = table.fields or (0, 1, 2)
    for row in rows if stated.valued else ():
        value = row.fields[fields[2]] if len(row.fields) > fields[2] else ""
        # A given decimal separator also decides what a single comma is.
        if is_grouped(value) and not (stated.decimal == "," and is_number(value.replace(",", "."))):
            comma = (
                "; if the comma precedes decimals, add `--decimal ,`" if stated.decimal == "." and "," in value else ""
            )
            raise bad_line(file, row.start, f"{value!r} has separators of thousands; remove them{comma}")
    width = len(table.header)
    if not width or table.separator == b" " or not (stated.columns or stated.extra_columns):
        return
    are_names = any(not is_id(row.fields[end]) for row in rows for end in table.ends if end < len(row.fields))
    longer = next((row for row in rows if len(row.fields) > width + (not row.fields[-1])), None)
    if are_names and longer is not None:
        raise bad_line(
            file,
            longer.start,
            f"{len(longer.fields)} fields, and the first line names {width}; put double quotes around a name that has"
            " the separator",
        )


def is_short_header(sample: Sample) -> bool:
    """Whether the first row has words, and one field less than all others: a column lacks its name."""
    first, rows = sample.rows[0].fields, sample.rows[1:]
    return bool(rows) and all(len(row.fields) == len(first) + 1 for row in rows) and not any(map(is_number, first))


def lacks_first_name(sample: Sample) -> bool | None:
    """Whether the first column, with names of rows as R writes them, lacks its name; None if quotes do not decide.

    Names of rows differ. R quotes them and other text, but not numbers.

    Args:
        sample: rows below a short header.
    """
    rows = sample.rows[1:]
    if len({row.fields[0] for row in rows}) < len(rows) or not any(row.fields[-1] for row in rows):
        return False
    quoted = [_FIRST_QUOTED.match(row.text) for row in rows]
    rest = [row.text[found.end() :].lstrip(" \t,;|:") for row, found in zip(rows, quoted, strict=True) if found]
    is_first_alone = len(rest) == len(rows) and all(text[:1] not in {'"', ""} for text in rest)
    return True if is_first_alone and all(is_id(row.fields[0]) for row in rows) else None


def names_question(file: SourceFile, sample: Sample) -> str:
    """Question about a table of vertices with a short header whose first column may have the ids; empty if it is clear.

    R leaves out the name of its column of names of rows, which may be the ids themselves.
    """
    names, rows = sample.rows[0].fields, sample.rows[1:]
    if not (is_short_header(sample) and names_ids(names[0])) or lacks_first_name(sample) is not None:
        return ""
    if counts_rows(rows) and not any(is_id(row.fields[1]) for row in rows):
        return ""
    return (
        f"line {sample.rows[0].line} names {len(names)} columns, and the next lines have {len(names) + 1}; add"
        f" `{shell_command('--ids-file', f'{file.location}:2')}` if they begin with names of rows, as R writes them, or"
        f" `{shell_command('--ids-file', f'{file.location}:1')}` if the ids come first and the last column has no name"
    )


def counts_rows(rows: Sequence[Row]) -> bool:
    """Whether the first fields are 1, 2, 3 and so on, as R's names of rows are unless rows were left out or sorted."""
    return all(row.fields[0] == str(number) for number, row in enumerate(rows, 1))


def _begins_with_row_names(sample: Sample, is_valued: bool) -> bool | None:
    """Whether the first column of edges below a short header has names of rows; None if nothing decides.

    The two ends of an edge are mostly both numbers or both words.
    """
    rows = sample.rows[1:]
    decided = lacks_first_name(sample)
    if decided is not None or len(rows[0].fields) < _TRIPLE + is_valued:
        return bool(decided)
    first, second, third = (all(is_id(row.fields[column]) for row in rows) for column in range(_TRIPLE))
    if (is_like_third := second == third) != (first == second):
        is_sure = not is_like_third or counts_rows(rows)
        return is_like_third if is_sure else None
    has_fractions = not third and all(is_number(row.fields[_TRIPLE - 1]) for row in rows)
    return False if has_fractions else None


def _row_names_question(file: SourceFile, sample: Sample, stated: Stated) -> str:
    """Question about which column of edges lacks its name, with the options that answer it; empty if it is clear."""
    first, below = sample.rows[0], sample.rows[1]
    options = []
    for at in (1, 0):
        chosen = ["--columns", ",".join(str(at + number + 1) for number in range(3 if stated.valued else 2))]
        is_weight = not stated.valued and len(below.fields) > at + 2 and is_number(below.fields[at + 2])
        three = ",".join(str(at + number) for number in (1, 2, 3))
        weight = f" (with weights `{shell_command('--columns', three)}`)" if is_weight else ""
        options.append(f"`{shell_command(*chosen)}`{weight}")
    return (
        f"{file.location}, line {first.line}: names {len(first.fields)} columns, and the next lines have"
        f" {len(below.fields)}; add {options[0]} if these begin with names of rows, as R writes them, so that the"
        f" source in line {below.line} is {below.fields[1]!r}; or {options[1]} if the last column has no name, so that"
        f" it is {below.fields[0]!r}"
    )


def with_times(file: SourceFile, sample: Sample, table: TextTable) -> TextTable:
    """Reading of a file whose third column has times: dates if the first time is a date, otherwise numbers.

    Numbers are whole ones if float64 cannot hold one of the first times.

    Raises:
        InputError: a date and a time of day are two fields.
    """
    fields = table.fields or (0, 1, 2)
    rows = [row for row in sample.rows[1 if table.header else 0 :] if len(row.fields) > fields[2]]
    cells = [row.fields[fields[2]] for row in rows]
    if (whole := find_whole(cells)) is not None:
        return replace(table, fields=fields, times=whole)
    found = find_times(cells)
    if found is None:
        return table
    first = rows[0].fields[fields[2] :]
    if len(first) > 1 and find_times([" ".join(first[:2])]) is not None:
        raise bad_line(
            file, rows[0].start, f"a date and a time of day between blanks; write {first[0]}T{first[1]}, or use commas"
        )
    return replace(table, fields=fields, times=found)


def spelled(separator: bytes) -> str:
    """A separator in words."""
    return _WORDS.get(separator) or repr(separator.decode("latin-1"))


def headings(table: TextTable, sample: Sample) -> list[str]:
    """Names of the columns; ``column 1`` and so on in a file without a header."""
    width = max((len(row.fields) for row in sample.rows[:2]), default=0)
    return [*table.header, *(f"column {number + 1}" for number in range(len(table.header), width))]


def describe_columns(table: TextTable, names: Sequence[str], value: str) -> dict[str, Any]:
    """Names or numbers of the columns that are read, and of ignored columns.

    Args:
        names: the headings.
        value: contents of the third column; empty if it is not read.
    """
    chosen = (table.fields or (0, 1, 2))[: 3 if value else 2]
    read = [names[number] if number < len(names) else f"column {number + 1}" for number in chosen]
    source, target, *values = [*read, "", ""][: max(2, len(read))]
    known = {*chosen, 0} if table.has_index else set(chosen)
    # A separator that ends each line is followed by no column.
    others = [name for number, name in enumerate(names) if number not in known and name]
    return {
        "source": source,
        "target": target,
        **({"value": values[0]} if values else {}),
        **({"ignored": others} if others else {}),
    }


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
    # Pandas calls a column 0 that has no name.
    if (is_number(value) or value.lstrip("+-.")[:1].isdigit()) and not (value == "0" and names_ends(first, second)):
        return False
    return names_ends(first, second) or (bool(value) and not (first.isdigit() and second.isdigit()))


def _is_over_numbers(titles: Sequence[str], rows: Sequence[Row], ends: tuple[int, ...]) -> bool:
    """Whether two words in the first row stand over columns that otherwise have numbers."""
    if len(rows) < 2 or any(is_number(word) or is_missing_id(word) for word in titles[:3]):
        return False
    below = [row.fields[end] if end < len(row.fields) else "" for row in rows[:_LOOKED_AT] for end in ends]
    return all(map(is_id, below))


def _are_called_ids(cells: Sequence[str], rows: Sequence[Row], ends: tuple[int, ...]) -> bool:
    """Whether the first row calls both ends ids, as ``user_id,item_id`` does, and has no numbers there."""
    called = {cells[end] for end in ends if end < len(cells) and _CALLED_ID.search(cells[end])}
    below = {row.fields[end] for row in rows[:_LOOKED_AT] for end in ends if end < len(row.fields)}
    return bool(rows) and len(called) == len(ends) and not any(map(_CALLED_ID.search, below))


def _are_called_ends(cells: Sequence[str]) -> bool:
    """Whether the first row has no number, and names ends of edges that are not its first two columns."""
    return not any(map(is_number, cells)) and any(max(ends) > 1 for ends in find_ends(cells))


def _are_numbered_vertices(cells: Sequence[str], rows: Sequence[Row], ends: tuple[int, ...]) -> bool:
    """Whether the first row has vertices such as ``node1`` and ``userA``, as the rows below have, not names of columns.

    Rows that repeat the first one are headers of joined files.
    """
    first = [cells[end] for end in ends if end < len(cells)]
    below = [[row.fields[end] for end in ends if end < len(row.fields)] for row in rows[:_LOOKED_AT]]
    words = {word for each in below if each != first for word in each}
    stems = {_stem(word) for word in first}
    return "" not in stems and not (stems.isdisjoint(map(_stem, words)) and words.isdisjoint(first))


def _stem(word: str) -> str:
    """A word without the number or the letter at its end; empty if it has none, or nothing else.

    >>> _stem("node1"), _stem("userA"), _stem("gene_b"), _stem("source"), _stem("7")
    ('node', 'user', 'gene_', '', '')
    """
    match = _NUMBERED.fullmatch(word)
    stem = match[match.lastindex or 0] if match is not None else ""
    return stem if any(map(str.isalpha, stem)) else ""


def _is_over_values(cells: Sequence[str], rows: Sequence[Row], ends: tuple[int, ...]) -> bool:
    """Whether a word in the first row, none of whose ids occurs again, stands over a column of numbers or dates."""
    words = {row.fields[end] for row in rows[:_LOOKED_AT] for end in ends if end < len(row.fields)}
    if len(rows) < 2 or any(end >= len(cells) or cells[end] in words or is_id(cells[end]) for end in ends):
        return False
    for at, title in enumerate(cells):
        below = [row.fields[at] for row in rows[:_LOOKED_AT] if at < len(row.fields)]
        if (
            (at in ends and not have_times(below))
            or not _LETTERS.search(title)
            or is_number(title)
            or is_missing_id(title)
            or not all(below)
        ):
            continue
        if below and (all(is_number(cell) or DECIMAL_COMMA.fullmatch(cell) for cell in below) or have_times(below)):
            return True
    return False


def find_ids(file: SourceFile, sample: Sample, stated: Stated, table: TextTable, *, are_names: bool = False) -> IdKind:
    """Decide whether ids are numbers or names. A few words in a column of numbers do not turn all ids into names.

    Args:
        are_names: the user says that they are names, whatever they look like.

    Raises:
        InputError: an id is missing, a column has a few ids that are not numbers among others that are, or the first
            row may be a header, or a comment an edge.
    """
    rows = sample.rows[1:] if table.header else sample.rows
    if table.question:
        raise InputError(table.question)
    if are_names:
        _check_first_lines(file, stated, sample, rows, table)
        return IdKind(are_names=True)
    # Among numbers, a line that begins with a comment sign can only be a comment.
    plain = [row for row in rows if row.text[0] not in "#%"]
    found = _find_kind(file, plain or rows, table)
    if found.are_names:
        found = _find_kind(file, rows, table)
        _check_first_lines(file, stated, sample, rows, table)
        ends = [(row, row.fields[end]) for end in table.ends for row in rows if len(row.fields) > end]
        at, fault = find_name_fault([cell for _, cell in ends])
        if fault:
            raise bad_line(file, ends[at][0].start, fault)
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


def _check_first_lines(file: SourceFile, stated: Stated, sample: Sample, rows: Sequence[Row], table: TextTable) -> None:
    """Refuse a first row that may be a header, and a comment that may be an edge between names."""
    sign = next((sign for sign in _COMMENTS if rows and rows[0].text.startswith(sign)), "")
    begun = [row.text.startswith(sign) for row in rows] if sign and stated.header is None else []
    # Lines that begin so stand together above all others.
    if begun and begun == sorted(begun, reverse=True) and (len(begun) == 1 or not all(begun)):
        skips = "" if len(sign) > 1 else f", add `{shell_command('--comment', sign)}` to skip all such lines"
        raise bad_line(
            file,
            rows[0].start,
            f"{sign!r} may begin a comment; remove the line if it is one{skips}, or add `--no-header` if it is an edge",
        )
    columns = [[row.fields[end] for row in rows[1:] if len(row.fields) > end] for end in table.ends]
    words = {*columns[0], *columns[1]}
    if stated.header is None and not table.header and len(rows) > 1:
        first = [rows[0].fields[end] for end in table.ends if len(rows[0].fields) > end]
        is_edge = any(is_id(cell) or cell in words for cell in first) or (
            stated.valued and any(map(is_number, rows[0].fields[2:3]))
        )
        if not is_edge and not any(map(_is_alike, first, columns)):
            # Lists of vertices are read as edges from each to itself.
            words_of = ", ".join(map(repr, dict.fromkeys(first)))
            raise InputError(
                f"{file.location}, line {rows[0].line}: no id of this line occurs again ({words_of}); pass `--header`"
                " if it names the columns, or `--no-header` if it is an edge"
            )
    if stated.comment or not rows:
        return
    words |= {cell for row in rows[:1] for cell in row.fields}
    for comment in sample.comments:
        fields = fields_of(comment, table.separator)
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
