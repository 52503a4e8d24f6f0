"""Chooses the columns of a table to read, and their kinds: ``FILE:COLUMNS`` names them, and the first rows decide.

Columns are names, or numbers and ranges of numbers from 1, with commas between them: ``nodes.csv:age,income``,
``cora.content:2-1434``.
"""

from __future__ import annotations

import csv
import glob
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from gnnloom.pipeline.sources.binary.parquet_table import ParquetTable
from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray
from gnnloom.pipeline.sources.reading.coding import without_suffix
from gnnloom.pipeline.sources.reading.files import SourceFile, is_local, open_file, shown_location
from gnnloom.pipeline.sources.reading.others.other_rows import refuse_drawn
from gnnloom.pipeline.sources.reading.text_layout import (
    PANDAS_INDEX,
    Row,
    Sample,
    Stated,
    is_grouped,
    is_number,
    names_ids,
    numbers_rows,
)
from gnnloom.pipeline.sources.reading.text_table import is_short_header, lacks_first_name, names_question
from gnnloom.pipeline.sources.vertex_data.cells import (
    CellTable,
    NumpyCells,
    ParquetCells,
    TextTableCells,
    column_name,
)
from gnnloom.pipeline.sources.vertex_data.class_names import UNKNOWN, is_heading
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import open_one_array
from gnnloom.pipeline.sources.vertex_data.parted_cells import PartedCells
from gnnloom.storage.disk.files import user_path
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import SPLIT_WORDS, VertexArray, split_part
from gnnloom.storage.wording import shell_command

#: A range of numbers of columns; the last one may be left out.
_RANGE: Final = re.compile(r"(\d+)-(\d*)", re.ASCII)
#: Separators of the numbers of a list, and a number with a decimal comma.
_BETWEEN, _DECIMAL = re.compile(r"[\s,;]+"), re.compile(r"[-+]?\d+,\d+", re.ASCII)
#: Text after a colon within the query of a URL: further values, or the end of a time.
_OF_QUERY: Final = re.compile(r"[=&%/]|^$|^\d\d\b", re.ASCII)
#: A number with a sign of a currency or of percents.
_SIGNED: Final = re.compile(r"[-+]?[$€£¥]?\s?[-+]?\d[\d ,.'\u2019\u00a0\u202f]*\s?[%$€£¥]?")
#: Words of programs for true and false, in lower case.
TRUTH: Final = frozenset({"true", "false"})
#: Usual names of columns with splits.
PARTS: Final = frozenset({"split", "fold", "set", "subset", "part"})
#: Usual names of columns of ids at any place in a table.
_IDS: Final = frozenset({"id", "node_id", "nodeid", "vertex_id", "node", "vertex", "user_id"})
#: Word between a column and the fill of its missing values.
ELSE: Final = " else "
#: Columns that a message lists, at most.
_LISTED: Final = 20


def split_location(location: str) -> tuple[str, tuple[str, ...]]:
    """A location and the columns that follow it after a colon; none if a file has the whole name.

    >>> split_location("https://host/t.csv:age,income")
    ('https://host/t.csv', ('age', 'income'))
    >>> split_location("https://host/t.csv:age,income?sig=7")
    ('https://host/t.csv?sig=7', ('age', 'income'))
    >>> split_location("C:/nodes.csv")
    ('C:/nodes.csv', ())

    Raises:
        InputError: columns follow the query of a URL; queries may contain colons.
    """
    if not is_local(location):
        return _split_url(location)
    at = len(location)
    while at > 0:
        # A name that has a colon itself comes before a shorter one.
        if _is_file(location[:at]):
            return location[:at], _listed(location[at + 1 :])
        at = location.rfind(":", 0, at)
    name, colon, columns = location.rpartition(":")
    # No such file: the message should name it without its columns, but C:/nodes.csv has none.
    is_drive = len(name) < 2 or "/" in columns or "\\" in columns
    return (name, _listed(columns)) if colon and columns and not is_drive else (location, ())


def _split_url(location: str) -> tuple[str, tuple[str, ...]]:
    """Split a URL like :func:`split_location`: the columns follow its path, and its query follows the columns."""
    path, mark, query = location.partition("?")
    folder, slash, name = path.rpartition("/")
    name, colon, columns = name.partition(":")
    if colon and name:
        return f"{folder}{slash}{name}{mark}{query}", _listed(columns)
    _, colon, behind = query.rpartition(":")
    # A query may end with a time, as in 2030-01-01T00:00:00Z.
    if colon and not _OF_QUERY.search(behind):
        shown = shown_location(path)
        raise InputError(
            f"{shown}: columns stand before the query of a URL, as in {shown}:{behind}?...; write a colon within the"
            " query as %3A"
        )
    return location, ()


def _is_file(location: str) -> bool:
    path = user_path(location.removeprefix("file://"))
    try:
        return path.exists() or (glob.has_magic(str(path)) and bool(glob.glob(str(path), recursive=True)))
    except OSError:
        # With many columns, the text is longer than any name of a file.
        return False


def column_list(names: Sequence[str]) -> str:
    """Names of columns as users write them in a command; a name with a comma is in quotes."""
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(names)
    return out.getvalue()


def _listed(columns: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in next(csv.reader([columns], skipinitialspace=True), []) if name.strip())


def is_numpy(location: str) -> bool:
    """Whether a file has arrays of NumPy."""
    return _suffix(location) in {"npy", "npz"}


def is_parquet(location: str) -> bool:
    """Whether a file is a Parquet file, by its name."""
    return _suffix(location) in {"parquet", "pq"}


def _suffix(location: str) -> str:
    return without_suffix(shown_location(location).rpartition("/")[2]).rpartition(".")[2].lower()


@dataclass(frozen=True)
class Column:
    """A column that is read.

    Attributes:
        number: number of the column in the table, from 0.
        name: its name, or its number from 1.
        kind: ``number``, ``list`` or ``words``.
        width: numbers of each list; 1 for other columns.
        fill: fill of missing values: a number, ``mean``, or a category; None if the column has none.
    """

    number: int
    name: str
    kind: str
    width: int = 1
    fill: str | None = None


def choose(table: CellTable, columns: Sequence[str]) -> list[int]:
    """Numbers of columns from 0.

    Args:
        columns: names, or numbers and ranges of numbers from 1; names win.

    Raises:
        InputError: the table does not have a column, or two of this name; the message lists the columns.
    """
    found: list[int] = []
    for column in columns:
        if column in table.names:
            if table.names.count(column) > 1:
                raise InputError(f"{table.file.location}: two columns are called {column}; give their numbers, from 1")
            found.append(table.names.index(column))
            continue
        first, last = (column, column) if column.isdecimal() else _bounds(column, table.width)
        if not first.isdecimal() or not 1 <= int(first) <= int(last) <= table.width:
            raise InputError(f"{table.file.location}: no column {column}; {_listing(table)}")
        found += range(int(first) - 1, int(last))
    if repeated := [number for number, count in Counter(found).items() if count > 1]:
        raise InputError(f"{table.file.location}: column {column_name(table, repeated[0])} is chosen twice")
    return found


def _bounds(column: str, width: int) -> tuple[str, str]:
    if (numbers := _RANGE.fullmatch(column)) is None:
        return "", ""
    return numbers[1], numbers[2] or str(width)


def _listing(table: CellTable) -> str:
    if not table.names:
        return f"the columns are numbered from 1 to {table.width:,}"
    more = f" and {len(table.names) - _LISTED:,} more" if len(table.names) > _LISTED else ""
    return f"the columns are {', '.join(table.names[:_LISTED])}{more}"


def open_table(location: str, columns: Sequence[str], stated: Stated, array: str, ids: str | None = None) -> CellTable:
    """Open a table whose columns are chosen.

    Args:
        columns: columns of the table that the user names; the member of an ``.npz``.
        stated: header, separator and decimals of text.
        array: the array of an ``.npz``, if ``columns`` is empty.
        ids: name or number of the column of ids, if the user says.

    Raises:
        NotFoundError: the file does not exist.
        InputError: the file is not a table, or its first line may be a header.
    """
    if is_numpy(location):
        return NumpyCells(open_one_array(location, columns[0] if columns and location.endswith("npz") else array))
    file = open_file(location)
    if is_parquet(location):
        return ParquetCells(ParquetTable.open(file))
    return open_text(file, columns, stated, ids)


def with_ids(table: CellTable, row_ids: StoredArray | None) -> CellTable:
    """The table with ids of its rows from another array."""
    return NumpyCells(table.array, row_ids) if isinstance(table, NumpyCells) and row_ids is not None else table


def open_text(file: SourceFile, columns: Sequence[str], stated: Stated, ids: str | None = None) -> TextTableCells:
    """Find the separator and the header of a text file; arguments as for :func:`open_table`.

    Raises:
        InputError: the file has no rows, or its first line may be a header.
    """
    sample, header = Sample.of(file, stated), stated.header
    if not sample.rows:
        raise InputError(f"{file.location}: the file is empty; expected a line per vertex")
    refuse_drawn(file, sample)
    if has_commas := stated.decimal == ",":
        sample = replace(sample, rows=tuple(replace(row, fields=_with_points(row.fields)) for row in sample.rows))
    first, rows = sample.rows[0], sample.rows[1:]
    names, width, question = first.fields, len(first.fields), ""
    if is_short_header(sample):
        question = names_question(file, sample) if ids is None else ""
        # R leaves out the name of the column of row names, and others the name of the last column.
        ends_unnamed = lacks_first_name(sample) is False or (ids == "1" and names_ids(names[0]))
        names, width = (*names, "") if ends_unnamed else ("", *names), width + 1
    by_name = any(column in names for column in columns if not column.isdecimal() or int(column) > width)
    begins = header if header is not None else by_name or _begins_with_names(file, first, names, rows)
    if begins:
        return TextTableCells(
            file, sample.separator, names, width, first.stop, rows, question=question, has_commas=has_commas
        )
    titles = sample.commented_titles
    return TextTableCells(
        file, sample.separator, (), width, first.start, sample.rows, has_commas=has_commas, titles=titles
    )


def _with_points(fields: Sequence[str]) -> tuple[str, ...]:
    """The fields of a line, with a point instead of a decimal comma."""
    return tuple(field.replace(",", ".") if _DECIMAL.fullmatch(field) else field for field in fields)


def _begins_with_names(file: SourceFile, first: Row, names: Sequence[str], rows: Sequence[Row]) -> bool:
    """Whether a first row names the columns: columns of numbers decide, or else words that are known or occur again.

    Raises:
        InputError: nothing decides.
    """
    if not rows or numbers_rows(names[0]):
        return bool(rows)
    below = [[row.fields[number] for row in rows if number < len(row.fields)] for number in range(len(names))]
    columns = [(name, kind_of(cells)[0], cells) for name, cells in zip(names, below, strict=True)]
    is_name = {is_word(name) for name, kind, cells in columns if kind != "words" and any(map(is_known, cells))}
    is_name |= {not is_part(name) for name, _, cells in columns if cells and all(map(is_part, cells))}
    if len(is_name) == 1 or (is_name and any(map(is_heading, names))):
        # Numbers may be names, such as years, but a word is not a number.
        return True in is_name
    occurs = any(name in cells for name, kind, cells in columns if kind == "words")
    if not is_name and occurs:
        return False
    if not is_name and any(is_heading(name) for name in names):
        return True
    raise InputError(
        f"{file.location}, line {first.line}: {', '.join(map(repr, first.fields[:5]))} may name the columns; pass"
        " `--header` if they do, or `--no-header` if the line is a row"
    )


def is_part(cell: str) -> bool:
    """Whether a cell is a word for a part of a split."""
    return cell.lower() in SPLIT_WORDS


def is_known(cell: str) -> bool:
    """Whether a cell is not missing."""
    return cell.lower().encode() not in UNKNOWN


def is_word(cell: str) -> bool:
    """Whether a cell is neither missing, a number, True or False, nor a list of numbers."""
    return is_known(cell) and not is_value(cell) and list_width(cell) is None


def is_value(cell: str) -> bool:
    """Whether a cell is a number, or True or False."""
    return is_number(cell) or cell.lower() in TRUTH


def list_width(cell: str) -> int | None:
    """Length of a cell that is a list: in brackets, or several numbers with blanks, commas or semicolons between.

    >>> list_width("[0.1, 0.2]"), list_width("0.1 0.2 0.3"), list_width("0.5"), list_width("a b")
    (2, 3, None, None)
    """
    text = cell.strip()
    is_bracketed = text[:1] + text[-1:] in {"[]", "()"} and len(text) > 1
    items = [item for item in _BETWEEN.split(text[1:-1] if is_bracketed else text) if item]
    if not all(map(is_number, items)) or not (is_bracketed or len(items) > 1):
        return None
    return len(items)


def kind_of(cells: Sequence[str]) -> tuple[str, int]:
    """Kind of a column, from its first cells: ``number``, ``list`` or ``words``; and the width of its lists.

    A few words among numbers do not make a column of words: the reader reports them.

    >>> kind_of(["1", "True", "NA"]), kind_of(["[1 2]", ""]), kind_of(["red", "blue"])
    (('number', 1), ('list', 2), ('words', 1))
    """
    known = [cell for cell in cells if is_known(cell)]
    words = sum(map(is_word, known))
    if 2 * words > len(known):
        return "words", 1
    widths = [width for cell in known if (width := list_width(cell))]
    return ("list", widths[0]) if 2 * len(widths) > len(known) else ("number", 1)


def ids_question(table: CellTable, numbers: Sequence[int], ids: int | None, *, is_stated: bool) -> str:
    """Question about a table whose column of ids is not read as ids; empty if there is none.

    Args:
        numbers: the columns that are read.
        ids: the column of ids; None if row k belongs to vertex k.
        is_stated: the user named the column of ids.
    """
    if isinstance(table, NumpyCells):
        return ""
    if isinstance(table, TextTableCells) and table.question:
        return table.question
    start = int(bool(table.names) and numbers_rows(table.names[0]))
    if ids is not None:
        return "" if is_stated else other_ids(table.file.location, table.names, ids)
    # The index of a frame may be the ids.
    if start and start < table.width and not names_ids(table.names[start]):
        start = 0
    if start in numbers or start >= table.width:
        return ""
    cells = table.first_cells(start)[1]
    is_index = bool(table.names) and numbers_rows(table.names[start])
    are_ids = is_index or (names_ids(table.names[start]) if table.names else len(set(cells)) == len(cells))
    if not are_ids or (counts(cells) if is_index else cells == [str(number) for number in range(len(cells))]):
        return ""
    return (
        f"column {column_name(table, start)} looks like the ids of the vertices ({cells[0] if cells else ''!r} in the"
        " first row); add `--by-id` if it is, or `--no-by-id` if row k belongs to vertex k"
    )


def counts(cells: Sequence[str]) -> bool:
    """Whether cells are row numbers: from 0, as pandas writes them, or from 1, as R does."""
    return any(list(cells) == [str(number) for number in range(first, first + len(cells))] for first in (0, 1))


def other_ids(location: str, names: Sequence[str], ids: int) -> str:
    """Question about a column other than the first whose name is usual for ids; empty if there is none.

    Args:
        ids: number of the column of ids.
    """
    if not names or names_ids(names[ids]):
        return ""
    others = [name for name in names if name == PANDAS_INDEX or name.lower() in _IDS]
    if not others:
        return ""
    return (
        f"the first column is {names[ids]}, and column {others[0]} looks like the ids of the vertices; name the column"
        f" of ids with `{shell_command('--ids-file', f'{location}:{others[0]}')}` or"
        f" `{shell_command('--ids-file', f'{location}:{names[ids]}')}`"
    )


def _may_be_number(cell: str) -> bool:
    return is_value(cell) or is_grouped(cell) or _DECIMAL.fullmatch(cell) is not None


def find_columns(table: CellTable, numbers: Sequence[int], array: VertexArray) -> list[Column]:
    """Find the kinds of some columns of a table.

    Args:
        array: the array for the columns.

    Raises:
        InputError: the type of a column cannot be read, or cells may be lists of two numbers or decimals.
    """
    found = []
    for number in numbers:
        kind, cells = table.first_cells(number)
        name, width = column_name(table, number), 1
        if kind == "list":
            width = next((len(each.split(",")) for each in cells if each), 1)
        elif not kind:
            kind, width = kind_of(cells)
            # A column of text without any in its first rows does not have numbers.
            first = table.parts[0] if isinstance(table, PartedCells) else table
            if not isinstance(first, TextTableCells) and not any(map(is_known, cells)):
                kind = "words"
            lists = [cell.strip() for cell in cells if list_width(cell) is not None]
            known = [cell.strip() for cell in cells if is_known(cell)]
            grouped = [cell for cell in known if is_grouped(cell)]
            is_number_array = array.name in {"feature", "target"}
            if grouped and is_number_array and all(map(_may_be_number, known)):
                raise InputError(
                    f"{table.file.location}, column {name}: {grouped[0]!r} may be a number with separators of"
                    " thousands; remove them, add `--decimal ,` if a comma precedes decimals, or write lists in"
                    " brackets as in [7, 5]"
                )
            if kind == "list" and all(map(_DECIMAL.fullmatch, lists)):
                raise InputError(
                    f"{table.file.location}, column {name}: {lists[0]!r} may be a number with a decimal comma, or a"
                    " list of two; add `--decimal ,` if it is a number, or write lists in brackets as in [7, 5]"
                )
            if is_number_array and kind == "words" and known and all(map(_SIGNED.fullmatch, known)):
                raise InputError(
                    f"{table.file.location}, column {name}: {known[0]!r} is a number with signs; write the number alone"
                )
        # The words of a split are its own vocabulary.
        if array.words and kind == "number" and cells and len(numbers) == 1 and not split_part(name):
            kind = "words"
        found.append(Column(number, name, kind, width))
    return found
