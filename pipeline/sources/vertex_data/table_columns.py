"""Which columns of a table are read, and what they hold: ``FILE:COLUMNS`` names them, and the first rows decide.

Columns are names, or numbers and ranges of numbers from 1, with commas between them: ``nodes.csv:age,income``,
``cora.content:2-1434``.
"""

from __future__ import annotations

import csv
import glob
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gnnloom.pipeline.sources.binary.parquet_table import ParquetTable
from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray
from gnnloom.pipeline.sources.reading.class_names import UNKNOWN, is_heading
from gnnloom.pipeline.sources.reading.coding import without_suffix
from gnnloom.pipeline.sources.reading.files import SourceFile, is_local, open_file
from gnnloom.pipeline.sources.reading.text_layout import is_number
from gnnloom.pipeline.sources.reading.text_table import Row, Sample, Stated, numbers_rows
from gnnloom.pipeline.sources.vertex_data.cells import (
    CellTable,
    NumpyCells,
    ParquetCells,
    TextTableCells,
    column_name,
)
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import open_one_array
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import VertexArray

#: A range of numbers of columns; the last one may be left out.
_RANGE: Final = re.compile(r"(\d+)-(\d*)", re.ASCII)
#: What is between the numbers of a list, and a number with a decimal comma.
_BETWEEN, _DECIMAL = re.compile(r"[\s,;]+"), re.compile(r"[-+]?\d+,\d+", re.ASCII)
#: How programs write what is true and false, in lower case.
TRUTH: Final = frozenset({"true", "false"})
#: Columns that a message lists, at most.
_LISTED: Final = 20


def split_location(location: str) -> tuple[str, tuple[str, ...]]:
    """A location and the columns that follow it after a colon; none if a file has the whole name.

    >>> split_location("https://host/t.csv:age,income")
    ('https://host/t.csv', ('age', 'income'))
    >>> split_location("C:/nodes.csv")
    ('C:/nodes.csv', ())
    """
    if not is_local(location):
        folder, slash, name = location.rpartition("/")
        name, colon, columns = name.partition(":")
        return (f"{folder}{slash}{name}", _listed(columns)) if colon and name and "?" not in name else (location, ())
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


def _is_file(location: str) -> bool:
    path = Path(location.removeprefix("file://")).expanduser()
    return path.exists() or (glob.has_magic(str(path)) and bool(glob.glob(str(path), recursive=True)))


def _listed(columns: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in next(csv.reader([columns], skipinitialspace=True), []) if name.strip())


def is_numpy(location: str) -> bool:
    """Whether a file has arrays of NumPy."""
    return _suffix(location) in {"npy", "npz"}


def is_parquet(location: str) -> bool:
    """Whether a file is a Parquet file, by its name."""
    return _suffix(location) in {"parquet", "pq"}


def _suffix(location: str) -> str:
    return without_suffix(location.rpartition("/")[2]).rpartition(".")[2].lower()


@dataclass(frozen=True)
class Column:
    """A column that is read.

    Attributes:
        number: number of the column in the table, from 0.
        name: its name, or its number from 1.
        kind: ``number``, ``list`` or ``words``.
        width: numbers of each list; 1 for other columns.
    """

    number: int
    name: str
    kind: str
    width: int = 1


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


def open_table(location: str, columns: Sequence[str], header: bool | None, array: str) -> CellTable:
    """Open a table whose columns are chosen.

    Args:
        columns: columns of the table that the user names; the member of an ``.npz``.
        header: whether the first line of text names the columns; None if the user did not say.
        array: the array of an ``.npz``, if ``columns`` is empty.

    Raises:
        NotFoundError: the file does not exist.
        InputError: the file is not a table, or its first line may be a header.
    """
    if is_numpy(location):
        return NumpyCells(open_one_array(location, columns[0] if columns and location.endswith("npz") else array))
    file = open_file(location)
    if is_parquet(location):
        return ParquetCells(ParquetTable.open(file))
    return open_text(file, columns, header)


def with_ids(table: CellTable, row_ids: StoredArray | None) -> CellTable:
    """The table with ids of its rows from another array."""
    return NumpyCells(table.array, row_ids) if isinstance(table, NumpyCells) and row_ids is not None else table


def open_text(file: SourceFile, columns: Sequence[str], header: bool | None) -> TextTableCells:
    """Find the separator and the header of a text file.

    Raises:
        InputError: the file has no rows, or its first line may be a header.
    """
    sample = Sample.of(file, Stated(header))
    if not sample.rows:
        raise InputError(f"{file.location}: the file is empty; expected a line per vertex")
    first, rows = sample.rows[0], sample.rows[1:]
    width = len(rows[0].fields) if rows else len(first.fields)
    names = first.fields
    # R leaves out the name of the column of row numbers.
    if width == len(names) + 1 and not any(map(is_number, names)):
        names = ("", *names)
    by_name = any(column in names for column in columns if not column.isdecimal())
    begins = header if header is not None else by_name or _begins_with_names(file, first, names, rows)
    if begins:
        return TextTableCells(file, sample.separator, names, width, first.stop, rows)
    return TextTableCells(file, sample.separator, (), width, first.start, sample.rows)


def _begins_with_names(file: SourceFile, first: Row, names: Sequence[str], rows: Sequence[Row]) -> bool:
    """Whether a first row names the columns: columns of numbers decide, or else words that are known or occur again.

    Raises:
        InputError: nothing decides.
    """
    if not rows or numbers_rows(names[0]):
        return bool(rows)
    below = [[row.fields[number] for row in rows if number < len(row.fields)] for number in range(len(names))]
    columns = [(name, kind_of(cells)[0], cells) for name, cells in zip(names, below, strict=True)]
    is_name = {is_word(name) for name, kind, cells in columns if kind != "words" and any(map(_is_known, cells))}
    if len(is_name) == 1:
        return is_name.pop()
    occurs = any(name in cells for name, kind, cells in columns if kind == "words")
    if not is_name and occurs:
        return False
    if not is_name and any(is_heading(name) for name in names):
        return True
    raise InputError(
        f"{file.location}, line {first.line}: {', '.join(map(repr, first.fields[:5]))} may name the columns; pass"
        " `--header` if they do, or `--no-header` if the line is a row"
    )


def _is_known(cell: str) -> bool:
    return cell.lower().encode() not in UNKNOWN


def is_word(cell: str) -> bool:
    """Whether a cell is neither missing, a number, True or False, nor a list of numbers."""
    return _is_known(cell) and not is_value(cell) and list_width(cell) is None


def is_value(cell: str) -> bool:
    """Whether a cell is a number, or True or False."""
    return is_number(cell) or cell.lower() in TRUTH


def list_width(cell: str) -> int | None:
    """How many numbers a cell has that is a list: in brackets, or several with blanks, commas or semicolons between.

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
    """What a column holds, from its first cells: ``number``, ``list`` or ``words``; and the width of its lists.

    A few words among numbers do not make a column of words: the reader reports them.

    >>> kind_of(["1", "True", "NA"]), kind_of(["[1 2]", ""]), kind_of(["red", "blue"])
    (('number', 1), ('list', 2), ('words', 1))
    """
    known = [cell for cell in cells if _is_known(cell)]
    words = sum(map(is_word, known))
    if 2 * words > len(known):
        return "words", 1
    widths = [width for cell in known if (width := list_width(cell)) is not None]
    return ("list", widths[0]) if 2 * len(widths) > len(known) else ("number", 1)


def find_columns(table: CellTable, numbers: Sequence[int], array: VertexArray) -> list[Column]:
    """What some columns of a table hold.

    Args:
        array: the array that they are for.

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
            known = [cell for cell in cells if _is_known(cell)]
            if kind == "list" and all(_DECIMAL.fullmatch(cell) for cell in known if "," in cell):
                raise InputError(
                    f"{table.file.location}, column {name}: {known[0]!r} may be a number with a decimal comma, or a list"
                    " of two; write a point as in 7.5, or lists in brackets as in [7, 5]"
                )
        # The words of a split are its own vocabulary.
        if array.words and kind == "number" and cells:
            kind = "words"
        found.append(Column(number, name, kind, width))
    return found
