"""Shows how files and edges in memory would be read, without storing anything."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.ingest.vertex_tables import (
    Rows,
    VertexReading,
    is_file,
    read_as_vertices,
    read_parts_as_vertices,
)
from gnnloom.pipeline.sources.format import guess_format, open_edges
from gnnloom.pipeline.sources.reading.text_layout import names_ends
from gnnloom.pipeline.sources.understood import Understood, understood_of
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.option import options_of
from gnnloom.storage.wording import shell_command
from gnnloom.workflows.api.arrays import as_texts, is_location, stored_edges
from gnnloom.workflows.api.ingest import typed_source
from gnnloom.workflows.api.options.keywords import plain_values
from gnnloom.workflows.api.options.python_messages import IN_MEMORY, features_call, named_as, speaking_python

#: When further commands are the right ones.
_IF_VERTICES: Final = "if each row is a vertex"
_IF_EDGE: Final = "if the first line is an edge"
_IF_EDGES: Final = "if each row is an edge"
_ALONG: Final = "then, for the vertex data"
#: Files that are looked at one by one, at most.
_MOST_TABLES: Final = 20
#: A column with the ids of a type: user_id, userId, movieId.
_OF_TYPE: Final = re.compile(r"([A-Za-z][a-z]*)(?:_?[Ii][Dd])")


@dataclass(frozen=True)
class Look:
    """Reading of a source.

    Attributes:
        files: how each file is read, with its first rows.
        command: the command that stores the source; empty for edges in memory.
        others: further commands, by when they are the right ones: ``if each row is a vertex``, or for the vertex data
            next to edges. For data in memory, they are calls of Python.
    """

    files: tuple[Understood, ...]
    command: str
    others: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Lines for people."""
        return "\n".join([*(line for each in self.files for line in each.lines()), *self.commands()]).rstrip()

    __repr__ = __str__

    def commands(self) -> list[str]:
        """The command, and the others with when they are the right ones."""
        return [*filter(None, [self.command]), *(f"{when}: {command}" for when, command in self.others.items())]

    def to_json(self) -> dict[str, Any]:
        """The JSON that ``gnnloom look --json`` prints."""
        others = [{"when": when, "command": command} for when, command in self.others.items()]
        return {
            "files": [each.to_json() for each in self.files],
            "command": self.command,
            **({"others": others} if others else {}),
        }


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
            stack.enter_context(named_as({locations[0]: IN_MEMORY}))
        found = _look(locations, format, plain_values(options))
        if not in_memory:
            return found
        # Commands read files; what is in memory is read by calls of Python.
        calls = {
            when: call
            for when, command in found.others.items()
            if (call := features_call(command.replace(locations[0], IN_MEMORY)))
        }
        files = tuple(replace(each, location=IN_MEMORY) for each in found.files)
        return Look(files, features_call(found.command.replace(locations[0], IN_MEMORY)) or "", calls)


def _look(locations: Sequence[str], format_name: str | None, options: dict[str, Any]) -> Look:
    """Find how files would be read: as edges, as vertex data, or both if the first rows leave it open."""
    declared = typed_source(locations, format_name, options)
    if declared is not None:
        return Look(tuple(declared.open(options).understood()), _command(locations, format_name, options, (), ()))
    if format_name is None and not options and (tables := _several_tables(locations)) is not None:
        return tables
    vertices = None
    if format_name is None and options.keys() <= {"header", "decimal"}:
        vertices = read_parts_as_vertices(locations, **options)
    if vertices is None or vertices.has_edges or vertices.rows is Rows.EDGE_LIKELY:
        understood, command = _edges(locations, format_name, options)
        others = {}
        if any("`--header`" in each.question for each in understood) and options.get("header") is None:
            # The header is more likely, and both are shown.
            command = _edges(locations, format_name, options | {"header": True})[1]
            others[_IF_EDGE] = _edges(locations, format_name, options | {"header": False})[1]
        if vertices is not None:
            others[_ALONG if vertices.has_edges else _IF_VERTICES] = vertices.command()
        return Look(understood, command, others | _two_types(locations, format_name, understood))
    others = {}
    if vertices.rows is Rows.VERTEX_LIKELY:
        edges, _ = _edges(locations, format_name, options)
        others[_IF_EDGES] = _command(locations, format_name, options, edges, vertices.ends)
    return Look((vertices.understood,), vertices.command(), others)


def _several_tables(locations: Sequence[str]) -> Look | None:
    """Reading of files that are tables of types and relations; None if they are parts of one table.

    Parts of a table have the same columns. Names of types are derived from the columns of ids (``user_id``) or from the
    names of files, and ``TYPE`` stands for types that neither shows.
    """
    if not 1 < len(locations) <= _MOST_TABLES or not all(is_file(each) for each in locations):
        return None
    with suppress(GnnloomError):
        each = {location: (read_as_vertices(location), _look([location], None, {})) for location in locations}
        columns = [found.files[0].columns for _, found in each.values()]
        has_names = all(len(set(names)) == len(names) > 0 for names in columns)
        if not has_names or len({tuple(sorted(names)) for names in columns}) == 1 or _are_numbers(columns):
            return None
        vertices = {
            at: reading for at, (reading, found) in each.items() if reading is not None and not _is_edges(found)
        }
        words = ["gnnloom", "ingest", "NAME"]
        for location, reading in vertices.items():
            words += ["--vertices", _type_table(location, reading)]
        known = [_type_name(location, reading) for location, reading in vertices.items()]
        for location, (_, found) in each.items():
            if location not in vertices:
                words += ["--relation", _relation(location, found.files[0], known)]
        files = tuple(found.files[0] for _, found in each.values())
        others = {f"{location} alone": found.command for location, (_, found) in each.items()}
        return Look(files, shell_command(*words) if len(vertices) < len(each) else "", others)
    return None


def _are_numbers(columns: Sequence[Sequence[str]]) -> bool:
    """Whether a file has no header, so that its columns have numbers."""
    return any(name.isdigit() or name.startswith("column ") for names in columns for name in names)


def _is_edges(found: Look) -> bool:
    return found.command.startswith("gnnloom ingest")


def _type_name(location: str, vertices: VertexReading) -> str:
    """Name of the type of a table's vertices."""
    ids = _OF_TYPE.fullmatch(_id_column(vertices))
    return ids[1].lower() if ids is not None else Path(location).name.partition(".")[0].removesuffix("s")


def _id_column(vertices: VertexReading) -> str:
    """The first column that no vertex data has, or the first of all."""
    used = {name for value in vertices.files.values() for name in value.rpartition(":")[2].split(",")}
    return next((name for name in vertices.understood.columns if name not in used), vertices.understood.columns[0])


def _type_table(location: str, vertices: VertexReading) -> str:
    """Value of ``--vertices`` for a table: its ids and its vertex data."""
    held = [
        f"{column} as {option}"
        for option, value in vertices.files.items()
        for column in value.rpartition(":")[2].split(",")
    ]
    return f"{_type_name(location, vertices)}={location}:{','.join([_id_column(vertices), *held])}"


def _relation(location: str, edges: Understood, known: Sequence[str]) -> str:
    """Value of ``--relation`` for a table of edges.

    Args:
        known: types that have a table of vertices.
    """
    ends = [str(edges.facts.get(end, "")) for end in ("source", "target")]
    found = [_OF_TYPE.fullmatch(end) for end in ends]
    types = [
        each[1].lower() if each is not None else next(iter(known)) if len(known) == 1 else "TYPE" for each in found
    ]
    name = Path(location).name.partition(".")[0]
    return f"{types[0]},{name},{types[1]}={location}:{','.join([*ends, *_value_columns(edges)])}"


def _value_columns(edges: Understood) -> list[str]:
    """The weights or times of edges, as a part of a table of a relation."""
    value = next((flag.removeprefix("--columns ").split(",")[2:] for flag in edges.flags if flag.count(",") == 2), [])
    role = "time" if "--times" in edges.flags else "weight"
    return [f"{name} as {role}" for name in value]


def _two_types(locations: Sequence[str], format_name: str | None, understood: Sequence[Understood]) -> dict[str, str]:
    """The command that keeps the ends of edges apart, if their columns are called as those of two types are."""
    first = understood[0] if len(locations) == 1 and understood else None
    ends = [str(first.facts.get(end, "")) for end in ("source", "target")] if first is not None else []
    found = [_OF_TYPE.fullmatch(end) for end in ends]
    types = [each[1].lower() for each in found if each is not None]
    if first is None or len(types) < len(found) or types[0] == types[1] or names_ends(*ends):
        return {}
    columns = ",".join([*ends, *_value_columns(first)])
    relation = f"{types[0]},{'_'.join(types)},{types[1]}={locations[0]}:{columns}"
    given = ["--format", format_name] if format_name else []
    command = shell_command("gnnloom", "ingest", "NAME", "--relation", relation, *given)
    return {f"if {types[0]} and {types[1]} are two types of vertices": command}


def _edges(
    locations: Sequence[str], format_name: str | None, options: dict[str, Any]
) -> tuple[tuple[Understood, ...], str]:
    """Descriptions of how files of edges are read, and the command that stores them."""
    edges = open_edges(format_name, locations, options)
    found = understood_of(edges, locations, format_name or guess_format(locations))
    flags = [
        word for flag in dict.fromkeys(flag for each in found for flag in each.flags) for word in flag.split(" ", 1)
    ]
    return tuple(found), _command(locations, format_name, options, found, flags)


def _command(
    locations: Sequence[str],
    format_name: str | None,
    options: dict[str, Any],
    found: Sequence[Understood],
    flags: Sequence[str],
) -> str:
    """The command that stores the edges of files with these options, and flags that follow from the files."""
    words = ["gnnloom", "ingest", "NAME", *locations]
    words += ["--format", format_name] if format_name else []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is None or value == "":
            continue
        words += [flag] if value is True else [f"--no-{flag[2:]}"] if value is False else [flag, str(value)]
    words += flags
    # Whoever names the columns leaves it open how ids are stored.
    is_compact = any(each.are_names or "--ids compact" in each.flags for each in found)
    words += ["--ids", "compact"] if is_compact and "--ids" not in words else []
    return shell_command(*words)
