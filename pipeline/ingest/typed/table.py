"""Parses arguments that name a table of a relation or of vertices: the ends or the type, the file, and its columns."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from gnnloom.pipeline.sources.reading.files import shown_location
from gnnloom.pipeline.sources.source import EdgeSource
from gnnloom.pipeline.sources.vertex_data.kind import FILE_OPTIONS
from gnnloom.pipeline.sources.vertex_data.table_columns import ELSE, split_location
from gnnloom.storage.artifacts.typed.typed_names import distinct_names, valid_name
from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import did_you_mean

#: Source type, name and target type of a relation.
Ends: TypeAlias = tuple[str, str, str]
#: Contents of a relation's column other than the ends of edges, with the option of formats that reads each.
ROLES: Final[Mapping[str, str]] = {"weight": "weights", "time": "times"}
#: Further contents of a column: one of several numbers of an edge, and its class.
FURTHER: Final = ("feature", "label")
#: Contents of a column of kinds: the names of relations, or the types of vertices.
KINDS: Final = ("relation", "type")
#: Marks of columns with the types of both ends of an edge, and the prefix of a separator between type and id.
END_TYPES: Final = ("source type", "target type")
_BEFORE: Final = " before "
#: Prefix of the separator that joins a type and an id, if ids are distinct within a type only.
_JOINED: Final = " joined by "
#: Placeholder for a name that each row of a table has in a column.
BY_ROW: Final = "*"

#: Contents of a column of edges, and of one of vertices, other than ids and kinds.
EDGE_ROLES: Final = (*ROLES, *FURTHER)
VERTEX_ROLES: Final = tuple(option.name for option in FILE_OPTIONS)
#: Contents of the columns of tables of relations, and of vertices, other than ids; the kind is the last one.
_OF_EDGES: Final = (*EDGE_ROLES, *END_TYPES, KINDS[0])
_OF_VERTICES: Final = (*VERTEX_ROLES, KINDS[1])
#: Types of stored features of edges; the first one is the default.
FEATURE_TYPES: Final = ("float32", "float16")


@dataclass(frozen=True)
class ValueColumn:
    """A column of a table, besides ids, that is stored next to the edges of a relation or the vertices of a type.

    Attributes:
        role: of edges, ``weight``, ``time``, ``feature`` or ``label``; of vertices, a kind of vertex data.
        name: name or number of the column.
        fill: value of an empty cell, as text; None if an empty cell is an error.
        dtype: type of a stored feature.
        before: of a column with types, the separator that ends the type at the beginning of an id; empty if the whole
            cell is the type.
        joined: of a column with types, the separator that joins a type and an id to a name; empty if ids are distinct
            over all types.
        title: what the column is called if ``name`` is its number; empty if ``name`` says it.
    """

    role: str
    name: str
    fill: str | None = None
    dtype: str = FEATURE_TYPES[0]
    before: str = ""
    joined: str = ""
    title: str = field(default="", compare=False)

    @classmethod
    def parse(cls, text: str, what: str, known_roles: Sequence[str] = _OF_EDGES) -> ValueColumn | None:
        """Read ``amount as weight``, ``fee as float16 feature`` or ``tip as feature else 0``; None for a name alone.

        Args:
            what: the table, for messages.
            known_roles: roles that a column may have. Columns of vertices have no type, and a value for missing cells
                if they have features.

        Raises:
            InputError: the column has a role that gnnloom does not know.
        """
        name, separator, held = text.rpartition(" as ")
        if not separator:
            return None
        described, filled, fill = held.partition(ELSE)
        described, divided, before = described.partition(_BEFORE)
        described, joins, joined = described.partition(_JOINED)
        words = described.split()
        dtype = words.pop(0) if len(words) == 2 and words[0] in FEATURE_TYPES else ""
        role, of_edges = words[0] if len(words) == 1 else described, EDGE_ROLES[0] in known_roles
        if role not in known_roles or (dtype and role != "feature") or (not of_edges and dtype):
            known = did_you_mean(role, known_roles) if role not in known_roles else ""
            expected = ", ".join(f"as {each}" for each in known_roles)
            raise InputError(f"{what}, column {text!r}: expected {expected}{f'; {known}' if known else ''}")
        lacks = (divided and not before.strip()) or (joins and not joined.strip())
        if lacks or (divided + joins and role not in END_TYPES):
            raise InputError(
                f"{what}, column {text!r}: expected `as source type before ::`, `as source type joined by ::`, or"
                " another separator of types"
            )
        if filled and not of_edges and role != "feature":
            raise InputError(f"{what}, column {text!r}: a {role} may be missing; only features take a value after else")
        if filled and (role in (*KINDS, *END_TYPES) or not fill.strip()):
            raise InputError(f"{what}, column {text!r}: expected a value after else, as in `fee as feature else 0`")
        kept = fill.strip() if filled else None
        return cls(role, name.strip(), kept, dtype or FEATURE_TYPES[0], before.strip(), joined.strip())

    @classmethod
    def parse_all(
        cls, columns: str | Sequence[str], what: str, known_roles: Sequence[str] = _OF_EDGES
    ) -> tuple[list[str], list[ValueColumn]]:
        """Read columns, which a text separates by commas: names of columns alone, and columns with values.

        Args:
            what: owner of the columns, for messages.
            known_roles: roles that a column may have.

        Raises:
            InputError: a column has another role.
        """
        given = next(csv.reader([columns], skipinitialspace=True), []) if isinstance(columns, str) else list(columns)
        names: list[str] = []
        values: list[ValueColumn] = []
        for column in given:
            held = cls.parse(column.strip(), what, known_roles)
            if held is None:
                names.append(column.strip())
            elif held.role in (*KINDS, *END_TYPES):
                raise InputError(f"{what}, column {column!r}: the files say which column has the names of {held.role}s")
            else:
                values.append(held)
        return names, values

    def to_json(self) -> list[Any]:
        """The column as a part of the parameters of a graph."""
        more: dict[str, Any] = {} if self.fill is None else {"fill": self.fill}
        more |= {} if self.dtype == FEATURE_TYPES[0] else {"dtype": self.dtype}
        return [self.role, self.name, *([more] if more else [])]

    def in_words(self) -> str:
        """The column for people."""
        if self.before:
            return f"{self.role} in {self.name} before {self.before}"
        if self.joined:
            return f"{self.role} in {self.name}, joined with the id by {self.joined}"
        kind = "" if self.dtype == FEATURE_TYPES[0] else f"{self.dtype} "
        return f"{kind}{self.role} in {self.title or self.name}{'' if self.fill is None else f' (else {self.fill})'}"


@dataclass(frozen=True)
class Table:
    """A table as it was asked for, before it is opened.

    Attributes:
        locations: files, URLs or globs, at least one.
        columns: columns of the ends, and perhaps of a weight or time; or of the ids of vertices; empty for the first.
        role: ``weight`` or ``time`` if there is a column of it, otherwise empty.
        kinds: column with the name of the relation, or the type of the vertex, of each row; empty if all are the same.
        end_types: columns with the types of the sources, and of the targets, of the edges of each row.
        of_edges: a table of vertices has edges, and lists their ends.
        before: separator that ends the type in such a column of a table of vertices; empty if the cell is the type.
        joined: separator that joins the types in such a column and the ids; empty if ids are distinct over all types.
        others: columns that are stored next to the edges, or of the vertices, in the order given.
        takes_first: the first type of a vertex counts if its rows have several.
        several: separator of several types in such a column; the first type counts.
        space: in a table of vertices, the space of the ids, if its name is not the name of the type: ids are distinct
            within a space, whose vertices may have several types.
        headless: files without a header, which have the columns of the first file.
        titles: names of the columns of the files without a header, which another file has.
        width: number of fields of every line of text; 0 if lines may have further fields.
        counts: number of rows that each file states; empty if the files state none.
        opened: the edges, if the description of the table has opened them.
        shown: name of the table in messages, if it is not a file of the user.
        format: format of the files; empty if it is guessed.
        options: names and values of options of the format, for this table alone.
    """

    locations: tuple[str, ...]
    columns: tuple[str, ...] = ()
    role: str = ""
    shown: str = field(default="", compare=False)
    format: str = ""
    options: tuple[tuple[str, Any], ...] = ()
    kinds: str = ""
    others: tuple[ValueColumn, ...] = ()
    takes_first: bool = False
    several: str = ""
    space: str = ""
    headless: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()
    width: int = 0
    counts: tuple[int, ...] = ()
    end_types: tuple[ValueColumn, ...] = ()
    before: str = ""
    joined: str = ""
    of_edges: bool = False
    opened: EdgeSource | None = field(default=None, compare=False)

    @property
    def location(self) -> str:
        """Name of the table in messages."""
        return self.shown or shown_location((*self.locations, *self.headless)[0])

    @classmethod
    def parse(cls, text: str, what: str, *, of_edges: bool = True) -> Table:
        """Read ``clicks.csv:user_id,item_id,amount as weight``.

        Args:
            what: contents of the table, for messages.
            of_edges: the table has edges, and not vertices.

        Raises:
            InputError: a column has a role that gnnloom does not know.
        """
        location, columns = split_location(text.strip())
        if not location:
            raise InputError(f"{what}: the file is missing")
        return cls.of_columns([location], columns, what, of_edges=of_edges)

    @classmethod
    def of_columns(cls, locations: Sequence[str], columns: Sequence[str], what: str, *, of_edges: bool = True) -> Table:
        """A table with its columns; a column may be followed by its role, such as ``as weight``.

        Raises:
            InputError: a column holds something that gnnloom does not know, or a further column has nothing after it.
        """
        ends: list[str] = []
        values: list[ValueColumn] = []
        kinds: list[str] = []
        end_types: list[ValueColumn] = []
        for column in columns:
            held = ValueColumn.parse(column, what, _OF_EDGES if of_edges else _OF_VERTICES)
            if held is None:
                ends.append(column)
            elif held.role in KINDS:
                kinds.append(held.name)
            elif held.role in END_TYPES:
                end_types.append(held)
            else:
                values.append(held)
        if len(ends) > 2:
            raise InputError(
                f"{what}, column {ends[2]!r}: say what it holds, as in {ends[2]!r} as weight, or as time; leave out"
                " other columns"
            )
        if len(kinds) > 1:
            raise InputError(f"{what}: columns {' and '.join(kinds)}: one column has the name of the relation or type")
        if end_types and (len(ends) < 2 or len({each.role for each in end_types}) < len(end_types)):
            raise InputError(f"{what}: expected the columns of both ends, and a column of types for each end at most")
        joined = {each.joined for each in end_types}
        if len(joined) > 1 or (joined > {""} and len(end_types) < 2):
            raise InputError(f"{what}: join the ids of both ends with their types by one separator, or of none")
        table = cls(tuple(locations), tuple(ends), kinds=next(iter(kinds), ""), end_types=tuple(end_types))
        return table.with_values(values, what) if of_edges else replace(table, others=tuple(values))

    def vertex_lists(self, ends: Ends) -> list[tuple[str, Table]]:
        """The lists of the vertices of ends whose types are in the rows: the columns of the ends and of their types.

        Raises:
            InputError: the ends have types of their own.
        """
        found = []
        for each in self.end_types:
            number = END_TYPES.index(each.role)
            space = (ends[0], ends[2])[number]
            if space != BY_ROW:
                raise InputError(
                    f"{self.location}, column {each.name}: the {each.role} is {space} in all rows; write {BY_ROW} for"
                    f" {space}, or leave the column out"
                )
            only = replace(
                self,
                columns=(self.columns[number],),
                kinds=each.name,
                before=each.before,
                joined=each.joined,
                space=space,
                role="",
                others=(),
                end_types=(),
                counts=(),
                of_edges=True,
            )
            found.append((BY_ROW, only))
        return found

    def with_values(self, values: Sequence[ValueColumn], what: str) -> Table:
        """The same table with columns of values.

        Args:
            what: the table, for messages.

        Raises:
            InputError: two columns have a role that one column has, or features have several types.
        """
        roles = [each.role for each in values if each.role != "feature"]
        if len(roles) > len(set(roles)):
            raise InputError(f"{what}: several columns may hold features, and one column each all else")
        if len({each.dtype for each in values if each.role == "feature"}) > 1:
            raise InputError(f"{what}: features of one table have one type; give all of them as float16, or none")
        if len(values) == 1 and values[0].role in ROLES and values[0].fill is None:
            # A single number is sorted with its edge.
            return replace(self, columns=(*self.columns, values[0].name), role=values[0].role)
        return replace(self, others=tuple(values))


def named_relations(triplets: Sequence[Ends]) -> dict[Ends, Ends]:
    """Valid names of relations from other sources: a word of several pairs of types gets the names of the types too.

    >>> list(named_relations([("user", "to", "item"), ("item", "to", "user")]).values())
    [('user', 'user_to_item', 'item'), ('item', 'item_to_user', 'user')]
    """
    times = Counter(word for _, word, _ in triplets)
    names = distinct_names(sorted(times))
    found = {}
    for triplet in triplets:
        source, target = valid_name(triplet[0]), valid_name(triplet[2])
        name = names[triplet[1]]
        found[triplet] = source, name if times[triplet[1]] == 1 else f"{source}_{name}_{target}", target
    return found


def parse_relations(texts: Iterable[str]) -> dict[Ends, Table]:
    """Read relations as the command line has them, such as ``user,buys,item=clicks.csv:user_id,item_id``.

    Raises:
        InputError: a text is not of this form, or two are of one relation.
    """
    found: dict[Ends, Table] = {}
    for text in texts:
        names, separator, table = text.partition("=")
        ends = tuple(name.strip() for name in names.split(","))
        if not separator or len(ends) != 3:
            raise InputError(f"relation {text!r}: expected SOURCE,NAME,TARGET=FILE, as in user,buys,item=clicks.csv")
        if (ends[0], ends[1], ends[2]) in found:
            raise InputError(f"relation {names!r}: given twice; a relation has one table, which may be a glob")
        found[ends[0], ends[1], ends[2]] = Table.parse(table, f"relation {ends[1]}")
    return found


def parse_vertices(texts: Iterable[str]) -> dict[str, list[Table]]:
    """Read tables of vertices as the command line has them, such as ``user=users.csv:id,age as feature``.

    A type may have several.

    Raises:
        InputError: a text is not of this form.
    """
    found: dict[str, list[Table]] = {}
    for text in texts:
        name, separator, table = text.partition("=")
        if not separator:
            raise InputError(f"vertices {text!r}: expected TYPE=FILE, as in user=users.csv:id")
        found.setdefault(name.strip(), []).append(Table.parse(table, f"vertices {name.strip()}", of_edges=False))
    return found
