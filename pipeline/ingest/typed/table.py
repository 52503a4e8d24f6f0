"""How a table of a relation, or of vertices, is asked for: the ends or the type, the file, and its columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from gnnloom.pipeline.sources.vertex_data.table_columns import split_location
from gnnloom.storage.errors import InputError

#: Source type, name and target type of a relation.
Ends: TypeAlias = tuple[str, str, str]
#: What a column of a relation may hold besides the ends of edges, and the option of formats that reads it.
ROLES: Final[Mapping[str, str]] = {"weight": "weights", "time": "times"}


@dataclass(frozen=True)
class Table:
    """A table as it was asked for, before it is opened.

    Attributes:
        location: a file, URL or glob.
        columns: columns of the ends, and perhaps of a weight or time; or of the ids of vertices; empty for the first.
        role: ``weight`` or ``time`` if there is a column of it, otherwise empty.
        shown: what messages call the table, if it is not a file of the user's.
    """

    location: str
    columns: tuple[str, ...] = ()
    role: str = ""
    shown: str = field(default="", compare=False)

    @classmethod
    def parse(cls, text: str, what: str) -> Table:
        """Read ``clicks.csv:user_id,item_id,amount as weight``.

        Args:
            what: what the table is of, for messages.

        Raises:
            InputError: a column has a role that gnnloom does not know.
        """
        location, columns = split_location(text)
        if not location:
            raise InputError(f"{what}: the file is missing")
        return cls.of_columns(location, columns, what)

    @classmethod
    def of_columns(cls, location: str, columns: Sequence[str], what: str) -> Table:
        """A table with its columns, of which one may be followed by ``as weight`` or ``as time``."""
        names, role = list(columns), ""
        for number, column in enumerate(columns):
            name, separator, found = column.rpartition(" as ")
            if separator:
                if found not in ROLES or number != 2:
                    raise InputError(f"{what}, column {column!r}: expected the third column as weight or as time")
                names[number], role = name.strip(), found
        if len(names) > 2 and not role:
            raise InputError(
                f"{what}, column {names[2]!r}: say what it holds, as in {names[2]!r} as weight, or as time; leave out"
                " other columns"
            )
        return cls(location, tuple(names), role)


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
    """Read tables of vertices as the command line has them, such as ``user=users.csv:id``; a type may have several.

    Raises:
        InputError: a text is not of this form.
    """
    found: dict[str, list[Table]] = {}
    for text in texts:
        name, separator, table = text.partition("=")
        if not separator:
            raise InputError(f"vertices {text!r}: expected TYPE=FILE, as in user=users.csv:id")
        found.setdefault(name.strip(), []).append(Table.parse(table, f"vertices {name.strip()}"))
    return found
