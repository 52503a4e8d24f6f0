"""Reads tables with a row per vertex, and proposes the commands that store the vertices.

:mod:`gnnloom.pipeline.ingest.row_meaning` tells such tables from edges.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from glob import escape, glob
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from gnnloom.pipeline.ingest.row_meaning import Rows, first_column, judge_rows, propose, shown_cells
from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray, member_names, open_array
from gnnloom.pipeline.sources.format import guess_format
from gnnloom.pipeline.sources.pyg import unread_tensors
from gnnloom.pipeline.sources.reading.coding import without_suffix
from gnnloom.pipeline.sources.reading.files import SourceFile, expand, is_local, open_file
from gnnloom.pipeline.sources.reading.text_layout import (
    Stated,
    find_ends,
    names_ids,
    numbers_rows,
)
from gnnloom.pipeline.sources.reading.times import find_times
from gnnloom.pipeline.sources.understood import SHOWN_ROWS, Understood, joined
from gnnloom.pipeline.sources.vertex_data.cells import CellTable, TextTableCells, column_name
from gnnloom.pipeline.sources.vertex_data.chosen.chosen_columns import ChosenColumns
from gnnloom.pipeline.sources.vertex_data.class_names import is_label
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import SPLIT_NAMES, is_target
from gnnloom.pipeline.sources.vertex_data.table_columns import (
    PARTS,
    choose,
    column_list,
    is_known,
    is_numpy,
    is_parquet,
    is_value,
    is_word,
    list_width,
    open_table,
    split_location,
)
from gnnloom.storage.disk.files import user_path
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.vertex_arrays import split_part
from gnnloom.storage.wording import shell_command

#: Files that are looked at one by one, at most.
MOST_TABLES: Final = 20
#: Columns of a vertex table that are shown.
_SHOWN_COLUMNS: Final = 12
#: Options of formats with which edges may still be vertices, or have vertex data next to them.
_KNOWN: Final = frozenset({"header", "decimal", "extra_columns", "weights", "times"})
#: Files that a command lists by their names, at most.
_LISTED: Final = 3
#: Formats of edges whose files may be tables.
_TABLES: Final = frozenset({"snap", "parquet", "npy", "npz"})
#: Members of an ``.npz`` that only a matrix of SciPy has, or a benchmark whose vertex data `ingest` stores.
_STORED_ALONG: Final = frozenset({"format", "indices", "edges", "adj_indptr", "adj_data"})
#: Members that hold features, even if the graph has the same number of vertices and edges.
_FEATURES: Final = frozenset({"x", "feat", "feats", "feature", "features", "node_feat", "node_features"})


@dataclass(frozen=True)
class VertexReading:
    """Reading of a file as vertex data, and the options of ``gnnloom features`` for this reading.

    Attributes:
        understood: the same, for people.
        files: value of each option that names a file.
        others: the other options, each as a flag with its value.
        rows: whether each row may be an edge instead.
        why: evidence from the first rows, as text for users; empty if only the names of columns decide.
        has_edges: the file has edges as well.
        ends: options of ``gnnloom ingest`` that read each row as an edge; none if it cannot be one.
        before: a command that joins the parts of a table into a file for ``gnnloom features``; empty if the table is
            one file.
        has_header: the first line of a text names its columns.
        ids: the column with the ids of the vertices, as the user of a command writes it; empty if there is none.
        named: names of the columns of each option; none if the columns have numbers only.
        lacking: names of the columns of features whose first rows lack values.
        columns: names of all columns; none if the columns have numbers only.
    """

    understood: Understood
    files: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    rows: Rows = Rows.VERTEX
    why: str = ""
    has_edges: bool = False
    ends: tuple[str, ...] = ()
    before: str = ""
    has_header: bool = False
    ids: str = ""
    named: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lacking: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def command(self, dataset: str = "NAME") -> str:
        """The command line that stores the vertex data."""
        stores = shell_command(*self.words(dataset))
        return f"{self.before} && {stores}" if self.before else stores

    def words(self, dataset: str) -> list[str]:
        """The words of the command that stores the vertex data, when the parts of the table are joined."""
        given = [word for option, value in self.files.items() for word in (f"--{option}", value)]
        others = [word for flag in self.others for word in flag.split(" ", 1)]
        return ["gnnloom", "features", dataset, *given, *others]

    def stores(self, dataset: str) -> str:
        """The command, and the command that joins the parts of the table before it, as a part of a sentence."""
        joins = f"{self.before} joins the parts, and " if self.before else ""
        return f"{joins}`{shell_command(*self.words(dataset))}` stores"


def read_parts_as_vertices(
    locations: Sequence[str], header: bool | None = None, decimal: str | None = None
) -> VertexReading | None:
    """Read a table of one or several files like :func:`read_as_vertices`; the first file decides what the table is.

    Files with other columns than the first one are other tables, so the files are no vertex data as a whole.
    """
    if not all(map(is_local, locations)):
        return None
    parts = locations
    if len(locations) == 1 and not is_file(locations[0]):
        # The reader of edges says that there is no such file.
        with suppress(NotFoundError):
            parts = expand(locations[0])
    found = read_as_vertices(parts[0], header, decimal)
    if found is None or len(parts) == 1:
        return found
    if not are_parts(parts, header, decimal):
        return None
    joins, joined_file = _join(parts, has_header=found.has_header)
    files = {option: value.replace(parts[0], joined_file, 1) for option, value in found.files.items()}
    return replace(found, files=files, before=joins) if joins else None


def are_parts(locations: Sequence[str], header: bool | None = None, decimal: str | None = None) -> bool:
    """Whether files are parts of one table: they have the same columns.

    Args:
        header, decimal: see :func:`read_as_vertices`.

    Raises:
        InputError: a file is no table.
    """
    tables = [_opened(location, (), header, decimal) for location in locations]
    names = {
        _headings(table, [each for each, _ in tables], is_sure=header is not None or not said) for table, said in tables
    }
    return len({table.width for table, _ in tables}) == 1 and len(names - {()}) < 2


def check_tables(locations: Sequence[str], options: Mapping[str, Any]) -> None:
    """Check that files are parts of one table, unless all their headers name ends of edges.

    Args:
        options: options of the format that the user gives.

    Raises:
        InputError: the files have different columns; the message has the command that shows how to store them.
    """
    given = [name for name, value in options.items() if value or (name == "header" and value is not None)]
    if not 1 < len(locations) <= MOST_TABLES or given or not all(map(is_file, locations)):
        return
    are_tables = False
    # If a file is not a table, the reader of edges reports why.
    with suppress(InputError):
        are_named = all(find_ends(_opened(location, (), None, None)[0].names) for location in locations)
        are_tables = not are_named and not are_parts(locations)
    if are_tables:
        raise InputError(
            f"{', '.join(locations)}: several tables rather than parts of one;"
            f" `{shell_command('gnnloom', 'look', *locations)}` prints the command that stores them, and `--columns`"
            " with the columns of both ends reads all as parts of one"
        )


def _headings(table: CellTable, tables: Sequence[CellTable], *, is_sure: bool) -> tuple[str, ...]:
    """Names of a table's columns; none if its first line may be a row of the table.

    Args:
        is_sure: the first line names the columns, if it has names.
    """
    names = tuple(name.strip().casefold() for name in table.names)
    if not isinstance(table, TextTableCells):
        # Arrays have no column names, so they cannot be parts of a text table.
        return names or ("",)
    if is_sure:
        return names
    known = {cell for each in tables for number in range(min(each.width, 2)) for cell in shown_cells(each, number)[1]}
    return () if not known.isdisjoint(table.names) else names


def _join(parts: Sequence[str], *, has_header: bool) -> tuple[str, str]:
    """A command that joins the parts of a table, and the file that it makes; both empty if nothing joins them."""
    first = Path(parts[0])
    # A name that no other file is likely to have.
    name = f"{first.parent.name or 'table'}-joined"
    shown, prefix = shell_command(*parts), os.path.commonprefix(list(parts))  # noqa: RUF071 - names begin alike
    if len(parts) > _LISTED and sorted(glob(f"{escape(prefix)}*")) == sorted(parts):
        shown = f"{shell_command(prefix)}*"
    if is_parquet(parts[0]):
        made = f"{name}.parquet"
        code = f"import pyarrow.parquet as p; p.write_table(p.read_table({str(first.parent)!r}), {made!r})"
        return shell_command("python", "-c", code), made
    # Members of gzip follow each other in a file, but lines of headers would be rows.
    ending = first.name[len(without_suffix(first.name)) :]
    made = f"{name}.csv{ending}"
    if ending and (has_header or ending == ".zip"):
        return "", ""
    joins = shell_command("awk", "FNR > 1 || NR == 1") if has_header else "cat"
    return f"{joins} {shown} > {shell_command(made)}", made


def read_as_vertices(location: str, header: bool | None = None, decimal: str | None = None) -> VertexReading | None:
    """Reading of a file as vertex data; None if it is remote, cannot be read, or seems to have edges only.

    Args:
        location: the file; columns may follow it.
        header: whether the first line of text names the columns; None if the user did not say.
        decimal: the character before the decimals of text, if the user says.

    Raises:
        InputError: the rows are vertices, and a column cannot be read.
    """
    name, columns = split_location(location)
    if not is_file(name):
        return None
    error: InputError | None = None
    # A cell may be a decimal with a comma or a list of two numbers; ``gnnloom look`` shows which reading was chosen.
    for mark in dict.fromkeys((decimal, decimal or ",")):
        rows = Rows.EDGE
        try:
            if guess_format([name]) not in _TABLES:
                return None
            if is_numpy(name):
                return _arrays_reading(name)
            table, said = _opened(name, columns, header, mark)
            if mark != decimal and isinstance(table, TextTableCells) and table.separator == b",":
                break
            rows, why = (Rows.VERTEX, "") if columns else judge_rows(table)
            return None if rows is Rows.EDGE else _table_reading(table, columns, rows, why, said)
        except InputError as found:
            # Of other tables, the reader of edges says what is wrong.
            error = error or (found if rows is Rows.VERTEX else None)
    if error is not None:
        raise error
    return None


def table_columns(location: str) -> tuple[str, ...]:
    """Names of the columns of a table; none if it has none, or the file is no table."""
    with suppress(InputError):
        return tuple(_opened(location, (), None, None)[0].names)
    return ()


def is_file(location: str) -> bool:
    """Whether a location is a local file."""
    return is_local(location) and user_path(location.removeprefix("file://")).is_file()


def check_rows(
    found: Sequence[Understood], dataset: str, options: Mapping[str, Any], *, stores_data: bool
) -> list[str]:
    """Refuse a table that would be read as edges if its rows seem to be vertices, unless the user chose the columns.

    Returns:
        Sentences about vertex data in what is read as edges: arrays next to the edges, or perhaps the rows.

    Args:
        found: how the files would be read.
        dataset: name of the dataset, for the message.
        options: options of the format that the user gives.
        stores_data: the format brings vertex data along, which are stored with the edges.

    Raises:
        InputError: the message says what the first rows show, and has both commands.
    """
    if found and found[0].format == "pyg" and (left := unread_tensors([found[0].location])):
        have, are = ("has", "is") if len(left) == 1 else ("have", "are")
        note = (
            f"{', '.join(left)} {have} a row per vertex and {are} not stored; to store them, save them as x, y,"
            " train_mask, val_mask and test_mask"
        )
        return [note]
    reading = _other_reading(found, options)
    if reading is None:
        return []
    if reading.has_edges and stores_data:
        return []
    if reading.has_edges:
        arrays = ", ".join(reading.understood.facts["arrays"])
        return [f"the file has vertex data, which are not stored ({arrays}); {reading.stores(dataset)} them"]
    first = found[0]
    # Whether a first line is a header is asked before, and ordinary edges have weights or times in their other columns.
    is_open = bool(first.facts.get("ignored")) and not options.get("extra_columns")
    is_refused_anyway = first.format == "snap" and first.flags[:1] == ("--extra-columns",) and not first.question
    if reading.rows is Rows.VERTEX or (is_open and (reading.rows is Rows.VERTEX_LIKELY or is_refused_anyway)):
        raise rows_question(reading, dataset)
    note = (
        f"the rows were read as edges, and each may be a vertex ({reading.why}); if they are vertices,"
        f" {reading.stores(dataset)} them for a graph whose edges come from another file"
    )
    return [note]


def rows_question(reading: VertexReading, dataset: str) -> InputError:
    """Question about a table whose rows may be vertices, as an error."""
    seem = "seems to be a vertex" if reading.rows is Rows.VERTEX else "may be a vertex"
    why = f" ({reading.why})" if reading.why else ""
    chosen = f"; if each row is an edge, add `{shell_command(*reading.ends)}`" if reading.ends else ""
    return InputError(
        f"{reading.understood.location}: each row {seem}{why}; {reading.stores(dataset)} such a table for a graph whose"
        f" edges come from another file{chosen}"
    )


def _other_reading(found: Sequence[Understood], options: Mapping[str, Any]) -> VertexReading | None:
    """Reading of the first file of edges as vertex data; None if the user said what it is, or it has none."""
    given = {name: value for name, value in options.items() if value or (name == "header" and value is not None)}
    if not found or found[0].is_stated or not given.keys() <= _KNOWN:
        return None
    locations = [each.location for each in found]
    return read_parts_as_vertices(locations, given.get("header"), given.get("decimal"))


def _opened(
    location: str, columns: Sequence[str], header: bool | None, decimal: str | None
) -> tuple[CellTable, tuple[str, ...]]:
    """A table, and the options that open it."""
    said = ("--decimal ,",) if decimal == "," else ()
    try:
        table = open_table(location, columns, Stated(header, decimal=decimal or "."), "feature")
    except InputError:
        # Nothing decides whether the first line is a header; in tables of vertices, it mostly is.
        if header is not None:
            raise
        header, table = True, open_table(location, columns, Stated(True, decimal=decimal or "."), "feature")
    return table, (*(() if header is None else ("--header" if header else "--no-header",)), *said)


def _table_reading(
    table: CellTable, columns: Sequence[str], rows: Rows, why: str, said: tuple[str, ...]
) -> VertexReading | None:
    """Reading of a table's columns as vertex data; None if there is none.

    Args:
        columns: the only columns to read; none for all.
        said: options that open the table.
    """
    name, (ids, chosen) = table.file.location, propose(table, has_ids=bool(why))
    files, sources = dict[str, str](), list[ChosenColumns]()
    for option, numbers in chosen.items():
        wanted = [number for number in choose(table, columns) if number in numbers] if columns else numbers
        if wanted:
            # The label of a file without other columns is the whole line: names of classes may have blanks.
            is_line = option == "label" and table.width == 1 and not table.names
            files[option] = name if is_line else f"{name}:{written(table, wanted)}"
            sources.append(ChosenColumns.of(table, wanted, option, ids))
    found = joined([each for source in sources for each in source.understood()])
    if not found:
        return None
    used = {number for numbers in chosen.values() for number in numbers} | {ids}
    lacking = [column_name(table, number) for number in chosen.get("feature", ()) if _lacks(table, number)]
    others = (*(("--by-id",) if ids is not None else ()), *(("--missing mean",) if lacking else ()), *said)
    titles = [column_name(table, number) for number in range(table.width)]
    left = [
        titles[number]
        for number in range(first_column(table), table.width)
        if number not in used and any(shown_cells(table, number)[1])
    ]
    filled = f"missing values of {', '.join(lacking)} become the mean; `--missing 0` makes them 0" if lacking else ""
    unread = f"columns that are not read: {', '.join(left)}" if left and not columns else ""
    cells = [shown_cells(table, number)[1][:SHOWN_ROWS] for number in range(min(table.width, _SHOWN_COLUMNS))]
    understood = replace(
        found[0],
        sentences=(*found[0].sentences, *filter(None, (filled, unread))),
        columns=tuple(titles[:_SHOWN_COLUMNS]),
        rows=tuple(zip_longest(*cells, fillvalue="")),
    )
    has_header = isinstance(table, TextTableCells) and bool(table.names)
    named = {option: tuple(table.names[number] for number in chosen[option]) for option in files if table.names}
    return VertexReading(
        understood,
        files,
        others,
        rows,
        why,
        ends=_ends(table),
        has_header=has_header,
        ids="" if ids is None else written(table, [ids]),
        named=named,
        lacking=tuple(lacking),
        columns=tuple(table.names),
    )


def _ends(table: CellTable) -> tuple[str, ...]:
    """Options that name the ends of edges: the first two columns, or two columns of names after the id of a row."""
    start = int(bool(table.names) and table.width > 2 and numbers_rows(table.names[0]))
    ends = [start, start + 1]
    if table.names and names_ids(table.names[start]):
        ends = [at for at in range(start + 1, table.width) if _has_names(table, at)][:2]
        ends = ends if len(ends) > 1 else [start, start + 1]
    names = [str(number + 1) for number in ends]
    if not table.names:
        return ("--columns", ",".join(names))
    called = [table.names[number] for number in ends]
    if all(name and "," not in name and table.names.count(name) == 1 for name in called):
        return ("--columns", ",".join(called))
    return ("--columns", ",".join(names), "--header")


def _has_names(table: CellTable, number: int) -> bool:
    """Whether the first cells of a column are words, and not dates."""
    cells = [cell for cell in shown_cells(table, number)[1] if is_known(cell)]
    return bool(cells) and all(map(is_word, cells)) and find_times(cells) is None


def _lacks(table: CellTable, number: int) -> bool:
    """Whether the first cells of a column of numbers lack some."""
    cells = shown_cells(table, number)[1]
    are_lists = any(list_width(cell) for cell in cells)
    return not are_lists and any(cell.lower() == "nan" or not (is_word(cell) or is_value(cell)) for cell in cells)


def _arrays_reading(location: str) -> VertexReading | None:
    """Reading of NumPy arrays with a row per vertex; None if there are none."""
    file = open_file(location)
    members: list[str | None] = [*member_names(file)] if location.endswith("npz") else [None]
    if not _STORED_ALONG.isdisjoint(members):
        return None
    arrays = {member: array for member in members if (array := _array(file, member)) is not None}
    pairs = arrays.get(None)
    if pairs is not None and pairs.dtype.kind in "iu" and len(pairs.shape) == 2 and 2 in pairs.shape:
        return None
    ends = [arrays[member] for member in ("edge_index", "row") if member in arrays]
    # Arrays of edges have a row for each edge.
    num_edges = max(ends[0].shape, default=0) if ends else -1
    files, said = dict[str, str](), list[str]()
    masks = {member: split_part(member) for member in arrays if member and split_part(member)}
    for member, array in arrays.items():
        is_of_edges = bool(ends) and (
            (member or "").startswith("edge") or member in {"row", "col"} or array.shape[:1] == (num_edges,)
        )
        if member in masks or (is_of_edges and not is_label(member or "") and member not in _FEATURES):
            continue
        option = _option_of(array, member or Path(location).name.partition(".")[0], is_file=member is None)
        if option and option not in files:
            files[option] = location if member is None else f"{location}:{member}"
            said.append(f"{option} from {array.dtype} of shape {array.shape}")
    others: tuple[str, ...] = ()
    if set(masks.values()) == set(SPLIT_NAMES):
        files["split"] = location
        said.append(f"split from {', '.join(map(str, masks))}")
        others = ("--split-index 0",) if any(len(arrays[mask].shape) > 1 for mask in masks) else ()
    if not said:
        return None
    kind = "npz" if location.endswith("npz") else "npy"
    sentences = ("NumPy", *said, "row k belongs to vertex k")
    return VertexReading(Understood(location, kind, {"arrays": said}, sentences), files, others, has_edges=bool(ends))


def _option_of(array: StoredArray, name: str, *, is_file: bool) -> str:
    """The option of ``gnnloom features`` for an array with a row per vertex; empty if its name and shape do not say.

    Args:
        name: name of the file or of the member of an archive.
        is_file: the file has no other array.
    """
    kind, dims = array.dtype.kind, len(array.shape)
    is_matrix = dims == 2 and (array.shape[1] > 1 or (is_file and kind == "f"))
    # Edges have two columns, so the only column of a file has labels, numbers to predict, or a split.
    is_column = is_file and dims in {1, 2} and not is_matrix and kind in "iufUS"
    if is_column and kind != "f" and name.lower() in PARTS:
        return "split"
    if is_column or is_label(name):
        return "target" if is_target(array) else "label"
    return "feature" if is_matrix and (kind == "f" or (array.shape[1] > 2 and kind in "iub")) else ""


def _array(file: SourceFile, member: str | None) -> StoredArray | None:
    """An array of numbers; None for any other one, which nothing reads."""
    try:
        return open_array(file, member)
    except InputError:
        return None


def written(table: CellTable, numbers: Sequence[int]) -> str:
    """Columns as the user writes them: names if there are some, or numbers and ranges of numbers from 1."""
    if table.names and all(table.names[number] for number in numbers):
        return column_list([table.names[number] for number in numbers])
    parts, first = list[str](), numbers[0]
    for number, after in zip(numbers, [*numbers[1:], -1], strict=True):
        if after != number + 1:
            parts.append(f"{first + 1}" if first == number else f"{first + 1}-{number + 1}")
            first = after
    return ",".join(parts)
