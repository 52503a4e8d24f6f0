"""The description of a graph for GraphStorm's gconstruct: a JSON file with a list of ``nodes`` and one of ``edges``.

Tables in CSV and Parquet are read by the columns that the description names, with features and labels that need
no transformation. Files are named from the folder of the description on, or from the working directory.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from gnnloom.pipeline.ingest.typed.declared import DeclaredTables
from gnnloom.pipeline.ingest.typed.folders.description import (
    Described,
    check_listed,
    local_path,
    read_json,
    sorted_relations,
)
from gnnloom.pipeline.ingest.typed.table import Ends, Table
from gnnloom.storage.artifacts.typed.typed_names import valid_name
from gnnloom.storage.errors import NotFoundError

#: Number of bytes at the beginning of a file that show whether it may be such a description.
_BEGIN: Final = 1 << 12
#: Formats of tables, and their names in gnnloom.
_FORMATS: Final = {"csv": "snap", "parquet": "parquet"}
#: Transformations that leave numbers as they are.
_NONE: Final = (None, "no-op")


def gconstruct_tables(location: str) -> DeclaredTables | None:
    """The tables of a description of gconstruct; None for any other location.

    Raises:
        NotFoundError: a file of a table does not exist.
        InputError: the description does not have what it should, or names tables of other formats.
    """
    path = local_path(location)
    if path is None or path.suffix != ".json" or not path.is_file():
        return None
    with path.open("rb") as file:
        if b"{" not in file.read(_BEGIN):
            return None
    content = read_json(path)
    if not isinstance(content.value, dict) or not (content.has("nodes") and content.has("edges")):
        return None
    if not all(isinstance(content.value[name], list) for name in ("nodes", "edges")):
        return None
    given: dict[Ends, Table] = {}
    types = {each["node_type"].text() for each in content["nodes"].items()}
    for each in content["edges"].items():
        parts = [part.text() for part in each["relation"].items()]
        if len(parts) != 3 or tuple(parts) in given:
            raise each["relation"].error("a source type, relation and target type that no other edges have")
        check_listed(each["relation"], (parts[0], parts[1], parts[2]), types)
        columns = [each[name].text() for name in ("source_id_col", "dest_id_col")]
        given[parts[0], parts[1], parts[2]] = _table(each, columns, of_edges=True)
    relations = sorted_relations(given)
    vertices = []
    for each in content["nodes"].items():
        if not each.has("node_id_col"):
            raise each.error("node_id_col, the column of ids; without it, the vertices of the table are unknown")
        table = _table(each, [each["node_id_col"].text()], of_edges=False)
        vertices.append((valid_name(each["node_type"].text()), table))
    return DeclaredTables(relations, sorted(vertices, key=lambda each: each[0]))


def _table(given: Described, ids: list[str], *, of_edges: bool) -> Table:
    """A table with the columns of ids, and the columns that are stored as they are."""
    how = given["format"]
    name = how["name"].text().lower()
    if name not in _FORMATS:
        raise how["name"].error(f"{' or '.join(_FORMATS)}; convert the table to Parquet")
    locations = [location for each in _listed(given["files"]) for location in _found(each)]
    table = Table.of_columns(locations, [*ids, *_columns(given)], given.place, of_edges=of_edges)
    options: list[tuple[str, Any]] = []
    if name == "csv":
        separator = how["separator"].of(str) if how.has("separator") else ","
        options = [("header", True), ("delimiter", "tab" if separator == "\t" else separator)]
    return replace(table, format=_FORMATS[name], options=tuple(options))


def _columns(given: Described) -> list[str]:
    """Features, and one column of classes, as arguments name them."""
    found: list[str] = []
    for each in given["features"].items() if given.has("features") else ():
        transform = each["transform"]["name"].of(str) if each.has("transform") else None
        if transform in _NONE:
            found += [f"{column} as feature" for column in map(Described.text, _listed(each["feature_col"]))]
    labels = list(given["labels"].items()) if given.has("labels") else []
    if len(labels) == 1 and labels[0].has("label_col") and labels[0]["task_type"].text() == "classification":
        found.append(f"{labels[0]['label_col'].text()} as label")
    return found


def _listed(given: Described) -> list[Described]:
    """The items of a list, or the only one."""
    return list(given.items()) if isinstance(given.value, list) else [given]


def _found(given: Described) -> list[str]:
    """The files of a name or a pattern, in alphabetical order.

    Raises:
        NotFoundError: there are none.
    """
    text = given.text()
    folders = [Path("/")] if Path(text).is_absolute() else [given.path.parent, Path.cwd()]
    for folder in folders:
        if files := sorted(path for path in folder.glob(text.lstrip("/")) if path.is_file()):
            return [str(path) for path in files]
    raise NotFoundError(f"{given.path}, {given.place}: the file {given.value} does not exist")
