"""Refuses what stands above and below a table: titles, late headers, sums and notes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.lines import bad_line
from gnnloom.pipeline.sources.reading.text_layout import Row, Sample, is_count, is_number, last_rows, names_ends
from gnnloom.storage.wording import shell_command

#: A first line of Network Workbench.
_UNDIRECTED: Final = "undirected"
#: The word before a sum below a table, as spreadsheets write it; and a note there.
_TOTAL: Final = re.compile(
    r"(((grand|sub|overall|column)[ _-]?)?totals?|sum|average|mean|summe|(gesamt|zwischen)(summe|ergebnis)|insgesamt"
    r"|total g[e\u00e9]n[e\u00e9]ral|somme|suma|totale|totaal|\u0438\u0442\u043e\u0433\u043e|\u603b\u8ba1|\u5408\u8ba1"
    r")[: ]*",
    re.IGNORECASE,
)
_NOTE: Final = re.compile(
    r"((source|note|quelle)s?\s*:|copyright\b|(generated|exported|created|downloaded) (by|on|from|at)\b).*",
    re.IGNORECASE,
)


def refuse_title(file: SourceFile, sample: Sample, rows: Sequence[Row], *, is_stated: bool) -> None:
    """Refuse a first row of one field above rows of several.

    Args:
        rows: the rows below the header.
        is_stated: the user says whether the first row names the columns.

    Raises:
        InputError: the rows are such.
    """
    first, below = sample.rows[0], rows[1:] if rows[:1] == sample.rows[:1] else rows
    is_alone = len(first.fields) == 1 and "\r" not in first.text and not is_stated
    if is_alone and first.text.lower() == _UNDIRECTED:
        raise bad_line(file, first.start, "the edges have no direction; add `--header --undirected`")
    if is_alone and below != rows and all(len(row.fields) > 1 for row in below or [first]):
        what = "one number" if is_count(first.fields[0]) else "one field"
        raise bad_line(
            file,
            first.start,
            f"{what}, and the next lines have {len(below[0].fields)} fields; add `--header` to skip the line if it is a"
            " title or counts the other lines",
        )


def refuse_late_header(file: SourceFile, sample: Sample, rows: Sequence[Row]) -> None:
    """Refuse a row that names the ends of edges below other rows: these are a preamble, or files were joined.

    Raises:
        InputError: there is such a row, and its names are not ids of other rows.
    """
    first = sample.rows[0]
    for row in rows[1:] if rows[:1] == sample.rows[:1] else rows:
        words = row.fields[:2]
        if len(words) < 2 or not names_ends(*words) or row.text == first.text or any(map(is_number, row.fields)):
            continue
        if {cell for each in rows if each is not row for cell in each.fields[:2]}.isdisjoint(words):
            raise bad_line(
                file,
                row.start,
                "the line names columns, as a header does, below other lines; remove what precedes the header, and"
                " headers of files that were joined, or add `--columns 1,2` if all lines are edges",
            )


def refuse_footer(file: SourceFile, sample: Sample, fields: Sequence[int], *, valued: bool) -> None:
    """Refuse a table of names whose last row has a sum or a note, as tables of spreadsheets have.

    Args:
        fields: numbers of the columns of sources, targets and values; none for the first ones.
        valued: edges have values.

    Raises:
        InputError: an id in the last row is a word such as Total and the other one is not a word, or it is a note; and
            no other row has an id of this row.
    """
    *rows, last = [*sample.rows, *last_rows(file, sample)]
    ends = tuple(fields[:2]) or (0, 1)
    words = [last.fields[end] for end in ends if end < len(last.fields)]
    others = {row.fields[end] for row in rows for end in ends if end < len(row.fields)}
    if (fault := _footer_fault(words)) and rows and others.isdisjoint(words):
        option = numbered_columns(fields, valued=valued)
        raise bad_line(file, last.start, f"{fault}, or add `{option}` if it is an edge")


def numbered_columns(fields: Sequence[int], *, valued: bool) -> str:
    """The option that chooses columns by their numbers, after which the last row is an edge; see `refuse_footer`."""
    chosen = (*fields, *range(len(fields), 3))[: 3 if valued else 2]
    return shell_command("--columns", ",".join(str(at + 1) for at in chosen))


def footer_of(sources: Names, targets: Names) -> tuple[str, str]:
    """The id with which the last of some edges begins a sum or a note, and the fault; both empty if it is an edge.

    Args:
        sources, targets: names of the last edges of a file that can be read only from its start.
    """
    words = [names.name(len(names) - 1) for names in (sources, targets)]
    texts = [word.decode("utf-8", "replace") for word in words]
    fault = _footer_fault(texts)
    if not fault or any(names.name(row) in words for names in (sources, targets) for row in range(len(names) - 1)):
        return "", ""
    return _begun(texts), fault


def _begun(words: Sequence[str]) -> str:
    """The id with which a row begins a sum or a note; empty if it may be an edge."""
    total = next(filter(_TOTAL.fullmatch, words), "")
    # A company may be called Total.
    is_sum = bool(total) and not any(char.isalpha() for word in words if word != total for char in word)
    return total if is_sum else next(filter(_NOTE.fullmatch, words), "")


def _footer_fault(words: Sequence[str]) -> str:
    """Fault of a last row with these ids; empty if it may be an edge."""
    begin = _begun(words)
    return begin and f"{begin!r} seems to begin a sum or a note below the table, not an edge; remove the line"
