"""Decides which columns of a text table have the two ends of an edge: by number, by name, or by their cells.

Columns that a header names as the ends are read in any position. If neither names nor cells say which columns are the
ends, the user is asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final

from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.name_ids import is_id
from gnnloom.pipeline.sources.reading.text_layout import (
    Row,
    Sample,
    Stated,
    columns_by_thing,
    declared_names,
    find_ends,
    is_number,
    marked_ends,
    names_ids,
    numbers_rows,
    related_columns,
)
from gnnloom.pipeline.sources.reading.times import count_seconds, find_times
from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import shell_command

#: Rows at the beginning of a file whose cells show what their columns have.
_LOOKED_AT: Final = 1000
#: Characters of the name of a column that a message shows.
_SHOWN: Final = 40
#: A table without a header has the ends, a weight and a time, and no more columns.
_MOST_UNNAMED: Final = 4
#: Rows whose first fields may count them.
_FEWEST_COUNTED: Final = 3
#: Columns of a table that may be the ends, at most; and the least share of ids in common, of numbers and of words.
MOST_CANDIDATES: Final = 16
_LEAST_SHARE: Final = (0.25, 0.1)
#: A time of day; and a date as people write it, in any order of day, month and year, perhaps with such a time.
_CLOCK: Final = re.compile(r"\d{1,2}:\d\d(:\d\d(\.\d+)?)?", re.ASCII)
_DATE: Final = re.compile(rf"\d{{1,2}}([./-])\d{{1,2}}\1(\d\d){{1,2}}([ T]{_CLOCK.pattern})?", re.ASCII)


def fields_by_name(
    location: str, names: Sequence[str], first: tuple[int, ...], *, valued: bool, numbered: bool = False
) -> tuple[tuple[int, ...], str] | None:
    """Columns that a header names as the ends of edges, if they differ from the columns that are read without names.

    Args:
        first: numbers of the ends that are read without names.
        valued: a column of weights or times follows.
        numbered: options write numbers of columns, as the names are in a comment.

    Returns:
        Numbers of the source, the target and the value; and a question if several columns are possible, else nothing.
    """
    named_ends = find_ends(names)
    _check_folders(location, names)
    ends = named_ends[0] if named_ends and first not in named_ends else first
    twins = [
        (names[end], other)
        for end in ends
        if end < len(names)
        for other in names
        if other != names[end] and other.lower() == names[end].lower()
    ]
    if not twins and ends == first:
        return None
    others = [at for at in range(len(names)) if at not in ends and not numbers_rows(names[at])]
    question = ""
    if twins:
        columns = _columns_option(names, ends, numbered=numbered)
        question = (
            f"{location}: the names of columns {twins[0][0]} and {twins[0][1]} differ only in their letters' case; add"
            f" `{shell_command(*columns)}`, or `--columns` with the other columns of both ends"
        )
    elif len(named_ends) > 1:
        chosen = [_columns_option(names, pair, numbered=numbered) for pair in named_ends]
        shown = [f" ({' and '.join(names[end] for end in pair)})" if numbered else "" for pair in named_ends]
        options = " or ".join(f"`{shell_command(*each)}`{name}" for each, name in zip(chosen, shown, strict=True))
        question = f"{location}: the header names several pairs of columns that may be the ends of edges; add {options}"
    elif valued and len(others) != 1:
        columns = _columns_option(names, (*named_ends[0], -1), numbered=numbered)
        question = (
            f"{location}: the header names {names[ends[0]]} and {names[ends[1]]} as the ends of edges; add"
            f" `{shell_command(*columns)}` with the column of the weights or times as VALUE"
        )
    return (*ends, *((others or [len(names)])[:1] if valued else ())), question


def _check_folders(location: str, names: Sequence[str]) -> None:
    """Refuse a part of a table one of whose ends is in the names of its folders, as partitions of Spark and Hive are.

    Raises:
        InputError: the header has one end of an edge, and a folder such as ``src=7`` the other.
    """
    folders = [part.partition("=")[0] for part in location.split("/")[:-1] if "=" in part]
    if not find_ends(names) and any(max(ends) >= len(names) for ends in find_ends([*names, *folders])):
        raise InputError(
            f"{location}: one end of the edges is in the name of the folder, which is not read; write the table without"
            " partitions, for example with pandas.read_parquet(FOLDER).to_parquet('edges.parquet')"
        )


def named_fields(file: SourceFile, first: Sequence[str], columns: Sequence[str], *, named: bool) -> tuple[int, ...]:
    """Indices of the fields with these names in the first row."""
    known = first if named else [str(number + 1) for number in range(len(first))]
    found: list[int] = []
    for column in columns:
        numbers = declared_names(known, column)
        if not numbers:
            hint = "; if it does not name the columns, give their numbers from 1 and `--no-header`" if named else ""
            there = ", ".join(each[:_SHOWN] for each in known)
            raise InputError(f"{file.location}: no column {column}; the first line has {there}{hint}")
        if len(numbers) > 1:
            raise InputError(
                f"{file.location}: {len(numbers)} columns are called {column}; give their numbers from 1 and `--header`"
            )
        found += numbers
    return tuple(found)


def numbered_fields(first: Sequence[str], width: int, columns: Sequence[str], *, has_header: bool) -> tuple[int, ...]:
    """Indices of columns that are chosen by their numbers from 1; none if they are chosen by name.

    Args:
        width: number of columns.
        has_header: the user says that the first row names the columns, and a column may be called 2.
    """
    numbers = [str(number) for number in range(1, width + 1)]
    if any(column not in numbers or (has_header and column in first) for column in columns):
        return ()
    return tuple(map(numbers.index, columns))


def _columns_option(names: Sequence[str], columns: Sequence[int], *, numbered: bool) -> list[str]:
    """Words of the option that reads columns, by name if the names are distinct; -1 stands for a column of values.

    Args:
        numbered: the names are in a comment, which options cannot use.
    """
    chosen = [names[at] if at < len(names) else "" for at in columns if at >= 0]
    is_distinct = all(names.count(name) == 1 and "," not in name for name in chosen)
    written = ["VALUE" if at < 0 else names[at] if is_distinct and not numbered else str(at + 1) for at in columns]
    return ["--columns", ",".join(written), *([] if is_distinct or numbered else ["--header"])]


def open_ends(
    file: SourceFile, sample: Sample, stated: Stated, names: Sequence[str], ends: tuple[int, int]
) -> tuple[tuple[int, int], str]:
    """More likely columns of the ends of edges, with the question; the given columns and no question if there are none.

    Args:
        names: names of the columns; none if the first row is an edge.
        ends: numbers of the columns that would be read.
    """
    rows = sample.rows[1 if names else 0 :][:_LOOKED_AT]
    width = min((len(row.fields) for row in rows), default=0)
    if max(ends) >= width or stated.extra_columns:
        return ends, ""
    times = [have_times([row.fields[at] for row in rows]) for at in range(width)]
    may_be_logged = width > 2 and not stated.valued and ends not in find_ends(names)
    is_logged = may_be_logged and not _name_ids(names, ends[:1]) and _are_logged(rows, ends)
    others = [at for at in range(width) if not times[at]]
    likely = _likely_ends(rows, names, [at for at in others if at != ends[0]] if is_logged else others)
    if likely is None:
        # Fractions are not ids.
        may_be_ids = [
            at for at in others if all(is_id(row.fields[at]) or not is_number(row.fields[at]) for row in rows)
        ]
        found = may_be_ids if len(may_be_ids) > 1 else others
        likely = (found[0], found[1]) if len(found) > 1 and any(times[end] for end in ends) else ends
    option = _columns_option(names or [""] * width, likely, numbered=not names)
    if is_logged and likely != ends:
        title = f"column {names[ends[0]] if names else ends[0] + 1}"
        own = _columns_option(names or [""] * width, ends, numbered=not names)
        return likely, (
            f"{file.location}: {title} may have times since 1970; add `{shell_command(*option)}` if it does,"
            f" and `{shell_command(*own)}` if it has ids"
        )
    # Dates may be the vertices, unless other columns have ids.
    if times[ends[0]] != times[ends[1]] or (times[ends[0]] and likely != ends):
        at = next(end for end in ends if times[end])
        title = f"column {names[at] if names else at + 1}"
        return likely, (
            f"{file.location}: {title} has times, not ids; add `{shell_command(*option)}`, or `--columns` with other"
            " columns"
        )
    # A first row without a number may name the columns, which is asked about later.
    if not names and width > _MOST_UNNAMED and any(map(is_number, rows[0].fields)):
        return likely, (
            f"{file.location}: nothing names the {width} columns; add `{shell_command(*option)}`, or `--columns` with"
            " the numbers of the columns of sources and targets"
        )
    are_ids = width > 2 and all(is_id(cell) for row in rows for cell in row.fields[:3])
    if not names and not stated.valued and are_ids and _count_rows(rows):
        return ends, (
            f"{file.location}: the first fields count the lines; add `--columns 2,3` if they number the edges,"
            " `--columns 1,2` if the first two are the ends of edges, and `--columns 1,2,3` if a weight follows"
        )
    # Tables have other separators than blanks.
    is_open = not names and stated.header is None and sample.separator != b" "
    if is_open and _are_numbers_of_columns(rows, ends):
        shown = ",".join(rows[0].fields)
        return ends, (
            f"{file.location}, line {rows[0].line}: {shown} may be the numbers that pandas gives to columns without"
            " names; add `--header` if they are, or `--no-header` if the line is an edge"
        )
    cells = {at: {row.fields[at] for row in rows} for at in others[:MOST_CANDIDATES]}
    return find_other_ends(file.location, cells, names, ends, num_rows=len(rows), valued=stated.valued) or (ends, "")


def find_other_ends(
    location: str,
    cells: Mapping[int, set[str]],
    names: Sequence[str],
    ends: tuple[int, int],
    *,
    num_rows: int,
    valued: bool,
) -> tuple[tuple[int, int], str] | None:
    """Columns that are more likely the ends than the given ones, with the question; None if there are none.

    Ends are of one kind, and mostly have ids in common. In ``time,i,j``, the time has none with other columns. In
    ``user,user_id,item,item_id``, the first two columns are one end. In ``payment_id,account_id,shop_id``, the first
    column numbers the rows.

    Args:
        cells: distinct first cells of the columns that may have ids, by the number of the column.
        names: names of the columns; none if a text has no header.
        ends: numbers of the columns that would be read.
        num_rows: number of rows with these cells.
        valued: a column of weights or times follows.
    """
    if find_ends(names):
        return None
    things = columns_by_thing(names)
    # An id is seldom a name as well.
    are_apart = cells.get(ends[0], set()).isdisjoint(cells.get(ends[1], ()))
    if are_apart and (own := next((thing for thing in things if set(ends) <= set(thing)), None)):
        others = [thing[0] for thing in things if thing != own]
        return _ends_of_things(location, names, cells, own, others, valued=valued)
    if valued:
        return None
    known = {at: found - {"", "0", "1"} for at, found in cells.items()}
    words = {at: not any(map(is_number, found)) for at, found in known.items()}
    ids = [at for at, found in known.items() if found and (words[at] or all(map(is_id, found)))]
    marked = marked_ends(names)
    if ends in marked:
        return None
    if _name_ids(names, ends):
        marked = [pair for pair in marked if _name_ids(names, pair)]
    related = [(one, two) for one, two in related_columns(names) if known.get(one, set()) & known.get(two, set())]
    if known.get(ends[0], set()).isdisjoint(known.get(ends[1], ())):
        marked += [pair for pair in related if pair != ends]
    pair = next((pair for pair in marked if pair[0] in ids and pair[1] in ids), None)
    distinct = [len(cells.get(end, ())) for end in ends]
    if pair is None and _name_ids(names, ends) and distinct[0] == num_rows > distinct[1]:
        # A row has an id of its own, and the ids of both ends.
        pair = next(((ends[1], at) for at in ids if at not in ends and _name_ids(names, (at,))), None)
    if pair is None and not _name_ids(names, ends):
        pair = _pair_in_common({at: known[at] for at in ids}, words, ends)
    if pair is None:
        return None
    width = max(*cells, *ends) + 1
    chosen = [_columns_option(names or [""] * width, each, numbered=not names) for each in (pair, ends)]
    options = " or ".join(f"`{shell_command(*columns)}`" for columns in chosen)
    return pair, f"{location}: two pairs of columns may be the ends of edges; add {options}"


def _ends_of_things(
    location: str,
    names: Sequence[str],
    cells: Mapping[int, set[str]],
    own: tuple[int, ...],
    others: Sequence[int],
    *,
    valued: bool,
) -> tuple[tuple[int, int], str]:
    """Columns that are more likely the ends than the id and the name of a thing, with the question.

    Args:
        own: numbers of the columns of this thing, the id first.
        others: numbers of the columns with the ids of other things.
        valued: a column of weights or times follows.
    """
    pairs = list(combinations((own[0], *others[:2]), 2))
    values = [-1] if valued else []
    chosen = [_columns_option(names, (*pair, *values), numbered=False) for pair in pairs]
    options = " or ".join(f"`{shell_command(*columns)}`" for columns in chosen)
    likely = max(
        pairs, key=lambda pair: len(set.intersection(*(cells.get(end, set()) for end in pair))), default=own[:2]
    )
    return (likely[0], likely[1]), (
        f"{location}: {names[min(own)]} and {names[max(own)]} seem to be the id and the name of one vertex; add"
        f" {options or '`--columns` with the columns of both ends'}"
    )


def _pair_in_common(
    cells: Mapping[int, set[str]], words: Mapping[int, bool], ends: tuple[int, int]
) -> tuple[int, int] | None:
    """The columns with most ids in common, if the ends have none; else None.

    Args:
        words: whether a column has words rather than numbers.
    """
    first, second = (cells.get(end, set()) for end in ends)
    if not (first and second) or first & second:
        return None
    are_words = words[ends[0]] and words[ends[1]]
    shared = {(one, two): cells[one] & cells[two] for one, two in combinations(cells, 2) if words[one] == words[two]}
    # Weights, ratings and counts have small numbers, as the first ids of users do: of two columns of numbers, one is
    # the second of the ends, after a column that has none. So it is if names of transactions precede names of ends.
    seconds = {pair for pair, common in shared.items() if len(common) > 1 and ends[1] in pair and ends[0] not in pair}
    likely = [
        (one, two)
        for (one, two), common in shared.items()
        if len(common) >= _LEAST_SHARE[words[one]] * len(cells[one] | cells[two])
        and ((one, two) in seconds or (words[one] and not are_words))
    ]
    return max(likely, key=lambda pair: len(shared[pair]), default=None)


def _name_ids(names: Sequence[str], columns: Sequence[int]) -> bool:
    """Whether a header gives all these columns names of ids, as ``user_id`` is."""
    return all(at < len(names) and names_ids(names[at]) for at in columns)


def have_times(cells: Sequence[str]) -> bool:
    """Whether cells are dates or times of day, in any form in which people write them.

    >>> have_times(["31.12.2020", "01.01.2021"]), have_times(["7/14/2017 2:40"]), have_times(["10.0.0.1"])
    (True, True, False)
    """
    return find_times(cells) is not None or any(all(map(form.fullmatch, cells)) for form in (_CLOCK, _DATE))


def _are_logged(rows: Sequence[Row], ends: tuple[int, int]) -> bool:
    """Whether the first column has seconds since 1970 in the order of a log, and no id of the second column."""
    first, second = ([row.fields[end] for row in rows] for end in ends)
    return len(first) > 1 and count_seconds(first) and first == sorted(first) and set(first).isdisjoint(second)


def _count_rows(rows: Sequence[Row]) -> bool:
    """Whether the first fields are 0, 1, 2 or 1, 2, 3 and so on."""
    first = rows[0].fields[0]
    return (
        len(rows) >= _FEWEST_COUNTED
        and first in {"0", "1"}
        and all(row.fields[0] == str(number) for number, row in enumerate(rows, int(first)))
    )


def _are_numbers_of_columns(rows: Sequence[Row], ends: tuple[int, int]) -> bool:
    """Whether the first row is 0, 1, 2 and so on, and the ids of all other rows are larger than these."""
    first, below = rows[0].fields, [row.fields[end] for row in rows[1:] for end in ends]
    are_numbers = list(first) == [str(number) for number in range(len(first))] and all(map(is_id, below))
    return are_numbers and len(rows) > 2 and min(float(cell) for cell in below) > len(first)


def _likely_ends(rows: Sequence[Row], names: Sequence[str], columns: Sequence[int]) -> tuple[int, int] | None:
    """The first two columns that are called ids, or without names the two with most ids in common; else None."""
    called = [at for at in columns if at < len(names) and names_ids(names[at])]
    if names:
        return (called[0], called[1]) if len(called) > 1 else None
    # Pairs of all columns of a wide table would take minutes.
    cells = {at: {row.fields[at] for row in rows} for at in columns[:MOST_CANDIDATES]}
    ids = [at for at in cells if all(is_id(cell) or not is_number(cell) for cell in cells[at] if cell)]
    # Zeros and ones are in columns of any kind.
    common = {(one, two): len(cells[one] & cells[two] - {"", "0", "1"}) for one, two in combinations(ids, 2)}
    return max(common, key=lambda pair: common[pair], default=None)
