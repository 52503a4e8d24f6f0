"""Tables whose headers describe their columns, with the words of Neo4j's import or of Neptune's loader.

Neo4j: ``:ID(Person)``, ``personId:ID``, ``:LABEL``; ``:START_ID(Person)``, ``:END_ID(Movie)``, ``:TYPE``. What is in
parentheses is an id space; without it, ids are distinct over all files. Only the first file of a table needs a header,
and that file may have nothing else. Neptune: ``~id``, ``~label``, ``~from``, ``~to``. Other columns of edges and of
vertices, such as ``amount:float``, are read if the user says what they hold, by the name before the colon. A column of
types that is said to hold labels is not a column of types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, Final

from gnnloom.pipeline.ingest.typed.options import UNKNOWN
from gnnloom.pipeline.ingest.typed.table import (
    BY_ROW,
    EDGE_ROLES,
    FEATURE_TYPES,
    ROLES,
    VERTEX_ROLES,
    Ends,
    Table,
    ValueColumn,
)
from gnnloom.pipeline.ingest.typed.tables import TypedTables
from gnnloom.pipeline.ingest.typed.type_vertices import TypeVertices
from gnnloom.pipeline.sources.format import COLUMNS
from gnnloom.pipeline.sources.reading.coding import without_suffix
from gnnloom.pipeline.sources.reading.files import SourceFile, is_folder, open_files
from gnnloom.pipeline.sources.reading.text_layout import Sample, Stated, declared_names
from gnnloom.pipeline.sources.vertex_data.table_columns import is_parquet
from gnnloom.storage.artifacts.typed.typed_names import valid_name
from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import did_you_mean

#: Contents of a column of a file of edges or of vertices.
_ROLES: Final = tuple(dict.fromkeys((*EDGE_ROLES, *VERTEX_ROLES)))
#: A column of Neo4j, such as ``personId:ID(Person){id-type: long}``.
_COLUMN: Final = re.compile(r"[^:]*:(ID|START_ID|END_ID|TYPE|LABEL)(?:\(([^)]*)\))?(?:\{.*\})?", re.IGNORECASE)
#: The Neo4j columns that correspond to columns of Neptune.
_NEPTUNE: Final[Mapping[str, str]] = {"~id": "ID", "~from": "START_ID", "~to": "END_ID", "~label": "LABEL"}
#: A column of lists of words, such as ``tags:string[]``.
_WORD_LISTS: Final = re.compile(r"[^:]*:(string|char)\[\]", re.IGNORECASE)
#: Separator of labels in a cell; the first label counts.
_SEVERAL: Final = ";"
#: The end of the name of a file that says which part of a table it is.
_PART: Final = re.compile(r"([-_.]*(header|headers|part|nodes|edges|rels|relationships|\d+))+$", re.IGNORECASE)


@dataclass(frozen=True)
class Header:
    """Roles of the columns according to a header.

    Attributes:
        file: the file that begins with it.
        fields: names of all columns.
        words: number of the column of each word, from 0.
        spaces: id space of each word that names one.
        has_rows: the file has more than the header.
    """

    file: SourceFile
    fields: tuple[str, ...]
    words: Mapping[str, int]
    spaces: Mapping[str, str]
    has_rows: bool

    @classmethod
    def of(cls, file: SourceFile, sample: Sample) -> Header | None:
        """The header of a file; None if it has none that says what its columns hold.

        Raises:
            InputError: a word is there twice, or one of two is missing.
        """
        fields = sample.rows[0].fields if sample.rows else ()
        words: dict[str, int] = {}
        spaces: dict[str, str] = {}
        for number, title in enumerate(fields):
            found = _COLUMN.fullmatch(title)
            word = found[1].upper() if found else _NEPTUNE.get(title.lower(), "")
            if word in words:
                raise InputError(f"{file.location}, line {sample.rows[0].line}: two columns have {word}; name one only")
            if word:
                words[word] = number
                spaces |= {word: found[2].strip()} if found and found[2] else {}
        if not words.keys() & {"ID", "START_ID", "END_ID"}:
            return None
        if ("START_ID" in words) != ("END_ID" in words):
            missing = "END_ID" if "START_ID" in words else "START_ID"
            raise InputError(f"{file.location}, line {sample.rows[0].line}: no column has {missing}, the other end")
        if "START_ID" in words:
            # Edges of Neptune have ids and labels of their own.
            words.pop("ID", None)
            words |= {"TYPE": words.pop("LABEL")} if "LABEL" in words and "TYPE" not in words else {}
        return cls(file, fields, words, spaces, len(sample.rows) > 1)

    @property
    def are_edges(self) -> bool:
        return "START_ID" in self.words

    @property
    def kinds(self) -> str:
        """Number of the column with the kind of each row, from 1; empty if there is none."""
        number = self.words.get("TYPE" if self.are_edges else "LABEL")
        return "" if number is None else str(number + 1)

    @property
    def columns(self) -> tuple[str, ...]:
        """Numbers of the columns of ids, from 1."""
        words = ("START_ID", "END_ID") if self.are_edges else ("ID",)
        return tuple(str(self.words[word] + 1) for word in words)

    def with_values(self, wanted: Sequence[ValueColumn]) -> Header:
        """The same header without its column of types or relations, if the user says that it holds something else.

        Raises:
            InputError: a column of ids should hold values.
        """
        kept = {word: at for word, at in self.words.items() if not any(at in self._found(each) for each in wanted)}
        if missing := next((word for word in ("ID", "START_ID", "END_ID") if word in self.words.keys() - kept), None):
            at = self.words[missing]
            raise InputError(
                f"column {self.fields[at]}: {self.file.location} has its ids in this column, and ids cannot be values"
            )
        return replace(self, words=kept)

    def values(self, wanted: Sequence[ValueColumn], *, is_read: bool) -> list[ValueColumn]:
        """The columns with values of edges, or of vertices, that the file has.

        Args:
            is_read: a file of the table begins with the header, and has rows.
        """
        found = [each for each in wanted if self.takes(each)]
        is_sorted = len(found) == 1 and found[0].role in ROLES and found[0].fill is None
        if self.are_edges and not is_sorted and is_read:
            return found
        # A reader of edges and a single number expects numbers of all columns, from 1. A header of its own is not read
        # with the rows.
        return [
            replace(each, name=self.fields[at])
            if not self.are_edges and is_read
            else replace(each, name=str(at + 1), title=each.name)
            for each in found
            for at in self._found(each)
        ]

    def takes(self, value: ValueColumn) -> bool:
        """Whether the file has a column with values, and its rows can have such values."""
        return value.role in (EDGE_ROLES if self.are_edges else VERTEX_ROLES) and bool(self._found(value))

    def _found(self, value: ValueColumn) -> list[int]:
        return declared_names(self.fields, value.name)

    def space(self, word: str) -> str:
        """The id space of a column."""
        return self.spaces.get(word, BY_ROW)


@dataclass(frozen=True)
class DeclaredTables:
    """The tables of some files, as their headers or their format describe them.

    Attributes:
        relations: tables by source type, name and target type.
        vertices: tables by type.
        format: format of the files; empty if it is guessed.
        sizes: number of the vertices of types that have ids from 0.
        data: features of vertices that tables of vertices do not have.
        unlisted: the errors for ids that no table of vertices has, though there are such tables.
    """

    relations: Sequence[tuple[Ends, Table]]
    vertices: Sequence[tuple[str, Table]]
    format: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    data: Sequence[TypeVertices] = ()
    unlisted: Sequence[str] = ()

    @classmethod
    def of(cls, locations: Sequence[str], options: Mapping[str, Any]) -> DeclaredTables | None:
        """The tables of some files; None if no file has a header that says that it has edges.

        Args:
            options: options of the format of texts; ``columns`` has columns of edges or vertices with what they hold,
                such as ``amount as weight``.

        Raises:
            NotFoundError: a file does not exist.
            InputError: only some files have such headers, a header is not complete, or no file has one of the columns.
        """
        names, values = ValueColumn.parse_all(options.get("columns") or (), "columns", _ROLES)
        if names:
            # A user who names the columns of ids does not ask for the headers.
            return None
        if any(map(is_folder, locations)):
            return None
        between = options.get("delimiter") or ""
        stated = Stated(separator=b"\t" if between == "tab" else between.encode(), comment="none")
        headers: list[Header] = []
        others: list[tuple[SourceFile, int]] = []
        for file in open_files(locations):
            if is_parquet(file.location) or not file.size:
                return None
            try:
                sample = Sample.of(file, stated)
            except InputError:
                return None
            header = Header.of(file, sample)
            if header is None:
                others.append((file, len(sample.rows[0].fields) if sample.rows else 0))
            else:
                headers.append(header)
        if not any(each.are_edges for each in headers):
            return None
        _check_values(headers, values)
        return cls._grouped([each.with_values(values) for each in headers], others, values)

    @classmethod
    def _grouped(
        cls, headers: Sequence[Header], others: Sequence[tuple[SourceFile, int]], values: Sequence[ValueColumn]
    ) -> DeclaredTables:
        """Group files into tables: files with equal headers, and files without a header with the file of their name."""
        headless: dict[SourceFile, list[str]] = {}
        for file, width in others:
            headless.setdefault(_header_of(file, width, headers).file, []).append(file.location)
        # A table has the name of its file, unless its rows or its ids name it.
        groups: dict[tuple[Any, ...], list[Header]] = {}
        for each in headers:
            groups.setdefault((each.fields, "" if each.kinds else _stem(each.file)), []).append(each)
        lists = {each.space("ID") for each in headers if not each.are_edges}
        relations: list[tuple[Ends, Table]] = []
        vertices: list[tuple[str, Table]] = []
        unlisted: list[str] = []
        for group in groups.values():
            first = group[0]
            table = Table(
                tuple(each.file.location for each in group if each.has_rows),
                first.columns,
                kinds=first.kinds,
                several="" if first.are_edges or not first.kinds else _SEVERAL,
                headless=tuple(location for each in group for location in headless.get(each.file, ())),
                titles=first.fields,
                options=(("header", True),),
                space="" if first.are_edges else first.space("ID"),
            )
            if not table.locations and not table.headless:
                raise InputError(f"{first.file.location}: a header without rows; name the files with its rows too")
            if first.are_edges:
                unlisted += filter(None, (_unlisted(first, word, lists) for word in ("START_ID", "END_ID")))
                name = BY_ROW if first.kinds else valid_name(_stem(first.file))
                table = table.with_values(first.values(values, is_read=bool(table.locations)), first.file.location)
                relations.append(((first.space("START_ID"), name, first.space("END_ID")), table))
            else:
                table = replace(table, others=tuple(first.values(values, is_read=bool(table.locations))))
                called = first.space("ID") if "ID" in first.spaces else _stem(first.file)
                vertices.append((BY_ROW if first.kinds else valid_name(called), table))
        tables = sorted(relations, key=lambda each: each[0]), sorted(vertices, key=lambda each: each[0])
        return cls(*tables, "snap", unlisted=unlisted)

    def open(self, options: Mapping[str, Any], *, any_name: bool = False, unknown: str = UNKNOWN[0]) -> TypedTables:
        """Open the tables; other arguments and errors as for :meth:`TypedTables.open`.

        Args:
            unknown: treatment of edges whose ends no table lists.
        """
        if self.unlisted and unknown != "add":
            raise InputError(f"{self.unlisted[0]}; `--unknown add` takes the ids of the edges as vertices")
        # The tables name their columns.
        others = {name: value for name, value in options.items() if name != COLUMNS.name}
        how = others, self.format or None
        tables = TypedTables.of(self.relations, self.vertices, *how, any_name=any_name, sizes=self.sizes)
        return replace(tables, data=(*tables.data, *self.data))


def _check_values(headers: Sequence[Header], values: Sequence[ValueColumn]) -> None:
    """Refuse columns that no file has, that a file has twice, or that have something else.

    Raises:
        InputError: there is such a column.
    """
    for value in values:
        found = [(each, declared_names(each.fields, value.name)) for each in headers if each.takes(value)]
        for each, numbers in found:
            where = f"{each.file.location}, line 1"
            if len(numbers) > 1:
                raise InputError(f"{where}: two columns are called {value.name}")
            if value.role == "feature" and _WORD_LISTS.fullmatch(each.fields[numbers[0]]):
                raise InputError(
                    f"{where}, column {value.name}: lists of words are not features; give numbers or words"
                )
            if not each.are_edges and (value.dtype != FEATURE_TYPES[0] or (value.fill and value.role != "feature")):
                raise InputError(
                    f"{where}, column {value.name}: features of vertices have the type of `--store`, and only features"
                    " of vertices have a value for missing ones"
                )
        if not found:
            raise _no_column(headers, value)


def _no_column(headers: Sequence[Header], value: ValueColumn) -> InputError:
    """The error for a column that no file has."""
    of_edges, of_vertices = value.role in EDGE_ROLES, value.role in VERTEX_ROLES
    files = [each for each in headers if (of_edges and each.are_edges) or (of_vertices and not each.are_edges)]
    known = {field.partition(":")[0] for each in files for field in each.fields} - {"", *_NEPTUNE}
    meant = did_you_mean(value.name, sorted(known), "they have")
    what = "" if of_edges and of_vertices else " of edges" if of_edges else " of vertices"
    return InputError(f"column {value.name}: no file{what} has it{f'; {meant}' if known else ''}")


def _unlisted(header: Header, word: str, lists: set[str]) -> str:
    """The error for edges between ids that no table of vertices has; empty if there is one, or there are no tables.

    Raises:
        InputError: the ids have no name, and the ids of all tables have one.
    """
    space = header.space(word)
    if lists and space not in lists:
        shown = f":{word}({space})" if space != BY_ROW else f":{word} without a name in parentheses"
        known = [each for each in sorted(lists) if each != BY_ROW]
        meant = did_you_mean(space, known, "there are") if known else "there is :ID"
        message = f"{header.file.location}, line 1: {shown}, and no table of vertices has such ids; {meant}"
        if space == BY_ROW:
            raise InputError(message)
        return message
    return ""


def _stem(file: SourceFile) -> str:
    """The name of a file without its suffixes, and without a word that marks a header or a part."""
    name = PurePath(without_suffix(file.location)).stem
    return _PART.sub("", name) or name


def _header_of(file: SourceFile, width: int, headers: Sequence[Header]) -> Header:
    """The header for a file without one: the only header with its columns, or the header of a file with its name.

    Raises:
        InputError: no header has its number of columns, or several do.
    """
    fitting = [each for each in headers if len(each.fields) == width]
    alike = [each for each in fitting if _stem(each.file).lower() == _stem(file).lower()]
    found = alike or fitting
    if len(found) != 1:
        what = f"{len(found)} files could have its header" if found else "no other file has the header of such columns"
        raise InputError(
            f"{file.location}: its first line does not name its {width} columns, and {what}; give both files one name,"
            " as in persons-header.csv and persons-1.csv"
        )
    return found[0]
