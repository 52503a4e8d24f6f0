"""Keeps facts from the first lines of a text file, and suggests how to read columns after the two ids of an edge.

The lines are read once, when a source is opened. The facts are small, so a source of thousands of files keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final

from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.name_ids import IdKind, is_id
from gnnloom.pipeline.sources.reading.text_layout import DECIMAL_COMMA, Sample, Stated, is_number
from gnnloom.pipeline.sources.reading.text_table import TextTable, find_ids, headings
from gnnloom.pipeline.sources.reading.times import count_seconds, find_times
from gnnloom.pipeline.sources.understood import SHOWN_ROWS
from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.ticks import WHOLE
from gnnloom.storage.wording import shell_command

#: Usual names of columns of weights and of times.
CALLED: Final = {
    "weights": frozenset({
        "weight", "weights", "w", "value", "rating", "ratings", "score", "amount", "count", "counts", "n", "freq",
        "frequency", "similarity", "strength", "amt",
    }),
    "times": frozenset({"time", "timestamp", "ts", "date", "datetime", "unixtime", "unix_time", "created_at"}),
}  # fmt: skip
#: Endings of the names of kinds of weights: combined_score.
_KINDS_OF_WEIGHTS: Final = (
    "_weight", "_score", "_count", "_rating", "_similarity", "_strength", "_amount", "_amt",
)  # fmt: skip

#: Ratings of users: one to ten stars, perhaps in halves.
STARS: Final = frozenset(text for half in range(1, 21) for text in (f"{half / 2:g}", f"{half / 2:.1f}"))
#: Columns of users, items and ratings; rows for each rating that show ratings without times.
_RATED, _ROWS_PER_RATING = 3, 4


def is_called(name: str, kind: str) -> bool:
    """Whether a column has a usual name of weights or times, or of a kind of weights.

    >>> is_called("Freq", "weights"), is_called("combined_score", "weights"), is_called("in_time", "times")
    (True, True, False)
    """
    word = name.lower().replace(" ", "_")
    return word in CALLED[kind] or (kind == "weights" and word.endswith(_KINDS_OF_WEIGHTS))


@dataclass(frozen=True)
class Suggestion:
    """Options that read a table with further columns.

    Attributes:
        flags: flags of the command line, each with its value; none if no column is left over.
        kind: ``weights`` or ``times`` if the flags read a third column as such; empty if they ignore it.
        column: name of the third column, or ``column 3``.
        unread: reason why a column with the name of weights is not read as weights; empty if there is no such column.
    """

    flags: tuple[str, ...] = ()
    kind: str = ""
    column: str = ""
    unread: str = ""

    @property
    def hint(self) -> str:
        """Suggestion for the end of an error's message."""
        ignored = "`--extra-columns` to ignore further columns, or `--columns` to name or number the columns to read"
        if not (self.flags or self.unread):
            return f"; remove the line if it is not an edge, or add {ignored}"
        if not self.kind:
            return f"{self.unread and f'; {self.unread}'}; add {ignored}"
        return f"; add {' and '.join(map(_shown, self.flags))} to read {self.column} as {self.kind}, {ignored}"


@dataclass(frozen=True)
class FirstLines:
    """Facts from the first lines of a file.

    Attributes:
        headings: names of the columns; ``column 1`` and so on in a file without a header.
        rows: the first rows below the header.
        numbers, names: the kind of the ids if the user did not say what they are, and if the user says that they are
            names; or why the lines leave it open.
        suggestion: options for the columns that nothing reads yet.
        smallest: the smallest id; 0 if some rows were not looked at, or not all ids are numbers.
        are_ratings: the columns seem to have users, items, ratings and perhaps times, with numbers that are both users
            and items.
        titles: names that another file gives to the columns of a file without a header.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: IdKind | str
    names: IdKind | str
    suggestion: Suggestion
    smallest: int = 0
    are_ratings: bool = False
    titles: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Names of the columns, from this file or from another one."""
        return [title or name for name, title in zip_longest(self.headings, self.titles, fillvalue="")]

    @classmethod
    def of(cls, file: SourceFile, sample: Sample, stated: Stated, table: TextTable) -> FirstLines:
        """Look at the first lines of a file."""
        rows = sample.rows[1 if table.header else 0 :][:SHOWN_ROWS]
        return cls(
            tuple(headings(table, sample)),
            tuple(row.fields for row in rows),
            _judged(file, sample, stated, table, are_names=False),
            _judged(file, sample, stated, table, are_names=True),
            suggest(table, sample, stated),
            _smallest(sample, table),
            not stated.columns and _are_ratings(sample, table),
        )

    def kind(self, *, are_names: bool) -> IdKind:
        """The kind of the ids.

        Raises:
            InputError: the lines leave it open.
        """
        found = self.names if are_names else self.numbers
        if isinstance(found, str):
            raise InputError(found)
        return found


def _judged(file: SourceFile, sample: Sample, stated: Stated, table: TextTable, *, are_names: bool) -> IdKind | str:
    try:
        return find_ids(file, sample, stated, table, are_names=are_names)
    except InputError as error:
        return str(error)


def _smallest(sample: Sample, table: TextTable) -> int:
    """The smallest id, if all rows are in the sample and all ids are numbers; 0 otherwise."""
    rows = sample.rows[1 if table.header else 0 :]
    ids = [row.fields[end] for row in rows for end in table.ends if end < len(row.fields)]
    is_known = sample.is_whole and ids and all(map(is_id, ids))
    return min(int(float(each)) if "." in each else int(each) for each in ids) if is_known else 0


def _are_ratings(sample: Sample, table: TextTable) -> bool:
    """Whether a table without a header seems to have users, items, ratings and perhaps times.

    The numbers of users and of items overlap, and there are few different ratings, which repeat often.
    """
    widths = {len(row.fields) for row in sample.rows}
    if table.header or sample.comments or table.fields or not widths <= {_RATED, _RATED + 1} or len(widths) > 1:
        return False
    users, items, ratings, *times = (set(cells) for cells in zip(*(row.fields for row in sample.rows), strict=True))
    are_apart = users.isdisjoint(items) or not all(map(is_id, users | items))
    if are_apart or len(ratings) < 2 or not ratings <= STARS:
        return False
    are_many = len(sample.rows) >= _ROWS_PER_RATING * len(ratings)
    return count_seconds(list(times[0])) if times else are_many


def _shown(flag: str) -> str:
    return f"`{shell_command(*flag.split(' ', 1))}`"


def suggest(table: TextTable, sample: Sample, stated: Stated) -> Suggestion:
    """Suggest options for the columns that nothing reads yet.

    A column of numbers is taken for weights or times if its name says so, if nothing is named and it is the third, or
    if it is the only other column and has fractions.
    """
    names = headings(table, sample)
    rows = sample.rows[1 if table.header else 0 :]
    used = {*(table.fields or (0, 1, 2))[: 3 if stated.valued else 2], *((0,) if table.has_index else ())}
    left = [number for number in range(len(names)) if number not in used]
    if not left or stated.columns:
        return Suggestion()
    if table.question and (table.has_index or not table.header):
        # Nothing names all columns.
        return Suggestion((f"--columns {','.join(str(end + 1) for end in table.ends)}",))
    unread = ""
    for kind in () if stated.valued else CALLED:
        for number in left:
            is_named = number < len(table.header)
            cells = [row.fields[number] for row in rows if number < len(row.fields)]
            third = "times" if count_seconds(cells) else "weights"
            is_meant = is_called(names[number], kind) if is_named else (kind, number) == (third, 2)
            has_commas = table.separator != b"," and any(map(DECIMAL_COMMA.fullmatch, cells))
            values = [cell.replace(",", ".") if has_commas else cell for cell in cells]
            are_numbers = all(map(is_number, values))
            # Fractions in the only other column are weights of edges, whatever its name is.
            may_be_weights = kind == "weights" and len(left) == 1 and not is_called(names[number], "times")
            is_meant |= may_be_weights and are_numbers and any(float(each) % 1 for each in values)
            if is_meant and is_named and not are_numbers and kind == "weights" and not unread:
                unread = _unread(names[number], cells, table)
            if is_meant and (are_numbers or (kind == "times" and find_times(cells) is not None)):
                flags = _flags(kind, [*table.ends, number], names, is_named=bool(table.header))
                return Suggestion((*flags, *(("--decimal ,",) if has_commas else ())), kind, names[number])
    if table.question:
        return Suggestion(_flags("", table.ends, names, is_named=bool(table.header)))
    return Suggestion(("--extra-columns",), unread=unread)


def _unread(name: str, cells: Sequence[str], table: TextTable) -> str:
    """Reason why a column of weights is not read."""
    cell = next(cell for cell in cells if not is_number(cell))
    decimals = table.separator == b"," and all(is_number(each) or DECIMAL_COMMA.fullmatch(each) for each in cells)
    remedy = ", or add `--weights --decimal ,` if a comma precedes decimals" if decimals else ""
    return f"{name} seems to have weights, and {cell!r} is not a number; write plain numbers to read them{remedy}"


def _flags(kind: str, columns: Sequence[int], names: Sequence[str], *, is_named: bool) -> tuple[str, ...]:
    """Flags that read these columns as source, target and value; of equal edges, the last time is kept."""
    times = ("--times", "--merge max") if kind == "times" else ()
    if list(columns) == [0, 1, 2] and (len(names) == 3 or not is_named):
        return (*(times or (f"--{kind}",)), *(("--extra-columns",) if len(names) > 3 else ()))
    chosen = [names[number] for number in columns]
    if not is_named or any("," in name or names.count(name) > 1 for name in chosen):
        chosen = [str(number + 1) for number in columns]
    return (f"--columns {','.join(chosen)}", *times)


def in_one_unit(files: Sequence[SourceFile], tables: Sequence[TextTable]) -> tuple[TextTable, ...]:
    """Readings of files with times, all in one unit.

    Raises:
        InputError: some have dates and others have numbers.
    """
    whole = next((table.times for table in tables if table.times is not None and table.times.unit == WHOLE), None)
    if whole is not None and all(table.times in {None, whole} for table in tables):
        return tuple(replace(table, fields=table.fields or (0, 1, 2), times=whole) for table in tables)
    forms = [table.times for table in tables if table.times is not None and table.times != whole]
    if forms and len(forms) < len(tables):
        other = next(file for file, table in zip(files, tables, strict=True) if table.times not in forms)
        raise InputError(f"{other.location}: expected dates as times, as other files have; write all in one way")
    digits = max((form.digits for form in forms), default=0)
    return tuple(replace(table, times=table.times and replace(table.times, digits=digits)) for table in tables)
