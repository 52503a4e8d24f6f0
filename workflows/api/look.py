"""Shows how files and edges in memory would be read, without storing anything."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from gnnloom.pipeline.ingest.row_meaning import Rows
from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.ingest.typed.end_types import relation_of_prefixes, relation_of_types, words_of_ratings
from gnnloom.pipeline.ingest.typed.table import parse_relations
from gnnloom.pipeline.ingest.typed.tables import TypedTables
from gnnloom.pipeline.ingest.typed.triples import TRIPLES
from gnnloom.pipeline.ingest.vertex_tables import (
    MOST_TABLES,
    VertexReading,
    are_parts,
    is_file,
    read_as_vertices,
    read_parts_as_vertices,
    table_columns,
)
from gnnloom.pipeline.sources.format import COLUMNS, formats, guess_format, guessed_formats, open_edges
from gnnloom.pipeline.sources.reading.first_lines import STARS, is_called
from gnnloom.pipeline.sources.reading.text_layout import names_ends
from gnnloom.pipeline.sources.reading.times import count_seconds, find_times
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.pipeline.sources.understood import Understood, understood_of
from gnnloom.pipeline.sources.vertex_data.table_columns import ELSE, column_list, is_numpy, split_location
from gnnloom.storage.artifacts.typed.typed_names import distinct_names, valid_name
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.option import options_of
from gnnloom.storage.wording import shell_command
from gnnloom.workflows.api.arrays import as_texts, is_location, stored_edges
from gnnloom.workflows.api.ingest import typed_source
from gnnloom.workflows.api.options.keywords import plain_values
from gnnloom.workflows.api.options.python_messages import IN_MEMORY, features_call, named_as, speaking_python

#: Conditions under which further commands apply.
_IF_VERTICES: Final = "if each row is a vertex"
_IF_EDGE: Final = "if the first line is an edge"
_IF_EDGES: Final = "if each row is an edge"
_IF_RATINGS: Final = "if the columns have users, items and ratings"
_UNTYPED: Final = "if all vertices have one type"
_WITHIN: Final = "if ids are distinct within a type only"
_PREFIXES: Final = "if the type of a vertex stands before :: in its id"
_IF_TYPED: Final = "if each table has vertices of another type"
_ALONG: Final = "then, for the vertex data"
_OF_TYPES: Final = "if rdf:type is the type of its subject"
#: A column with the ids of a type: user_id, userId, movieId; and a column that may be named after a type: user.
_OF_TYPE: Final = re.compile(r"([A-Za-z][a-z]*)(?:_?[Ii][Dd])")
_WORD: Final = re.compile(r"([A-Za-z][a-z]{2,})")
#: Names of id columns that tables of any type may have: columns of this name in two tables are not related.
_ANY_IDS: Final = frozenset({"id", "ids", "key", "index", "name", "code", "node", "vertex", "node_id", "vertex_id"})
#: Prefixes and suffixes of columns with labels of edges: is_fraud, risk_class.
_IS_LABEL: Final = re.compile(r"is_\w+|\w+_class|\w+_label|label|class")


@dataclass(frozen=True)
class Look:
    """Reading of a source.

    Attributes:
        files: how each file is read, with its first rows.
        command: the command that stores the source; empty for edges in memory, and for files that must be corrected
            first.
        others: further commands, by the condition under which they apply: ``if each row is a vertex``, or for vertex
            data in addition to edges. For data in memory, they are Python calls.
    """

    files: tuple[Understood, ...]
    command: str
    others: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Readable text of several lines."""
        return "\n".join([*(line for each in self.files for line in each.lines()), *self.commands()]).rstrip()

    __repr__ = __str__

    def commands(self) -> list[str]:
        """All commands, each with the condition under which it applies."""
        others = (f"{when}: {command}" for when, command in self.others.items() if command)
        return [*filter(None, [self.command]), *others]

    def to_json(self) -> dict[str, Any]:
        """The JSON that ``gnnloom look --json`` prints."""
        others = [{"when": when, "command": command} for when, command in self.others.items() if command]
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
    """Show how a source would be read, without storing anything.

    >>> print(gnnloom.look("calls.csv"))
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
        # Commands read files; data in memory are read by Python calls.
        calls = {
            when: call
            for when, command in found.others.items()
            if (call := features_call(command.replace(locations[0], IN_MEMORY)))
        }
        files = tuple(replace(each, location=IN_MEMORY) for each in found.files)
        return Look(files, features_call(found.command.replace(locations[0], IN_MEMORY)) or "", calls)


def _look(locations: Sequence[str], format_name: str | None, options: dict[str, Any]) -> Look:
    """Find how files would be read: as edges, as vertex data, or both if the first rows leave it open."""
    is_plain = format_name is None and not options
    if is_plain and len(guessed_formats(locations)) > 1 and (tables := _several_tables(locations)) is not None:
        # One source has one format, and each table of a graph with types has its own.
        return tables
    declared = typed_source(locations, format_name, options)
    if declared is not None:
        found, unlisted, how = tuple(declared.open(options, unknown="add").understood()), declared.unlisted, options
        if unlisted:
            # The files were understood; the user decides whether a table is missing.
            question = f"{unlisted[0]}; `--unknown add` takes the ids of the edges as vertices"
            found, how = (replace(found[0], question=question), *found[1:]), {**options, "unknown": "add"}
        others = {}
        if "rdf_type" not in options and any(each.facts.get("rdf_types") for each in found):
            others[_OF_TYPES] = _command(locations, format_name, how | {"rdf_type": "first"}, (), ())
        if format_name == TRIPLES and len(locations) == 1 and (typed := relation_of_prefixes(found[0], locations[0])):
            words = ["--relation", typed, *(["--no-header"] if found[0].facts.get("header") is False else [])]
            others[_PREFIXES] = shell_command("gnnloom", "ingest", "NAME", *words)
        return Look(found, _command(locations, format_name, how, (), ()), others)
    if is_plain and (tables := _several_tables(locations)) is not None:
        return tables
    vertices = None
    if format_name is None and options.keys() <= {"header", "decimal"}:
        vertices = read_parts_as_vertices(locations, **options)
    return _read(locations, format_name, options, vertices)


def _are_edges(vertices: VertexReading | None) -> bool:
    """Whether the files hold edges rather than vertices, given their reading as vertices."""
    return vertices is None or vertices.has_edges or vertices.rows is Rows.EDGE_LIKELY


def _read(
    locations: Sequence[str], format_name: str | None, options: dict[str, Any], vertices: VertexReading | None
) -> Look:
    """Reading of the parts of one table.

    Args:
        vertices: reading as vertex data; None if the table has none.
    """
    if vertices is None or _are_edges(vertices):
        understood, command = _edges(locations, format_name, options)
        others = {}
        if any("`--header`" in each.question for each in understood) and options.get("header") is None:
            # A header is more likely, and both readings are shown.
            command = _edges(locations, format_name, options | {"header": True})[1]
            others[_IF_EDGE] = _edges(locations, format_name, options | {"header": False})[1]
        name = Path(locations[0]).name.partition(".")[0]
        if len(locations) == 1 and not options and (typed := relation_of_types(understood[0], locations[0], name)):
            others[_UNTYPED] = command
            if (apart := relation_of_types(understood[0], locations[0], name, joined=True)) not in {"", typed}:
                others[_WITHIN] = shell_command("gnnloom", "ingest", "NAME", "--relation", apart)
            with suppress(GnnloomError):
                understood = tuple(TypedTables.open(parse_relations([typed]), {}, {}).understood())
            return Look(understood, shell_command("gnnloom", "ingest", "NAME", "--relation", typed), others)
        if vertices is not None:
            others[_ALONG if vertices.has_edges else _IF_VERTICES] = vertices.command()
        others |= _two_types(locations, format_name, understood, by_word=vertices is None)
        return Look(understood, command, others | _ratings(locations, format_name, understood))
    others = {}
    if vertices.rows is Rows.VERTEX_LIKELY:
        given = options | _options_of(vertices.ends, format_name or guess_format(locations))
        # A command that would fail on the files is not shown.
        with suppress(GnnloomError):
            others[_IF_EDGES] = _edges(locations, format_name, given)[1]
    return Look((vertices.understood,), vertices.command(), others)


def _several_tables(locations: Sequence[str]) -> Look | None:
    """Reading of files that are tables of types and relations; None if they are parts of one table.

    Names of types are derived from the columns of ids (``user_id``) or from the names of files, and ``TYPE`` stands for
    types that neither shows.
    """
    if not 1 < len(locations) <= MOST_TABLES or not all(is_file(each) for each in locations):
        return None
    try:
        readings = {location: read_as_vertices(location) for location in locations}
        # Arrays have no names of columns that could be compared.
        if not any(readings.values()) if any(map(is_numpy, locations)) else are_parts(locations):
            return None
        readings |= _keyed(readings)
    except GnnloomError:
        # If a file is not a table, the reader of edges reports the problem.
        return None
    found = {location: _read([location], None, {}, reading) for location, reading in readings.items()}
    foreign = _foreign_keys(readings, found)
    for location, columns in foreign.items():
        if len(columns) == 2 and all(location not in each.values() for each in foreign.values()):
            # Each row joins a row of one table and a row of another, whatever other columns it has.
            readings[location], ends = None, ",".join(columns)
            if [found[location].files[0].facts.get(end) for end in ("source", "target")] != list(columns):
                found[location] = _read([location], None, {"columns": ends}, None)
    types = {at: each for at, each in readings.items() if each is not None and not _are_edges(each)}
    names = {location: _type_name(location, reading) for location, reading in types.items()}
    relations = [location for location in locations if location not in types]
    others = {f"{location} alone": each.command for location, each in found.items()}
    references = _references(types, names, foreign)
    command = _joint_commands(list(types.values()), [found[location].command for location in relations])
    if (relations or references) and all(each.ids for each in types.values()):
        words = [word for item in types.items() for word in ("--vertices", _type_table(*item, foreign[item[0]]))]
        values = [_value_columns(found[location].files[0]) for location in relations]
        for location, name, own in zip(relations, _relation_names(relations), values, strict=True):
            ends_of = {column: names[other] for column, other in foreign[location].items()}
            words += ["--relation", _relation(location, name, found[location].files[0], own, names, ends_of)]
        words += [*references, *_merge(max(values, key=len, default=()))]
        command = shell_command("gnnloom", "ingest", "NAME", *words)
        for location, reading in types.items():
            if not _is_plain(reading):
                told = f"then, for the data of {names[location]}"
                others[told] = shell_command(*reading.words("NAME"), "--of-type", names[location])
        if len(relations) == 1 and _have_one_type(found[relations[0]].files[0], list(types.values())):
            data = _joint_features(list(types.values()))
            if data and (edges := found[relations[0]].command):
                return Look(
                    tuple(found[location].files[0] for location in locations),
                    f"{edges} && {data}",
                    {_IF_TYPED: command},
                )
    return Look(tuple(found[location].files[0] for location in locations), command, others)


def _keyed(readings: Mapping[str, VertexReading | None]) -> dict[str, VertexReading]:
    """Tables that seem to be edges from their own key to the key of another table, as tables of vertices.

    Rows of ``orders.csv`` with the columns ``id`` and ``customer_id`` are orders, if there is a table of customers.
    """
    found = dict[str, VertexReading]()
    for location, reading in readings.items():
        if not _are_edges(reading):
            continue
        columns = table_columns(location)
        own = {"id", *_called(_file_type(location))}
        others = {name for other in readings if other != location for name in _called(_file_type(other))}
        if columns and columns[0].lower() in own and others & {each.lower() for each in columns[1:]}:
            given = read_as_vertices(f"{location}:{column_list(columns[1:])}")
            if given is not None and given.ids:
                found[location] = given
    return found


def _called(name: str) -> set[str]:
    """Possible names of columns with ids of a type."""
    return {f"{name.lower()}_id", f"{name.lower()}id"}


def _foreign_keys(readings: Mapping[str, VertexReading | None], found: Mapping[str, Look]) -> dict[str, dict[str, str]]:
    """The columns of each table that have ids of another table of vertices, and this table, by the column.

    A column is named like the other table's column of ids (``account``) or like its type (``account_id`` for ``id`` in
    ``accounts.csv``).
    """
    listed = {at: each for at, each in readings.items() if each is not None and not _are_edges(each) and each.columns}
    keys = dict[str, dict[str, str]]()
    for location in readings:
        reading, refers = listed.get(location), dict[str, str]()
        columns = found[location].files[0].columns if reading is None else reading.columns
        for other, listing in listed.items():
            name = _type_name(other, listing).lower()
            called = {name, *_called(name)} | {listing.ids.lower()} - _ANY_IDS
            own = [each for each in columns if each.lower() in called and (reading is None or each != reading.ids)]
            if other != location and len(own) == 1:
                refers[own[0]] = other
        # In the order of the table.
        keys[location] = {column: refers[column] for column in columns if column in refers}
    return keys


def _references(
    types: Mapping[str, VertexReading], names: Mapping[str, str], foreign: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Options for relations from the rows of tables of vertices to the rows that their columns name."""
    return [
        word
        for location, reading in types.items()
        for column, other in foreign[location].items()
        for word in (
            "--relation",
            f"{names[location]},{names[location]}_{names[other]},{names[other]}={location}:"
            + column_list([reading.ids, column]),
        )
    ]


def _have_one_type(edges: Understood, tables: Sequence[VertexReading]) -> bool:
    """Whether several tables of vertices describe the same vertices, which are the ends of all edges.

    Their ids are in columns of one name, some of the first ids are in all tables, and no end is named after a type.
    """
    ends = [str(edges.facts.get(end, "")) for end in ("source", "target")]
    if not names_ends(*ends) and any(_OF_TYPE.fullmatch(end) for end in ends):
        return False
    shown = [set(_cells(table.understood, table.ids)) for table in tables]
    return bool(shown) and len({table.ids for table in tables}) == 1 and bool(set.intersection(*shown))


def _joint_commands(tables: Sequence[VertexReading], edges: Sequence[str]) -> str:
    """The commands that store edges, and vertex data whose row k belongs to vertex k; empty if rows have ids.

    Args:
        edges: command for each file of edges.
    """
    if not tables or len(edges) > 1 or not all(edges) or any(each.ids for each in tables):
        return ""
    data = _joint_features(tables)
    return " && ".join([*edges, data]) if data else ""


def _joint_features(tables: Sequence[VertexReading]) -> str:
    """The command that stores the vertex data of all tables; empty if the tables need separate commands."""
    options = [option for table in tables for option in table.files]
    if len(set(options)) < len(options) or any(table.before or table.others != tables[0].others for table in tables):
        return ""
    files = {option: file for table in tables for option, file in table.files.items()}
    return replace(tables[0], files=files).command()


def _type_name(location: str, vertices: VertexReading) -> str:
    """Name of the type of a table's vertices."""
    ids = _OF_TYPE.fullmatch(vertices.ids)
    return ids[1].lower() if ids is not None else _file_type(location)


def _file_type(location: str) -> str:
    """Name of the type that a table is named after."""
    return valid_name(Path(location).name.partition(".")[0].removesuffix("s"))


def _is_plain(vertices: VertexReading) -> bool:
    """Whether ``--vertices`` can name all columns of a table of vertices."""
    # A column that lacks values has its own replacement there.
    others = [each for each in vertices.others if each != "--missing mean"]
    return others == ["--by-id"] and vertices.named.keys() == vertices.files.keys()


def _type_table(location: str, vertices: VertexReading, foreign: Collection[str]) -> str:
    """Value of ``--vertices`` for a table: its ids, and its vertex data without ids of other tables."""
    held = [
        f"{column} as {option}{ELSE + 'mean' if column in vertices.lacking else ''}"
        for option, columns in vertices.named.items()
        for column in columns
        if column not in foreign and not _OF_TYPE.fullmatch(column)
    ]
    ids = split_location(f"{location}:{vertices.ids}")[1]
    return f"{_type_name(location, vertices)}={location}:{column_list([*ids, *(held if _is_plain(vertices) else ())])}"


def _relation_names(locations: Sequence[str]) -> list[str]:
    """Names of relations, from the names of files; folders are added to distinguish equal names."""
    stems = [Path(location).name.partition(".")[0] for location in locations]
    words = [
        stem if stems.count(stem) == 1 else str(Path(location).with_name(stem))
        for location, stem in zip(locations, stems, strict=True)
    ]
    names = distinct_names(list(dict.fromkeys(words)))
    return [names[word] for word in words]


def _relation(
    location: str,
    name: str,
    edges: Understood,
    values: Sequence[str],
    known: Mapping[str, str],
    types: Mapping[str, str],
) -> str:
    """Value of ``--relation`` for a table of edges.

    Args:
        name: name of the relation.
        values: see :func:`_value_columns`.
        known: types that have a table of vertices, by the table.
        types: types of columns that have ids of such a table.
    """
    ends = [str(edges.facts.get(end, "")) for end in ("source", "target")]
    default = next(iter(known.values())) if len(known) == 1 else "TYPE"
    source, target = (
        types.get(end) or (each[1].lower() if (each := _OF_TYPE.fullmatch(end)) else default) for end in ends
    )
    # Without a header, the first two columns are read; arrays have no columns.
    is_named = edges.facts.get("header", True) and COLUMNS in formats()[edges.format].options
    columns = column_list([*ends, *values]) if is_named else ""
    return f"{source},{name},{target}={location}{columns and f':{columns}'}"


def _value_columns(edges: Understood) -> list[str]:
    """The weights, times and labels of edges, as parts of a table of a relation."""
    given = next((flag.removeprefix("--columns ").split(",")[2:] for flag in edges.flags if flag.count(",") == 2), [])
    found = dict.fromkeys(["time" if "--times" in edges.flags else "weight"], given[0]) if given else {}
    for name in edges.facts.get("ignored", ()):
        is_time = is_called(name, "times") or find_times(_cells(edges, name)) is not None
        if name not in given and (is_time or is_called(name, "weights")):
            found.setdefault("time" if is_time else "weight", name)
        elif name not in given and _IS_LABEL.fullmatch(name.lower()):
            found.setdefault("label", name)
    return [f"{name} as {role}" for role, name in found.items()]


def _merge(values: Sequence[str]) -> list[str]:
    """The option that keeps equal edges apart, if edges have more than one value."""
    return ["--merge", "keep"] if len(values) > 1 else []


def _cells(edges: Understood, name: str) -> list[str]:
    """Cells of a column in the first rows; empty if the column is not shown."""
    at = edges.columns.index(name) if name in edges.columns else len(edges.columns)
    return [row[at] for row in edges.rows if at < len(row)]


def _two_types(
    locations: Sequence[str], format_name: str | None, understood: Sequence[Understood], *, by_word: bool
) -> dict[str, str]:
    """The command that stores the ends of edges as two types, if the names of their columns suggest two types.

    If the names do not contain ``id``, columns that share an id have one type.

    Args:
        by_word: any word may be a type, such as ``payer`` and ``shop``; each row is certainly an edge.
    """
    # Arrays of a file are not columns.
    has_columns = len(locations) == 1 and understood and COLUMNS in formats()[understood[0].format].options
    first = understood[0] if has_columns else None
    ends = [str(first.facts.get(end, "")) for end in ("source", "target")] if first is not None else []
    found = [_OF_TYPE.fullmatch(end) or (_WORD.fullmatch(end) if by_word else None) for end in ends]
    types = [each[1].lower() for each in found if each is not None]
    if first is None or len(types) < len(found) or types[0] == types[1] or names_ends(*ends):
        return {}
    if types != [end.lower() for end in ends] or set(_cells(first, ends[0])).isdisjoint(_cells(first, ends[1])):
        values = _value_columns(first)
        relation = f"{types[0]},{'_'.join(types)},{types[1]}={locations[0]}:{','.join([*ends, *values])}"
        given = [*(["--format", format_name] if format_name else []), *_merge(values)]
        command = shell_command("gnnloom", "ingest", "NAME", "--relation", relation, *given)
        return {f"if {types[0]} and {types[1]} are two types of vertices": command}
    return {}


def _ratings(locations: Sequence[str], format_name: str | None, understood: Sequence[Understood]) -> dict[str, str]:
    """The command that stores ratings without names of columns as edges between two types, whose ids may be equal."""
    first = understood[0]
    columns = list(zip(*first.rows, strict=True))
    is_one = len(locations) == 1 and "--weights" in first.flags and len(columns) in {3, 4}
    if not is_one or first.facts.get("header", True):
        return {}
    # Edges of one type may have the same columns, but their weights are seldom a few stars.
    are_times = len(columns) < 4 or count_seconds(columns[3])
    if not (are_times and len(set(columns[2])) > 1 and set(columns[2]) <= STARS):
        return {}
    return {_IF_RATINGS: shell_command("gnnloom", "ingest", "NAME", *words_of_ratings(first, format_name))}


def _edges(
    locations: Sequence[str], format_name: str | None, options: dict[str, Any]
) -> tuple[tuple[Understood, ...], str]:
    """Descriptions of how files of edges are read, and the command that stores them."""
    edges = open_edges(format_name, locations, options)
    found = understood_of(edges, locations, format_name or guess_format(locations))
    flags = [
        word for flag in dict.fromkeys(flag for each in found for flag in each.flags) for word in flag.split(" ", 1)
    ]
    answered, given = found, options | _options_of(flags, found[0].format)
    try:
        if given != options:
            edges = open_edges(format_name, locations, given)
            answered = understood_of(edges, locations, found[0].format)
        # A command that would still fail on the files is not shown.
        if any(each.question for each in answered):
            return tuple(found), ""
        if isinstance(edges, TextEdges):
            edges.check_beginning(are_names=any(each.are_names for each in answered))
    except GnnloomError as error:
        first = found[0] if found[0].question else replace(found[0], question=str(error))
        return (first, *found[1:]), ""
    return tuple(found), _command(locations, format_name, options, answered, flags)


def _options_of(flags: Sequence[str], format_name: str) -> dict[str, Any]:
    """Options of a format, from the words of flags with their values."""
    known = {option.name: option for option in formats()[format_name].options}
    found: dict[str, Any] = {}
    for at, word in enumerate(flags):
        option = known.get(word.removeprefix("--").replace("-", "_")) if word.startswith("--") else None
        if option is not None:
            found[option.name] = True if option.kind is bool else flags[at + 1]
    return found


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
    # A user who names the columns has not yet chosen how ids are stored.
    is_compact = any(each.are_names or "--ids compact" in each.flags for each in found)
    words += ["--ids", "compact"] if is_compact and "--ids" not in words else []
    return shell_command(*words)
