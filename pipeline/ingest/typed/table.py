"""Parses arguments that name a table of a relation or of vertices: the ends or the type, the file, and its columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from gnnloom.pipeline.sources.vertex_data.kind import FILE_OPTIONS
from gnnloom.pipeline.sources.vertex_data.table_columns import split_location
from gnnloom.storage.errors import InputError

#: Source type, name and target type of a relation.
Ends: TypeAlias = tuple[str, str, str]
#: What a column of a relation may hold besides the ends of edges, and the option of formats that reads it.
ROLES: Final[Mapping[str, str]] = {"weight": "weights", "time": "times"}
#: What else a column may hold: one of several numbers of an edge, and its class.
FURTHER: Final = ("feature", "label")
#: What a column of kinds holds: the names of relations, or the types of vertices.
KINDS: Final = ("relation", "type")
#: What stands for a name that each row of a table has in a column.
BY_ROW: Final = "*"

#: What the columns of tables of relations, and of vertices, may hold besides ids.
_OF_EDGES: Final = (*ROLES, *FURTHER)
_OF_VERTICES: Final = tuple(option.name for option in FILE_OPTIONS)


@dataclass(frozen=True)
class Table:
    """A table as it was asked for, before it is opened.

    Attributes:
        locations: files, URLs or globs, at least one.
        columns: columns of the ends, and perhaps of a weight or time; or of the ids of vertices; empty for the first.
        role: ``weight`` or ``time`` if there is a column of it, otherwise empty.
        kinds: column with the name of the relation, or the type of the vertex, of each row; empty if all are the same.
        others: role and name of each column that is stored next to the edges, or of the vertices, in the order given.
        several: what separates several types in such a column, of which the first one counts.
        space: of a table of vertices, the space of their ids, if it is not called as their type: ids are distinct
            within a space, whose vertices may have several types.
        headless: files without a header, which have the columns of the first file.
        shown: what messages call the table, if it is not a file of the user's.
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
    others: tuple[tuple[str, str], ...] = ()
    several: str = ""
    space: str = ""
    headless: tuple[str, ...] = ()

    @property
    def location(self) -> str:
        """What messages call the table."""
        return self.shown or (*self.locations, *self.headless)[0]

    @classmethod
    def parse(cls, text: str, what: str, *, of_edges: bool = True) -> Table:
        """Read ``clicks.csv:user_id,item_id,amount as weight``.

        Args:
            what: what the table is of, for messages.
            of_edges: the table has edges, and not vertices.

        Raises:
            InputError: a column has a role that gnnloom does not know.
        """
        location, columns = split_location(text)
        if not location:
            raise InputError(f"{what}: the file is missing")
        return cls.of_columns([location], columns, what, of_edges=of_edges)

    @classmethod
    def of_columns(cls, locations: Sequence[str], columns: Sequence[str], what: str, *, of_edges: bool = True) -> Table:
        """A table with its columns, of which some may be followed by what they hold, such as ``as weight``.

        Raises:
            InputError: a column holds something that gnnloom does not know, or a further column has nothing after it.
        """
        roles, kind = (_OF_EDGES, KINDS[0]) if of_edges else (_OF_VERTICES, KINDS[1])
        ends: list[str] = []
        values: list[tuple[str, str]] = []
        kinds: list[str] = []
        for column in columns:
            name, separator, found = column.rpartition(" as ")
            if not separator:
                ends.append(column)
            elif found == kind:
                kinds.append(name.strip())
            elif found in roles:
                values.append((name.strip(), found))
            else:
                raise InputError(
                    f"{what}, column {column!r}: expected {', '.join(f'as {each}' for each in (*roles, kind))}"
                )
        if len(ends) > 2:
            raise InputError(
                f"{what}, column {ends[2]!r}: say what it holds, as in {ends[2]!r} as weight, or as time; leave out"
                " other columns"
            )
        single = [role for _, role in values if of_edges and role != "feature"]
        if len(single) > len(set(single)) or len(kinds) > 1:
            raise InputError(f"{what}: several columns may hold features, and one column each all else")
        kind = next(iter(kinds), "")
        if len(values) == 1 and values[0][1] in ROLES:
            # A single number is sorted with its edge.
            return cls(tuple(locations), (*ends, values[0][0]), values[0][1], kinds=kind)
        others = tuple((role, name) for name, role in values)
        return cls(tuple(locations), tuple(ends), kinds=kind, others=others)


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
