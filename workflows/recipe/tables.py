"""The lists ``[[relations]]`` and ``[[vertices]]`` of a recipe: the tables that become a graph with types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from gnnloom.pipeline.ingest.typed.table import BY_ROW, FEATURE_TYPES, Ends, Table
from gnnloom.pipeline.ingest.typed.tables import TypedTables
from gnnloom.pipeline.sources.format import COLUMNS, TIMES, WEIGHTS, Format, formats, merge_options
from gnnloom.pipeline.sources.vertex_data.table_columns import ELSE
from gnnloom.storage.artifacts.typed.typed_names import check_relation_names, check_type_name
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Option, option
from gnnloom.workflows.recipe.sources import whole_path

#: Names of the lists.
LISTS: Final = ("relations", "vertices")
#: Options of formats that other keys replace.
_OWN_KEYS: Final = frozenset({COLUMNS.name, WEIGHTS.name, TIMES.name})


@dataclass(frozen=True, kw_only=True)
class _TableSection:
    """Common keys of the tables in both lists: files, their format, and options of the format."""

    path: tuple[str, ...] = option(text="One or more files, URLs or globs.", kind=tuple[str, ...])
    format: str | None = option(None, "Name of the format; guessed from the names of the files by default.")

    def __post_init__(self) -> None:
        if not self.path or "" in self.path:
            raise InputError("path: expected the name of a file, found an empty text")
        if self.format is not None and self.format not in _table_formats():
            raise InputError(f"format {self.format!r}: expected one of {', '.join(_table_formats())}")

    def anywhere(self, place: Callable[[str], str] = whole_path) -> Self:
        """The same table with absolute paths, so that it works from any current folder.

        Args:
            place: writes a location.
        """
        return replace(self, path=tuple(map(place, self.path)))

    def _table(self, columns: Sequence[str], what: str) -> Table:
        table = Table.of_columns(self.path, columns, what, of_edges=isinstance(self, RelationSection))
        names = merge_options(table_options())
        given = tuple((name, value) for name in names if (value := getattr(self, name, None)) is not None)
        return replace(table, format=self.format or "", options=given)


@dataclass(frozen=True, kw_only=True)
class RelationSection(_TableSection):
    """``[[relations]]``: the edges of a relation.

    ``read.py`` adds a key for every option of the formats of tables.
    """

    source: str = option(text="Type of the vertices that edges come from; `*` if lists name the type of each vertex.")
    name: str = option(text="Name of the relation: letters, digits and underscores; `*` if each edge has one.")
    target: str = option(text="Type of the vertices that edges lead to; `*` if lists name the type of each vertex.")
    columns: tuple[str, ...] = option(
        (), "Columns with the ids of sources and targets; the first two by default.", kind=tuple[str, ...]
    )
    weight: str | None = option(
        None, "Column with the weights of the edges; of it and other columns, `amount else 0` fills empty cells."
    )
    time: str | None = option(None, "Column with the times of the edges; set `merge` in `[dataset]` as well.")
    features: tuple[str, ...] = option(
        (), "Columns with features of the edges; set `merge` in `[dataset]` as well.", kind=tuple[str, ...]
    )
    feature_type: str | None = option(
        None, "Type of the stored features.", choices=FEATURE_TYPES, default_text="float32"
    )
    label: str | None = option(None, "Column with the class of each edge; set `merge` in `[dataset]` as well.")
    name_column: str | None = option(None, 'Column with the name of the relation of each edge, with `name = "*"`.')

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, what in (("source", "type"), ("name", "relation"), ("target", "type")):
            _check_named(key, getattr(self, key), what)
        if (self.name == BY_ROW) != (self.name_column is not None):
            raise InputError(f'name_column: give it along with name = "{BY_ROW}", and with no other name')
        if self.columns and len(self.columns) != 2:
            raise InputError(f"columns: expected the columns of both ends, found {', '.join(self.columns)}")
        for key in ("weight", "time", "features", "label", "name_column"):
            if getattr(self, key) and not self.columns:
                raise InputError(f"{key}: name the columns of both ends too, under the key columns")

    @property
    def ends(self) -> Ends:
        return self.source, self.name, self.target

    def table(self) -> Table:
        """The table as it is opened."""
        feature = "feature" if self.feature_type is None else f"{self.feature_type} feature"
        held = [("weight", self.weight), ("time", self.time), *((feature, column) for column in self.features)]
        held += [("label", self.label), ("relation", self.name_column)]
        values = [_held(column, role) for role, column in held if column is not None]
        return self._table([*self.columns, *values], f"relation {self.name}")


@dataclass(frozen=True, kw_only=True)
class ListSection(_TableSection):
    """``[[vertices]]``: a list of the vertices of a type.

    ``read.py`` adds a key for every option of the formats of tables.
    """

    type: str = option(text="Type of the vertices.")
    id: str | None = option(None, "Column with the ids; the first one by default.")
    type_column: str | None = option(None, 'Column with the type of each vertex, with `type = "*"`.')
    features: tuple[str, ...] = option(
        (),
        "Columns with features of the vertices; `age else 0` and `age else mean` fill empty cells.",
        kind=tuple[str, ...],
    )
    label: str | None = option(None, "Column with the class of each vertex.")
    target: str | None = option(None, "Column with a number to predict for each vertex.")
    split: str | None = option(None, "Column with the split that each vertex belongs to.")

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_named("type", self.type, "type")
        if (self.type == BY_ROW) != (self.type_column is not None):
            raise InputError(f'type_column: give it along with type = "{BY_ROW}", and with no other type')
        if self.type_column is not None and self.id is None:
            raise InputError("type_column: name the column of ids too, under the key id")

    def table(self) -> Table:
        """The table as it is opened."""
        values = [] if self.type_column is None else [f"{self.type_column} as type"]
        values += [_held(column, "feature") for column in self.features]
        single = {role: getattr(self, role) for role in ("label", "target", "split")}
        values += [_held(column, role) for role, column in single.items() if column is not None]
        return self._table([*([] if self.id is None else [self.id]), *values], f"vertices {self.type}")


def _held(column: str, role: str) -> str:
    """A column with its role and the value for empty cells, in the notation of the command line."""
    name, separator, fill = column.partition(ELSE)
    return f"{name} as {role}{separator}{fill}"


def _check_named(key: str, name: str, what: str) -> None:
    """Check a name, which the rows may give instead.

    Raises:
        InputError: it is not valid.
    """
    if name != BY_ROW:
        try:
            check_type_name(name, what)
        except InputError as error:
            # The document finds the line of a key by the name at the beginning of the message.
            raise InputError(f"{key}: {error}") from error


def _table_formats() -> Mapping[str, Format]:
    return {name: known for name, known in formats().items() if not known.one_location}


def table_options() -> Mapping[str, Sequence[Option]]:
    """Options of the formats of tables that are keys of a table, by the name of the format."""
    return {
        name: tuple(each for each in known.options if each.name not in _OWN_KEYS)
        for name, known in _table_formats().items()
    }


def open_tables(
    relations: Sequence[RelationSection], vertices: Sequence[ListSection], *, any_name: bool
) -> TypedTables:
    """Open the tables of a recipe.

    Args:
        any_name: treat all ids as names, even if they look like numbers.

    Raises:
        InputError, NotFoundError: as :meth:`TypedTables.of`.
    """
    check_relation_names(each.name for each in relations if each.name != BY_ROW)
    listed: dict[str, list[Table]] = {}
    for each in vertices:
        listed.setdefault(each.type, []).append(each.table())
    tables = [(each.ends, each.table()) for each in sorted(relations, key=lambda each: each.name)]
    lists = [(name, table) for name, found in sorted(listed.items()) for table in found]
    return TypedTables.of(tables, lists, {}, any_name=any_name)
