"""Refuses rows that could be read as edges but are not, and names a remedy.

Matrices, lines of neighbors, triples, features, records and tables drawn for people are recognized by the first rows of
a file. :mod:`gnnloom.pipeline.sources.reading.others.foreign` recognizes formats by the first bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gnnloom.pipeline.sources.reading.coding import without_suffix
from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.line_estimate import estimate_lines
from gnnloom.pipeline.sources.reading.lines import bad_line
from gnnloom.pipeline.sources.reading.name_ids import is_id
from gnnloom.pipeline.sources.reading.others.lists import (
    is_matrix,
    refuse_lists,
    refuse_named_neighbors,
    refuse_neighbors,
    refuse_transposed,
)
from gnnloom.pipeline.sources.reading.others.margins import refuse_late_header, refuse_title
from gnnloom.pipeline.sources.reading.text_layout import Row, Sample, Stated, is_count, is_number
from gnnloom.pipeline.sources.reading.times import find_times
from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import shell_command

#: Most fields of a line of edges; and possible separators.
_MOST_FIELDS: Final = 1 << 14
_SEPARATORS: Final = (b",", b"\t", b";", b"|", b" ")
#: Fields of a triple.
_TRIPLE: Final = 3
#: Rows at the beginning of a file that show whether it is something else than a list of edges.
_LOOKED_AT: Final = 1000
#: Possible separators of two ids, the longer ones first.
_ARROWS: Final = ("-->", "->", "=>", "<-", "--", "-", "~", "^", "&", "=", "*", "+", "/")
#: Beginning of an entry of a matrix, as MATLAB and R print it: (1,2) and [1,].
_PRINTED: Final = re.compile(r"\(\d+,\s*\d+\)\s|\[\d+,\]\s")
#: The attributes of an edge or a vertex that Python wrote.
_DICTIONARY: Final = re.compile(r"(^|\s)\{(['\"][^{}]*)?\}$")
#: The name of an attribute before its value.
_KEY: Final = re.compile(r"[A-Za-z]\w*:(?!\S*:)")
#: Separators that may end a line.
_TRAILING: Final = ",;|"
#: A feature of libsvm: its number and its value.
_NUMBERED_VALUE: Final = re.compile(r"\d+:[-+]?[\d.]+([eE][-+]?\d+)?", re.ASCII)
#: Brackets that open, and that close.
_BRACKETS: Final = ("([{", ")]}")
#: A line below the names of columns in a table that is drawn.
_LINE: Final = re.compile(r"[-+=|: ]*(--|==)[-+=|: ]*")


def refuse_wide(file: SourceFile, line: bytes) -> None:
    """Refuse a file whose first line has thousands of fields: edges have a few, and each column would be looked at.

    Args:
        line: the first line, or its beginning.

    Raises:
        InputError: the line has too many fields.
    """
    if max(map(line.count, _SEPARATORS)) >= _MOST_FIELDS:
        words = "gnnloom", "features", "NAME", "--feature", file.location
        raise InputError(
            f"{file.location}: more than {_MOST_FIELDS:,} fields in the first line, as a matrix or a table of vertices"
            f" has; `{shell_command(*words)}` stores the rows as features, and `--format snap` and `--columns` with the"
            " columns of both ends read edges"
        )


def refuse_drawn(file: SourceFile, sample: Sample) -> None:
    """Refuse a table that is drawn with lines for people, and a file that is not text.

    Raises:
        InputError: one of the first rows is a line, or has a zero byte.
    """
    torn = next((row for row in sample.rows[:3] if "\0" in row.text), None)
    if torn is not None:
        text = "a zero byte (U+0000), which no text has; remove it, or give a table as text, .npy, .npz or .parquet"
        raise bad_line(file, torn.start, text)
    line = next((row for row in sample.rows[:3] if _LINE.fullmatch(row.text)), None)
    if line is not None:
        raise bad_line(
            file,
            line.start,
            "a table drawn for people, as psql, MySQL and Markdown have; write one with commas, for example with"
            " psql --csv, COPY ... TO ... CSV HEADER, or mysql --batch",
        )


def refuse_marked(file: SourceFile, sample: Sample) -> None:
    """Refuse a file whose first comment says that it is of another format.

    Raises:
        InputError: the file is in the format of MatrixMarket.
    """
    first = sample.comments[0] if sample.comments else ""
    if first.lstrip("%").lower().startswith("matrixmarket"):
        raise InputError(f"{file.location}: begins as files of MatrixMarket do; give `--format mtx`")


def refuse_others(
    file: SourceFile, sample: Sample, named_ends: Sequence[tuple[int, int]], stated: Stated, *, has_header: bool
) -> None:
    """Refuse a file that is not a list of edges, though its lines could be read as edges.

    Args:
        named_ends: pairs of columns that the header names as ends of an edge.

    Raises:
        InputError: the file is an adjacency matrix, or has tuples in parentheses, dictionaries or triples.
    """
    first, rows, is_valued = sample.rows[0], sample.rows[1 if has_header else 0 :][:_LOOKED_AT], stated.valued
    refuse_title(file, sample, rows, is_stated=stated.header is not None)
    refuse_lists(file, sample, rows[1:] if rows[:1] == sample.rows[:1] else rows)
    refuse_late_header(file, sample, rows)
    if is_matrix(sample, has_header=has_header, is_named=bool(named_ends), is_valued=is_valued):
        names = not all(map(is_number, first.fields[1:]))
        between = "" if sample.separator in {b" ", b"\t"} else f", delimiter={sample.separator.decode()!r}"
        how = (
            "pandas.read_csv(file, index_col=0).stack().loc[lambda cell: cell != 0].to_csv('edges.csv',"
            " index_label=['source', 'target'], header=['weight'])"
            if names
            else f"scipy.sparse.save_npz('edges.npz', scipy.sparse.csr_matrix(numpy.loadtxt(file{between})))"
        )
        raise InputError(
            f"{file.location}: a matrix with a row and a column per vertex, not a list of edges; convert it, for"
            f" example with {how}, or add `--columns 1,2` if each line is an edge"
        )
    cells = {cell for row in rows for cell in row.fields}
    is_wide = len(rows) > 1 and max(len(row.fields) for row in rows) > 1
    if not (named_ends or is_valued) and is_wide and cells <= {"0", "1"}:
        raise InputError(
            f"{file.location}: all cells are 0 or 1: a matrix, or edges between two vertices; add `--columns 1,2` if"
            " each line is an edge, or write the nonzeros of the matrix as a list of edges"
        )
    are_printed = len(rows) > 1 and all(map(_PRINTED.match, [row.text for row in rows[1:]]))
    if are_printed or (rows and all(row.text[:1] + row.text[-1:] in {"()", "[]"} for row in rows)):
        raise bad_line(
            file,
            rows[0].start,
            "tuples in parentheses or lists in brackets; write the ids without them, and one separator between two ids",
        )
    _refuse_one_field(file, rows)
    _refuse_torn(file, rows)
    if sample.is_whole and not (has_header or named_ends):
        refuse_transposed(file, rows)
    attributes = next((row for row in rows if _DICTIONARY.search(row.text)), None)
    if attributes is not None:
        raise bad_line(
            file,
            attributes.start,
            "dictionaries after the ids, as networkx.write_edgelist and write_multiline_adjlist write them; write the"
            " edges with networkx.write_weighted_edgelist, or with write_edgelist and data=False",
        )
    refuse_neighbors(file, rows, has_header=has_header)
    _refuse_marks(file, rows, has_header=has_header)
    if {"_start", "_end"} <= set(first.fields):
        raise InputError(
            f"{file.location}: vertices and edges in one table, as APOC exports them from Neo4j; write the edges alone,"
            " for example with pandas.read_csv(file).dropna(subset='_start').to_csv('edges.csv'), and add"
            " `--columns _start,_end`"
        )
    widths = {len(row.fields) for row in rows}
    if widths == {_TRIPLE}:
        _refuse_signs(file, rows)
    is_called = without_suffix(file.location).endswith((".adjlist", ".adj")) and max(widths, default=0) > 2
    if not is_valued and (len(widths) > 2 or is_called) and all(is_id(field) for row in rows for field in row.fields):
        raise bad_line(
            file,
            rows[0].start,
            f"the lines have up to {max(widths)} numbers, as lines of a vertex and its neighbors have, which"
            " networkx.read_adjlist reads in Python; `--columns 1,2` takes the first two of each line for an edge",
        )
    if widths == {_TRIPLE} and not any(1 in ends for ends in named_ends):
        _refuse_triples(file, rows, is_valued=is_valued)
    if not (has_header or is_valued):
        refuse_named_neighbors(file, rows, widths)


def _refuse_triples(file: SourceFile, rows: Sequence[Row], *, is_valued: bool) -> None:
    """Refuse rows of three fields with a relation in the middle: a word, between words or between numbers.

    Raises:
        InputError: the rows are triples.
    """
    heads, relations, tails = ({row.fields[number] for row in rows} for number in range(_TRIPLE))
    if any(is_id(word) or is_number(word) or find_times([word]) for word in relations):
        return
    # A relation is not a vertex, and a third column of vertices does not have weights.
    are_words = not any(is_number(word) or find_times([word]) for word in tails)
    are_numbers = not is_valued and all(word.isdecimal() for word in heads | tails)
    is_smaller = bool(heads & tails) or len(relations) < len(tails)
    if (are_words or are_numbers) and is_smaller and not relations & (heads | tails) and len(relations) < len(rows):
        weights = ", and `--weights` takes the third field for a weight" if are_numbers else ""
        raise bad_line(
            file,
            rows[0].start,
            "triples of head, relation and tail; `--format triples` stores a graph with these relations, and"
            f" `--columns 1,3` reads their ends and leaves the relation out{weights}",
        )


def _refuse_signs(file: SourceFile, rows: Sequence[Row]) -> None:
    """Refuse rows of three fields with a sign, or nothing, between the ids.

    Raises:
        InputError: all rows are such.
    """
    signs = dict.fromkeys(row.fields[1] for row in rows)
    if any(any(map(str.isalnum, sign)) for sign in signs) or not all(row.fields[2] for row in rows):
        return
    remedy = "`--columns 1,3` reads the ids"
    if "" in signs:
        raise bad_line(file, rows[0].start, f"an empty field between the ids; {remedy}")
    if len(signs) > 1:
        remedy = f"{remedy}, all in one direction; write a line for each edge, from its source to its target"
    raise bad_line(file, rows[0].start, f"{' and '.join(map(repr, signs))} between the ids; {remedy}")


def _refuse_marks(file: SourceFile, rows: Sequence[Row], *, has_header: bool) -> None:
    """Refuse edges behind a word that all lines have, and records with a line for each attribute.

    Raises:
        InputError: the rows are such.
    """
    if not rows:
        return
    firsts = {row.fields[0] for row in rows}
    has_word = len(firsts) == 1 and not firsts <= {""} and not any(map(is_number, firsts))
    if len(rows) > 1 and has_word and not re.search(r"\w", rows[0].fields[0]) and len(rows[0].fields) > 2:
        sign = f"all lines begin with {rows[0].fields[0]!r}; `--columns 2,3` reads the next two fields"
        raise bad_line(file, rows[0].start, sign)
    # An arrow may stand between the ids.
    behind = [at for at in range(1, min(len(row.fields) for row in rows)) if re.search(r"\w", rows[0].fields[at])]
    are_behind = len(behind) > 1 and all(is_id(row.fields[at]) for row in rows for at in behind[:2])
    # A header says which columns have the ids.
    if len(rows) > 1 and has_word and are_behind and not has_header:
        columns = ",".join(str(at + 1) for at in behind[:2])
        raise bad_line(
            file,
            rows[0].start,
            f"all lines begin with {rows[0].fields[0]!r}, and two ids follow; `{shell_command('--columns', columns)}`"
            " reads these, and `--columns 1,2` the first two fields",
        )
    keys = [match[0] for row in rows if (match := _KEY.match(row.text)) is not None]
    is_ragged = len({len(row.fields) for row in rows}) > 1
    if is_ragged and len(keys) > len(rows) / 2 and 1 < len(set(keys)) < len(keys):
        raise bad_line(
            file,
            rows[0].start,
            f"records with a line for each attribute, such as {keys[0]!r}; write a table with a line for each edge",
        )


def _refuse_torn(file: SourceFile, rows: Sequence[Row]) -> None:
    """Refuse rows of a label and its features, and rows whose fields are parts of what stands in brackets.

    Raises:
        InputError: all rows are such.
    """
    are_numbered = [row.fields[1:] and all(map(_NUMBERED_VALUE.fullmatch, row.fields[1:])) for row in rows]
    if rows and all(are_numbered) and not any(_NUMBERED_VALUE.fullmatch(row.fields[0]) for row in rows):
        raise bad_line(
            file,
            rows[0].start,
            "numbered features, as files of libsvm have, which sklearn.datasets.load_svmlight_file reads; save its"
            " arrays with numpy.save for `gnnloom features`",
        )
    if rows and all(_depth(row.fields[0]) > 0 > min(map(_depth, row.fields)) for row in rows):
        raise bad_line(
            file,
            rows[0].start,
            "a separator within brackets; if each line is an edge, put double quotes around a name that has the"
            " separator",
        )


def _depth(field: str) -> int:
    """Number of brackets that a field opens and does not close; negative if it closes others."""
    opened, closed = (sum(map(field.count, signs)) for signs in _BRACKETS)
    return opened - closed


def _refuse_one_field(file: SourceFile, rows: Sequence[Row]) -> None:
    """Refuse rows of one field that has both ids: in double quotes, or with an arrow between them.

    Raises:
        InputError: all rows are such.
    """
    if not rows or any(sum(map(bool, row.fields)) != 1 or not row.fields[0] for row in rows):
        return
    if any(len(row.fields) > 1 for row in rows):
        sign = rows[0].text[-1]
        if sign in _TRAILING and all(row.text.endswith(sign) for row in rows):
            raise bad_line(
                file, rows[0].start, f"one field before {sign!r}; remove this sign from the ends of the lines"
            )
        return
    if all(row.text[:1] == '"' and any(sign in row.fields[0] for sign in ",;\t|") for row in rows):
        raise bad_line(file, rows[0].start, "the whole line is in double quotes, and is one field; remove them")
    for arrow in _ARROWS:
        if all(row.text.count(arrow) == 1 for row in rows):
            remedy = f"`{shell_command('--delimiter', arrow)}`"
            raise bad_line(file, rows[0].start, f"expected two fields, found one; add {remedy} if it separates two ids")
    signs = {sign for sign in rows[0].text if not (sign.isascii() or sign.isalnum())}
    if between := next((sign for sign in sorted(signs) if all(row.text.count(sign) == 1 for row in rows)), ""):
        code = f"{between!r} (U+{ord(between):04X})"
        raise bad_line(file, rows[0].start, f"expected two fields, found one; write a tab instead of {code}")


def refuse_counts(file: SourceFile, begin: bytes) -> None:
    """Refuse a file whose first line counts the lines below it, unless an option says what the line is.

    Args:
        begin: first bytes of the file.

    Raises:
        InputError: the file may be in the format of METIS, or begin with the numbers of vertices and edges.
    """
    if not begin.startswith((b"#", b"%", *map(str.encode, "0123456789"))):
        return
    try:
        sample = Sample.of(file, Stated())
    except InputError:
        # The reader of the rows reports it.
        return
    if len(sample.rows) < _TRIPLE or not all(map(is_count, sample.rows[0].fields)):
        return
    (first, *rows), counts = sample.rows, [int(field) for field in sample.rows[0].fields]
    if not 1 < len(counts) <= _TRIPLE:
        # One count alone is an error of the reader, and no format has more.
        return
    if sample.is_whole and len(rows) == counts[0] and sum(len(row.fields) for row in rows) == 2 * counts[1]:
        raise InputError(
            f"{file.location}: perhaps in the format of METIS, as line {first.line} states {counts[0]:,} vertices and"
            f" {counts[1]:,} edges; give `--format metis`, or `--format snap` if each line is an edge"
        )
    fields = [field for row in rows for field in row.fields[:2]]
    if not all(map(is_count, fields)):
        return
    ids, most = {int(field) for field in fields}, max(counts[:-1])
    # Ids from 0 are below the number of vertices, and ids from 1 may be the number.
    if max(ids) > most or {0, most} <= ids or not _are_lines(counts[-1], file, sample):
        return
    size = f"{counts[0]:,} vertices" if len(counts) == 2 else f"a matrix of {counts[0]:,} x {counts[1]:,}"
    raise InputError(
        f"{file.location}: line {first.line} may state {size} and {counts[-1]:,} edges; add `--format snap --header` to"
        " skip it, or `--format snap` if it is an edge"
    )


def _are_lines(count: int, file: SourceFile, sample: Sample) -> bool:
    """Whether a number counts the lines below the first row: exactly if all are in the sample, or else about."""
    if sample.is_whole:
        return count == len(sample.rows) - 1
    found = estimate_lines([file])
    return found is not None and found.low <= count + 1 <= found.high
