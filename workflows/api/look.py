"""Shows how files and edges in memory would be read, without storing anything."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.sources.binary.stored_arrays import member_names, open_array
from gnnloom.pipeline.sources.format import guess_format, open_edges
from gnnloom.pipeline.sources.reading.class_names import is_label
from gnnloom.pipeline.sources.reading.files import is_local, open_file
from gnnloom.pipeline.sources.understood import SHOWN_ROWS, Understood, joined, understood_of
from gnnloom.pipeline.sources.vertex_data.cells import CellTable, column_name
from gnnloom.pipeline.sources.vertex_data.chosen_columns import ChosenColumns
from gnnloom.pipeline.sources.vertex_data.table_columns import (
    choose,
    is_numpy,
    is_value,
    is_word,
    list_width,
    looks_like_vertices,
    open_table,
    propose,
    shown_cells,
    split_location,
    written,
)
from gnnloom.storage.disk.files import user_path
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import split_part
from gnnloom.storage.option import options_of
from gnnloom.storage.wording import shell_command
from gnnloom.workflows.api.arrays import as_texts, is_location, stored_edges
from gnnloom.workflows.api.options.keywords import plain_values
from gnnloom.workflows.api.options.python_messages import named_as, speaking_python

#: Columns of a vertex table that are shown.
_SHOWN_COLUMNS: Final = 12


@dataclass(frozen=True)
class Look:
    """How a source would be read.

    Attributes:
        files: how each file is read, with its first rows.
        command: the command that stores the source; empty for edges in memory.
    """

    files: tuple[Understood, ...]
    command: str

    def __str__(self) -> str:
        """Lines for people."""
        return "\n".join([*(line for each in self.files for line in each.lines()), self.command]).rstrip()

    __repr__ = __str__

    def to_json(self) -> dict[str, Any]:
        """What ``gnnloom look --json`` prints."""
        return {"files": [each.to_json() for each in self.files], "command": self.command}


def look(
    source: str | Path | Sequence[str | Path] | Any,
    *,
    format: str | None = None,  # noqa: A002 - the name of the option of the command
    **options: Any,
) -> Look:
    """Find out how a source would be read, without storing anything.

    >>> print(gnnloom.look("calls.csv"))  # doctest: +SKIP
    calls.csv: text, fields between commas; the first line names the columns
      edges from caller to callee
      ids are names: 'ann' in line 2 is not a number
    gnnloom ingest NAME calls.csv --ids compact

    Args:
        source: as for :func:`gnnloom.ingest`.
        format: format of the files; by default guessed.
        options: options of the format, as in ``gnnloom ingest --help-all``.

    Raises:
        InputError: the source cannot be read, or an option is unknown.
        NotFoundError: a file does not exist.
    """
    return speaking_python(find_reading, options_of(IngestOptions))(source, format, options)


def find_reading(source: Any, format: str | None, options: dict[str, Any]) -> Look:  # noqa: A002
    """Find out how a source would be read; arguments and errors as for :func:`look`."""
    with ExitStack() as stack:
        in_memory = not is_location(source)
        locations = [stack.enter_context(stored_edges(source)).location] if in_memory else as_texts(source)
        if in_memory:
            stack.enter_context(named_as({locations[0]: "source"}))
        if format is None and options.keys() <= {"header", "decimal"} and len(locations) == 1:
            found_vertices = _find_vertices(locations[0], **plain_values(options))
            if found_vertices is not None:
                understood, command = found_vertices
                return Look((understood,), "" if in_memory else command)
        edges = open_edges(format, locations, plain_values(options))
        found = understood_of(edges, locations, format or guess_format(locations))
        return Look(tuple(found), "" if in_memory else _command(locations, format, options, found))


def _find_vertices(
    location: str, header: bool | None = None, decimal: str | None = None
) -> tuple[Understood, str] | None:
    """How a table with a row per vertex would be read, and the command that stores it; None for any other file."""
    name, columns = split_location(location)
    if not is_local(name) or not user_path(name.removeprefix("file://")).is_file():
        return None
    if is_numpy(name):
        return _find_arrays(name)
    try:
        table = open_table(name, columns, header, "feature", decimal=decimal or ".")
        if not columns and not looks_like_vertices(table):
            return None
        ids, chosen = propose(table)
    except InputError:
        # The reader of edges says what is wrong.
        return None
    words, sources = ["gnnloom", "features", "NAME"], list[ChosenColumns]()
    for option, numbers in chosen.items():
        wanted = [number for number in choose(table, columns) if number in numbers] if columns else numbers
        if not wanted:
            continue
        given = written(table, wanted)
        words += [f"--{option}", f"{name}:{given}"]
        sources.append(ChosenColumns.of(table, wanted, option, ids))
    words += ["--by-id"] if ids is not None else []
    lacking = [column_name(table, number) for number in chosen.get("feature", ()) if _lacks(table, number)]
    words += ["--missing", "mean"] if lacking else []
    words += [] if header is None else ["--header" if header else "--no-header"]
    words += ["--decimal", decimal] if decimal == "," else []
    found = joined([each for source in sources for each in source.understood()])
    if not found:
        return None
    cells = [shown_cells(table, number)[1][:SHOWN_ROWS] for number in range(min(table.width, _SHOWN_COLUMNS))]
    shown = tuple(zip_longest(*cells, fillvalue=""))
    heads = tuple(column_name(table, number) for number in range(table.width))
    filled = (f"missing values of {', '.join(lacking)} become the mean; `--missing 0` makes them 0",) if lacking else ()
    found[0] = replace(found[0], sentences=(*found[0].sentences, *filled))
    return replace(
        found[0], columns=heads[:_SHOWN_COLUMNS], rows=tuple(row[:_SHOWN_COLUMNS] for row in shown)
    ), shell_command(*words)


def _lacks(table: CellTable, number: int) -> bool:
    """Whether the first cells of a column of numbers lack some."""
    cells = shown_cells(table, number)[1]
    are_lists = any(list_width(cell) for cell in cells)
    return not are_lists and any(cell.lower() == "nan" or not (is_word(cell) or is_value(cell)) for cell in cells)


def _find_arrays(location: str) -> tuple[Understood, str] | None:
    """How NumPy arrays with a row per vertex would be read; None if they seem to be edges."""
    file = open_file(location)
    members: list[str | None] = [*member_names(file)] if location.endswith("npz") else [None]
    arrays = {member: open_array(file, member) for member in members}
    if not {"edge_index", "row", "indices", "edges", "adj_indptr", "adj_data"}.isdisjoint(arrays):
        return None
    words, said = ["gnnloom", "features", "NAME"], list[str]()
    masks = [member for member in members if member and split_part(member)]
    for member, array in arrays.items():
        is_matrix = len(array.shape) == 2 and array.shape[1] > 1
        is_number = array.dtype.kind == "f" or (is_matrix and array.shape[1] > 2 and array.dtype.kind in "iub")
        option = "feature" if is_matrix and is_number else "label" if member and is_label(member) else ""
        if option and f"--{option}" not in words:
            words += [f"--{option}", location if member is None else f"{location}:{member}"]
            said.append(f"{option} from {array.dtype} of shape {array.shape}")
    if masks:
        words += ["--split", location]
        said.append(f"split from {', '.join(masks)}")
    if not said:
        return None
    kind = "npz" if location.endswith("npz") else "npy"
    sentences = ("NumPy", *said, "row k belongs to vertex k")
    return Understood(location, kind, {"arrays": said}, sentences), shell_command(*words)


def _command(
    locations: Sequence[str], format_name: str | None, options: dict[str, Any], found: Sequence[Understood]
) -> str:
    """The command that stores the edges of files with these options."""
    words = ["gnnloom", "ingest", "NAME", *locations]
    words += ["--format", format_name] if format_name else []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is None or value == "":
            continue
        words += [flag] if value is True else [f"--no-{flag[2:]}"] if value is False else [flag, str(value)]
    words += [
        word for flag in dict.fromkeys(flag for each in found for flag in each.flags) for word in flag.split(" ", 1)
    ]
    words += ["--ids", "compact"] if any(each.are_names for each in found) else []
    return shell_command(*words)
