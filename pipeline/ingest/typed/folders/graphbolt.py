"""The folder of an on-disk dataset of DGL's GraphBolt: a ``metadata.yaml`` that names the files of edges and features.

Types of vertices with their numbers, files of edges of each type (CSV without a header, or NumPy), and features of
vertices as one NumPy file are read. Splits, features of edges and several features of one type are not.
"""

from __future__ import annotations

from typing import Final

from gnnloom.pipeline.ingest.typed.declared import DeclaredTables
from gnnloom.pipeline.ingest.typed.folders.description import (
    Described,
    check_listed,
    description_path,
    pairs_table,
    parse_ends,
    read_text,
    sorted_relations,
)
from gnnloom.pipeline.ingest.typed.table import Ends, Table
from gnnloom.pipeline.ingest.typed.type_vertices import TypeVertices
from gnnloom.pipeline.sources.reading.files import open_file
from gnnloom.storage.artifacts.typed.typed_names import valid_name
from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import reason_of

_NAME: Final = "metadata.yaml"


def graphbolt_tables(location: str) -> DeclaredTables | None:
    """The tables of a GraphBolt dataset, by its folder or its description; None for any other location.

    Raises:
        NotFoundError: a file of the dataset does not exist.
        InputError: the description does not have what it should.
    """
    path = description_path(location, _NAME)
    if path is None:
        return None
    import yaml  # noqa: PLC0415 - only these folders need it

    try:
        content = Described(path, yaml.safe_load(read_text(open_file(str(path)))))  # type: ignore[no-untyped-call]
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"{path}: expected YAML ({reason_of(error)})") from error
    if content.has("graph_topology"):
        raise InputError(f"{path}: a preprocessed dataset; give the original dataset")
    graph = content["graph"]
    sizes = {_typed(each)["type"].text(): each["num"].count() for each in graph["nodes"].items()}
    given: dict[Ends, Table] = {}
    for each in graph["edges"].items():
        ends = parse_ends(_typed(each)["type"], each["type"].text())
        check_listed(each["type"], ends, sizes)
        if ends in given:
            raise each["type"].error("a relation that no other edges have")
        given[ends] = pairs_table([each["path"].file()], each["format"], ",")
    relations = sorted_relations(given)
    features = list(content["feature_data"].items()) if content.has("feature_data") else []
    return DeclaredTables(
        relations,
        [],
        sizes={valid_name(name): count for name, count in sizes.items()},
        data=_data(features),
    )


def _typed(each: Described) -> Described:
    """An entry that has a type.

    Raises:
        InputError: it has none.
    """
    if not each.has("type"):
        raise each.error("a type; a dataset without types is read by its file of edges: `gnnloom ingest NAME FILE`")
    return each


def _data(features: list[Described]) -> list[TypeVertices]:
    """The features of vertices whose type has one file of features."""
    files: dict[str, list[str]] = {}
    for each in features:
        if each["domain"].text() == "node" and each.has("type") and each["format"].text() == "numpy":
            files.setdefault(valid_name(each["type"].text()), []).append(each["path"].file())
    return [TypeVertices.of_files(name, feature=found[0]) for name, found in sorted(files.items()) if len(found) == 1]
